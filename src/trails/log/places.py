"""Where a log may be opened, and where one may be created.

A log is created in an empty place only. A folder that holds views or segments but no log that
can be read has lost its log; an empty one in its place would throw away what is left.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from trails.errors import CorruptionError
from trails.log.storage import connect_read_only, storage_errors

LOG_FILE: Final = "log.db"
SEGMENTS: Final = "segments"
"""The folder with the large parts of commits."""
EXTRACT: Final = "rows.db"
"""In a backup: what the log has after the backup before."""
NEW_LOG: Final = "log.new"
"""A log that is being created; it gets its name when it is complete."""
_SHOWN: Final = 6


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
