"""Put back commits that a log has lost and another record still holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from trails.errors import TrailsError
from trails.log.payloads import Part, open_part
from trails.log.places import SEGMENTS
from trails.log.salvage import last_place, read_rows
from trails.log.sqlite import SqliteLog
from trails.log.tail import Frame, KeptCommit
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


def _put_commit(log: SqliteLog, frame: Frame, segments: Path) -> bool:
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
    log.insert(commit, kept.payload, schema, kept.before, kept.keyed)
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
