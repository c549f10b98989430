"""What commands share and needs no library: a server that starts should import little."""

from __future__ import annotations

import re
import sys
from typing import Final

INTERRUPTED: Final = 130
"""The exit code of a command that was interrupted."""


STEERING: Final = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
"""Characters that steer a terminal (C0, C1) or the direction of text; lines and tabs aside."""
_steering: Final = re.compile(STEERING)


def visible(text: str) -> str:
    """A text in which nothing steers the terminal that shows it."""
    return _steering.sub(_number, text)


def _number(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def tell(text: str) -> None:
    """Say something beside the output."""
    sys.stderr.write(f"trails: {visible(text)}\n")
    sys.stderr.flush()
