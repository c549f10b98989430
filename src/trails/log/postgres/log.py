"""The log in PostgreSQL.

A write is one transaction that begins with the lock on the row of its stream, so place numbers are
given in the order in which transactions commit (``turns``). Tables are in ``schema``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, cast

import msgspec

from trails.errors import (
    ConflictError,
    CorruptionError,
    StorageError,
)
from trails.files import make_folder
from trails.log.extracts import Extract
from trails.log.payloads import DeltaPart, Payload, PayloadWriter, open_part
from trails.log.postgres.chunks import insert_chunks, open_chunks
from trails.log.postgres.connections import Connection, Connections
from trails.log.postgres.extracts import copy_rows
from trails.log.postgres.following import Following
from trails.log.postgres.schema import create_tables, indexed, raw
from trails.log.postgres.streams import ACTIVITIES, COMMITS, check_complete, check_in_use
from trails.log.postgres.turns import as_text, one_row
from trails.log.protocol import Header, LogEntry, head_moved
from trails.log.records import COMMIT, KEYED, MOVE, SCHEMA, decode, pack, unpack
from trails.log.storage import SEGMENTS, bytes_of, storage_errors
from trails.model.history import GENESIS, LOG_FORMAT, Activity, Commit, Head, Move
from trails.model.iris import canonical
from trails.model.types import Schema
from trails.model.writes import KeyedOutcome

_LAST: Final = 2**62
_PRUNED: Final = 20
"""Expired keys that are removed each time that one is added."""


class PostgresLog(Following):
    """A Log of one graph, which other servers read and write too."""

    def __init__(
        self,
        url: str,
        folder: Path | None,
        graph: str,
        base_iri: str,
        created: str,
        *,
        read_only: bool = False,
        create: bool = True,
    ) -> None:
        """``folder`` takes large deltas on their way.

        ``create``: whether a log is made where there is none.
        """
        self._create = create
        self._segments = None if folder is None else folder / SEGMENTS
        self._last: Commit | None = None
        connections = Connections(url)
        try:
            wanted = Header(LOG_FORMAT, graph, base_iri, created)
            self._header, number = self._open(connections, wanted, read_only=read_only)
            super().__init__(connections, number, graph, read_only=read_only)
        except BaseException:
            connections.close()
            raise
        try:
            if not read_only:
                self._join()
                self._sweep()
        except BaseException:
            self.close()
            raise

    # --- opening ---------------------------------------------------------------

    def _open(
        self, connections: Connections, wanted: Header, *, read_only: bool
    ) -> tuple[Header, int]:
        def find(connection: Connection) -> tuple[Header, int]:
            (standby,) = one_row(connection.execute("SELECT pg_is_in_recovery()"))
            if standby:
                raise StorageError(
                    f"the log of graph {wanted.graph!r} is on a standby ({connections.place}), "
                    "whose changes can't be followed yet; name the primary in the URL, or all "
                    "servers with target_session_attrs=read-write"
                )
            if not read_only:
                create_tables(connection)
            found = _find_graph(connection, wanted.graph)
            if found is not None:
                check_in_use(connection, wanted.graph, found[1], connections.place)
            else:
                if read_only:
                    raise StorageError(
                        f"graph {wanted.graph!r} does not exist yet, and can't be created while "
                        "the project is open read-only; open it once for writing"
                    )
                check_complete(connection, wanted.graph, connections.place)
                if not self._create:
                    raise CorruptionError(
                        f"{connections.place} has no log of graph {wanted.graph!r}, but the "
                        "graph's folder has views of one. Nothing was changed. Correct the URL, or "
                        "restore the database"
                    )
                found = _create_graph(connection, wanted)
            return found

        header, number = connections.read("open the log", find)
        if header.format != LOG_FORMAT:
            raise StorageError(
                f"this log has format {header.format}, and this version of Trails reads format "
                f"{LOG_FORMAT}; use the version that wrote it"
            )
        if header.base_iri != wanted.base_iri:
            raise StorageError(
                f"the log on {connections.place} has a graph {header.graph!r} with the base IRI "
                f"{header.base_iri}, and the one of this project is {wanted.base_iri}. If it is "
                f'the same graph, set base_iri = "{header.base_iri}"; if not, give the projects '
                "schemas of their own in PostgreSQL, with ?options=-csearch_path%3D<schema> at the "
                "end of the URL"
            )
        return header, number

    def _sweep(self) -> None:
        """Remove large deltas that a process left behind: the log has what it needs."""
        if self._segments is not None and self._segments.is_dir():
            with storage_errors("read the log"):
                for path in self._segments.iterdir():
                    path.unlink()

    # --- reading ---------------------------------------------------------------

    @property
    def header(self) -> Header:
        """What was fixed when the graph was created."""
        return self._header

    def head(self, branch: str) -> Head | None:
        """Where a branch is, or None before its first commit."""
        return self._heads.get(branch)

    def branches(self) -> dict[str, Head]:
        """All branch heads by name."""
        return dict(self._heads)

    @property
    def branches_version(self) -> int:
        """Changes when branches come, go, or get other types."""
        return self._branches_version

    def commit(self, identifier: str) -> Commit | None:
        """A commit by id."""
        last, recent = self._last, self._recent.get(identifier)
        if last is not None and last.id == identifier:
            return last
        if recent is not None:
            return recent[0]
        return self._one_commit("id = %s", raw(identifier))

    def commits(self, after: int = 0, until: int | None = None) -> Iterator[Commit]:
        """Commits in log order, those after a position."""
        bound = _LAST if until is None else until
        while rows := self._all(
            "SELECT record FROM trails_commits WHERE graph = %s AND seq > %s AND seq <= %s "
            "ORDER BY seq LIMIT 500",
            self._graph,
            after,
            bound,
        ):
            for (record,) in rows:
                commit = decode(COMMIT, cast(bytes, record))
                after = commit.seq
                yield commit

    def newest(self, before: int | None = None) -> Iterator[Commit]:
        """Commits from the newest to the oldest, those before a position."""
        bound = _LAST if before is None else before
        while rows := self._all(
            "SELECT record FROM trails_commits WHERE graph = %s AND seq < %s "
            "ORDER BY seq DESC LIMIT 200",
            self._graph,
            bound,
        ):
            for (record,) in rows:
                commit = decode(COMMIT, cast(bytes, record))
                bound = commit.seq
                yield commit

    def at(self, seq: int) -> Commit | None:
        """A commit by its place."""
        return self._one_commit("seq = %s", seq)

    def migrations(self) -> list[Commit]:
        """The commits of migrations on all branches, in log order."""
        return self._marked("migrates")

    def renames(self) -> list[Commit]:
        """The commits on all branches that rename types or fields, in log order."""
        return self._marked("renames")

    def _marked(self, mark: str) -> list[Commit]:
        query = f"SELECT record FROM trails_commits WHERE graph = %s AND {mark} ORDER BY seq"  # noqa: S608
        return [decode(COMMIT, cast(bytes, row)) for (row,) in self._all(query, self._graph)]

    def starting_with(self, prefix: str, limit: int = 5) -> list[str]:
        """The ids of the first few commits that begin so."""
        rows = self._all(
            "SELECT id FROM trails_commits WHERE graph = %s AND id >= %s AND id < %s "
            "ORDER BY id LIMIT %s",
            self._graph,
            raw(prefix),
            raw(prefix + "g"),
            limit,
        )
        return [as_text(identifier) for (identifier,) in rows]

    def last_seq(self) -> int:
        """The place of the newest commit of any branch, deleted ones included."""
        return self._ends[0]

    def moves(self) -> Iterator[Move]:
        """What happened to branches beside commits, in order."""
        query = "SELECT record FROM trails_moves WHERE graph = %s ORDER BY seq"
        for (record,) in self._all(query, self._graph):
            yield decode(MOVE, cast(bytes, record))

    def keyed(self, branch: str, actor: str, key: str, now: str) -> KeyedOutcome | None:
        """What came of the actor's write with this key, unless it has expired."""
        if self.read_only:
            return None  # nothing can be written with it
        rows = self._all(
            "SELECT record FROM trails_keys "
            "WHERE graph = %s AND branch = %s AND actor = %s AND key = %s AND expires > %s",
            self._graph,
            *map(indexed, (branch, actor, key)),
            raw(now),
        )
        if rows:
            return decode(KEYED, unpack(cast(bytes, rows[0][0])))
        commit = self._one_commit(
            "branch = %s AND idempotency_key = %s", indexed(branch), indexed(key)
        )
        if commit is None or commit.actor != actor:
            return None
        return KeyedOutcome(branch, actor, key, "", "", commit.id)

    def _one_commit(self, condition: str, *values: object) -> Commit | None:
        query = f"SELECT record FROM trails_commits WHERE graph = %s AND {condition}"  # noqa: S608
        rows = self._all(query, self._graph, *values)
        return decode(COMMIT, cast(bytes, rows[0][0])) if rows else None

    def open_removed(self, commit: Commit) -> IO[bytes]:
        """The statements that a commit removed, as N-Quads."""
        return self._open_half(commit, "removed")

    def open_added(self, commit: Commit) -> IO[bytes]:
        """The statements that a commit added, as N-Quads."""
        return self._open_half(commit, "added")

    def _open_half(self, commit: Commit, half: str) -> IO[bytes]:
        recent = self._recent.get(commit.id)
        if recent is not None and half in recent[1]:
            return open_part(DeltaPart(0, *recent[1][half]), None)
        rows = self._all(
            f"SELECT {half}, {half}_chunks, {half}_sha FROM trails_commits "  # noqa: S608
            "WHERE graph = %s AND seq = %s",
            self._graph,
            commit.seq,
        )
        if not rows:
            raise CorruptionError(f"commit {commit.id} is not in the log")
        blob, chunks, sha = rows[0]
        if not chunks:
            return open_part(DeltaPart(0, as_text(sha), cast(bytes, blob)), None)
        return open_chunks(
            self._connections, (self._graph, commit.seq, half), cast(int, chunks), as_text(sha)
        )

    def schema(self, digest: str) -> Schema | None:
        """A schema by its content address."""
        rows = self._all(
            "SELECT body FROM trails_schemas WHERE graph = %s AND digest = %s",
            self._graph,
            raw(digest),
        )
        return decode(SCHEMA, cast(bytes, rows[0][0])) if rows else None

    # --- writing -----------------------------------------------------------------

    def new_payload(self) -> PayloadWriter:
        """Where the next commit's delta is collected."""
        return PayloadWriter(self._segments)

    def insert_all(
        self,
        entries: Iterable[LogEntry],
        *,
        move: Move | None = None,
        activities: Sequence[Activity] = (),
    ) -> None:
        """Make commits durable, all or none, if the branch of each is where it is expected to be.

        ``move`` creates a branch first; ``activities`` of earlier calls are added with them.
        """
        every = list(entries)
        last, heads, changed = every[-1].commit, dict[str, Head](), move is not None
        with self._turn() as connection:
            places = [each.commit.seq for each in every]
            if places != list(range(self.last_seq() + 1, self.last_seq() + 1 + len(every))):
                raise ConflictError(
                    "other commits came in between; read again, redo the change, and retry"
                )
            if move is not None:
                schema = self._schema_at(move.commit)
                self._insert_move(connection, move, schema)
                heads[move.branch] = Head(move.commit, 0, schema)
            for each in every:
                commit = each.commit
                known = heads.get(commit.branch) or self._heads.get(commit.branch)
                new = known is None or known.schema != commit.schema
                self._insert_entry(connection, each, new=new)
                changed = changed or new
                heads[commit.branch] = Head(commit.id, commit.seq, commit.schema)
            if activities:
                self._add_activities(connection, activities)
            ends = last.seq, last.id, self._ends[2] + (move is not None)
            self._commit(last.id, ends, lambda asked: self._has(asked, last.id))
            self._last = last
            self._heads.update(heads)
            self._branches_version += changed
        for each in every:
            self._drop_segments(each.payload)

    def _schema_at(self, identifier: str) -> str:
        found = None if identifier == GENESIS else self.commit(identifier)
        return Schema().digest if found is None else found.schema

    def _has(self, connection: Connection, identifier: str) -> bool:
        query = "SELECT 1 FROM trails_commits WHERE graph = %s AND id = %s"
        return connection.execute(query, (self._graph, raw(identifier))).fetchone() is not None

    def _insert_entry(self, connection: Connection, entry: LogEntry, *, new: bool) -> None:
        commit, schema, expected = entry.commit, entry.schema, entry.expected
        removed, added = entry.payload.removed, entry.payload.added
        head = raw(commit.branch), raw(commit.id), commit.seq, raw(commit.schema)
        chunks = {
            half: insert_chunks(connection, (self._graph, commit.seq, half), part, self._segments)
            for half, part in (("removed", removed), ("added", added))
        }
        with connection.pipeline():
            if expected == GENESIS:
                moved = connection.execute(
                    "INSERT INTO trails_heads (graph, branch, id, seq, schema) "
                    "VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                    (self._graph, *head),
                )
            else:
                moved = connection.execute(
                    "UPDATE trails_heads SET id = %s, seq = %s, schema = %s "
                    "WHERE graph = %s AND branch = %s AND id = %s",
                    (*head[1:], self._graph, head[0], raw(expected)),
                )
            if new:
                connection.execute(
                    "INSERT INTO trails_schemas VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                    (self._graph, raw(schema.digest), canonical(schema)),
                )
            key = commit.idempotency_key
            connection.execute(
                "INSERT INTO trails_commits "
                "VALUES (%s, %s, %s, %s, %s, %s, %s, %b, %b, %s, %s, %b, %s, %s)",
                (
                    self._graph,
                    commit.seq,
                    raw(commit.id),
                    raw(commit.branch),
                    None if key is None else indexed(key),
                    commit.migration is not None,
                    bool(commit.renames),
                    canonical(commit),
                    None if chunks["removed"] else removed.blob,
                    chunks["removed"],
                    raw(removed.sha),
                    None if chunks["added"] else added.blob,
                    chunks["added"],
                    raw(added.sha),
                ),
            )
            if entry.call is not None:
                connection.execute(
                    "INSERT INTO trails_calls VALUES (%s, %s, %b, %s) "
                    "ON CONFLICT (graph, id) DO UPDATE SET record = excluded.record",
                    (self._graph, raw(entry.call.id), canonical(entry.call), self._server),
                )
        if not moved.rowcount:
            found = self._heads.get(commit.branch)
            actual = GENESIS if found is None else found.commit
            raise head_moved(commit.branch, expected, actual)
        if entry.keyed is not None:
            self._remember(connection, entry.keyed, commit.time)

    def adopt(self, payload: Payload, folder: Path | None) -> None:
        """Take over the files of a delta that was collected in another folder."""
        if folder is None or self._segments is None:
            return
        with storage_errors("write a segment"):
            for part in (payload.removed, payload.added):
                if part.segment is not None and (folder / part.segment).exists():
                    make_folder(self._segments)
                    (folder / part.segment).replace(self._segments / part.segment)

    def _drop_segments(self, payload: Payload) -> None:
        if self._segments is not None:
            for part in (payload.removed, payload.added):
                if part.segment is not None:
                    (self._segments / part.segment).unlink(missing_ok=True)

    def remember(self, keyed: KeyedOutcome, now: str) -> None:
        """Keep the outcome of a write that made no commit and moved no branch."""
        with self._turn() as connection:
            self._remember(connection, keyed, now)
            self._commit("", self._ends, lambda asked: self._has_key(asked, keyed))

    def _has_key(self, connection: Connection, keyed: KeyedOutcome) -> bool:
        row = connection.execute(
            "SELECT record FROM trails_keys "
            "WHERE graph = %s AND branch = %s AND actor = %s AND key = %s",
            (self._graph, *map(indexed, (keyed.branch, keyed.actor, keyed.key))),
        ).fetchone()
        return row is not None and row[0] == pack(canonical(keyed))

    def _remember(self, connection: Connection, keyed: KeyedOutcome, now: str) -> None:
        """Add a key, and remove some that have expired: the table stays as large as its use."""
        connection.execute(
            "DELETE FROM trails_keys WHERE graph = %(graph)s AND (branch, actor, key) IN ("
            "SELECT branch, actor, key FROM trails_keys WHERE graph = %(graph)s "
            "AND expires <= %(now)s ORDER BY expires LIMIT %(most)s)",
            {"graph": self._graph, "now": raw(now), "most": _PRUNED},
        )
        connection.execute(
            "INSERT INTO trails_keys VALUES (%s, %s, %s, %s, %s, %b) "
            "ON CONFLICT (graph, branch, actor, key) "
            "DO UPDATE SET expires = excluded.expires, record = excluded.record",
            (
                self._graph,
                *map(indexed, (keyed.branch, keyed.actor, keyed.key)),
                raw(keyed.expires),
                pack(canonical(keyed)),
            ),
        )

    def move(self, move: Move, schema: str, keyed: KeyedOutcome | None = None) -> Move:
        """Make, move or delete a branch durably, if it is still where ``move.before`` says."""
        with self._turn() as connection:
            move = self._insert_move(connection, move, schema)
            if keyed is not None:
                self._remember(connection, keyed, move.time)
            newest, commit, last_move = self._ends
            number, record = last_move + 1, canonical(move)

            def landed(asked: Connection) -> bool:
                query = "SELECT record FROM trails_moves WHERE graph = %s AND seq = %s"
                found = asked.execute(query, (self._graph, number)).fetchone()
                return found is not None and found[0] == record

            self._commit("", (newest, commit, number), landed)
            heads = dict(self._heads)
            heads.pop(move.branch, None)
            if move.action != "delete":
                heads[move.branch] = Head(move.commit, self._seq_of(move.commit), schema)
            self._heads = heads
            self._branches_version += 1
        return move

    def _insert_move(self, connection: Connection, move: Move, schema: str) -> Move:
        """Add a move to the open transaction; return it as it was added."""
        branch = raw(move.branch)
        found = connection.execute(
            "SELECT id FROM trails_heads WHERE graph = %s AND branch = %s", (self._graph, branch)
        ).fetchone()
        actual = GENESIS if found is None else as_text(found[0])
        if actual != move.before:
            raise head_moved(move.branch, move.before, actual)
        move = msgspec.structs.replace(move, after=self.last_seq())
        connection.execute(
            "INSERT INTO trails_moves VALUES (%s, %s, %b)",
            (self._graph, self._ends[2] + 1, canonical(move)),
        )
        if move.action == "delete":
            connection.execute(
                "DELETE FROM trails_heads WHERE graph = %s AND branch = %s", (self._graph, branch)
            )
            # A branch that gets this name later is another one.
            connection.execute(
                "DELETE FROM trails_keys WHERE graph = %s AND branch = %s", (self._graph, branch)
            )
        else:
            connection.execute(
                "INSERT INTO trails_heads VALUES (%s, %s, %s, %s, %s) "
                "ON CONFLICT (graph, branch) DO UPDATE "
                "SET id = excluded.id, seq = excluded.seq, schema = excluded.schema",
                (self._graph, branch, raw(move.commit), self._seq_of(move.commit), raw(schema)),
            )
        return move

    def _seq_of(self, identifier: str) -> int:
        if identifier == GENESIS:
            return 0
        commit = self.commit(identifier)
        if commit is None:
            raise CorruptionError(f"commit {identifier} is not in the log")
        return commit.seq

    # --- upkeep ------------------------------------------------------------------

    def check(self) -> list[str]:
        """What is wrong with the rows beside their digests: gaps, heads of nothing."""
        found = []
        query = (
            "SELECT count(*), coalesce(max(seq), 0), coalesce(min(seq), 1) FROM trails_{} "
            "WHERE graph = %s"
        )
        for table in ("commits", "moves"):
            ((count, last, first),) = self._all(query.format(table), self._graph)
            if (count, first) != (last, 1):
                found.append(f"trails_{table} has {count} rows, and the last place is {last}")
        rows = self._all(
            "SELECT h.branch FROM trails_heads h LEFT JOIN trails_commits c "
            "ON c.graph = h.graph AND c.id = h.id AND c.seq = h.seq "
            "WHERE h.graph = %s AND h.id <> '' AND c.seq IS NULL",
            self._graph,
        )
        found += [f"the head of branch {as_text(branch)} is not in the log" for (branch,) in rows]
        return found

    def copy_new(self, folder: Path, since: Mapping[str, int], known: Container[str]) -> Extract:
        """Copy what came after some places into a folder, as of one moment, in SQLite's form.

        Large parts and archives that are ``known`` are left out. Writers do not wait for it.
        """
        with self._connections.errors("copy the log"), self._connections.borrowed() as connection:
            return copy_rows(connection, self._graph, self._header, folder, since, known)

    def size(self) -> int:
        """Bytes of the tables, those of the other graphs in them included, and of local files."""
        ((total,),) = self._all(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c "
            "WHERE c.relnamespace = (SELECT relnamespace FROM pg_class "
            "WHERE oid = 'trails_graphs'::regclass) AND c.relkind = 'r' "
            "AND starts_with(c.relname::text, 'trails_')"
        )
        return cast(int, total) + (0 if self._segments is None else bytes_of([self._segments]))

    def give_back_space(self) -> None:
        """Nothing to do: PostgreSQL does it by itself."""

    def compact(self) -> None:
        """Nothing to do: PostgreSQL does it by itself."""


def _find_graph(connection: Connection, name: str) -> tuple[Header, int] | None:
    (table,) = one_row(connection.execute("SELECT to_regclass('trails_graphs')::text"))
    if table is None:
        return None
    row = connection.execute(
        "SELECT id, format, base_iri, created FROM trails_graphs WHERE name = %s", (raw(name),)
    ).fetchone()
    if row is None:
        return None
    number, form, base_iri, created = row
    return Header(cast(int, form), name, as_text(base_iri), as_text(created)), cast(int, number)


def _create_graph(connection: Connection, wanted: Header) -> tuple[Header, int]:
    with connection.transaction():
        row = connection.execute(
            "INSERT INTO trails_graphs (name, format, base_iri, created) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT DO NOTHING RETURNING id",
            (raw(wanted.graph), wanted.format, raw(wanted.base_iri), raw(wanted.created)),
        ).fetchone()
        if row is not None:
            for stream in (COMMITS, ACTIVITIES):
                connection.execute("INSERT INTO trails_streams VALUES (%s, %s)", (row[0], stream))
    found = _find_graph(connection, wanted.graph)
    assert found is not None  # noqa: S101 - this server or another one has just created it
    return found
