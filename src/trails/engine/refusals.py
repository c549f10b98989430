"""Refused calls, summed up: whoever is refused again and again leaves a few records, not one each.

A refusal costs its caller nothing, so it must not cost the log more the more there are. The first
of a kind is kept as it is; those that follow within a minute become one record, which tells how
many there were, and when the first and the last of them was. Names can be invented: of those that
an actor asks for, a few are kept one by one, and the others together.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from trails.engine.spelling import spell_text, spell_time
from trails.model.history import Activity
from trails.model.ids import uuid7
from trails.model.reports import Finding

WINDOW: Final = 60 * 1_000_000_000
"""Nanoseconds within which refusals of a kind become one record."""
NAMES: Final = 16
"""Kinds that are kept one by one in that time, for an actor and what it is told."""
OTHERS: Final = "(other names)"
"""What the rest of them are called."""
_MANY: Final = 100
"""Refusals after which somebody should look at whoever asks."""


class Kind(NamedTuple):
    """What refusals have in common that are summed up."""

    actor: str
    told: str
    """What the caller was told, which may not be the true reason."""
    name: str
    about: str = ""
    """What a name alone does not say: the resource that was to be read."""


class Sum:
    """Refusals of one kind that have no record yet."""

    __slots__ = ("_detail", "_first", "_id", "_label", "_last", "_reasons", "begun", "calls")

    def __init__(self, label: str, detail: str, begun: int) -> None:
        self._label = label
        self._detail = detail
        self.begun = begun
        """When the first of all was, from which the time counts."""
        self.forget()

    def forget(self) -> None:
        """Begin anew: what was summed up has a record."""
        self._id = uuid7()
        self.calls = self._first = self._last = 0
        self._reasons: Counter[str] = Counter()

    def add(self, reason: str, started: int, ended: int) -> None:
        """Count one more."""
        self._first = min(self._first, started) if self.calls else started
        self._last = max(self._last, ended)
        self.calls += 1
        self._reasons[reason] += 1

    def activity(self, kind: Kind) -> Activity:
        """One record of all; where there were several reasons, one that the caller was not told."""
        reasons = sorted(self._reasons, key=lambda each: (each == kind.told, each))
        several = ", ".join(f"{self._reasons[each]} {each}" for each in reasons)
        return Activity(
            self._id,
            spell_text(kind.actor),
            spell_text(kind.name),
            spell_time(self._first),
            spell_time(self._last),
            reasons[0],
            self._label,
            spell_text(several if len(reasons) > 1 else self._detail),
            self.calls,
        )


class Refusals:
    """What was refused lately, on one graph."""

    def __init__(self) -> None:
        self._sums: dict[Kind, Sum] = {}
        self._names: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def take(
        self, kind: Kind, label: str, reason: str, detail: str, started: int, ended: int
    ) -> bool:
        """Count a refusal, unless it is the first of its kind: then it wants a record of its own.

        ``label`` is what activities call a kind of call, ``reason`` the true one.
        """
        with self._lock:
            found = self._sums.get(kind)
            if found is None:
                asked = kind.actor, kind.told
                if self._names[asked] < NAMES:
                    self._names[asked] += 1
                    self._sums[kind] = Sum(label, detail, started)
                    return True
                kind = Kind(*asked, OTHERS, OTHERS)
                found = self._sums.get(kind)
                if found is None:
                    found = self._sums[kind] = Sum(label, "not kept one by one", started)
            found.add(reason, started, ended)
            return False

    def activities(self) -> list[Activity]:
        """The records that are due when their time is over, as they would be now."""
        with self._lock:
            return [each.activity(kind) for kind, each in self._sums.items() if each.calls]

    def settle(self, now: int | None = None) -> list[Activity]:
        """The records of what is summed up: of all, or of those whose time is over by ``now``."""
        made = []
        with self._lock:
            for kind, each in list(self._sums.items()):
                over = now is not None and now - each.begun >= WINDOW
                if each.calls and (over or now is None):
                    made.append(each.activity(kind))
                    each.forget()
                if over:
                    self._drop(kind)
        return made

    def _drop(self, kind: Kind) -> None:
        del self._sums[kind]
        if kind.about != OTHERS:
            self._names[kind[:2]] -= 1
            if not self._names[kind[:2]]:
                del self._names[kind[:2]]

    def pause(self, now: int) -> float | None:
        """Seconds until a time is over; None where nothing is counted."""
        with self._lock:
            if not self._sums:
                return None
            return max(0.05, (min(each.begun for each in self._sums.values()) + WINDOW - now) / 1e9)


def examine_refusals(lately: Iterable[Activity]) -> Iterator[Finding]:
    """Who was refused so often that it is worth a look, by the latest activities."""
    refused: dict[str, list[Activity]] = {}
    for each in lately:
        if each.calls > 1 and each.outcome != "ok":
            refused.setdefault(each.actor, []).append(each)
    for actor, found in sorted(refused.items()):
        outcomes: Counter[str] = Counter()
        for each in found:
            outcomes[each.outcome] += each.calls
        if outcomes.total() < _MANY:
            continue
        told = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.most_common())
        since, until = min(each.started for each in found), max(each.ended for each in found)
        yield Finding(
            "refusals",
            "note",
            f"{actor} was refused {outcomes.total():,} calls ({told}) from {since} to {until}",
            "see what it asked for in trails://prov/latest, and take its token back if it should "
            "not be asking: trails token revoke",
        )
