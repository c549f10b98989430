"""Meters: how much each of many names has used in the last minute.

What was used is kept by the second, so a meter needs the same room for a name however much
it does, and nothing for one that rests for a minute. Any sixty seconds count, not those
of a clock's minute: nobody gets twice as much around the turn of one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import Final

import msgspec

Clock = Callable[[], float]
"""Seconds that only go forward."""
_MINUTE: Final = 60
_FEW: Final = 1024
"""Names that are kept without looking for those that rest."""


class Excess(msgspec.Struct, frozen=True):
    """A limit that is reached."""

    used: float
    retry_after: int
    """Seconds after which there is more."""


class _Minute:
    """What one name used, by the second."""

    __slots__ = ("_parts", "total")

    def __init__(self) -> None:
        self._parts: deque[tuple[int, float]] = deque()
        self.total = 0.0

    def add(self, now: float, amount: float) -> None:
        second, parts = int(now), self._parts
        if parts and parts[-1][0] == second:
            parts[-1] = (second, parts[-1][1] + amount)
        else:
            self.forget(now)
            parts.append((second, amount))
        self.total += amount

    def forget(self, now: float) -> None:
        """Drop what is over a minute old."""
        parts, gone = self._parts, int(now) - _MINUTE
        while parts and parts[0][0] < gone:
            self.total -= parts.popleft()[1]
        if not parts:
            self.total = 0.0  # what rounding has left

    def wait(self, now: float, limit: float) -> int:
        """Seconds until less than the limit is used."""
        left = self.total
        for second, amount in self._parts:
            left -= amount
            if left < limit:
                return max(1, ceil(second + 1 + _MINUTE - now))
        return _MINUTE


class Meter:
    """What every name used of one thing, and whether that is too much; safe in threads."""

    def __init__(self, limit: float, clock: Clock = monotonic) -> None:
        """``limit`` is what a name may use in a minute; 0 is no limit, and nothing is kept."""
        self.limit = limit
        self._clock = clock
        self._minutes: dict[str, _Minute] = {}
        self._lock = threading.Lock()
        self._crowd = _FEW

    def __len__(self) -> int:
        """How many names something is kept of."""
        return len(self._minutes)

    def excess(self, name: str) -> Excess | None:
        """Whether a name has used up what it may use."""
        if not self.limit:
            return None
        with self._lock:
            return self._excess(name, self._clock())

    def add(self, name: str, amount: float) -> None:
        """Count what was used."""
        if self.limit and amount > 0:
            with self._lock:
                self._add(name, self._clock(), amount)

    def take(self, name: str) -> Excess | None:
        """Use one, unless that is too much: then nothing is counted."""
        if not self.limit:
            return None
        with self._lock:
            now = self._clock()
            over = self._excess(name, now)
            if over is None:
                self._add(name, now, 1)
        return over

    def _excess(self, name: str, now: float) -> Excess | None:
        minute = self._minutes.get(name)
        if minute is None:
            return None
        minute.forget(now)
        if minute.total < self.limit:
            return None
        return Excess(minute.total, minute.wait(now, self.limit))

    def _add(self, name: str, now: float, amount: float) -> None:
        minute = self._minutes.get(name)
        if minute is None:
            if len(self._minutes) >= self._crowd:
                self._sweep(now)
            minute = self._minutes[name] = _Minute()
        minute.add(now, amount)

    def _sweep(self, now: float) -> None:
        """Let go of names that rest; seldom, so that it costs each call next to nothing."""
        for minute in self._minutes.values():
            minute.forget(now)
        self._minutes = {name: each for name, each in self._minutes.items() if each.total}
        self._crowd = max(_FEW, 2 * len(self._minutes))
