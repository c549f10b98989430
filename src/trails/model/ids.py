"""Ids of nodes without a key: UUIDv7, so that creation order is index order."""

from __future__ import annotations

import os
import threading
import time
from hashlib import sha256
from typing import Final

_RANDOM: Final = 4096
"""Random bytes that are drawn at once: a draw is a system call, and costs more than the rest."""

_lock = threading.Lock()
_last = 0
_random = memoryview(b"")


def uuid7() -> str:
    """A UUID version 7 (RFC 9562), strictly increasing within this process."""
    global _last, _random  # noqa: PLW0603 - one clock a process is the point
    with _lock:
        # 48 bits of milliseconds and 12 of a counter make one number that only grows.
        ticks = max(time.time_ns() // 1_000_000 << 12, _last + 1)
        _last = ticks
        if not _random:
            _random = memoryview(os.urandom(_RANDOM))
        drawn, _random = _random[:8], _random[8:]
    value = (ticks >> 12) << 80 | 7 << 76 | (ticks & 0xFFF) << 64 | 2 << 62
    value |= int.from_bytes(drawn, "big") >> 2
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _forget_random() -> None:
    """A child would draw what its parent draws."""
    global _random, _lock
    _random, _lock = memoryview(b""), threading.Lock()


os.register_at_fork(after_in_child=_forget_random)


def edge_id(source: str, target: str) -> str:
    """The id of the one edge of its type between two nodes, the same on every branch."""
    return sha256(f"{source}\n{target}".encode()).hexdigest()[:32]
