"""Ancestry: how commits follow from each other, and which branches contain them.

A commit's statements are a step from its *first* parent, so states are reached along first parents:
back by undoing, forward by doing. A merge looks at all the commits of one side that the other does
not have. What an actor may see of the past follows from the branches that contain it
(``Containment``).
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Final

import msgspec

from trails.errors import CorruptionError
from trails.log.protocol import Log
from trails.model.history import GENESIS, Commit, Head, Position
from trails.model.types import Schema

_REMEMBERED: Final = 8_192
"""Commits; each takes more than a kilobyte."""
_WORDS: Final = 4 << 20
"""Characters of their messages, of which writers may send ten thousand with each."""
_UNKNOWN: Final = -1
_BLOCK: Final = 500
"""Commits that are read at once where their parents are asked for."""
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


class _Links:
    """The parents of commits, as places in the log: walks of any length need no commits.

    Eight bytes a commit, where a commit takes a kilobyte and reading one takes ten microseconds.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._first = array("q")
        """By place, that of the first parent; 0 where there is none."""
        self._more: dict[int, tuple[int, ...]] = {}
        """The other parents, of merges."""
        self._lock = threading.Lock()

    def first(self, seq: int) -> int:
        """The place of the first parent; 0 before the first commit."""
        if seq >= len(self._first) or self._first[seq] == _UNKNOWN:
            self._read(seq)
        return self._first[seq]

    def parents(self, seq: int) -> tuple[int, ...]:
        """The places of all parents, without those before the first commit."""
        first = self.first(seq)
        return (first, *self._more.get(seq, ())) if first else ()

    def _read(self, seq: int) -> None:
        """Read the parents of a commit, and of those before it that are not known yet."""
        with self._lock:
            first = self._first
            first.extend([_UNKNOWN] * (seq + 1 - len(first)))
            start = seq
            while start > max(1, seq - _BLOCK) and first[start - 1] == _UNKNOWN:
                start -= 1
            places: dict[str, int] = {}
            for commit in self._log.commits(start - 1, seq):
                places[commit.id] = commit.seq
                found = [places.get(each) or self._place(each) for each in commit.parents]
                if len(found) > 1:
                    self._more[commit.seq] = tuple(found[1:])
                first[commit.seq] = found[0] if found else 0
            if first[seq] == _UNKNOWN:
                raise CorruptionError(f"commit {seq} is not in the log")

    def _place(self, identifier: str) -> int:
        found = self._log.commit(identifier)
        if found is None:
            raise CorruptionError(f"commit {identifier} is not in the log")
        return found.seq


class Ancestry:
    """Questions about the commits of a log; the last ones that were asked for are remembered."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._known: dict[str, Commit] = {}
        self._words = 0
        self._links = _Links(log)

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

    def schema_at(self, identifier: str) -> str:
        """The digest of the schema with which a commit is read."""
        return Schema().digest if identifier == GENESIS else self.commit(identifier).schema

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

    def distance(self, start: str, end: str) -> int:
        """How many steps the way from one state to another has."""
        one, other = self.place(start), self.place(end)
        steps = 0
        while one != other:
            if one > other:
                one = self._links.first(one)
            else:
                other = self._links.first(other)
            steps += 1
        return steps

    def place(self, identifier: str) -> int:
        """Where a commit is in the log; 0 before the first one."""
        return 0 if identifier == GENESIS else self.commit(identifier).seq

    def first_parents(self, seq: int, until: int) -> Iterator[int]:
        """The places of a commit and of those before it along first parents, down to a place."""
        while seq > until:
            yield seq
            seq = self._links.first(seq)

    def parents(self, seq: int) -> tuple[int, ...]:
        """The places of the parents of a commit."""
        return self._links.parents(seq)

    def at(self, seq: int) -> Commit:
        """The commit at a place where there must be one."""
        found = self._log.at(seq)
        if found is None:
            raise CorruptionError(f"commit {seq} is not in the log")
        return found

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
        flags: dict[int, int] = {}
        heap: list[int] = []
        open_ones = 0

        def note(seq: int, flag: int) -> None:
            nonlocal open_ones
            old = flags.get(seq, 0)
            if not old:
                heappush(heap, -seq)
                open_ones += not flag & _STALE
            elif not old & _STALE and flag & _STALE:
                open_ones -= 1
            flags[seq] = old | flag

        note(self.place(ours), _OURS)
        note(self.place(theirs), _THEIRS)
        found: list[int] = []
        while open_ones:
            seq = -heappop(heap)
            flag = flags[seq]
            open_ones -= not flag & _STALE
            if flag == _OURS | _THEIRS:
                found.append(seq)
                flag |= _STALE
            for parent in self._links.parents(seq):
                note(parent, flag)
        return [self.at(seq).id for seq in found] or [GENESIS]

    def is_ancestor(self, old: str, new: str) -> bool:
        """Whether a commit is another or lies behind it."""
        if old in {GENESIS, new}:
            return True
        if new == GENESIS:
            return False
        wanted, newest = self.place(old), self.place(new)
        heap, seen = [-newest], {newest}
        while heap:
            seq = -heappop(heap)
            if seq <= wanted:
                return seq == wanted
            for parent in self._links.parents(seq):
                if parent not in seen:
                    seen.add(parent)
                    heappush(heap, -parent)
        return False

    def behind(self, new: str, commits: Iterable[Commit]) -> list[Commit]:
        """Those of some commits that are a commit or lie behind it, in log order."""
        wanted = {each.seq: each for each in commits}
        if not wanted or new == GENESIS:
            return []
        oldest, newest = min(wanted), self.place(new)
        heap, seen, found = [-newest], {newest}, []
        while heap and -heap[0] >= oldest:
            seq = -heappop(heap)
            if seq in wanted:
                found.append(wanted[seq])
            for parent in self._links.parents(seq):
                if parent not in seen:
                    seen.add(parent)
                    heappush(heap, -parent)
        return found[::-1]


Permits = Callable[[str], bool]
"""Whether a branch may be used."""

_MAX_BRANCH_SETS: Final = 10_000
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
            if head is not None and self.has(name, head, commit):
                found = True
                yield name
        if not found:
            yield commit.branch

    def has(self, name: str, head: Head, commit: Commit) -> bool:
        """Whether a branch contains a commit, when it is at a head."""
        if head.seq <= commit.seq:
            return head.commit == commit.id
        key = name, commit.id
        before, was = self._known.get(key, (GENESIS, False))
        if before == head.commit:
            return was
        is_ancestor = self._ancestry.is_ancestor
        found = (was and is_ancestor(before, head.commit)) or is_ancestor(commit.id, head.commit)
        if len(self._known) >= _MAX_BRANCH_SETS:
            self._known.clear()
        self._known[key] = head.commit, found
        return found


class Descent:
    """Goes down from the heads of all branches, and says which commits may be seen.

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
