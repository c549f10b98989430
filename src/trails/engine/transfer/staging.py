"""A staged file: its nodes on disk, read before the writer's lock is taken.

Decompressing, parsing and every check that needs no graph happen first. Few nodes stay in memory;
many go to a temporary file. ``Spool`` is a temporary database for what a load must know about the
whole file: its nodes and their lines, edge lines about reference fields, and nodes that wait for
others.
"""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from tempfile import TemporaryFile
from typing import IO, Final, NamedTuple, Self

import msgspec

from trails.engine.transfer.items import Ends, LoadItem, Problems
from trails.engine.write.pending import CHUNK
from trails.log.storage import storage_errors
from trails.model.fairness import with_pauses
from trails.model.iris import Names
from trails.model.types import Schema

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
    """An edge line that sets a reference field of its start."""

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
        """Add nodes; return repeated ones as (handle, number now, number before)."""
        before = self._db.total_changes
        self._db.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?)", items)
        if self._db.total_changes == before + len(items):
            return []
        there = self.seen([handle for handle, _ in items])
        return [
            (handle, number, there[handle]) for handle, number in items if there[handle] != number
        ]

    def seen(self, handles: Sequence[str]) -> dict[str, int]:
        """Handle → line of those nodes that the file has given so far."""
        found: dict[str, int] = {}
        for at in range(0, len(handles), _SOME):
            some = handles[at : at + _SOME]
            marks = ",".join("?" * len(some))
            query = f"SELECT handle, number FROM seen WHERE handle IN ({marks})"  # noqa: S608
            found.update(self._db.execute(query, some))
        return found

    # --- edge lines about reference fields --------------------------------------------

    def refer(self, reference: Reference) -> None:
        """Add an edge line."""
        self.has_references = True
        self._db.execute("INSERT INTO refs VALUES (?, ?, ?, ?)", reference)

    def references(self, owners: Sequence[str]) -> Iterator[Reference]:
        """The edge lines of nodes, in the order of the file."""
        for at in range(0, len(owners), _SOME):
            some = owners[at : at + _SOME]
            marks = ",".join("?" * len(some))
            query = f"SELECT * FROM refs WHERE owner IN ({marks}) ORDER BY number"  # noqa: S608
            yield from map(Reference._make, self._db.execute(query, some).fetchall())

    def owners(self) -> Iterator[list[str]]:
        """All starts of edge lines, in chunks."""
        after = ""
        query = "SELECT DISTINCT owner FROM refs WHERE owner > ? ORDER BY owner LIMIT ?"
        while rows := self._db.execute(query, (after, _SOME)).fetchall():
            yield [owner for (owner,) in rows]
            after = rows[-1][0]

    # --- nodes that wait ----------------------------------------------------------------

    def wait(self, item: LoadItem) -> None:
        """Keep a node until all others are read."""
        # msgspec has no integers beyond 64 bits, and an invalid value may be one.
        text = json.dumps(msgspec.structs.asdict(item))
        self._db.execute("INSERT INTO waiting VALUES (?)", (text,))

    def waiting(self) -> Iterator[list[LoadItem]]:
        """The waiting nodes, in chunks."""
        rows = self._db.execute("SELECT item FROM waiting ORDER BY rowid")
        while some := list(islice(rows, _SOME)):
            yield [LoadItem(**json.loads(text)) for (text,) in some]


_astuple = msgspec.structs.astuple
_LARGE: Final = 16 << 20
"""The size of a chunk, in characters or list members."""


def _chunk(items: Iterator[LoadItem]) -> list[LoadItem]:
    """The next nodes: at most this many, fewer if they are large."""
    chunk: list[LoadItem] = []
    size = 0
    for item in with_pauses(islice(items, CHUNK)):
        chunk.append(item)
        for value in item.values.values():
            if isinstance(value, str | list | tuple):
                size += len(value)
        if size >= _LARGE:
            break
    return chunk


class Staged:
    """The nodes of a file, its edge lines and its problems."""

    def __init__(
        self, schema: Schema, names: Names, *, place: str = "line", statements: bool = False
    ) -> None:
        """``place`` names a part of the file (line, row); ``statements`` is for RDF."""
        self.schema = schema
        self.names = names
        self.place = place
        self.statements = statements
        self.ends = Ends(schema, names)
        self.problems = Problems()
        self.count = 0
        """The number of nodes."""
        self._few: list[LoadItem] = []
        self._many: IO[bytes] | None = None
        self._stack = ExitStack()
        self.spool = Spool()
        self._stack.callback(self.spool.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def fill(self, items: Iterable[LoadItem]) -> None:
        """Take all nodes until the list of problems is full."""
        stream = iter(items)
        while not self.problems.full and (chunk := _chunk(stream)):
            self.count += len(chunk)
            if self._few:
                self._keep(self._few)
            self._few = chunk

    def _keep(self, chunk: list[LoadItem]) -> None:
        with storage_errors("keep what is loaded"):
            if self._many is None:
                self._many = self._stack.enter_context(TemporaryFile())  # noqa: SIM115
            pickle.dump([_astuple(item) for item in chunk], self._many, pickle.HIGHEST_PROTOCOL)

    def chunks(self) -> Iterator[list[LoadItem]]:
        """All nodes in chunks; can be read once."""
        if self._many is not None:
            with storage_errors("read what is loaded"):
                end = self._many.tell()
                self._many.seek(0)
            while self._many.tell() < end:
                with storage_errors("read what is loaded"):
                    some = pickle.load(self._many)  # noqa: S301 - a private temporary file
                yield [LoadItem(*each) for each in some]
        if self._few:
            yield self._few
