"""Copy what is new in a log on PostgreSQL into the form that backups have: a SQLite file.

It is what ``trails.log.extracts`` copies from an embedded log, with the same tables and the same
files beside it, so it can be restored as an embedded log. All rows are read in one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, cast

import msgspec

from trails.files import make_folder, open_new
from trails.log.archives import ARCHIVES_FOLDER, insert_archive
from trails.log.extracts import Extract
from trails.log.postgres.activities import fetch_archive
from trails.log.postgres.connections import Connection
from trails.log.postgres.schema import INDEXED
from trails.log.protocol import Header
from trails.log.records import COMMIT, KEYED, decode, unpack
from trails.log.storage import (
    EXTRACT,
    KEYS_TABLE,
    MOVES_TABLE,
    SEGMENTS,
    create_private,
    create_tables,
    make_append_only,
    storage_errors,
)
from trails.model.history import GENESIS, ActivityArchive

_PAGE: Final = 500
_HALVES: Final = ("removed", "added")


def copy_rows(
    connection: Connection,
    graph: int,
    header: Header,
    folder: Path,
    since: Mapping[str, int],
    known: Container[str],
) -> Extract:
    """Copy rows after some places into a new folder, with the files that they name."""
    with storage_errors("copy the log"):
        make_folder(folder)
        create_private(folder / EXTRACT)
        with (
            closing(sqlite3.connect(folder / EXTRACT, isolation_level=None)) as db,
            connection.transaction(),
        ):
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            db.execute("PRAGMA journal_mode = OFF")
            db.execute("PRAGMA synchronous = OFF")
            create_tables(db, msgspec.structs.astuple(header))
            db.execute(MOVES_TABLE)
            make_append_only(db, "moves")
            for statement in KEYS_TABLE:
                db.execute(statement)
            db.execute("BEGIN")
            copy = _Copy(connection, graph, folder, db, known)
            found = copy.run(since)
            db.execute("COMMIT")
    return found


class _Copy:
    """One copy on its way."""

    def __init__(
        self,
        connection: Connection,
        graph: int,
        folder: Path,
        db: sqlite3.Connection,
        known: Container[str],
    ) -> None:
        self._connection = connection
        self._graph = graph
        self._folder = folder
        self._db = db
        self._known = known
        self._files: set[str] = set()

    def run(self, since: Mapping[str, int]) -> Extract:
        self._archives()
        ends = {
            "commits": self._commits(since.get("commits", 0)),
            "activities": self._activities(since.get("activities", 0)),
            "moves": self._moves(since.get("moves", 0)),
        }
        self._rest()
        newest = self._rows(
            "SELECT seq, id FROM trails_commits WHERE graph = %s ORDER BY seq DESC LIMIT 1"
        )
        seq, commit = newest[0] if newest else (0, GENESIS.encode())
        heads = dict(self._db.execute("SELECT branch, id FROM heads").fetchall())
        files = tuple(sorted(self._files))
        return Extract(ends, heads, cast(int, seq), cast(bytes, commit).decode(), files)

    def _rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        return self._connection.execute(
            query.encode(), (self._graph, *values), binary=True
        ).fetchall()

    def _after(self, query: str, after: int) -> Iterator[tuple[object, ...]]:
        while rows := self._rows(f"{query} AND seq > %s ORDER BY seq LIMIT {_PAGE}", after):
            yield from rows
            after = cast(int, rows[-1][0])

    def _commits(self, after: int) -> int:
        for seq, identifier, branch, record, *halves in self._after(
            "SELECT seq, id, branch, record, removed, removed_chunks, removed_sha, "
            "added, added_chunks, added_sha FROM trails_commits WHERE graph = %s",
            after,
        ):
            after = cast(int, seq)
            key = decode(COMMIT, cast(bytes, record)).idempotency_key
            values: list[object] = []
            for half, (blob, chunks, sha) in zip(_HALVES, (halves[:3], halves[3:]), strict=True):
                digest = cast(bytes, sha).decode()
                segment = self._segment(after, half, digest) if chunks else None
                values += [blob, segment, digest]
            self._db.execute(
                "INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (seq, _text(identifier), _text(branch), key, record, *values),
            )
        return after

    def _segment(self, seq: int, half: str, sha: str) -> str:
        """Write a large part to a file, unless a backup has it; its name."""
        name = f"{sha}.nq.zst"
        path, listed = self._folder / SEGMENTS / name, f"{SEGMENTS}/{name}"
        self._files.add(listed)
        if listed not in self._known and not path.exists():
            make_folder(path.parent)
            with open_new(path) as file:
                part = 0
                while rows := self._rows(
                    "SELECT body FROM trails_chunks "
                    "WHERE graph = %s AND seq = %s AND half = %s AND part = %s",
                    seq,
                    half,
                    part,
                ):
                    file.write(cast(bytes, rows[0][0]))
                    part += 1
        return name

    def _activities(self, after: int) -> int:
        for seq, identifier, record in self._after(
            "SELECT seq, id, record FROM trails_activities WHERE graph = %s", after
        ):
            after = cast(int, seq)
            self._db.execute(
                "INSERT INTO activities VALUES (?, ?, ?)", (seq, _text(identifier), record)
            )
        return after

    def _moves(self, after: int) -> int:
        for seq, record in self._after(
            "SELECT seq, record FROM trails_moves WHERE graph = %s", after
        ):
            after = cast(int, seq)
            self._db.execute("INSERT INTO moves VALUES (?, ?)", (seq, record))
        return after

    def _archives(self) -> None:
        for row in self._rows(
            "SELECT first, last, count, name, sha, oldest, newest FROM trails_archives "
            "WHERE graph = %s ORDER BY first"
        ):
            archive = ActivityArchive(
                *cast(tuple[int, int, int, str, str], row[:5]),
                *(cast(bytes, time).decode() for time in row[5:]),
            )
            insert_archive(self._db, archive)
            listed = f"{ARCHIVES_FOLDER}/{archive.name}"
            self._files.add(listed)
            if listed not in self._known:
                make_folder(self._folder / ARCHIVES_FOLDER)
                fetch_archive(self._graph, archive.first, self._folder / listed, self._connection)

    def _rest(self) -> None:
        """The tables that are small: every row."""
        tables = {
            "heads": ("branch, id, seq, schema", "trails_heads"),
            "schemas": ("digest, body", "trails_schemas"),
        }
        for table, (columns, source) in tables.items():
            texts = 1 if table != "heads" else 2
            for row in self._rows(f"SELECT {columns} FROM {source} WHERE graph = %s"):  # noqa: S608
                values = [*map(_text, row[:texts]), *row[texts:]]
                if table == "heads":
                    values[-1] = _text(values[-1])
                marks = ", ".join("?" * len(values))
                self._db.execute(f"INSERT INTO {table} VALUES ({marks})", values)  # noqa: S608
        # A longer handle is in the column with a digest in place of its end.
        for node, activity in self._rows(
            "SELECT node, activity FROM trails_activity_nodes "
            "WHERE graph = %s AND octet_length(node) <= %s",
            INDEXED,
        ):
            self._db.execute("INSERT INTO activity_nodes VALUES (?, ?)", (_text(node), activity))
        for identifier, record in self._rows(
            "SELECT id, record FROM trails_calls WHERE graph = %s"
        ):
            self._db.execute("INSERT INTO calls VALUES (?, ?)", (_text(identifier), record))
        for (record,) in self._rows("SELECT record FROM trails_keys WHERE graph = %s"):
            key = decode(KEYED, unpack(cast(bytes, record)))
            self._db.execute(
                "INSERT INTO idempotency_keys VALUES (?, ?, ?, ?, ?)",
                (key.branch, key.actor, key.key, key.expires, record),
            )


def _text(value: object) -> str:
    return cast(bytes, value).decode()
