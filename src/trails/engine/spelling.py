"""How the log spells what it is told of calls: times, and texts of any origin."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

_LONGEST: Final = 500


def spell_text(text: str) -> str:
    """A text that can be written, cut to a length: half of a surrogate pair can't be."""
    text = text[:_LONGEST]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def spell_time(at: int) -> str:
    """A time in nanoseconds since 1970."""
    seconds, rest = divmod(at, 1_000_000_000)
    return f"{_spell_second(seconds)}.{rest // 1_000_000:03}Z"


@lru_cache(maxsize=16)
def _spell_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()
