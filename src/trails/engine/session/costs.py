"""Estimated and measured costs of capabilities.

Every successful call of a capability that declares a cost records the measured values in its
activity. ``seconds``, ``bytes`` (of the result) and ``statements`` (added and removed) are
measured here; the capability reports any other measure with ``ctx.spend``. The comparison is
folded from those activities; nothing else is stored.
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
"""The prefix of such an activity's detail."""
_LATELY: Final = 10_000
"""How many activities of any kind are read."""
_ENOUGH: Final = 5
"""Calls that are needed to judge an estimate."""
_MUCH: Final = 4
"""The factor by which a wrong estimate is off."""


class Measured(msgspec.Struct, frozen=True):
    """An estimate and the measured costs of calls."""

    capability: str
    measure: str
    estimate: float
    calls: int
    mean: float
    high: float
    """The 95th percentile."""

    @property
    def is_off(self) -> bool:
        """Whether the estimate is wrong."""
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
    """Every estimate with its measurements, by capability and measure."""
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
    """Report wrong estimates, based on the latest calls."""
    known = fold_costs(graph.activities.newest(_LATELY, archived=False), registry)
    off = [each for each in known if each.is_off]
    for each in off:
        detail = (
            f"{each.capability} is estimated at {each.estimate:g} {each.measure}, but "
            f"{each.calls} calls took {each.mean:.3g} on average, and 95 % of them at most "
            f"{each.high:.3g}"
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
