"""Activities: every call leaves a record in the log, whatever its outcome.

A call that made a commit is recorded with it, as of that moment: its activity survives whatever the
commit does. All activities are written together, a few at a time, so that no call waits for the
disk a second time; a crash may lose the last of those that made no commit, and nothing else. A call
that changed only branches, or failed after its commit, waits for its activity.

Refused calls cost their caller nothing, so they must not fill the log. The first of a kind is kept
as it is; those that follow within a minute become one record with their number and the times of the
first and the last. Names can be invented: of those that an actor asks for, a few are kept one by
one, and the others together.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from time import monotonic, time_ns
from typing import Final, NamedTuple

import msgspec

from trails.errors import StorageError, StorageFullError
from trails.log.activities import matches
from trails.log.protocol import Log
from trails.model.actors import Actor
from trails.model.history import Activity, ActivityArchive, ActivityQuery
from trails.model.iris import uuid7
from trails.model.metrics import CallCounter
from trails.model.origins import ORIGIN
from trails.model.upkeep import KEEP_ALL, Finding, Retention, flag

_LONGEST: Final = 500


def spell_text(text: str) -> str:
    """A text that can be written, cut to a length: half of a surrogate pair can't be."""
    text = text[:_LONGEST]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def spell_time(at: int) -> str:
    """A time in nanoseconds since 1970."""
    seconds, rest = divmod(at, 1_000_000_000)
    return f"{_spell_second(seconds)}.{rest // 1_000_000:03}Z"


@lru_cache(maxsize=16)
def _spell_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


WINDOW: Final = 60 * 1_000_000_000
"""Nanoseconds within which refusals of a kind become one record."""
NAMES: Final = 16
"""Kinds that are kept one by one in that time, for an actor and an outcome."""
OTHERS: Final = "(other names)"
"""What the rest of them are called."""
_MANY: Final = 100
"""Refusals after which an administrator should look at the actor."""


class RefusalKind(NamedTuple):
    """What refusals have in common that are summed up."""

    actor: str
    answered: str
    """The outcome that the caller got, which may hide the true reason."""
    name: str
    about: str = ""
    """What a name alone does not say: the resource that was to be read."""


class Sum:
    """Refusals of one kind that have no record yet."""

    __slots__ = (
        "_detail",
        "_first",
        "_id",
        "_label",
        "_last",
        "_reasons",
        "_surfaces",
        "begun",
        "calls",
    )

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
        self._surfaces: set[str] = set()

    def add(self, reason: str, started: int, ended: int) -> None:
        """Count one more."""
        self._first = min(self._first, started) if self.calls else started
        self._last = max(self._last, ended)
        self.calls += 1
        self._reasons[reason] += 1
        self._surfaces.add(ORIGIN.get().surface)

    def activity(self, kind: RefusalKind) -> Activity:
        """One record of all; of several reasons, first one that the caller does not know."""
        reasons = sorted(self._reasons, key=lambda each: (each == kind.answered, each))
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
            ",".join(sorted(self._surfaces)),
        )


class Refusals:
    """What was refused lately, on one graph."""

    def __init__(self) -> None:
        self._sums: dict[RefusalKind, Sum] = {}
        self._names: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def take(
        self, kind: RefusalKind, label: str, reason: str, detail: str, started: int, ended: int
    ) -> bool:
        """Count a refusal, unless it is the first of its kind: then it wants a record of its own.

        ``label`` is what activities call a kind of call, ``reason`` the true one.
        """
        with self._lock:
            found = self._sums.get(kind)
            if found is None:
                asked = kind.actor, kind.answered
                if self._names[asked] < NAMES:
                    self._names[asked] += 1
                    self._sums[kind] = Sum(label, detail, started)
                    return True
                kind = RefusalKind(*asked, OTHERS, OTHERS)
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

    def _drop(self, kind: RefusalKind) -> None:
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
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.most_common())
        since, until = min(each.started for each in found), max(each.ended for each in found)
        yield flag(
            "refusals",
            f"{actor} was refused {outcomes.total():,} calls ({counts}) from {since} to {until}",
            "see what it asked for in trails://prov/latest, and take its token back if it should "
            "not be asking: trails token revoke",
            where=actor,
        )


_PAUSE: Final = 0.25
"""Seconds that an activity may wait for others."""
_BATCH: Final = 2048
"""Activities that wait for no others."""
_MOST: Final = 20_000
"""Activities that may wait while the disk refuses; then callers wait for it."""
_BETWEEN_WARNINGS: Final = 60.0
"""Seconds between two warnings that activities wait."""
_BETWEEN_ARCHIVES: Final = 3600.0
"""Seconds between two looks at whether activities are old enough to be archived."""
_WORTHWHILE: Final = 10_000
"""Activities from which they are archived without being asked to."""
_DAY: Final = 86_400 * 10**9
"""In nanoseconds."""
_logger: Final = logging.getLogger("trails")


MOST_USED: Final = 16
"""Entities that an activity names: as many as fit into a line, and more than most calls have."""


class CallRecord:
    """One call under way: who asked for what, and whether it has made a commit."""

    __slots__ = (
        "_id",
        "abandoned",
        "actor",
        "caller",
        "committed",
        "ended",
        "generated",
        "kind",
        "name",
        "note",
        "origin",
        "reached",
        "reads",
        "recorded",
        "spent",
        "started",
        "statements",
        "used",
    )

    def __init__(
        self,
        actor: str,
        name: str,
        kind: str,
        *,
        reads: bool = False,
        caller: Actor | None = None,
    ) -> None:
        self.reads = reads
        """Whether it said that it only reads: then it can't write."""
        self.caller = caller
        """Who came over a surface: such a call can't skip validation, or outlive a credential."""
        self.actor = actor
        self.name = name
        self.kind = kind
        self.started = time_ns()
        self.origin = ORIGIN.get()
        self.committed = False
        """Whether it has changed something, or may have."""
        self.recorded = False
        """Whether the log has it, together with the last thing that it changed."""
        self.used: list[str] = []
        """The commit that it reads, then the nodes that it read by reference, the first few."""
        self.generated: list[str] = []
        """The commits that it has made, the first few: each of them names the call."""
        self.reached = ""
        """The commit that it has brought a branch to, the last one."""
        self.statements = 0
        """How many it has added and removed."""
        self.note = ""
        """What its activity says of it when all went well."""
        self.spent: dict[str, float] | None = None
        """What it says that it has used, beside what can be measured."""
        self.ended = False
        self.abandoned = False
        """Whether its caller has gone away, so that long work for it can stop."""
        self._id: str | None = None

    @property
    def id(self) -> str:
        """The id of its activity; made when first asked for, since few calls name theirs."""
        if self._id is None:
            self._id = uuid7()
        return self._id

    @property
    def trace_id(self) -> str:
        """The trace of the caller, or one of its own, as its activity says."""
        return self.origin.trace or self.id.replace("-", "")

    def use(self, what: str) -> None:
        """Say that it has read a commit or a node."""
        if len(self.used) < MOST_USED and what and what not in self.used:
            self.used.append(what)

    def change(self) -> None:
        """Say that it is about to change something: also if that fails, it can be in the log."""
        self.committed, self.recorded = True, False

    def generate(self, commit: str, *, recorded: bool) -> None:
        """Say that it has made a commit, and whether it is ``recorded`` with that."""
        self.reached = commit
        if len(self.generated) < MOST_USED:
            self.generated.append(commit)
        self.recorded = recorded

    def describe(self, commit: str | None = None) -> Activity:
        """Its activity if it ended now, and well, with one more commit."""
        found = self.activity(time_ns(), "ok", self.note)
        if commit is None or len(found.generated) >= MOST_USED:
            return found
        return msgspec.structs.replace(found, generated=(*found.generated, commit))

    def activity(self, at: int, outcome: str, detail: str) -> Activity:
        """What the log keeps of it."""
        return Activity(
            self.id,
            spell_text(self.actor),
            spell_text(self.name),
            spell_time(self.started),
            spell_time(at),
            outcome,
            self.kind,
            spell_text(detail),
            1,
            self.origin.surface,
            self.origin.trace,
            tuple(self.used),
            tuple(self.generated),
        )


class Activities:
    """The stream of activities of one graph."""

    def __init__(
        self,
        log: Log,
        retention: Retention = KEEP_ALL,
        report: Callable[[str], None] = lambda _: None,
        *,
        kept: bool = True,
    ) -> None:
        """``kept``: whether the log can be written; where it can't, nothing is recorded."""
        self.calls = CallCounter()
        """Counts the calls that have ended, kept or not."""
        self.observers: list[Callable[[CallRecord, str, int], None]] = []
        """Get each of them, with its outcome and its nanoseconds."""
        self._log = log
        self._kept = kept
        self._retention = retention
        self._report = report
        self._archiving = threading.Lock()
        self._next_archive = 0.0
        self._next_warning = 0.0
        self._waiting: list[tuple[CallRecord, int, str, str]] = []
        self._refusals = Refusals()
        self._summed: list[Activity] = []
        """Records of refusals that the disk has not taken yet."""
        self._turn = threading.Lock()
        self._woken = threading.Event()
        self._full = threading.Event()
        self._closed = False
        self._writer: threading.Thread | None = None

    def end(self, call: CallRecord, outcome: str, detail: str = "") -> None:
        """Keep what came of a call; of one that changed something and is not recorded, at once.

        What came first counts.
        """
        if call.ended:
            return
        call.ended = True
        now = time_ns()
        self._count(call, outcome, now - call.started)
        if not self._kept:
            return
        waiting = self._waiting
        waiting.append((call, now, outcome, detail))
        urgent = call.committed and not (call.recorded and outcome == "ok")
        if urgent or len(waiting) > _MOST or self._closed:
            try:
                self.flush()
            except StorageError as error:
                self._warn(error)
                if not self._closed:
                    self._wake()  # to try again
                if urgent and outcome == "ok":
                    raise _committed(error) from error
                self._drop_oldest()  # a read does not fail because its record can't be written
        elif len(waiting) == 1:
            self._wake()
        elif len(waiting) == _BATCH:
            self._full.set()

    def _warn(self, error: Exception) -> None:
        """Log why activities wait, once in a while: the disk may refuse every one of them."""
        now = monotonic()
        if now >= self._next_warning:
            self._next_warning = now + _BETWEEN_WARNINGS
            what = error if isinstance(error, StorageError) else repr(error)
            _logger.warning(
                "activities wait to be written: %s", what, extra={"event": "activities.waiting"}
            )

    def _drop_oldest(self) -> None:
        """Make room among the activities that wait for the disk; those of commits stay."""
        with self._turn:
            surplus = len(self._waiting) - _MOST
            idle = [at for at, each in enumerate(self._waiting) if not each[0].committed]
            for at in reversed(idle[: max(0, surplus)]):
                del self._waiting[at]
        if surplus > 0:
            _logger.warning(
                "%d activities of reads were dropped, because too many wait",
                surplus,
                extra={"event": "activities.dropped"},
            )

    def refuse(
        self, call: CallRecord, outcome: str, detail: str, *, answered: str, about: str = ""
    ) -> None:
        """Keep that a call was refused; of those that are refused alike, how many there were.

        Calls that need no right are kept in the same way, however they end.

        ``answered`` is the outcome that its caller got, ``about`` what was asked for where the
        call's name does not say it.
        """
        if call.ended:
            return
        now = time_ns()
        if self._kept:
            kind = RefusalKind(call.actor, answered, call.name, about)
            if self._refusals.take(kind, call.kind, outcome, detail, call.started, now):
                self.end(call, outcome, detail)
                return
        call.ended = True
        self._count(call, outcome, now - call.started)

    def _count(self, call: CallRecord, outcome: str, nanoseconds: int) -> None:
        self.calls.add(call.name, call.origin.surface, outcome, nanoseconds)
        for observe in self.observers:
            observe(call, outcome, nanoseconds)

    @property
    def waiting(self) -> int:
        """How many are not written yet."""
        return len(self._waiting) + len(self._summed)

    def flush(self) -> None:
        """Write everything that waits."""
        self._flush(self._refusals.settle(time_ns()))

    def _flush(self, summed: Sequence[Activity]) -> None:
        with self._turn:
            self._summed += summed
            batch, sums = self._waiting[:], self._summed[:]
            if batch or sums:
                done = [_activity_of(*each) for each in batch]
                self._log.insert_activities([*done, *sums])
                del self._waiting[: len(batch)]
                self._summed.clear()
        if self._waiting and not self._closed:  # what came meanwhile
            self._wake()

    @contextmanager
    def taken_along(self, log: Log) -> Iterator[Sequence[Activity]]:
        """Some that wait, which the block writes to its log together with commits.

        If it fails, they wait on. A draft has none: its log is not written.
        """
        if log is not self._log:
            yield ()
            return
        with self._turn:
            batch = self._waiting[:_BATCH]
            yield [_activity_of(*each) for each in batch]
            del self._waiting[: len(batch)]

    def read(self, after: int = 0) -> Iterator[tuple[int, Activity]]:
        """Activities in log order, those after a position; everything that ended is among them."""
        self._try_to_flush(self._refusals.settle())
        return self._log.activities(after)

    def _try_to_flush(self, summed: Sequence[Activity]) -> None:
        """Write what waits, if the disk has room; else it waits on."""
        try:
            self._flush(summed)
        except StorageFullError as error:
            self._warn(error)

    def newest(self, limit: int, *, archived: bool = True) -> list[Activity]:
        """The last few, newest first; what is still being summed up is included as it is now.

        Nothing is written for that: reading does not make the log longer.
        """
        self._try_to_flush(self._refusals.settle(time_ns()))
        with self._turn:
            waiting = [_activity_of(*each) for each in self._waiting]
            others = [*waiting, *self._summed, *self._refusals.activities()]
        found = self._log.newest_activities(limit, archived=archived)
        if others:
            found = sorted([*found, *others], key=lambda each: each.ended, reverse=True)[:limit]
        return found

    def select(
        self,
        wanted: ActivityQuery,
        limit: int,
        *,
        after: str | None = None,
        archived: bool = False,
    ) -> list[Activity]:
        """Some activities that are in the log, newest first: those older than one, by its id.

        ``archived``: archives are searched as well.
        """
        self._try_to_flush(self._refusals.settle(time_ns()))
        return self._log.list_activities(wanted, limit, after=after, archived=archived)

    def pending(self, wanted: ActivityQuery) -> list[Activity]:
        """Those that are not in the log yet; refusals that are being summed up, as they are now."""
        with self._turn:
            waiting = [_activity_of(*each) for each in self._waiting]
            others = [*waiting, *self._summed, *self._refusals.activities()]
        return [each for each in others if matches(wanted, each)]

    def find(self, wanted: Mapping[str, str]) -> dict[str, Activity]:
        """Activities by id; ``wanted`` has the time of a commit that each of them made."""
        with self._turn:
            waiting = [_activity_of(*each) for each in self._waiting if each[0].committed]
            found = self._log.find_activities(wanted)
        return found | {each.id: each for each in waiting if each.id in wanted}

    def archivable(self) -> int:
        """How many activities are old enough, or too many, to stay in the log."""
        return len(self._find_archivable())

    def _find_archivable(self) -> range:
        days, rows = self._retention.days, self._retention.rows
        oldest = "" if days is None else spell_time(max(0, time_ns() - days * _DAY))
        return self._log.find_archivable(oldest, rows)

    def archive(self, *, at_least: int = 1) -> list[ActivityArchive]:
        """Move what is archivable into sealed files, if there are ``at_least`` so many."""
        with self._archiving:
            places = self._find_archivable()
            if len(places) < at_least:
                places = range(0)  # what a crash left half done is finished all the same
            found = []
            for each in self._log.archive_activities(places):
                found.append(each)
                self._report(
                    f"archived {each.count:,} activities, from {each.oldest} to "
                    f"{each.newest}, in activities/{each.name}"
                )
                if self._closed:
                    break
            return found

    def _archive_if_due(self) -> None:
        if monotonic() >= self._next_archive:
            self._next_archive = monotonic() + _BETWEEN_ARCHIVES
            try:
                self.archive(at_least=_WORTHWHILE)
            except Exception as error:  # noqa: BLE001 - they stay in the log, and are tried again
                _logger.warning(
                    "activities can't be archived: %r",
                    error,
                    extra={"event": "activities.unarchived"},
                )

    def _wake(self) -> None:
        if self._writer is None:
            with self._turn:
                if self._writer is None:
                    self._writer = threading.Thread(
                        target=self._write, name="trails-activities", daemon=True
                    )
                    self._writer.start()
        self._woken.set()

    def _write(self) -> None:
        while not self._closed:
            self._woken.wait(self._refusals.pause(time_ns()))
            self._woken.clear()
            pause = _PAUSE
            while pause > 0 and not self._full.wait(pause):
                pause = self._time_left()
            self._full.clear()
            try:
                self.flush()
                self._archive_if_due()
            except Exception as error:  # noqa: BLE001 - what waits is tried again, and at the end
                self._warn(error)
                self._full.wait(1.0)
                self._woken.set()

    def _time_left(self) -> float:
        """Seconds that the oldest one may still wait: commits may have taken others along."""
        waiting = self._waiting[:1]
        return min(_PAUSE, _PAUSE - (time_ns() - waiting[0][1]) / 1e9) if waiting else 0.0

    def close(self) -> None:
        """Write what waits and let the writer end; called before the log is closed."""
        self._closed = True
        self._woken.set()
        self._full.set()
        if self._writer is not None:
            self._writer.join()
        try:
            self._flush(self._refusals.settle())
        except StorageError as error:
            lost = len(self._waiting) + len(self._summed)
            _logger.warning(
                "%d activities could not be written and are lost: %s",
                lost,
                error,
                extra={"event": "activities.lost"},
            )


def _activity_of(call: CallRecord, at: int, outcome: str, detail: str) -> Activity:
    return call.activity(at, outcome, detail)


def _committed(error: StorageError) -> StorageError:
    """The error of a call whose commit is in the log and whose activity is not."""
    when = "when there is room" if isinstance(error, StorageFullError) else "later"
    return type(error)(
        "the change is written and safe, but the record of this call could not be written: "
        f"{error.message}. It is written {when}; do not repeat the call"
    )
