"""Put back commits that a log has lost and another record still holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from trails.errors import TrailsError
from trails.log.payloads import Part, open_part
from trails.log.sqlite import SqliteLog
from trails.log.tail import Frame
from trails.model.history import Commit, Move, is_chained
from trails.model.types import Schema

_BLOCK: Final = 1 << 20


def schemas_of(frames: Sequence[Frame]) -> Mapping[str, Schema]:
    """The schemas that a tail holds, by digest."""
    found: dict[str, Schema] = {}
    for frame in frames:
        kept = frame.commit() if frame.kind == "commit" else None
        if kept is not None and kept.schema is not None:
            schema = msgspec.json.decode(kept.schema, type=Schema)
            found[schema.digest] = schema
    return found


def put_back(log: SqliteLog, frames: Iterable[Frame], segments: Path) -> list[str]:
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
        except (TrailsError, msgspec.DecodeError):
            break
    return restored


def _put_commit(log: SqliteLog, frame: Frame, segments: Path) -> bool:
    kept = frame.commit()
    if kept is None:
        return False
    commit = msgspec.json.decode(kept.commit, type=Commit)
    if kept.schema is None:
        schema = log.schema(commit.schema)
    else:
        schema = msgspec.json.decode(kept.schema, type=Schema)
    parents = [log.commit(parent) for parent in commit.parents]
    if schema is None or schema.digest != commit.schema or commit.seq != log.last_seq() + 1:
        return False
    if not is_chained(commit, tuple(parent.digest for parent in parents if parent is not None)):
        return False
    payload = kept.payload
    for part in (payload.removed, payload.added):
        _check(part, segments)
    if payload.digest != commit.payload:
        return False
    log.insert(commit, payload, schema, kept.before, kept.keyed)
    return True


def _check(part: Part, segments: Path) -> None:
    """Read statements to their end, where their digest is compared."""
    with open_part(part, segments) as stream:
        while stream.read(_BLOCK):
            pass


def _put_move(log: SqliteLog, frame: Frame) -> bool:
    kept = frame.move()
    if kept is None:
        return False
    log.move(msgspec.json.decode(kept.move, type=Move), kept.schema, kept.keyed)
    return True
