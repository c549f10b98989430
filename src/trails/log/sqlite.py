"""The log in one SQLite file, with large deltas in segment files beside it.

WAL mode with ``synchronous=FULL``: when a transaction has committed, it has
been synced. Rows of both streams can be added and never changed; triggers
refuse the rest.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import msgspec

from trails.errors import CorruptionError, NotFoundError, ReadOnlyError, StorageError
from trails.files import copy_file, make_folder, sync_folder
from trails.imports import later
from trails.log.activities import MOST_ROWS, find_rows, matches
from trails.log.archives import (
    ARCHIVES_FOLDER,
    AT_ONCE,
    check_archives,
    find_archives,
    find_in_archive,
    insert_archive,
    last_named,
    read_archive,
    read_archives,
    write_archive,
)
from trails.log.payloads import DeltaPart, Payload, PayloadWriter, open_part
from trails.log.protocol import Header, LogEntry, SoleWriter, head_moved
from trails.log.records import ACTIVITY, COMMIT, CUT_OFF, KEYED, MOVE, SCHEMA, decode, pack, unpack
from trails.log.storage import (
    CALLS_TABLE,
    EXTRACT,
    KEYS_TABLE,
    LOG_FILE,
    MIGRATING,
    MIGRATIONS_INDEX,
    MOVES_TABLE,
    RENAMES_INDEX,
    RENAMING,
    SEGMENTED,
    SEGMENTS,
    SEGMENTS_INDEX,
    add_activity_indexes,
    bytes_of,
    connect,
    connect_read_only,
    create_log,
    create_tables,
    find_log,
    forget_statistics,
    give_back_space,
    make_append_only,
    storage_errors,
)
from trails.log.tail import TAIL_FILE, Tail
from trails.model.history import (
    GENESIS,
    LOG_FORMAT,
    Activity,
    ActivityArchive,
    ActivityQuery,
    Commit,
    Head,
    Move,
)
from trails.model.iris import canonical
from trails.model.types import Schema
from trails.model.writes import KeyedOutcome

if TYPE_CHECKING:
    from trails.log import extracts
    from trails.log.extracts import Extract
else:
    extracts = later("trails.log.extracts")

_PRUNED: Final = 20
"""Expired keys that are removed each time that one is added."""
_AT_ONCE: Final = 512
"""Activities that one statement adds."""
_DELETED_AT_ONCE: Final = 2_000
"""Archived activities that one transaction deletes: writers wait for it."""
_USES: Final = "INSERT OR IGNORE INTO activity_nodes VALUES "


class SqliteLog(SoleWriter):
    """A Log in a folder, or in memory when the folder is None."""

    def __init__(
        self,
        folder: Path | None,
        graph: str,
        base_iri: str,
        created: str,
        *,
        read_only: bool = False,
    ) -> None:
        """``read_only``: change no file, whatever is asked."""
        self.read_only = read_only
        self._tail: Tail | None = None
        self._folder = folder
        self._path = None if folder is None else folder / LOG_FILE
        self._segments = None if folder is None else folder / SEGMENTS
        self._lock = threading.RLock()
        header = Header(LOG_FORMAT, graph, base_iri, created)
        if folder is not None and not find_log(folder, graph):
            if read_only:
                raise StorageError(
                    f"graph {graph!r} does not exist yet, and can't be created while the project "
                    "is open read-only; open it once for writing"
                )
            create_log(folder, msgspec.structs.astuple(header))
        self._db = self._connect(folder)
        try:
            if folder is None:
                create_tables(self._db, msgspec.structs.astuple(header))
            self._header = self._read_header()
            if not read_only:
                self._add_missing()
            with storage_errors("read the log"):
                self._archives = read_archives(self._db)
            if not read_only:
                self._end_calls()
        except BaseException:
            self._db.close()
            raise
        self._heads = self._read_heads()
        self._branches_version = 0
        self._last: Commit | None = None
        self._newest: int | None = None
        """The place of the newest commit; None when it has to be asked for."""
        if folder is not None and not read_only:
            self._open_tail(folder)

    # --- opening ---------------------------------------------------------------

    def _connect(self, folder: Path | None) -> sqlite3.Connection:
        path = None if folder is None else folder / LOG_FILE
        if path is None or not self.read_only:
            return connect(path, synchronous="FULL")
        with storage_errors("open the log"):
            return connect_read_only(path)

    def _open_tail(self, folder: Path) -> None:
        """Follow the tail from where it is; where it lags, the log's own file must have it all."""
        self._tail = Tail(folder)
        self._sweep_segments(closed=self._tail.closed)
        last = self.last_seq()
        if self._tail.last_seq < last:
            self.compact()
            found = self.at(last)
            if found is not None:
                self._tail.add_tip(found)

    def _read_header(self) -> Header:
        with storage_errors("read the log"):
            header = Header(*self._db.execute("SELECT * FROM header").fetchone())
        if header.format != LOG_FORMAT:
            raise StorageError(
                f"this log has format {header.format}, and this version of Trails reads format "
                f"{LOG_FORMAT}; use the version that wrote it"
            )
        return header

    def _add_missing(self) -> None:
        """Tables and indexes that earlier versions did not have."""
        with storage_errors("read the log"):
            rows = self._db.execute("SELECT name FROM sqlite_master")
            known = {name for (name,) in rows}
            forget_statistics(self._db)
        wanted = {"moves", "idempotency_keys", "activity_nodes", "calls"}
        if wanted | {"commits_migrations", "commits_renames", "commits_segments"} <= known:
            return
        with self._transaction("create the log"):
            add_activity_indexes(self._db)
            self._db.execute(CALLS_TABLE)
            self._db.execute(MIGRATIONS_INDEX)
            self._db.execute(RENAMES_INDEX)
            self._db.execute(SEGMENTS_INDEX)
            if "moves" not in known:
                self._db.execute(MOVES_TABLE)
                make_append_only(self._db, "moves")
            if "idempotency_keys" not in known:
                for statement in KEYS_TABLE:
                    self._db.execute(statement)

    def _end_calls(self) -> None:
        """Record the calls whose commits were the last thing that is known of them."""
        with storage_errors("read the log"):
            rows = self._db.execute("SELECT record FROM calls").fetchall()
        if rows:
            found = (decode(ACTIVITY, record) for (record,) in rows)
            self.insert_activities(msgspec.structs.replace(each, detail=CUT_OFF) for each in found)

    def _read_heads(self) -> dict[str, Head]:
        with storage_errors("read the log"):
            rows = self._db.execute("SELECT branch, id, seq, schema FROM heads ORDER BY branch")
            return {branch: Head(*rest) for branch, *rest in rows}

    def _sweep_segments(self, *, closed: bool) -> None:
        """Remove files that no commit names: debris of a crash before an append.

        A whole one may also be what is left of a lost commit. It goes when the log is opened
        after it was closed in order, which shows that nothing was lost.
        """
        if self._segments is None or not self._segments.is_dir():
            return
        with storage_errors("read the log"):
            rows = self._db.execute(
                f"SELECT removed_segment, added_segment FROM commits WHERE {SEGMENTED}"  # noqa: S608
            )
            named = {name for row in rows for name in row}
            for path in self._segments.iterdir():
                if path.name not in named and (closed or path.suffix == ".tmp"):
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

    def _renew_heads(self) -> None:
        self._heads = self._read_heads()
        self._branches_version += 1

    def commit(self, identifier: str) -> Commit | None:
        """A commit by id."""
        last = self._last
        if last is not None and last.id == identifier:
            return last
        return self._one("SELECT record FROM commits WHERE id = ?", identifier)

    def commits(self, after: int = 0, until: int | None = None) -> Iterator[Commit]:
        """Commits in log order, those after a position."""
        bound = until if until is not None else 2**62
        while True:
            with self._lock, storage_errors("read the log"):
                rows = self._db.execute(
                    "SELECT record FROM commits WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT 500",
                    (after, bound),
                ).fetchall()
            if not rows:
                return
            for (record,) in rows:
                commit = decode(COMMIT, record)
                after = commit.seq
                yield commit

    def newest(self, before: int | None = None) -> Iterator[Commit]:
        """Commits from the newest to the oldest, those before a position."""
        bound = 2**62 if before is None else before
        while True:
            with self._lock, storage_errors("read the log"):
                rows = self._db.execute(
                    "SELECT record FROM commits WHERE seq < ? ORDER BY seq DESC LIMIT 200", (bound,)
                ).fetchall()
            if not rows:
                return
            for (record,) in rows:
                commit = decode(COMMIT, record)
                bound = commit.seq
                yield commit

    def at(self, seq: int) -> Commit | None:
        """A commit by its place."""
        return self._one("SELECT record FROM commits WHERE seq = ?", seq)

    def migrations(self) -> list[Commit]:
        """The commits of migrations on all branches, in log order."""
        return self._marked(MIGRATING)

    def renames(self) -> list[Commit]:
        """The commits on all branches that rename types or fields, in log order."""
        return self._marked(RENAMING)

    def _marked(self, mark: str) -> list[Commit]:
        query = f"SELECT record FROM commits WHERE {mark} ORDER BY seq"  # noqa: S608
        with self._lock, storage_errors("read the log"):
            rows = self._db.execute(query).fetchall()
        return [decode(COMMIT, record) for (record,) in rows]

    def starting_with(self, prefix: str, limit: int = 5) -> list[str]:
        """The ids of the first few commits that begin so."""
        with self._lock, storage_errors("read the log"):
            rows = self._db.execute(
                "SELECT id FROM commits WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
                (prefix, prefix + "g", limit),
            ).fetchall()
        return [identifier for (identifier,) in rows]

    def last_seq(self) -> int:
        """The place of the newest commit of any branch, deleted ones included."""
        if self._newest is None:
            with self._lock, storage_errors("read the log"):
                found = self._db.execute("SELECT max(seq) FROM commits").fetchone()[0]
                self._newest = found or 0
        return self._newest

    def moves(self) -> Iterator[Move]:
        """What happened to branches beside commits, in order."""
        with self._lock, storage_errors("read the log"):
            query = "SELECT 1 FROM sqlite_master WHERE name = 'moves'"
            if self.read_only and self._db.execute(query).fetchone() is None:
                return  # a log of an earlier version, or one that has lost the table
            rows = self._db.execute("SELECT record FROM moves ORDER BY seq").fetchall()
        for (record,) in rows:
            yield decode(MOVE, record)

    def keyed(self, branch: str, actor: str, key: str, now: str) -> KeyedOutcome | None:
        """What came of the actor's write with this key, unless it has expired."""
        if self.read_only:
            return None  # nothing can be written with it
        with self._lock, storage_errors("read the log"):
            row = self._db.execute(
                "SELECT record FROM idempotency_keys "
                "WHERE branch = ? AND actor = ? AND key = ? AND expires > ?",
                (branch, actor, key, now),
            ).fetchone()
        if row is not None:
            return decode(KEYED, unpack(row[0]))
        commit = self._one(
            "SELECT record FROM commits WHERE branch = ? AND idempotency_key = ?", branch, key
        )
        if commit is None or commit.actor != actor:
            return None
        return KeyedOutcome(branch, actor, key, "", "", commit.id)

    def _one(self, query: str, *values: object) -> Commit | None:
        with self._lock, storage_errors("read the log"):
            row = self._db.execute(query, values).fetchone()
        return None if row is None else decode(COMMIT, row[0])

    def open_removed(self, commit: Commit) -> IO[bytes]:
        """The statements that a commit removed, as N-Quads."""
        return self._open(commit, "removed")

    def open_added(self, commit: Commit) -> IO[bytes]:
        """The statements that a commit added, as N-Quads."""
        return self._open(commit, "added")

    def _open(self, commit: Commit, half: str) -> IO[bytes]:
        with self._lock, storage_errors("read the log"):
            row = self._db.execute(
                f"SELECT {half}, {half}_segment, {half}_sha FROM commits WHERE seq = ?",  # noqa: S608
                (commit.seq,),
            ).fetchone()
        if row is None:
            raise CorruptionError(f"commit {commit.id} is not in the log")
        blob, segment, sha = row
        return open_part(DeltaPart(0, sha, blob, segment), self._segments)

    def schema(self, digest: str) -> Schema | None:
        """A schema by its content address."""
        with self._lock, storage_errors("read the log"):
            row = self._db.execute("SELECT body FROM schemas WHERE digest = ?", (digest,))
            found = row.fetchone()
        return None if found is None else decode(SCHEMA, found[0])

    def activities(self, after: int = 0) -> Iterator[tuple[int, Activity]]:
        """Activities in log order, those after a position, archived ones included."""
        while True:
            archive = next((each for each in self.archives() if each.last > after), None)
            if archive is not None:
                kept = read_archive(self._archives_folder, archive)
                yield from (each for each in kept if each[0] > after)
                after = archive.last
                continue
            rows = self._activity_rows(after)
            if rows:
                after = rows[-1][0]
                yield from ((seq, decode(ACTIVITY, record)) for seq, record in rows)
            elif self._archived <= after:
                return

    def _activity_rows(self, after: int) -> list[tuple[int, bytes]]:
        """The next records of the table; none where an archive has the next ones."""
        with self._lock, storage_errors("read the log"):
            if self._archived > after:
                return []
            return self._db.execute(
                "SELECT seq, record FROM activities WHERE seq > ? ORDER BY seq LIMIT 500", (after,)
            ).fetchall()

    def newest_activities(self, limit: int, *, archived: bool = True) -> list[Activity]:
        """The last few activities, the newest first; of archived ones, those that are needed."""
        with self._lock, storage_errors("read the log"):
            rows = self._db.execute(
                "SELECT record FROM activities WHERE seq > ? ORDER BY seq DESC LIMIT ?",
                (self._archived, limit),
            ).fetchall()
            archives = self.archives() if archived else ()
        found = [decode(ACTIVITY, record) for (record,) in rows]
        for archive in reversed(archives):
            if len(found) >= limit:
                break
            kept = read_archive(self._archives_folder, archive)
            found += [each for _, each in reversed(kept)][: limit - len(found)]
        return found

    def find_activities(self, wanted: Mapping[str, str]) -> dict[str, Activity]:
        """Activities by id; ``wanted`` has a time before which each of them did not end.

        Those that are in no archive are found at once. Of the archives, those that may have one
        of the others are searched.
        """
        found: dict[str, Activity] = {}
        with self._lock, storage_errors("read the log"):
            for each in wanted:
                row = self._db.execute(
                    "SELECT record FROM activities WHERE id = ?", (each,)
                ).fetchone()
                if row is not None:
                    found[each] = decode(ACTIVITY, row[0])
            archives = self.archives()
        for archive in archives:
            missing = {
                each
                for each, time in wanted.items()
                if each not in found and time <= archive.newest
            }
            if missing:
                kept = find_in_archive(self._archives_folder, archive, missing)
                found.update({each.id: each for each in kept})
        return found

    def list_activities(
        self,
        wanted: ActivityQuery,
        limit: int,
        *,
        after: str | None = None,
        archived: bool = False,
    ) -> list[Activity]:
        """Some activities, newest first: those after (older than) one of them, by its id.

        ``archived``: archives are searched as well.
        """
        before = 2**62 if after is None else self._activity_place(after)
        found: list[Activity] = []
        pages = find_rows(self._db, wanted, before, min(limit, MOST_ROWS))
        while len(found) < limit:
            with self._lock, storage_errors("read the log"):
                page = next(pages, None)
            if page is None:
                break
            decoded = (decode(ACTIVITY, row) for seq, row in page if seq > self._archived)
            found += [each for each in decoded if matches(wanted, each)]
        for archive in reversed(self.archives()) if archived else ():
            if len(found) >= limit:
                break
            if archive.first < before and archive.newest >= (wanted.since or ""):
                kept = read_archive(self._archives_folder, archive)
                found += [
                    each for seq, each in reversed(kept) if seq < before and matches(wanted, each)
                ]
        return found[:limit]

    def _activity_place(self, identifier: str) -> int:
        """Where an activity is in the stream; NotFoundError if it is not there."""
        with self._lock, storage_errors("read the log"):
            row = self._db.execute(
                "SELECT seq FROM activities WHERE id = ?", (identifier,)
            ).fetchone()
        if row is not None:
            return int(row[0])
        for archive in reversed(self.archives()):
            for seq, each in read_archive(self._archives_folder, archive):
                if each.id == identifier:
                    return seq
        raise NotFoundError(f"there is no activity {identifier!r}", activity=identifier)

    # --- archives of activities --------------------------------------------------

    def archives(self) -> tuple[ActivityArchive, ...]:
        """Files of activities that have left the table, oldest first."""
        return tuple(self._archives)

    @property
    def _archived(self) -> int:
        """The place up to which archives have the activities."""
        return self._archives[-1].last if self._archives else 0

    @property
    def _archives_folder(self) -> Path:
        if self._folder is None:
            raise StorageError("a log in memory has no archives")
        return self._folder / ARCHIVES_FOLDER

    def find_archivable(self, ended_before: str, keep: int | None) -> range:
        """The places of activities that ended before a time, or are more than ``keep``.

        The newest one always stays: the table counts on from there.
        """
        low = self._archived + 1
        with self._lock, storage_errors("read the log"):
            last = self._db.execute("SELECT max(seq) FROM activities").fetchone()[0] or 0
            if self._folder is None or last <= low:
                return range(low, low)
            until, bound = low, last
            while until < bound:  # they are in the order of their ends
                middle = (until + bound) // 2
                row = self._db.execute(
                    "SELECT record FROM activities WHERE seq >= ? ORDER BY seq LIMIT 1", (middle,)
                ).fetchone()
                if decode(ACTIVITY, row[0]).ended < ended_before:
                    until = middle + 1
                else:
                    bound = middle
        if keep is not None:
            until = max(until, last + 1 - keep)
        return range(low, min(until, last))

    def archive_activities(self, places: range) -> Iterator[ActivityArchive]:
        """Move the activities at the beginning of the stream into sealed files, one by one."""
        self._delete_archived()
        while self._archived + 1 < places.stop:
            until = min(places.stop, self._archived + 1 + AT_ONCE)
            archive = write_archive(self._archives_folder, self._rows_until(until))
            with self._lock:
                with self._transaction("archive activities"):
                    insert_archive(self._db, archive)
                self._archives.append(archive)
            self._delete_archived()
            yield archive

    def put_back_activities(self, rows: Iterable[tuple[int, str, bytes]], note: Activity) -> None:
        """For a new log: name the archives in its folder, and add rows of another's table.

        ``note`` comes after all of them, and after archives that can't be read.
        """
        folder = self._archives_folder
        with self._lock, self._transaction("put activities back"):
            for archive in find_archives(folder):
                insert_archive(self._db, archive)
                self._archives.append(archive)
            for seq, identifier, record in rows:
                if seq > self._archived:
                    self._db.execute(
                        "INSERT OR IGNORE INTO activities VALUES (?, ?, ?)",
                        (seq, identifier, record),
                    )
                    nodes = decode(ACTIVITY, record).nodes
                    self._insert_many(_USES, [(node, seq) for node in nodes])
            (last,) = self._db.execute("SELECT coalesce(max(seq), 0) FROM activities").fetchone()
            self._db.execute(
                "INSERT INTO activities VALUES (?, ?, ?)",
                (max(last, last_named(folder)) + 1, note.id, canonical(note)),
            )

    def _rows_until(self, until: int) -> Iterator[tuple[int, bytes]]:
        after = self._archived
        while rows := [row for row in self._activity_rows(after) if row[0] < until]:
            yield from rows
            after = rows[-1][0]

    def _delete_archived(self) -> None:
        """Delete the rows that archives have, a few at a time."""
        while self._archives:
            with self._transaction("archive activities"):
                deleted = self._db.execute(
                    "DELETE FROM activities WHERE seq IN "
                    "(SELECT seq FROM activities WHERE seq <= ? ORDER BY seq LIMIT ?)",
                    (self._archived, _DELETED_AT_ONCE),
                ).rowcount
                if deleted < _DELETED_AT_ONCE:
                    self._db.execute(
                        "DELETE FROM activity_nodes WHERE activity <= ?", (self._archived,)
                    )
            if deleted < _DELETED_AT_ONCE:
                return

    def missing_archives(self) -> list[str]:
        """The names of archived files that are not there."""
        names = [each.name for each in self._archives]
        return [each for each in names if not (self._archives_folder / each).is_file()]

    def check_archives(self) -> list[str]:
        """What is wrong with the files of archived activities."""
        return (
            list(check_archives(self._archives_folder, self.archives())) if self._archives else []
        )

    def size(self) -> int:
        """How many bytes of disk the log takes, with its tail and the archives."""
        if self._folder is None:
            return 0
        patterns = f"{LOG_FILE}*", SEGMENTS, f"{TAIL_FILE}*", ARCHIVES_FOLDER
        return bytes_of(path for each in patterns for path in self._folder.glob(each))

    def give_back_space(self) -> None:
        """Give what the file does not use back to the file system."""
        if self._folder is not None:
            give_back_space(self._db, self._folder / LOG_FILE, self._lock)

    # --- writing ---------------------------------------------------------------

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

        ``move`` creates a branch first; ``activities`` of earlier calls need no sync of their own.
        """
        every, number, schema = list(entries), 0, ""
        bodies: list[bytes | None] = []
        heads: dict[str, Head] = {}
        with self._transaction("append to the log"):
            if move is not None:
                schema = self._schema_at(move.commit)
                number, move = self._insert_move(move, schema)
                heads[move.branch] = Head(move.commit, 0, schema)
            for each in every:
                commit = each.commit
                known = heads.get(commit.branch) or self._heads.get(commit.branch)
                self._move_head(commit, each.expected)
                bodies.append(self._insert_commit(each, None if known is None else known.schema))
                heads[commit.branch] = Head(commit.id, commit.seq, commit.schema)
                if each.keyed is not None:
                    self._remember(each.keyed, commit.time)
                if each.call is not None:
                    self._db.execute(
                        "INSERT OR REPLACE INTO calls VALUES (?, ?)",
                        (each.call.id, canonical(each.call)),
                    )
            if activities:
                self._insert_activities(activities)
            last = every[-1].commit
            self._newest = last.seq  # here, because an interrupt can follow the COMMIT
        self._heads.update(heads)
        if move is not None or any(body is not None for body in bodies):
            self._branches_version += 1
        self._last = last
        if self._tail is not None:
            if move is not None:
                self._tail.add_move(number, move, schema, None)
            self._fill_tail(self._tail, every[0].commit.seq)
            for each, body in zip(every, bodies, strict=True):
                self._tail.add_commit(each.commit, each.payload, body, each.expected, each.keyed)

    def _schema_at(self, identifier: str) -> str:
        found = None if identifier == GENESIS else self.commit(identifier)
        return Schema().digest if found is None else found.schema

    def _insert_commit(self, entry: LogEntry, known: str | None) -> bytes | None:
        """Add the row of a commit; return its schema in JSON form if that is not ``known``."""
        commit, schema = entry.commit, entry.schema
        body = None
        if known != commit.schema:
            body = canonical(schema)
            self._db.execute("INSERT OR IGNORE INTO schemas VALUES (?, ?)", (schema.digest, body))
        removed, added = entry.payload.removed, entry.payload.added
        self._db.execute(
            "INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                commit.seq,
                commit.id,
                commit.branch,
                commit.idempotency_key,
                canonical(commit),
                removed.blob,
                removed.segment,
                removed.sha,
                added.blob,
                added.segment,
                added.sha,
            ),
        )
        return body

    def adopt(self, payload: Payload, folder: Path | None) -> None:
        """Take over the files of a delta that was collected in another folder."""
        if folder is None or self._segments is None:
            return
        with storage_errors("write a segment"):
            for part in (payload.removed, payload.added):
                if part.segment is not None and (folder / part.segment).exists():
                    make_folder(self._segments)
                    (folder / part.segment).replace(self._segments / part.segment)
                    sync_folder(self._segments)

    def _move_head(self, commit: Commit, expected: str) -> None:
        """Let a branch end with a commit, if it is still at ``expected``."""
        new = commit.id, commit.seq, commit.schema, commit.branch
        if expected == GENESIS:
            query = "INSERT OR IGNORE INTO heads (id, seq, schema, branch) VALUES (?, ?, ?, ?)"
            moved = self._db.execute(query, new).rowcount
        else:
            query = "UPDATE heads SET id = ?, seq = ?, schema = ? WHERE branch = ? AND id = ?"
            moved = self._db.execute(query, (*new, expected)).rowcount
        if moved:
            return
        # What is remembered may be older: an interrupt can fall right after a COMMIT. What this
        # transaction has written is not to be remembered.
        self._db.execute("ROLLBACK")
        self._renew_heads()
        head = self._heads.get(commit.branch)
        raise head_moved(commit.branch, expected, GENESIS if head is None else head.commit)

    def _fill_tail(self, tail: Tail, seq: int) -> None:
        """Add what is missing before a commit: an interrupt may have come between log and tail."""
        if tail.last_seq and tail.last_seq < seq - 1:
            for commit in self.commits(tail.last_seq, seq - 1):
                tail.add_tip(commit)

    def remember(self, keyed: KeyedOutcome, now: str) -> None:
        """Keep the outcome of a write that made no commit and moved no branch."""
        with self._transaction("append to the log"):
            self._remember(keyed, now)

    def _remember(self, keyed: KeyedOutcome, now: str) -> None:
        """Add a key, and remove some that have expired: the table stays as large as its use."""
        self._db.execute(
            "DELETE FROM idempotency_keys WHERE (branch, actor, key) IN (SELECT branch, actor, key "
            "FROM idempotency_keys WHERE expires <= ? ORDER BY expires LIMIT ?)",
            (now, _PRUNED),
        )
        self._db.execute(
            "INSERT OR REPLACE INTO idempotency_keys VALUES (?, ?, ?, ?, ?)",
            (keyed.branch, keyed.actor, keyed.key, keyed.expires, pack(canonical(keyed))),
        )

    def move(self, move: Move, schema: str, keyed: KeyedOutcome | None = None) -> Move:
        """Make, move or delete a branch durably, if it is still where ``move.before`` says."""
        with self._transaction("append to the log"):
            number, move = self._insert_move(move, schema)
            if keyed is not None:
                self._remember(keyed, move.time)
        self._renew_heads()
        if self._tail is not None:
            self._tail.add_move(number, move, schema, keyed)
        return move

    def _insert_move(self, move: Move, schema: str) -> tuple[int, Move]:
        """Add a move to the open transaction; return its number, and the move as it was added."""
        found = self._db.execute("SELECT id FROM heads WHERE branch = ?", (move.branch,)).fetchone()
        actual = GENESIS if found is None else found[0]
        if actual != move.before:
            self._renew_heads()
            raise head_moved(move.branch, move.before, actual)
        move = msgspec.structs.replace(move, after=self.last_seq())
        record = canonical(move)
        number = self._db.execute("INSERT INTO moves (record) VALUES (?)", (record,)).lastrowid
        if move.action == "delete":
            self._db.execute("DELETE FROM heads WHERE branch = ?", (move.branch,))
            # A branch that gets this name later is another one.
            self._db.execute("DELETE FROM idempotency_keys WHERE branch = ?", (move.branch,))
        else:
            self._db.execute(
                "INSERT OR REPLACE INTO heads VALUES (?, ?, ?, ?)",
                (move.branch, move.commit, self._seq_of(move.commit), schema),
            )
        return number or 0, move

    def _seq_of(self, identifier: str) -> int:
        if identifier == GENESIS:
            return 0
        row = self._db.execute("SELECT seq FROM commits WHERE id = ?", (identifier,)).fetchone()
        if row is None:
            raise CorruptionError(f"commit {identifier} is not in the log")
        return int(row[0])

    def insert_activities(self, activities: Iterable[Activity]) -> None:
        """Add to the stream of activities, all in one transaction."""
        every = list(activities)
        # A statement a row, or BEGIN and COMMIT around one statement, would take the interpreter's
        # lock back from threads that answer calls, each time.
        alone = len(every) <= _AT_ONCE and not any(each.nodes or each.generated for each in every)
        with (self._writing if alone else self._transaction)("append to the log"):
            self._insert_activities(every)

    def _insert_activities(self, every: Sequence[Activity]) -> None:
        (last,) = self._db.execute("SELECT coalesce(max(seq), 0) FROM activities").fetchone()
        rows = [(at, each.id, canonical(each)) for at, each in enumerate(every, last + 1)]
        # One that is there was written before an interrupt, of which its writer knows nothing.
        self._insert_many("INSERT OR IGNORE INTO activities VALUES ", rows)
        used = sorted((node, at) for at, each in enumerate(every, last + 1) for node in each.nodes)
        self._insert_many(_USES, used)
        made = [(each.id,) for each in every if each.generated]
        if made:
            self._db.executemany("DELETE FROM calls WHERE id = ?", made)

    def _insert_many(self, start: str, rows: Sequence[tuple[object, ...]]) -> None:
        for at in range(0, len(rows), _AT_ONCE):
            some = rows[at : at + _AT_ONCE]
            marks = "(" + ",".join("?" * len(some[0])) + ")"
            self._db.execute(start + ",".join([marks] * len(some)), [*chain.from_iterable(some)])

    @contextmanager
    def _writing(self, doing: str) -> Iterator[None]:
        """A block of one statement, which is a transaction of its own."""
        if self.read_only:
            raise ReadOnlyError(f"can't {doing}: it is open read-only")
        with self._lock, storage_errors(doing):
            yield

    @contextmanager
    def _transaction(self, doing: str) -> Iterator[None]:
        with self._writing(doing):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._newest = None
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def check(self) -> list[str]:
        """What SQLite itself finds wrong with the file."""
        with self._lock:
            try:
                rows = self._db.execute("PRAGMA integrity_check").fetchall()
            except sqlite3.DatabaseError as error:
                return [str(error)]
        return [text for (text,) in rows if text != "ok"]

    def copy_new(self, folder: Path, since: Mapping[str, int], known: Container[str]) -> Extract:
        """Copy what came after some places into a folder, as of one moment.

        Files beside the log that are ``known`` are left out. Writers do not wait for it.
        """
        with storage_errors("copy the log"):
            make_folder(folder)
            if self._path is None:
                with self._lock:
                    return extracts.extract(self._db, folder / EXTRACT, since)
            with closing(self._new_reader(self._path)) as reader:
                found = extracts.extract(reader, folder / EXTRACT, since)
            for name in found.files:
                if name not in known:
                    make_folder((folder / name).parent)
                    copy_file(self._path.parent / name, folder / name)
        return found

    def _new_reader(self, path: Path) -> sqlite3.Connection:
        """A connection to read the log with, and to write to other files."""
        if not self.read_only:
            return connect(path, synchronous="FULL")
        reader = connect_read_only(path)
        reader.execute("PRAGMA query_only = OFF")
        return reader

    def compact(self) -> None:
        """Move what is in the WAL into the file."""
        if self.read_only:
            return
        with self._lock, storage_errors("compact the log"):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            self._db.close()
            if self._tail is not None:
                self._tail.close()
