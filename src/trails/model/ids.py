"""Ids of nodes without a key: UUIDv7, so that creation order is index order."""

from __future__ import annotations

import os
import threading
import time
from hashlib import sha256
from typing import Final

_RANDOM: Final = 4096
"""Random bytes that are drawn at once: a draw is a system call, and costs more than the rest."""
_DIGITS: Final = 16
"""Hexadecimal digits of an id that are random, but for two bits of the first."""
_VARIANT: Final = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}

_lock = threading.Lock()
_last = 0
_random = ""
_drawn = 0


def uuid7() -> str:
    """A UUID version 7 (RFC 9562), strictly increasing within this process."""
    global _last, _random, _drawn  # noqa: PLW0603 - one clock a process is the point
    with _lock:
        # 48 bits of milliseconds and 12 of a counter make one number that only grows.
        ticks = max(time.time_ns() // 1_000_000 << 12, _last + 1)
        _last = ticks
        if _drawn >= len(_random):
            _random, _drawn = os.urandom(_RANDOM).hex(), 0
        drawn = _random[_drawn : _drawn + _DIGITS]
        _drawn += _DIGITS
    at = f"{ticks:015x}"
    return f"{at[:8]}-{at[8:12]}-7{at[12:]}-{_VARIANT[drawn[0]]}{drawn[1:4]}-{drawn[4:]}"


def _forget_random() -> None:
    """A child would draw what its parent draws."""
    global _random, _lock
    _random, _lock = "", threading.Lock()


os.register_at_fork(after_in_child=_forget_random)


def edge_id(source: str, target: str) -> str:
    """The id of the one edge of its type between two nodes, the same on every branch."""
    return sha256(f"{source}\n{target}".encode()).hexdigest()[:32]
