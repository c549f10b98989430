"""What commands share without importing a library, so that a server starts fast."""

from __future__ import annotations

import re
import sys
from typing import Final

USAGE: Final = 2
"""The exit code of a command that was not understood, or failed."""
INTERRUPTED: Final = 130
"""The exit code of a command that was interrupted."""


STEERING: Final = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
"""Characters that control a terminal (C0, C1) or text direction, except newline and tab."""
_steering: Final = re.compile(STEERING)


def visible(text: str) -> str:
    """A text with control characters replaced by their codes."""
    return _steering.sub(_number, text)


def _number(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def print_status(text: str) -> None:
    """Print a status line on standard error."""
    sys.stderr.write(f"trails: {visible(text)}\n")
    sys.stderr.flush()
