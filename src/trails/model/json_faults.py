"""Why a text is not JSON, in words that its sender understands."""

from __future__ import annotations

import json
from typing import Final

import msgspec

_CUT: Final = "Input data was truncated"
_HALF: Final = (
    "a text in it has half of a surrogate pair (an escape from \\ud800 to \\udfff on its own), "
    "which is no character"
)


def tell_fault(body: bytes | str, error: msgspec.DecodeError) -> str:
    """What the decoder found; for it, half of a pair near the end is a text that was cut off."""
    told = str(error)
    if "surrogate pair" in told or (told == _CUT and _is_whole(body)):
        return _HALF
    return told


def _is_whole(body: bytes | str) -> bool:
    try:
        json.loads(body, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True
