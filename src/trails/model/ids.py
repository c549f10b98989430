"""Ids of nodes without a key: UUIDv7, so that creation order is index order."""

from __future__ import annotations

import os
import threading
import time
from hashlib import sha256

_lock = threading.Lock()
_last = 0


def uuid7() -> str:
    """A UUID version 7 (RFC 9562), strictly increasing within this process."""
    global _last  # noqa: PLW0603 - one clock a process is the point
    with _lock:
        # 48 bits of milliseconds and 12 of a counter make one number that only grows.
        ticks = max(time.time_ns() // 1_000_000 << 12, _last + 1)
        _last = ticks
    value = (ticks >> 12) << 80 | 7 << 76 | (ticks & 0xFFF) << 64 | 2 << 62
    value |= int.from_bytes(os.urandom(8), "big") >> 2
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def edge_id(source: str, target: str) -> str:
    """The id of the one edge of its type between two nodes, the same on every branch."""
    return sha256(f"{source}\n{target}".encode()).hexdigest()[:32]
