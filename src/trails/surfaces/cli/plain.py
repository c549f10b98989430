"""What commands share and needs no library: a server that starts should import little."""

from __future__ import annotations

import sys
from typing import Final

INTERRUPTED: Final = 130
"""The exit code of a command that was interrupted."""


def tell(text: str) -> None:
    """Say something beside the output."""
    sys.stderr.write(f"trails: {text}\n")
    sys.stderr.flush()
