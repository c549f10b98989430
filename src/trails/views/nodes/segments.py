"""Segments: the tree of states that the node index holds, and who stands on which.

A segment is a state that grew out of another one: it holds the nodes that it changed,
and *hides* those of its parent, which it sees as the parent was at the *fork*. The root
is the segment of ``main`` and the only one that holds everything. A branch or snapshot
stands on one segment of its own; making one is a row, whatever the size of the graph.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final, Self

import msgspec

from trails.errors import CorruptionError
from trails.model.history import Position

ROOT: Final = 0
ROOT_NAME: Final = "/root"
"""Stands on the root always; ``main`` can be ahead of it after a fast-forward."""
FOREVER: Final = 2**62
"""Later than every commit: until when a row holds that nothing has replaced."""
NOW: Final = FOREVER - 1
"""The bound of a state that is followed as it moves."""


class Segment(msgspec.Struct):
    """One state: what it grew out of, how far it is, how many nodes it has."""

    number: int
    parent: int | None
    fork: int
    position: Position
    schema: str
    live: dict[int, int]
    """Type number → how many nodes of that type are visible here."""
    newest_fork: int = -1
    """The latest fork of a child: what was there then must be kept for it."""


class Segments:
    """All segments, and the names that stand on them."""

    def __init__(self) -> None:
        self._all: dict[int, Segment] = {}
        self.refs: dict[str, int] = {}
        self._used: dict[str, int] = {}
        self._changed: set[int] = set()
        self._counted: set[tuple[int, int]] = set()
        self._clock = 0
        self._above: dict[int, frozenset[str]] = {}

    @classmethod
    def read(cls, db: sqlite3.Connection) -> Self:
        """As the tables have them; an empty file gets its root."""
        found = cls()
        for seg, parent, fork, seq, head, schema in db.execute("SELECT * FROM segs"):
            found._all[seg] = Segment(seg, parent, fork, Position(seq, head), schema, {})
        for seg, tid, count in db.execute("SELECT seg, tid, n FROM lives"):
            found[seg].live[tid] = count
        for name, seg, used in db.execute("SELECT name, seg, used FROM refs"):
            found.refs[name] = found[seg].number
            found._used[name] = used
            found._clock = max(found._clock, used)
        for segment in list(found._all.values()):
            found._keep_for(segment)
        if ROOT not in found._all:
            if found._all or db.execute("SELECT 1 FROM nodes LIMIT 1").fetchone():
                raise CorruptionError("the node index has nodes, but does not say how far it is")
            found._all[ROOT] = Segment(ROOT, None, 0, Position(0, ""), "", {})
            found._changed.add(ROOT)
        found.refs[ROOT_NAME] = ROOT
        return found

    def __getitem__(self, number: int) -> Segment:
        """A segment by number."""
        segment = self._all.get(number)
        if segment is None:
            raise CorruptionError(f"the node index has no segment {number}")
        return segment

    def __iter__(self) -> Iterator[Segment]:
        """All segments."""
        return iter(self._all.values())

    def _keep_for(self, segment: Segment) -> None:
        if segment.parent is not None:
            parent = self[segment.parent]
            parent.newest_fork = max(parent.newest_fork, segment.fork)

    # --- the shape of the tree ---------------------------------------------------

    def lineage(self, number: int) -> list[tuple[int, int]]:
        """(segment, bound) from a segment to the root, nearest first."""
        steps, bound = [], NOW
        segment = self[number]
        while True:
            steps.append((segment.number, bound))
            if segment.parent is None:
                return steps
            bound, segment = segment.fork, self[segment.parent]

    def schemas_above(self, number: int) -> frozenset[str]:
        """The schemas with which states that grew out of a segment are read."""
        found = self._above.get(number)
        if found is None:
            found = self._above[number] = frozenset(
                each.schema
                for each in self._all.values()
                if any(seg == number for seg, _ in self.lineage(each.number)[1:])
            )
        return found

    def children(self, number: int) -> list[Segment]:
        """The segments that grew out of one."""
        return [each for each in self._all.values() if each.parent == number]

    # --- changes, written with the transaction ------------------------------------

    def move(self, number: int, position: Position, schema: str) -> None:
        """A segment has reached a commit."""
        segment = self[number]
        if segment.schema != schema:
            self._above.clear()
        segment.position, segment.schema = position, schema
        self._changed.add(number)

    def count(self, number: int, tid: int, step: int) -> None:
        """A segment has more or fewer nodes of a type."""
        live = self[number].live
        live[tid] = live.get(tid, 0) + step
        self._counted.add((number, tid))

    def stand(self, db: sqlite3.Connection, name: str, parent: int) -> int:
        """Let a name stand on a new segment that grows out of the head of another."""
        before = self[parent]
        number = max(self._all) + 1
        segment = Segment(
            number, parent, before.position.seq, before.position, before.schema, dict(before.live)
        )
        self._all[number] = segment
        self._above.clear()
        self._keep_for(segment)
        self._changed.add(number)
        self._counted.update((number, tid) for tid in segment.live)
        self.point(db, name, number)
        return number

    def point(self, db: sqlite3.Connection, name: str, number: int) -> None:
        """Let a name stand on a segment."""
        self._clock += 1
        self.refs[name], self._used[name] = number, self._clock
        db.execute("INSERT OR REPLACE INTO refs VALUES (?, ?, ?)", (name, number, self._clock))

    def forget(self, db: sqlite3.Connection, name: str) -> None:
        """A name stands nowhere any more."""
        self.refs.pop(name, None)
        self._used.pop(name, None)
        db.execute("DELETE FROM refs WHERE name = ?", (name,))

    def touch(self, name: str) -> None:
        """A name was used: remembered until the process ends."""
        self._clock += 1
        self._used[name] = self._clock

    def oldest(self, names: list[str]) -> list[str]:
        """Names, those first that were used longest ago."""
        return sorted(names, key=lambda name: self._used.get(name, 0))

    def sweep(self, db: sqlite3.Connection) -> int:
        """Remove segments on which nothing stands; how many rows that freed."""
        freed = 0
        self._above.clear()
        while True:
            needed = {ROOT, *self.refs.values(), *(each.parent for each in self._all.values())}
            idle = [number for number in self._all if number not in needed]
            if not idle:
                break
            for number in idle:
                del self._all[number]
                self._changed.discard(number)
                self._counted = {each for each in self._counted if each[0] != number}
                db.execute(
                    "INSERT OR IGNORE INTO past SELECT handle, seq FROM rows "
                    "WHERE seg = ? AND seq > 0",
                    (number,),
                )
                for table in ("rows", "row_keys", "hides", "lives", "segs"):
                    freed += db.execute(f"DELETE FROM {table} WHERE seg = ?", (number,)).rowcount  # noqa: S608
        for segment in self._all.values():
            segment.newest_fork = max(
                (each.fork for each in self.children(segment.number)), default=-1
            )
        return freed

    def write(self, db: sqlite3.Connection) -> None:
        """Put what changed into the tables."""
        for number in self._changed:
            each = self[number]
            db.execute(
                "INSERT OR REPLACE INTO segs VALUES (?, ?, ?, ?, ?, ?)",
                (
                    number,
                    each.parent,
                    each.fork,
                    each.position.seq,
                    each.position.commit,
                    each.schema,
                ),
            )
        if self._counted:
            db.executemany(
                "INSERT OR REPLACE INTO lives VALUES (?, ?, ?)",
                [(number, tid, self[number].live[tid]) for number, tid in self._counted],
            )
        self._changed.clear()
        self._counted.clear()
