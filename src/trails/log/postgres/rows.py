"""The rows of a log on PostgreSQL while no server has it open, and whether servers may open it.

A log takes commits as long as its stream of commits has the name ``commits``, because writers lock
that row. A log that is being copied to the server, or was moved away, has the stream under another
name, and a new graph gets its name at the end of the copy. So half a copy can't be opened, and a
log that was left behind takes no writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Literal, cast

from trails.errors import CorruptionError, LockedError, StorageError
from trails.log.postgres.chunks import CHUNK
from trails.log.postgres.connections import Connections, end
from trails.log.postgres.schema import create_tables, indexed, raw
from trails.log.postgres.streams import (
    ACTIVITIES,
    COMMITS,
    MOVED,
    MOVED_ACTIVITIES,
    copying_name,
)
from trails.log.postgres.turns import OWNERSHIP, as_text, one_row
from trails.log.protocol import Header
from trails.log.records import KEYED, decode, unpack
from trails.log.rows import (
    HALVES,
    CommitRow,
    Ends,
    Half,
    HeadRow,
    KeyRow,
    LogRows,
    PartRow,
    Record,
    Stream,
)
from trails.model.history import Activity, ActivityArchive, Commit

State = Literal["new", "partial", "inactive", "active"]
"""No log; one that was never complete; one that was moved away; one that servers may open."""
_COPYING: Final = "copy the log"
_AGAIN: Final = "What was copied is kept: run the command again to go on"
_PART_TYPES: Final = ("bytea", "int4", "bytea")
_COMMIT_TYPES: Final = (
    *("int4", "int8", "bytea", "bytea", "bytea", "bool", "bool", "bytea"),
    *_PART_TYPES * 2,
)
_ACTIVITY_TYPES: Final = ("int4", "int8", *("bytea",) * 6)
_READ_TYPES: Final = ("int8", "bytea", *_PART_TYPES * 2)
Row = tuple[object, ...]


class PostgresRows:
    """Satisfies ``LogTarget``; holds the ownership of the log until it is closed."""

    repair = "restore the database from its backup"

    def __init__(self, url: str, header: Header) -> None:
        """``header`` names the graph, and describes it where there is no log of it yet."""
        self.state: State
        self._connections = Connections(url)
        self.place = f"PostgreSQL on {self._connections.place}"
        try:
            with self._errors():
                self._db = self._connections.connect()
                try:
                    create_tables(self._db)
                    self._find(header)
                    if self._graph:
                        self._own()
                except BaseException:
                    end(self._db)
                    raise
        except BaseException:
            self._connections.close()
            raise

    def _errors(self) -> AbstractContextManager[None]:
        return self._connections.errors(_COPYING, _AGAIN)

    def _find(self, wanted: Header) -> None:
        self.header, self.state, self._graph = wanted, "new", 0
        name = copying_name(wanted.graph, wanted.base_iri, wanted.created)
        row = self._db.execute(
            "SELECT g.id, g.format, g.base_iri, g.created, s.name FROM trails_graphs g "
            "JOIN trails_streams s ON s.graph = g.id AND s.name <> ALL(%s) WHERE g.name = %s",
            ([ACTIVITIES, MOVED_ACTIVITIES], raw(wanted.graph)),
        ).fetchone()
        self._named = row is not None
        if row is None:
            query = "SELECT graph FROM trails_streams WHERE name = %s"
            marked = self._db.execute(query, (name,)).fetchone()
            if marked is not None:
                self._graph, self.state = cast(int, marked[0]), "partial"
            return
        number, form, base_iri, created, stream = row
        self._graph = cast(int, number)
        self.header = Header(cast(int, form), wanted.graph, as_text(base_iri), as_text(created))
        if stream == COMMITS:
            self.state = "active"
        elif stream == MOVED:
            self.state = "inactive"
        elif stream == name:
            self.state = "partial"
        else:
            raise StorageError(
                f"{self.place} has a part of another log of graph {wanted.graph!r}, whose copy was "
                "begun; finish that one, or use another schema"
            )

    def _own(self) -> None:
        query = f"SELECT pg_try_advisory_lock({OWNERSHIP})"
        if not one_row(self._db.execute(query, (self._graph,)))[0]:
            raise LockedError(
                f"a server has the log of graph {self.header.graph!r} on {self._connections.place} "
                "open; stop it, then run the command again"
            )

    def begin(self, wanted: Header) -> None:
        """Make a place for a log that is not there yet, or nothing but an empty one.

        Nobody can open it from now on.
        """
        name = copying_name(wanted.graph, wanted.base_iri, wanted.created)
        if self.state == "active":
            self._close_to_others(Ends(), name)
            self.state = "partial"
            return
        with self._errors(), self._db.transaction():
            sequence = "SELECT nextval(pg_get_serial_sequence('trails_graphs', 'id'))"
            (number,) = one_row(self._db.execute(sequence))
            for stream in (name, MOVED_ACTIVITIES):
                self._db.execute("INSERT INTO trails_streams VALUES (%s, %s)", (number, stream))
        self._graph, self.state = cast(int, number), "partial"
        with self._errors():
            self._own()

    def forget(self) -> None:
        """Begin again with a copy that was never complete; its rows stay, unused."""
        if self._named:
            raise StorageError(
                f"{self.place} has a part of another history of graph {self.header.graph!r}; use "
                "another schema, with ?options=-csearch_path%3D<schema> at the end of the URL"
            )
        with self._errors(), self._db.transaction():
            self._db.execute("DELETE FROM trails_streams WHERE graph = %s", (self._graph,))
        self._graph, self.state = 0, "new"

    @contextmanager
    def activating(self) -> Iterator[None]:
        """Let servers open the log, if the block succeeds."""
        with self._errors(), self._db.transaction():
            if not self._named:
                wanted = self.header
                self._db.execute(
                    "INSERT INTO trails_graphs (id, name, format, base_iri, created) "
                    "OVERRIDING SYSTEM VALUE VALUES (%s, %s, %s, %s, %s)",
                    (
                        self._graph,
                        raw(wanted.graph),
                        wanted.format,
                        raw(wanted.base_iri),
                        raw(wanted.created),
                    ),
                )
            self._rename_streams(COMMITS, ACTIVITIES)
            yield
        self.state, self._named = "active", True

    def deactivate(self, ends: Ends) -> None:
        """Let nobody open the log any more, if it still ends where it was copied to."""
        self._close_to_others(ends, MOVED)
        self.state = "inactive"

    def _close_to_others(self, ends: Ends, name: str) -> None:
        with self._errors(), self._db.transaction():
            self._db.execute(
                "SELECT 1 FROM trails_streams WHERE graph = %s FOR UPDATE", (self._graph,)
            )
            if self.ends() != ends:
                raise StorageError(
                    f"{self.place} has changed while it was copied; run the command again"
                )
            self._rename_streams(name, MOVED_ACTIVITIES)

    def _rename_streams(self, commits: str, activities: str) -> None:
        both = ACTIVITIES, MOVED_ACTIVITIES
        renamed = self._db.execute(
            "UPDATE trails_streams SET name = CASE WHEN name = ANY(%s) THEN %s ELSE %s END "
            "WHERE graph = %s",
            ([*both], activities, commits, self._graph),
        )
        if renamed.rowcount != len(both):
            raise CorruptionError(
                f"{self.place} has lost the state of graph {self.header.graph!r}; {self.repair}"
            )

    def close(self) -> None:
        """Close the connections; the ownership ends with them."""
        end(self._db)
        self._connections.close()

    # --- reading -----------------------------------------------------------------

    def _all(self, query: str, *values: object) -> list[Row]:
        with self._errors():
            return self._db.execute(query.encode(), (self._graph, *values), binary=True).fetchall()

    def ends(self) -> Ends:
        """The last places of the streams."""
        ((commits, moves, activities, archived),) = self._all(
            "WITH g AS (SELECT %s::int AS id) SELECT "
            "(SELECT coalesce(max(seq), 0) FROM trails_commits WHERE graph = g.id), "
            "(SELECT coalesce(max(seq), 0) FROM trails_moves WHERE graph = g.id), "
            "(SELECT coalesce(max(seq), 0) FROM trails_activities WHERE graph = g.id), "
            "(SELECT coalesce(max(last), 0) FROM trails_archives WHERE graph = g.id) FROM g"
        )
        return Ends(
            cast(int, commits), cast(int, moves), max(cast(int, activities), cast(int, archived))
        )

    def _streamed(self, columns: str, table: str, after: int, types: Sequence[str]) -> Stream[Row]:
        """Rows of a stream as the server sends them, on a connection of their own."""
        with (
            self._errors(),
            self._connections.borrowed() as connection,
            connection.cursor() as cursor,
            cursor.copy(
                f"COPY (SELECT {columns} FROM {table} WHERE graph = {self._graph:d} "  # noqa: S608
                f"AND seq > {after:d} ORDER BY seq) TO STDOUT (FORMAT BINARY)".encode()
            ) as copy,
        ):
            copy.set_types(types)
            yield from copy.rows()

    def commits(self, after: int = 0) -> Stream[CommitRow]:
        """Commits in their order."""
        columns = (
            "seq, record, removed, removed_chunks, removed_sha, added, added_chunks, added_sha"
        )
        for seq, record, *halves in self._streamed(columns, "trails_commits", after, _READ_TYPES):
            removed, added = (
                PartRow(as_text(sha), None if chunks else cast(bytes, blob))
                for blob, chunks, sha in (halves[:3], halves[3:])
            )
            yield CommitRow(cast(int, seq), cast(bytes, record), removed, added)

    def records(self, after: int = 0) -> Stream[Record]:
        """The records of commits alone."""
        return self._stream("trails_commits", after)

    def _stream(self, table: str, after: int) -> Stream[Record]:
        rows = self._streamed("seq, record", table, after, ["int8", "bytea"])
        return cast(Stream[Record], rows)

    def record(self, seq: int) -> bytes | None:
        """The record of a commit."""
        rows = self._all("SELECT record FROM trails_commits WHERE graph = %s AND seq = %s", seq)
        return cast(bytes, rows[0][0]) if rows else None

    def find(self, commit: str) -> bytes | None:
        """The record of a commit, by its id."""
        query = "SELECT record FROM trails_commits WHERE graph = %s AND id = %s"
        rows = self._all(query, raw(commit))
        return cast(bytes, rows[0][0]) if rows else None

    def pieces(self, row: CommitRow, half: Half) -> Iterator[bytes]:
        """The pieces of a large part."""
        part = 0
        while rows := self._all(
            "SELECT body FROM trails_chunks "
            "WHERE graph = %s AND seq = %s AND half = %s AND part = %s",
            row.seq,
            half,
            part,
        ):
            yield cast(bytes, rows[0][0])
            part += 1

    def moves(self, after: int = 0) -> Stream[Record]:
        """What happened to branches beside commits."""
        return self._stream("trails_moves", after)

    def activities(self, after: int = 0) -> Stream[Record]:
        """Those that are in no archive."""
        return self._stream("trails_activities", after)

    def archives(self) -> list[ActivityArchive]:
        """Files of activities, oldest first."""
        rows = self._all(
            "SELECT first, last, count, name, sha, oldest, newest FROM trails_archives "
            "WHERE graph = %s ORDER BY first"
        )
        return [
            ActivityArchive(*cast(tuple[int, int, int, str, str], row[:5]), *map(as_text, row[5:]))
            for row in rows
        ]

    def archive(self, archive: ActivityArchive) -> Iterator[bytes]:
        """The pieces of the file of an archive."""
        part = 0
        while rows := self._all(
            "SELECT body FROM trails_archive_chunks WHERE graph = %s AND first = %s AND part = %s",
            archive.first,
            part,
        ):
            yield cast(bytes, rows[0][0])
            part += 1

    def schemas(self) -> dict[str, bytes]:
        """Schemas by digest."""
        rows = self._all("SELECT digest, body FROM trails_schemas WHERE graph = %s")
        return {as_text(digest): cast(bytes, body) for digest, body in rows}

    def heads(self) -> list[HeadRow]:
        """Where branches are."""
        rows = self._all("SELECT branch, id, seq, schema FROM trails_heads WHERE graph = %s")
        return [
            (as_text(branch), as_text(commit), cast(int, seq), as_text(schema))
            for branch, commit, seq, schema in rows
        ]

    def keys(self) -> list[KeyRow]:
        """Idempotency keys."""
        found = []
        for (record,) in self._all("SELECT record FROM trails_keys WHERE graph = %s"):
            key = decode(KEYED, unpack(cast(bytes, record)))
            found.append((key.branch, key.actor, key.key, key.expires, cast(bytes, record)))
        return found

    def calls(self) -> list[tuple[str, bytes]]:
        """The calls that have no activity yet."""
        rows = self._all("SELECT id, record FROM trails_calls WHERE graph = %s")
        return [(as_text(each), cast(bytes, record)) for each, record in rows]

    # --- writing -----------------------------------------------------------------

    def add_schemas(self, schemas: dict[str, bytes]) -> None:
        """Add those that are not there."""
        with self._errors(), self._db.transaction(), self._db.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO trails_schemas VALUES (%s, %s, %b) ON CONFLICT DO NOTHING",
                [(self._graph, raw(digest), body) for digest, body in schemas.items()],
            )

    def add_commits(self, rows: Sequence[tuple[CommitRow, Commit]], source: LogRows) -> None:
        """Add commits, large parts in pieces."""
        with self._errors(), self._db.transaction():
            chunks = {
                (row.seq, half): self._add_pieces(
                    "trails_chunks (graph, seq, half, part, body)",
                    (self._graph, row.seq, half),
                    source.pieces(row, half),
                )
                for row, _ in rows
                for half in HALVES
                if row.part(half).blob is None
            }
            self._copy(
                "trails_commits",
                _COMMIT_TYPES,
                (
                    (
                        self._graph,
                        row.seq,
                        raw(commit.id),
                        raw(commit.branch),
                        None if commit.idempotency_key is None else indexed(commit.idempotency_key),
                        commit.migration is not None,
                        bool(commit.renames),
                        row.record,
                        row.removed.blob,
                        chunks.get((row.seq, "removed"), 0),
                        raw(row.removed.sha),
                        row.added.blob,
                        chunks.get((row.seq, "added"), 0),
                        raw(row.added.sha),
                    )
                    for row, commit in rows
                ),
            )

    def _copy(self, table: str, types: Sequence[str], rows: Iterable[Row]) -> None:
        with (
            self._db.cursor() as cursor,
            cursor.copy(f"COPY {table} FROM STDIN (FORMAT BINARY)".encode()) as copy,
        ):
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)

    def _add_pieces(self, table: str, key: Row, pieces: Iterable[bytes]) -> int:
        """Add the pieces of a text, which come in any size; how many they are then."""
        number = 0
        for body in _resized(pieces):
            marks = ", ".join(["%s"] * (len(key) + 1))
            self._db.execute(
                f"INSERT INTO {table} VALUES ({marks}, %b)".encode(),  # noqa: S608
                (*key, number, body),
            )
            number += 1
        return number

    def add_moves(self, rows: Sequence[Record]) -> None:
        """Add changes of branches."""
        with self._errors(), self._db.transaction():
            values = ((self._graph, *row) for row in rows)
            self._copy("trails_moves", ["int4", "int8", "bytea"], values)

    def add_archive(self, archive: ActivityArchive, pieces: Iterable[bytes]) -> None:
        """Add a file of activities; they leave the table."""
        with self._errors(), self._db.transaction():
            key = self._graph, archive.first
            table = "trails_archive_chunks (graph, first, part, body)"
            chunks = self._add_pieces(table, key, pieces)
            self._db.execute(
                "INSERT INTO trails_archives VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    *key,
                    archive.last,
                    archive.count,
                    archive.name,
                    archive.sha,
                    raw(archive.oldest),
                    raw(archive.newest),
                    chunks,
                ),
            )
            for table, place in (("activities", "seq"), ("activity_nodes", "activity")):
                self._db.execute(
                    f"DELETE FROM trails_{table} WHERE graph = %s AND {place} <= %s".encode(),  # noqa: S608
                    (self._graph, archive.last),
                )

    def add_activities(self, rows: Sequence[tuple[int, bytes, Activity]]) -> None:
        """Add activities, and which nodes they have read."""
        with self._errors(), self._db.transaction():
            self._copy(
                "trails_activities",
                _ACTIVITY_TYPES,
                (
                    (
                        self._graph,
                        seq,
                        raw(each.id),
                        *map(indexed, (each.actor, each.name, each.outcome, each.ended)),
                        record,
                    )
                    for seq, record, each in rows
                ),
            )
            used = sorted({(indexed(node), seq) for seq, _, each in rows for node in each.nodes})
            nodes = ((self._graph, *each) for each in used)
            self._copy("trails_activity_nodes", ["int4", "bytea", "int8"], nodes)

    def replace_rest(
        self,
        heads: Iterable[HeadRow],
        keys: Iterable[KeyRow],
        calls: Iterable[tuple[str, bytes]],
    ) -> None:
        """The tables whose rows change."""
        graph = self._graph
        with self._errors(), self._db.transaction():
            for table in ("heads", "keys", "calls"):
                self._db.execute(f"DELETE FROM trails_{table} WHERE graph = %s".encode(), (graph,))  # noqa: S608
            self._copy(
                "trails_heads",
                ["int4", "bytea", "bytea", "int8", "bytea"],
                (
                    (graph, raw(branch), raw(commit), seq, raw(schema))
                    for branch, commit, seq, schema in heads
                ),
            )
            self._copy(
                "trails_keys",
                ["int4", *["bytea"] * 5],
                (
                    (graph, *map(indexed, (branch, actor, key)), raw(expires), record)
                    for branch, actor, key, expires, record in keys
                ),
            )
            self._copy(
                "trails_calls (graph, id, record)",
                ["int4", "bytea", "bytea"],
                ((graph, raw(each), record) for each, record in calls),
            )


def _resized(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, in pieces of the size that rows have."""
    waiting = b""
    for piece in pieces:
        waiting += piece
        while len(waiting) >= CHUNK:
            yield waiting[:CHUNK]
            waiting = waiting[CHUNK:]
    if waiting:
        yield waiting
