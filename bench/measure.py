"""Time things side by side.

Ours and the peer take turns, call by call, so that a slow moment of the machine
hits both alike; what is compared is the ratio of their medians.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, Literal

import msgspec

OUT: Final = Path(__file__).parent / "out"
Call = Callable[[], object]


class Goal(msgspec.Struct, frozen=True):
    """What a ratio of ours to the peer's must be."""

    sign: Literal["<=", ">="]
    limit: float

    def met_by(self, ratio: float) -> bool:
        """Whether a ratio is good enough."""
        return ratio <= self.limit if self.sign == "<=" else ratio >= self.limit

    def __str__(self) -> str:
        """As the table shows it."""
        return f"{self.sign} {self.limit:g}"


class Result(msgspec.Struct, frozen=True):
    """One line of the table. ``ours``, ``peer`` and ``floor`` are medians in ``unit``."""

    name: str
    unit: str
    ours: float
    peer: float
    floor: float
    goal: Goal
    versus: str
    """What the peer is, and what the floor is."""
    extra: Mapping[str, object] = {}

    @property
    def ratio(self) -> float:
        """Ours by the peer's."""
        return self.ours / self.peer

    @property
    def ok(self) -> bool:
        """Whether the goal is met."""
        return self.goal.met_by(self.ratio)

    def record(self) -> dict[str, object]:
        """As results.json holds it."""
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": self.ours,
            "peer": self.peer,
            "floor": self.floor,
            "ratio": self.ratio,
            "goal": str(self.goal),
            "ok": self.ok,
            "versus": self.versus,
            **self.extra,
        }


class Times(msgspec.Struct, frozen=True):
    """The durations of one thing, in seconds."""

    seconds: Sequence[float]

    @property
    def p50(self) -> float:
        """The median."""
        return median(self.seconds)

    @property
    def p99(self) -> float:
        """What one call in a hundred exceeds."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


def clock(call: Call) -> float:
    """How long one call takes."""
    start = perf_counter()
    call()
    return perf_counter() - start


def interleave(calls: Mapping[str, Call], rounds: int, *, warmup: int = 2) -> dict[str, Times]:
    """Time several calls in turns; each round starts with another one."""
    names = list(calls)
    for _ in range(warmup):
        for name in names:
            calls[name]()
    gc.collect()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            seconds[name].append(clock(calls[name]))
    return {name: Times(each) for name, each in seconds.items()}
