"""What a load must remember about the whole file, kept in a temporary database on disk.

Which nodes it gave and on which lines, what edge lines say about reference
fields, and nodes that wait until all others are there.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from trails.engine.load.items import Item

_SOME: Final = 500
_TABLES: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -32768;
CREATE TABLE seen (handle TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE refs (owner TEXT, number INTEGER, field TEXT, target TEXT);
CREATE INDEX refs_of ON refs (owner);
CREATE TABLE waiting (item TEXT);
"""


class Reference(NamedTuple):
    """What an edge line says about a reference field of its start."""

    owner: str
    number: int
    field: str
    target: str


class Spool:
    """A temporary database, deleted when it is closed."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.executescript(_TABLES)
        self._db.execute("BEGIN")
        self.has_references = False

    def close(self) -> None:
        """Delete it."""
        self._db.close()

    # --- nodes of the file ---------------------------------------------------------

    def see(self, items: Sequence[tuple[str, int]]) -> list[tuple[str, int, int]]:
        """Note nodes; those that were there before: (handle, its number now, number then)."""
        before = self._db.total_changes
        self._db.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?)", items)
        if self._db.total_changes == before + len(items):
            return []
        there = self.seen([handle for handle, _ in items])
        return [
            (handle, number, there[handle]) for handle, number in items if there[handle] != number
        ]

    def seen(self, handles: Sequence[str]) -> dict[str, int]:
        """The lines of those nodes that the file gave so far."""
        found: dict[str, int] = {}
        for at in range(0, len(handles), _SOME):
            some = handles[at : at + _SOME]
            marks = ",".join("?" * len(some))
            query = f"SELECT handle, number FROM seen WHERE handle IN ({marks})"  # noqa: S608
            found.update(self._db.execute(query, some))
        return found

    # --- edge lines about reference fields --------------------------------------------

    def refer(self, reference: Reference) -> None:
        """Note what an edge line says."""
        self.has_references = True
        self._db.execute("INSERT INTO refs VALUES (?, ?, ?, ?)", reference)

    def references(self, owners: Sequence[str]) -> Iterator[Reference]:
        """What edge lines say about nodes, in the order of the lines."""
        for at in range(0, len(owners), _SOME):
            some = owners[at : at + _SOME]
            marks = ",".join("?" * len(some))
            query = f"SELECT * FROM refs WHERE owner IN ({marks}) ORDER BY number"  # noqa: S608
            yield from map(Reference._make, self._db.execute(query, some).fetchall())

    def owners(self) -> Iterator[list[str]]:
        """All nodes that edge lines start from, some at a time."""
        after = ""
        query = "SELECT DISTINCT owner FROM refs WHERE owner > ? ORDER BY owner LIMIT ?"
        while rows := self._db.execute(query, (after, _SOME)).fetchall():
            yield [owner for (owner,) in rows]
            after = rows[-1][0]

    # --- nodes that wait ----------------------------------------------------------------

    def wait(self, item: Item) -> None:
        """Keep a node until all others are there."""
        # msgspec has no integers beyond 64 bits, and a wrong value may be one.
        text = json.dumps(msgspec.structs.asdict(item))
        self._db.execute("INSERT INTO waiting VALUES (?)", (text,))

    def waiting(self) -> Iterator[list[Item]]:
        """The nodes that wait, some at a time."""
        rows = self._db.execute("SELECT item FROM waiting ORDER BY rowid")
        while some := list(islice(rows, _SOME)):
            yield [Item(**json.loads(text)) for (text,) in some]
