"""Records as a log stores them: JSON, compressed where it is large."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from trails.errors import CorruptionError
from trails.log.storage import zstd
from trails.model.history import Activity, Commit, Move
from trails.model.types import Schema
from trails.model.writes import KeyedOutcome

COMMIT: Final = msgspec.json.Decoder(Commit)
KEYED: Final = msgspec.json.Decoder(KeyedOutcome)
MOVE: Final = msgspec.json.Decoder(Move)
ACTIVITY: Final = msgspec.json.Decoder(Activity)
SCHEMA: Final = msgspec.json.Decoder(Schema)

CUT_OFF: Final = "recorded with its commit; the process ended before the rest was"
"""What the activity says of a call that a crash cut off, or whose record it did."""
_PLAIN_RECORD: Final = 1 << 10
"""Bytes above which the record of a key is compressed."""
T = TypeVar("T")


def decode(decoder: msgspec.json.Decoder[T], record: bytes) -> T:
    """What a record says; CorruptionError if it can't be read."""
    try:
        return decoder.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
        raise CorruptionError(
            f"the log is damaged: a record can't be read ({error}); run 'trails verify' and "
            "restore the log from a backup"
        ) from error


def pack(record: bytes) -> bytes:
    """The record of a key as a row has it."""
    return record if len(record) <= _PLAIN_RECORD else zstd.compress(record)


def unpack(record: bytes) -> bytes:
    """The inverse of ``pack``."""
    try:
        return record if record.startswith(b"{") else zstd.decompress(record)
    except (zstd.ZstdError, AttributeError, TypeError) as error:
        raise CorruptionError(f"the log is damaged: a key can't be read ({error})") from error
