"""Read what can still be read of a log with damaged pages."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import msgspec

from trails.log.places import LOG_FILE
from trails.log.storage import connect_read_only
from trails.log.tail import Frame, Kept, KeptCommit, KeptMove
from trails.model.history import GENESIS, Activity, Commit, Move

_COLUMNS: Final = "record, removed_sha, removed, removed_segment, added_sha, added, added_segment"
_UNREADABLE: Final = (
    sqlite3.DatabaseError,
    msgspec.DecodeError,
    UnicodeDecodeError,
    TypeError,
    OSError,
)
"""What damage leads to: pages, records and types of values that are wrong, and no file."""
_ACTIVITY: Final = msgspec.json.Decoder(Activity)


def damaged_pages(folder: Path) -> str | None:
    """What SQLite finds wrong with the file of a log that can be opened; None if it is sound."""
    with closing(connect_read_only(folder / LOG_FILE)) as db:
        try:
            (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            found = str(error)
    return None if found == "ok" else f"is damaged ({' '.join(found.split())})"


def last_place(folder: Path) -> int:
    """The place of the newest commit that a log has, readable or not."""
    with closing(connect_read_only(folder / LOG_FILE)) as db:
        (last,) = db.execute("SELECT coalesce(max(seq), 0) FROM commits").fetchone()
    return int(last)


def read_activities(folder: Path) -> Iterator[tuple[int, str, bytes]]:
    """Activities that are in the log's table, with place and id, up to the first unreadable one."""
    with suppress(*_UNREADABLE), closing(connect_read_only(folder / LOG_FILE)) as db:
        for seq, identifier, record in db.execute("SELECT seq, id, record FROM activities"):
            _ACTIVITY.decode(record)
            yield seq, identifier, record


def read_rows(folder: Path) -> Iterator[Frame]:
    """Commits and moves of a log in their order, up to the first that can't be read.

    Idempotency keys are left out: a key whose outcome is uncertain must not answer a retry.
    """
    with suppress(*_UNREADABLE), closing(connect_read_only(folder / LOG_FILE)) as db:
        heads: dict[str, str] = {}
        schemas: dict[str, str] = {}
        moves, seq = 0, 1
        while True:
            while (move := _move(db, moves + 1)) is not None and move.after < seq:
                moves += 1
                if move.action == "delete":
                    heads.pop(move.branch, None)
                else:
                    heads[move.branch] = move.commit
                kept = KeptMove(msgspec.json.encode(move), schemas.get(move.commit, ""))
                yield Frame("move", moves, move.commit, msgspec.msgpack.encode(kept))
            found = _commit(db, seq, heads)
            if found is None:
                return
            commit, kept_commit = found
            yield Frame("commit", seq, commit.id, msgspec.msgpack.encode(kept_commit))
            heads[commit.branch] = commit.id
            schemas[commit.id] = commit.schema
            seq += 1


def _commit(
    db: sqlite3.Connection, seq: int, heads: dict[str, str]
) -> tuple[Commit, KeptCommit] | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM commits WHERE seq = ?", (seq,)).fetchone()  # noqa: S608
    if row is None:
        return None
    commit = msgspec.json.decode(row[0], type=Commit)
    query = "SELECT body FROM schemas WHERE digest = ?"
    schema = db.execute(query, (commit.schema,)).fetchone()
    return commit, KeptCommit(
        msgspec.json.encode(commit),
        Kept(commit.removed, *row[1:4]),
        Kept(commit.added, *row[4:7]),
        None if schema is None else schema[0],
        heads.get(commit.branch, GENESIS),
    )


def _move(db: sqlite3.Connection, number: int) -> Move | None:
    with suppress(sqlite3.OperationalError):  # a log without branches has no such table
        row = db.execute("SELECT record FROM moves WHERE seq = ?", (number,)).fetchone()
        return None if row is None else msgspec.json.decode(row[0], type=Move)
    return None
