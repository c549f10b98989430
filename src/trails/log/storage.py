"""SQLite connections and the errors of a disk, in the words of Trails."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trails.errors import CorruptionError, StorageError, StorageFullError

_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def connect(path: Path | None, *, synchronous: str) -> sqlite3.Connection:
    """Open a database in WAL mode; None is a private one in memory.

    Statements are autocommitted: every transaction in Trails is written out.
    """
    with storage_errors("open a database"):
        connection = sqlite3.connect(
            path or ":memory:", isolation_level=None, check_same_thread=False, timeout=30
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")
    return connection


@contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turn what the disk says into StorageErrors that tell what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", None)
        primary = code & 0xFF if code is not None else None
        if code in _FULL:
            raise full(doing) from error
        if primary in _DAMAGED:
            raise CorruptionError(f"can't {doing}: {error}; run 'trails verify'") from error
        raise StorageError(f"can't {doing}: {error}") from error
    except OSError as error:
        # EDQUOT 122, EFBIG 27, ENOSPC 28: the ways in which a disk says that it is full.
        if error.errno in {27, 28, 122} or "No space left" in str(error):
            raise full(doing) from error
        raise StorageError(f"can't {doing}: {error}") from error


def full(doing: str) -> StorageFullError:
    """The disk is full: what happened and what to do."""
    return StorageFullError(
        f"can't {doing}: no space left on the disk. Everything acknowledged before is safe and "
        "readable; free some space and try again"
    )
