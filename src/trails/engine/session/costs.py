"""Costs: what calls of a capability were estimated to take, and what they took.

Of a capability that declares a cost, every call that succeeds leaves in its activity what it
took of the same measures. ``seconds``, ``bytes`` (of the result) and ``statements`` (added and
removed) are measured here; of any other the capability tells by ``ctx.spend``. What is known
about estimates is folded from those activities: nothing else is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from time import time_ns
from typing import Final

import msgspec

from trails.engine.graph.activities import CallRecord
from trails.engine.graph.graph import Graph
from trails.model.capabilities import Capability
from trails.model.history import Activity
from trails.model.texts import count
from trails.model.upkeep import Finding
from trails.registry.registry import Registry

_MARK: Final = "cost "
"""What the detail of such an activity begins with."""
_LATELY: Final = 10_000
"""Activities, of all kinds, that are looked at."""
_ENOUGH: Final = 5
"""Calls from which an estimate can be told to be wrong."""
_MUCH: Final = 4
"""How many times more or less than estimated is wrong."""


class Measured(msgspec.Struct, frozen=True):
    """An estimate beside what calls took."""

    capability: str
    measure: str
    estimate: float
    calls: int
    mean: float
    high: float
    """Nineteen of twenty calls took no more."""

    @property
    def is_off(self) -> bool:
        """Whether the estimate misleads."""
        if self.calls < _ENOUGH:
            return False
        return self.mean > _MUCH * self.estimate or self.mean * _MUCH < self.estimate


def describe_cost(capability: Capability, call: CallRecord, result: object) -> str:
    """What the activity of a call says that it took; empty where nothing was estimated.

    ``result`` is in JSON form, or is its text.
    """
    estimated = capability.descriptor.cost
    if not estimated:
        return ""
    taken: dict[str, float] = {
        **(call.spent or {}),
        "seconds": (time_ns() - call.started) / 1e9,
        "bytes": len(result if isinstance(result, bytes) else msgspec.json.encode(result)),
        "statements": call.statements,
    }
    return _MARK + " ".join(f"{name}={taken[name]:.6g}" for name in estimated if name in taken)


def fold_costs(activities: Iterable[Activity], registry: Registry) -> list[Measured]:
    """What is known about every estimate, in the order of capabilities and measures."""
    taken: dict[tuple[str, str], list[float]] = {}
    for activity in activities:
        if activity.outcome == "ok" and activity.detail.startswith(_MARK):
            for name, amount in _read(activity.detail).items():
                taken.setdefault((activity.name, name), []).append(amount)
    return [
        _measure(capability.id, name, estimate, sorted(found))
        for capability in (*registry.capabilities.values(), *registry.metas.values())
        for name, estimate in capability.descriptor.cost.items()
        if (found := taken.get((capability.tool_name, name)) or taken.get((capability.id, name)))
    ]


def examine_costs(graph: Graph, registry: Registry) -> Iterator[Finding]:
    """Which estimates mislead, by the latest calls."""
    known = fold_costs(graph.activities.newest(_LATELY, archived=False), registry)
    off = [each for each in known if each.is_off]
    for each in off:
        detail = (
            f"{each.capability} is said to take {each.estimate:g} {each.measure}, and "
            f"{each.calls} calls took {each.mean:.3g} on average; 19 of 20 took {each.high:.3g} "
            "at most"
        )
        yield Finding(
            "costs", "note", detail, f"declare cost={{{each.measure!r}: {each.mean:.3g}}}"
        )
    if known and not off:
        estimates = count(len(known), "estimate agrees", "estimates agree")
        yield Finding("costs", "ok", f"{estimates} with what calls took")


def _read(detail: str) -> Mapping[str, float]:
    pairs = (each.partition("=") for each in detail.removeprefix(_MARK).split())
    return {name: float(amount) for name, _, amount in pairs}


def _measure(capability: str, name: str, estimate: float, found: list[float]) -> Measured:
    high = found[ceil(0.95 * len(found)) - 1]
    return Measured(capability, name, estimate, len(found), sum(found) / len(found), high)
