"""SQLite connections, the errors of a disk in the words of Trails, and new logs.

A log is created in an empty place only. A folder that holds views or segments but no log that can
be read has lost its log; an empty one in its place would throw away what is left. Zstandard comes
from the standard library, or from its backport where that has none.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from trails.errors import CorruptionError, StorageError, StorageFullError, UnwritableError
from trails.files import PRIVATE_FILE, make_folder, sync_folder
from trails.log.switching import refuse_moved

_INCREMENTAL: Final = 2
"""SQLite's number for files that can shrink in steps."""
SHRINKABLE: Final = f"PRAGMA auto_vacuum = {_INCREMENTAL}"
"""Said to a new database before its first table."""
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_UNWRITABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_SHARED_MEMORY = {sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMMAP}
"""The ``-shm`` file can't be made or grown; SQLite does not say why."""
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
BUSY_SECONDS: Final = 5.0
"""How long a statement waits for a lock; one process owns a project, so it should never wait."""


def connect(path: Path | None, *, synchronous: str) -> sqlite3.Connection:
    """Open a database in WAL mode; None is a private one in memory.

    Statements are autocommitted: every transaction in Trails is written out.
    """
    with storage_errors("open a database"):
        if path is not None:
            create_private(path)
        connection = sqlite3.connect(
            path or ":memory:", isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
    return connection


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Open a database of ours to read it, without changing or creating any file beside it.

    SQLite would make a ``-shm`` file, and move a WAL into the database when it closes. Locks are
    left out: this process owns the folder, or no process can write to it.
    """
    wal = path.with_name(f"{path.name}-wal")
    used = wal.exists() and wal.stat().st_size
    # Without a WAL the file is all there is. With one, its index is kept in memory.
    how = "vfs=unix-none" if used else "immutable=1"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro&{how}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        if used:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException as error:
        connection.close()
        if is_malformed(error):
            raise _malformed() from error
        raise
    return connection


def is_malformed(error: BaseException | None) -> bool:
    """Whether SQLite complains of a schema in words that are not UTF-8: Python has no text then."""
    return isinstance(error, UnicodeDecodeError) and error.object.startswith(b"malformed database")


def _malformed() -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError("malformed database schema")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


_STEP: Final = 256
"""Pages that are given back in one transaction."""
_WORTHWHILE: Final = 1 << 20
"""Unused bytes from which a file that can't shrink in steps is rewritten."""


def give_back_space(
    db: sqlite3.Connection, path: Path, lock: AbstractContextManager[object]
) -> None:
    """Give the pages that a database does not use back to the file system.

    Where the file allows it, in steps between which others have the lock; else the file is
    written anew, once, if that pays and the disk has room, and shrinks in steps from then on.
    """
    with storage_errors("give unused space back"):
        with lock:
            stepwise = _pragma(db, "auto_vacuum") == _INCREMENTAL
        while stepwise:
            with lock:
                before = _pragma(db, "freelist_count")
                db.execute(f"PRAGMA incremental_vacuum({_STEP})").fetchall()
                if not before or _pragma(db, "freelist_count") >= before:
                    break
        with lock:
            unused = _pragma(db, "freelist_count") * _pragma(db, "page_size")
            size = _pragma(db, "page_count") * _pragma(db, "page_size")
            room = shutil.disk_usage(path.parent).free
            if unused > max(_WORTHWHILE, size // 10) and room > 2 * size:
                db.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
                db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def create_private(path: Path) -> None:
    """Make a new database private; SQLite gives its WAL and shared memory the same mode.

    One that exists is not opened: closing it would drop the locks that this process holds on it.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE))


def files_below(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Files and the facts about them; one that is removed meanwhile is left out.

    RocksDB removes files at any time, in threads of its own.
    """
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            try:
                facts = path.stat()
            except FileNotFoundError:
                continue
            yield path, facts


def bytes_of(paths: Iterable[Path]) -> int:
    """The bytes of files and of all files below folders; hard links count once."""
    sizes: dict[int, int] = {}
    for path in paths:
        for _, facts in files_below(path):
            sizes[facts.st_ino] = facts.st_size
        if path.is_file():
            with suppress(FileNotFoundError):
                facts = path.stat()
                sizes[facts.st_ino] = facts.st_size
    return sum(sizes.values())


def storage_errors(
    doing: str, on_damage: Callable[[], None] | None = None
) -> AbstractContextManager[None]:
    """Turn what the disk says into StorageErrors that say what to do.

    ``on_damage`` is called before a CorruptionError leaves.
    """
    return _Translation(doing, on_damage)


class _Translation:
    """A class, because every save enters many and a generator costs several times as much."""

    __slots__ = ("_doing", "_on_damage")

    def __init__(self, doing: str, on_damage: Callable[[], None] | None) -> None:
        self._doing = doing
        self._on_damage = on_damage

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            return
        raised: BaseException = error
        if isinstance(error, sqlite3.DatabaseError):
            raised = self._of_sqlite(error)
        elif isinstance(error, OSError):
            raised = self._of_system(error)
        elif is_malformed(error):
            raised = self._of_sqlite(_malformed())
        if isinstance(raised, CorruptionError) and self._on_damage is not None:
            self._on_damage()
        if raised is not error:
            raise raised from error

    def _of_sqlite(self, error: sqlite3.DatabaseError) -> StorageError:
        code = getattr(error, "sqlite_errorcode", None)
        if code in _FULL:
            return full(self._doing)
        # The module, which gives no code then, could not read a text as UTF-8.
        unreadable = code is None and "decode" in str(error)
        if unreadable or (code is not None and code & 0xFF in _DAMAGED):
            return CorruptionError(f"can't {self._doing}: {error}; run 'trails verify'")
        if code is not None and code & 0xFF in _BUSY:
            return StorageError(
                f"can't {self._doing}: another process has locked the database for more than "
                f"{BUSY_SECONDS:g} seconds. Only the process that owns a project may open its "
                "files: find the other one with 'fuser' on the files in .trails, end it, and try "
                "again"
            )
        if code in _SHARED_MEMORY or (code is not None and code & 0xFF in _UNWRITABLE):
            return UnwritableError(f"can't {self._doing}: {error}")
        return StorageError(f"can't {self._doing}: {error}")

    def _of_system(self, error: OSError) -> StorageError:
        # EDQUOT 122, EFBIG 27, ENOSPC 28: the ways in which a disk says that it is full.
        if error.errno in {27, 28, 122} or "No space left" in str(error):
            return full(self._doing)
        if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
            return UnwritableError(f"can't {self._doing}: {error}")
        return StorageError(f"can't {self._doing}: {error}")


def says_full(text: str) -> bool:
    """Whether the text of an error says that a disk is full; RocksDB hands on nothing else."""
    return any(
        words in text for words in ("No space left", "File too large", "Disk quota exceeded")
    )


def full(doing: str) -> StorageFullError:
    """The disk is full: what happened and what to do."""
    return StorageFullError(
        f"can't {doing}: no space left on the disk. Everything acknowledged before is safe and "
        "readable; free some space and try again"
    )


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]


LOG_FILE: Final = "log.db"
SEGMENTS: Final = "segments"
"""The folder with the large parts of commits."""
EXTRACT: Final = "rows.db"
"""In a backup: what the log has after the backup before."""
NEW_LOG: Final = "log.new"
"""A log that is being created; it gets its name when it is complete."""
_SHOWN: Final = 6


_TABLES: Final = """
CREATE TABLE header (
    format INTEGER NOT NULL, graph TEXT NOT NULL, base_iri TEXT NOT NULL, created TEXT NOT NULL
);
CREATE TABLE commits (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    branch TEXT NOT NULL,
    idempotency_key TEXT,
    record BLOB NOT NULL,            -- the Commit as JSON
    removed BLOB, removed_segment TEXT, removed_sha TEXT NOT NULL,
    added BLOB, added_segment TEXT, added_sha TEXT NOT NULL
);
CREATE UNIQUE INDEX commits_idempotency ON commits (branch, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE TABLE heads (
    branch TEXT PRIMARY KEY, id TEXT NOT NULL, seq INTEGER NOT NULL, schema TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE schemas (digest TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE activities (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, record BLOB NOT NULL);
"""
MOVES_TABLE: Final = "CREATE TABLE moves (seq INTEGER PRIMARY KEY, record BLOB NOT NULL)"
"""Logs that were made before there were branches get it when they are opened."""
KEYS_TABLE: Final = (
    """
CREATE TABLE idempotency_keys (
    branch TEXT NOT NULL, actor TEXT NOT NULL, key TEXT NOT NULL,
    expires TEXT NOT NULL,
    record BLOB NOT NULL,            -- the KeyedOutcome as JSON, compressed where it is large
    PRIMARY KEY (branch, actor, key)
) WITHOUT ROWID""",
    "CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires)",
)
"""Added to logs that were made before. Commits of that time hold their keys themselves."""


def _member(name: str) -> str:
    """The text of a member of an activity, up to its first quote.

    Nothing is parsed: that would take longer than all the rest of keeping an activity.
    """
    start = f'"{name}":"'
    rest = f"substr(record, instr(record, CAST('{start}' AS BLOB)) + {len(start)})"
    return f"substr({rest}, 1, instr({rest}, X'22') - 1)"


ACTOR: Final = _member("actor")
NAME: Final = _member("name")
OUTCOME: Final = _member("outcome")
FAILED: Final = """instr(record, CAST('"outcome":"ok"' AS BLOB)) = 0"""
ACTIVITY_INDEXES: Final = {
    "activities_actor": f"ON activities ({ACTOR})",
    "activities_name": f"ON activities ({NAME})",
    # Most calls succeed, and those are found soon without an index.
    "activities_outcome": f"ON activities ({OUTCOME}) WHERE {FAILED}",
}
"""Added to logs that were made before. Entries end with ``seq``, so they are in its order."""
MIGRATING: Final = """instr(record, CAST('"migration":{' AS BLOB)) > 0"""
"""Whether a commit belongs to a migration; in a message, the quotes would be escaped."""
MIGRATIONS_INDEX: Final = (
    f"CREATE INDEX IF NOT EXISTS commits_migrations ON commits (seq) WHERE {MIGRATING}"
)
"""Added to logs that were made before."""
RENAMING: Final = """instr(record, CAST('"renames":[[' AS BLOB)) > 0"""
"""Whether a commit renames types or fields; in a message, the quotes would be escaped."""
RENAMES_INDEX: Final = (
    f"CREATE INDEX IF NOT EXISTS commits_renames ON commits (seq) WHERE {RENAMING}"
)
"""Added to logs that were made before."""
SEGMENTED: Final = "removed_segment IS NOT NULL OR added_segment IS NOT NULL"
"""Whether statements of a commit are in a file of their own."""
SEGMENTS_INDEX: Final = (
    "CREATE INDEX IF NOT EXISTS commits_segments ON commits (removed_segment, added_segment) "
    f"WHERE {SEGMENTED}"
)
"""Added to logs that were made before. The names in a row come after its statements."""
USES_TABLE: Final = """
CREATE TABLE activity_nodes (
    node TEXT NOT NULL, activity INTEGER NOT NULL, PRIMARY KEY (node, activity)
) WITHOUT ROWID"""
"""The nodes that activities have read, of those that are not archived."""
CALLS_TABLE: Final = """
CREATE TABLE IF NOT EXISTS calls (id TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID
"""
"""Calls that made a commit and have no activity yet. Added to logs that were made before."""
_APPEND_ONLY: Final = """
CREATE TRIGGER {table}_{verb} BEFORE {verb} ON {table}
BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END;
"""
HeaderRow = tuple[object, ...]
"""Format, graph, base IRI and time of creation of a log."""


def create_log(folder: Path, header: HeaderRow) -> None:
    """Create a log; it gets its name when it is complete, so no crash leaves half of one."""
    with storage_errors("create the log"):
        make_folder(folder)
        path = folder / NEW_LOG
        for leftover in (path, folder / f"{NEW_LOG}-journal"):
            leftover.unlink(missing_ok=True)
        create_private(path)
        db = sqlite3.connect(path, isolation_level=None)
        try:
            db.execute(SHRINKABLE)
            db.execute("PRAGMA synchronous = FULL")
            create_tables(db, header)
        finally:
            db.close()
        path.rename(folder / LOG_FILE)
        sync_folder(folder)


def create_tables(db: sqlite3.Connection, header: HeaderRow) -> None:
    """The tables of a log, and what is fixed about it."""
    with storage_errors("create the log"):
        db.execute("BEGIN IMMEDIATE")
        for statement in _TABLES.split(";\n"):
            if statement.strip():
                db.execute(statement)
        for table in ("commits", "activities", "schemas", "header"):
            make_append_only(db, table)
        add_activity_indexes(db)
        db.execute(CALLS_TABLE)
        db.execute(MIGRATIONS_INDEX)
        db.execute(RENAMES_INDEX)
        db.execute(SEGMENTS_INDEX)
        db.execute("INSERT INTO header VALUES (?, ?, ?, ?)", header)
        db.execute("COMMIT")


def add_activity_indexes(db: sqlite3.Connection) -> None:
    """Index activities, those of an earlier version too: their records stay as they are."""
    for name, definition in ACTIVITY_INDEXES.items():
        db.execute(f"CREATE INDEX IF NOT EXISTS {name} {definition}")
    db.execute(USES_TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))


def forget_statistics(db: sqlite3.Connection) -> None:
    """Delete what ``PRAGMA optimize`` of earlier versions noted about the sizes of tables.

    The planner believes it however much has been added since, and would read a table that was
    short then from end to end. Without it, the planner takes every table for a long one.
    """
    query = "SELECT name FROM sqlite_master WHERE name IN ('sqlite_stat1', 'sqlite_stat4')"
    names = [name for (name,) in db.execute(query).fetchall()]
    if any(db.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() for name in names):  # noqa: S608
        with suppress(sqlite3.OperationalError):  # a full disk: the next start does it
            for name in names:
                db.execute(f"DELETE FROM {name}")  # noqa: S608
            db.execute("ANALYZE sqlite_schema")  # reads them again


def make_append_only(db: sqlite3.Connection, table: str) -> None:
    """Refuse every change of rows that are there."""
    for verb in ("UPDATE", "DELETE"):
        db.execute(_APPEND_ONLY.format(table=table, verb=verb))


def find_log(folder: Path, graph: str) -> bool:
    """Whether a folder has a log; False for an empty place, where one may be created.

    Raises CorruptionError for anything else.
    """
    with storage_errors("look into the graph's folder"):
        problem = log_problem(folder)
        if problem is None:
            return True
        beside = _interrupted(folder)
        left = _leftovers(folder)
    if problem == _MISSING:
        refuse_moved(folder, graph)
    if problem == _MISSING and not left:
        if not beside:
            return False
        raise CorruptionError(
            f"graph {graph!r} has no data, but {_listed(beside)} in {folder.parent} shows that a "
            "restore or recovery did not finish. Rename the folder with your data to "
            f"{folder.name!r} and try again, or restore a backup ('trails restore <backup>')"
        )
    others = f"{_listed(left)} are still there" if left else "nothing else is there"
    raise CorruptionError(
        f"graph {graph!r} has lost its log: {folder / LOG_FILE} {problem}; {others}. Nothing was "
        "changed. Restore a backup ('trails restore <backup> --force'), or rebuild what is left "
        "with 'trails recover'"
    )


_MISSING: Final = "is missing"


def log_problem(folder: Path) -> str | None:
    """Why the file in a graph's folder is not a log; None when it is one."""
    path = folder / LOG_FILE
    if not path.exists():
        return _MISSING
    if not path.is_file():
        return "is not a file"
    if not path.stat().st_size:
        return "is empty"
    try:
        db = connect_read_only(path)
        try:
            found = db.execute("SELECT count(*) FROM header").fetchone()[0]
        finally:
            db.close()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        return "is not a log (it has no header)"
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF not in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            raise
        return f"can't be read ({error})"
    return None if found else "is not a log (it has no header)"


def _leftovers(folder: Path) -> list[str]:
    """What is in a graph's folder beside its log."""
    if not folder.is_dir():
        return []
    own = (LOG_FILE, NEW_LOG, f"{NEW_LOG}-journal")
    return sorted(each.name for each in folder.iterdir() if each.name not in own)


def _interrupted(folder: Path) -> list[str]:
    """Folders that a restore or a recovery moved aside, beside the graph's own."""
    return sorted(
        each.name
        for kind in ("replaced", "damaged")
        for each in folder.parent.glob(f"{folder.name}.{kind}-*")
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
