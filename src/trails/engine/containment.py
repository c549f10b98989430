"""Containment: which branches have a commit behind them.

What may be seen of the past follows from the branches that contain it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final

from trails.engine.ancestry import Ancestry
from trails.log.protocol import Log
from trails.model.history import GENESIS, Commit, Head

Permits = Callable[[str], bool]
"""Whether a branch may be used."""

_REMEMBERED: Final = 10_000
_CONTAINED: Final = 1
_PERMITTED: Final = 2


class Containment:
    """Which branches contain a commit; since branches only go on, that is remembered."""

    def __init__(self, log: Log, ancestry: Ancestry) -> None:
        self._log = log
        self._ancestry = ancestry
        self._known: dict[tuple[str, str], tuple[str, bool]] = {}
        """Branch and commit → the head for which it was found out, and what."""

    def branches_of(self, commit: Commit) -> Iterator[str]:
        """The branches that speak for a commit: those that contain it, the likeliest first.

        For one that none contains it is the branch that it was made on, though that is gone.
        """
        heads = self._log.branches()
        found = False
        for name in dict.fromkeys((commit.branch, *heads)):
            head = heads.get(name)
            if head is not None and self._contains(name, head, commit):
                found = True
                yield name
        if not found:
            yield commit.branch

    def _contains(self, name: str, head: Head, commit: Commit) -> bool:
        if head.seq <= commit.seq:
            return head.commit == commit.id
        key = name, commit.id
        before, was = self._known.get(key, (GENESIS, False))
        if before == head.commit:
            return was
        is_ancestor = self._ancestry.is_ancestor
        found = (was and is_ancestor(before, head.commit)) or is_ancestor(commit.id, head.commit)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[key] = head.commit, found
        return found


class Descent:
    """Goes down from the heads of all branches, and tells which commits may be seen.

    Commits are asked about from the newest to the oldest, so each is passed once.
    """

    def __init__(self, log: Log, ancestry: Ancestry, permits: Permits) -> None:
        self._ancestry = ancestry
        self._permits = permits
        self._flags: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        for name, head in log.branches().items():
            self._note(head.commit, _CONTAINED | (_PERMITTED if permits(name) else 0))

    def _note(self, identifier: str, flag: int) -> None:
        if identifier == GENESIS:
            return
        before = self._flags.get(identifier)
        if before is None:
            heappush(self._heap, (-self._ancestry.commit(identifier).seq, identifier))
        self._flags[identifier] = flag | (before or 0)

    def sees(self, commit: Commit) -> bool:
        """Whether a branch that may be used contains a commit, or, where none does, made it."""
        while self._heap and -self._heap[0][0] > commit.seq:
            _, identifier = heappop(self._heap)
            flag = self._flags.pop(identifier)
            for parent in self._ancestry.commit(identifier).parents:
                self._note(parent, flag)
        flag = self._flags.get(commit.id, 0)
        return bool(flag & _PERMITTED) if flag else self._permits(commit.branch)
