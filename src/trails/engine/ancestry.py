"""Ancestry: how commits follow from each other.

A commit's statements are a step from its *first* parent, so states are reached along
first parents: back by undoing, forward by doing. What a merge has to look at are all
the commits of one side that the other has not.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

import msgspec

from trails.errors import CorruptionError
from trails.log.protocol import Log
from trails.model.history import GENESIS, Commit, Position

_REMEMBERED: Final = 100_000
"""Commits; each takes about a kilobyte."""
_WORDS: Final = 16 << 20
"""Characters of their messages, of which writers may send ten thousand with each."""
_OURS: Final = 1
_THEIRS: Final = 2
_STALE: Final = 4
"""Behind a common commit that is newer."""


class Path(msgspec.Struct, frozen=True):
    """From one state to another: what to undo, newest first, and what to do then."""

    undo: tuple[Commit, ...]
    redo: tuple[Commit, ...]

    def __len__(self) -> int:
        return len(self.undo) + len(self.redo)


class Ancestry:
    """Questions about the commits of a log; commits never change, so they are remembered."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._known: dict[str, Commit] = {}
        self._words = 0

    def commit(self, identifier: str) -> Commit:
        """A commit that must exist."""
        found = self._known.get(identifier)
        if found is None:
            found = self._log.commit(identifier)
            if found is None:
                raise CorruptionError(f"commit {identifier} is not in the log")
            if len(self._known) >= _REMEMBERED or self._words > _WORDS:
                self._known.clear()
                self._words = 0
            self._known[identifier] = found
            self._words += len(found.message)
        return found

    def has(self, position: Position) -> bool:
        """Whether a view that is at a position follows this log."""
        if not position.seq:
            return True
        commit = self._log.commit(position.commit)
        return commit is not None and commit.seq == position.seq

    def path(self, start: str, end: str) -> Path:
        """The way from one state to another along first parents."""
        undo: list[Commit] = []
        redo: list[Commit] = []
        while start != end:
            first = None if start == GENESIS else self.commit(start)
            last = None if end == GENESIS else self.commit(end)
            if last is None or (first is not None and first.seq > last.seq):
                assert first is not None  # noqa: S101 - they differ, so one is a commit
                undo.append(first)
                start = first.first_parent
            else:
                redo.append(last)
                end = last.first_parent
        return Path(tuple(undo), tuple(reversed(redo)))

    def sides(self, ours: str, theirs: str) -> tuple[list[Commit], list[Commit]]:
        """The commits that only one of two has behind it, each list in log order."""
        flags = {GENESIS: 0}
        heap: list[tuple[int, str]] = []
        waiting = {_OURS: 0, _THEIRS: 0}

        def note(identifier: str, flag: int) -> None:
            before = flags.get(identifier)
            if identifier == GENESIS:
                return
            if before is None:
                heappush(heap, (-self.commit(identifier).seq, identifier))
            old = before or 0
            flags[identifier] = new = old | flag
            for side in (_OURS, _THEIRS):
                waiting[side] += (new == side) - (old == side)

        note(ours, _OURS)
        note(theirs, _THEIRS)
        sides: dict[int, list[Commit]] = {_OURS: [], _THEIRS: []}
        # Parents come before children in the log: what is popped has met all its children.
        while heap and (waiting[_OURS] or waiting[_THEIRS]):
            _, identifier = heappop(heap)
            flag = flags[identifier]
            if flag in sides:
                waiting[flag] -= 1
                sides[flag].append(self.commit(identifier))
            for parent in self.commit(identifier).parents:
                note(parent, flag)
        return sides[_OURS][::-1], sides[_THEIRS][::-1]

    def bases(self, ours: str, theirs: str) -> list[str]:
        """The newest commits that both have behind them; several after criss-cross merges."""
        if GENESIS in {ours, theirs}:
            return [GENESIS]
        flags: dict[str, int] = {}
        heap: list[tuple[int, str]] = []
        open_ones = 0

        def note(identifier: str, flag: int) -> None:
            nonlocal open_ones
            old = flags.get(identifier, 0)
            if not old:
                heappush(heap, (-self.commit(identifier).seq, identifier))
                open_ones += not flag & _STALE
            elif not old & _STALE and flag & _STALE:
                open_ones -= 1
            flags[identifier] = old | flag

        note(ours, _OURS)
        note(theirs, _THEIRS)
        found: list[str] = []
        while open_ones:
            _, identifier = heappop(heap)
            flag = flags[identifier]
            open_ones -= not flag & _STALE
            if flag == _OURS | _THEIRS:
                found.append(identifier)
                flag |= _STALE
            for parent in self.commit(identifier).parents:
                note(parent, flag)
        return found or [GENESIS]

    def is_ancestor(self, old: str, new: str) -> bool:
        """Whether a commit is another or lies behind it."""
        if old in {GENESIS, new}:
            return True
        if new == GENESIS:
            return False
        floor = self.commit(old).seq
        heap, seen = [(-self.commit(new).seq, new)], {new}
        while heap:
            seq, identifier = heappop(heap)
            if identifier == old:
                return True
            if -seq < floor:
                return False
            for parent in self.commit(identifier).parents:
                if parent not in seen:
                    seen.add(parent)
                    heappush(heap, (-self.commit(parent).seq, parent))
        return False
