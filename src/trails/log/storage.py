"""SQLite connections and the errors of a disk, in the words of Trails."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from trails.errors import CorruptionError, StorageError, StorageFullError

_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def connect(path: Path | None, *, synchronous: str) -> sqlite3.Connection:
    """Open a database in WAL mode; None is a private one in memory.

    Statements are autocommitted: every transaction in Trails is written out.
    """
    with storage_errors("open a database"):
        connection = sqlite3.connect(
            path or ":memory:", isolation_level=None, check_same_thread=False, timeout=30
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
    return connection


def make_folder(folder: Path) -> None:
    """Make a folder whose name survives a power cut, and its parents likewise."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_folder(each.parent)


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


def storage_errors(
    doing: str, on_damage: Callable[[], None] | None = None
) -> AbstractContextManager[None]:
    """Turn what the disk says into StorageErrors that tell what to do.

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
        told: BaseException = error
        if isinstance(error, sqlite3.DatabaseError):
            told = self._of_sqlite(error)
        elif isinstance(error, OSError):
            told = self._of_system(error)
        if isinstance(told, CorruptionError) and self._on_damage is not None:
            self._on_damage()
        if told is not error:
            raise told from error

    def _of_sqlite(self, error: sqlite3.DatabaseError) -> StorageError:
        code = getattr(error, "sqlite_errorcode", None)
        if code in _FULL:
            return full(self._doing)
        # The module, which gives no code then, could not read a text as UTF-8.
        unreadable = code is None and "decode" in str(error)
        if unreadable or (code is not None and code & 0xFF in _DAMAGED):
            return CorruptionError(f"can't {self._doing}: {error}; run 'trails verify'")
        return StorageError(f"can't {self._doing}: {error}")

    def _of_system(self, error: OSError) -> StorageError:
        # EDQUOT 122, EFBIG 27, ENOSPC 28: the ways in which a disk says that it is full.
        if error.errno in {27, 28, 122} or "No space left" in str(error):
            return full(self._doing)
        return StorageError(f"can't {self._doing}: {error}")


def full(doing: str) -> StorageFullError:
    """The disk is full: what happened and what to do."""
    return StorageFullError(
        f"can't {doing}: no space left on the disk. Everything acknowledged before is safe and "
        "readable; free some space and try again"
    )
