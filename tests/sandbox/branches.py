"""A branch as the sandbox sees it: a real store on disk, its commits, and its head."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pyoxigraph as ox

from trails.model.history import Position
from trails.sandbox.workers import CommitDelta

EX = "http://example.org/"


class Branch:
    """A store and the deltas that made it what it is."""

    def __init__(self, folder: Path, key: str = "main") -> None:
        self.key = key
        self.store = ox.Store(folder)
        self.commits: list[CommitDelta] = []
        self.checkpoints = 0
        self.reach = 10_000
        """How many commits it is willing to hand over at once."""
        self._lock = threading.Lock()

    def head(self) -> Position:
        """The last commit."""
        return self.commits[-1].position if self.commits else Position(0, "")

    def checkpoint(self, folder: Path) -> Position:
        """A backup of the store."""
        with self._lock:
            self.checkpoints += 1
            self.store.backup(folder)
            return self.head()

    def deltas(self, after: Position, until: Position) -> Sequence[CommitDelta] | None:
        """What happened between two commits."""
        if until.seq < after.seq or until.seq - after.seq > self.reach:
            return None
        return self.commits[after.seq : until.seq]

    def commit(self, removed: str = "", added: str = "") -> Position:
        """One commit of N-Quads."""
        with self._lock:
            for quad in ox.parse(removed, ox.RdfFormat.N_QUADS):
                self.store.remove(quad)
            self.store.extend(ox.parse(added, ox.RdfFormat.N_QUADS))
            seq = len(self.commits) + 1
            position = Position(seq, f"c{seq}")
            self.commits.append(CommitDelta(position, removed.encode(), added.encode()))
            return position


def statements(count: int, start: int = 0) -> str:
    """Some data: two statements a thing."""
    return "".join(
        f'<{EX}thing/{n}> <{EX}name> "thing {n}" .\n'
        f'<{EX}thing/{n}> <{EX}number> "{n}"^^<http://www.w3.org/2001/XMLSchema#integer> .\n'
        for n in range(start, start + count)
    )


def bare(branch: Branch, text: str) -> list[tuple[object, ...]]:
    """What the store itself answers to a SELECT on its default graph."""
    found = branch.store.query(text, named_graphs=[])
    assert isinstance(found, ox.QuerySolutions)
    return [tuple(row) for row in found]
