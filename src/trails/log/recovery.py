"""Recovery: put back commits that a log has lost and another record still holds.

Reads what can still be read of a log with damaged pages.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import msgspec

from trails.errors import TrailsError
from trails.log.payloads import DeltaPart, open_part
from trails.log.protocol import LogEntry
from trails.log.sqlite import SqliteLog
from trails.log.storage import LOG_FILE, SEGMENTS, connect_read_only
from trails.log.tail import KeptCommit, KeptMove, TailDelta, TailFrame
from trails.model.history import GENESIS, Activity, Commit, Move, is_chained
from trails.model.types import Schema

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


def read_rows(folder: Path) -> Iterator[TailFrame]:
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
                yield TailFrame("move", moves, move.commit, msgspec.msgpack.encode(kept))
            found = _commit(db, seq, heads)
            if found is None:
                return
            commit, kept_commit = found
            yield TailFrame("commit", seq, commit.id, msgspec.msgpack.encode(kept_commit))
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
        TailDelta(commit.removed, *row[1:4]),
        TailDelta(commit.added, *row[4:7]),
        None if schema is None else schema[0],
        heads.get(commit.branch, GENESIS),
    )


def _move(db: sqlite3.Connection, number: int) -> Move | None:
    with suppress(sqlite3.OperationalError):  # a log without branches has no such table
        row = db.execute("SELECT record FROM moves WHERE seq = ?", (number,)).fetchone()
        return None if row is None else msgspec.json.decode(row[0], type=Move)
    return None


_BLOCK: Final = 1 << 20


def schemas_of(frames: Sequence[TailFrame]) -> Mapping[str, Schema]:
    """The schemas that a tail holds, by digest."""
    found: dict[str, Schema] = {}
    for frame in frames:
        kept = frame.commit() if frame.kind == "commit" else None
        if kept is not None and kept.schema is not None:
            schema = msgspec.json.decode(kept.schema, type=Schema)
            found[schema.digest] = schema
    return found


def put_back(log: SqliteLog, frames: Iterable[TailFrame], segments: Path) -> list[str]:
    """Append what a log lacks, exactly as it was; the ids of the commits that came back.

    Ends at the first that can't be put back: what came later builds on it.
    """
    restored: list[str] = []
    moves = sum(1 for _ in log.moves())
    for frame in frames:
        try:
            if frame.kind == "commit" and log.commit(frame.id) is None:
                if not _put_commit(log, frame, segments):
                    break
                restored.append(frame.id)
            elif frame.kind == "move" and frame.number > moves:
                if frame.number != moves + 1 or not _put_move(log, frame):
                    break
                moves += 1
        except (TrailsError, msgspec.DecodeError, UnicodeDecodeError):
            break
    return restored


def damaged_commit(folder: Path) -> str | None:
    """What is wrong with the first commit of a log that is not as it was made; None if all are."""
    digests: dict[str, str] = {}
    seq = 0
    for frame in read_rows(folder):
        if frame.kind != "commit":
            continue
        seq = frame.number
        try:
            kept = frame.commit()
            if kept is None:
                continue
            commit = msgspec.json.decode(kept.commit, type=Commit)
            whole = _is_whole(commit, kept, _schema(kept), digests, folder / SEGMENTS)
        except (TrailsError, OSError, msgspec.DecodeError, UnicodeDecodeError):
            whole = False
        if not whole or commit.seq != seq:
            return f"holds commit {seq} ({frame.id}) in another form than it was made"
        digests[commit.id] = commit.digest
    return None if seq >= last_place(folder) else f"holds commit {seq + 1} in no readable form"


def _schema(kept: KeptCommit) -> Schema | None:
    return None if kept.schema is None else msgspec.json.decode(kept.schema, type=Schema)


def _is_whole(
    commit: Commit,
    kept: KeptCommit,
    schema: Schema | None,
    digests: Mapping[str, str],
    segments: Path,
) -> bool:
    """Whether a commit, its schema and its statements are as they were made.

    ``digests``: those of its parents, at least.
    """
    if schema is None or schema.digest != commit.schema:
        return False
    parents = tuple(digests[parent] for parent in commit.parents if parent in digests)
    if not is_chained(commit, parents):
        return False
    payload = kept.payload
    for part in (payload.removed, payload.added):
        _check(part, segments)
    return payload.digest == commit.payload


def _put_commit(log: SqliteLog, frame: TailFrame, segments: Path) -> bool:
    kept = frame.commit()
    if kept is None:
        return False
    commit = msgspec.json.decode(kept.commit, type=Commit)
    schema = _schema(kept) or log.schema(commit.schema)
    found = [log.commit(parent) for parent in commit.parents]
    digests = {parent.id: parent.digest for parent in found if parent is not None}
    if commit.seq != log.last_seq() + 1:
        return False
    if schema is None or not _is_whole(commit, kept, schema, digests, segments):
        return False
    log.insert_all([LogEntry(commit, kept.payload, schema, kept.before, kept.keyed)])
    return True


def _check(part: DeltaPart, segments: Path) -> None:
    """Read statements to their end, where their digest is compared."""
    with open_part(part, segments) as stream:
        while stream.read(_BLOCK):
            pass


def _put_move(log: SqliteLog, frame: TailFrame) -> bool:
    kept = frame.move()
    if kept is None:
        return False
    log.move(msgspec.json.decode(kept.move, type=Move), kept.schema, kept.keyed)
    return True
