"""Gates: what a policy is asked before something is used.

An entry has one gate, and whoever lists it and whoever calls it ask the same one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from trails.model.capabilities import Capability, StoredQuery
from trails.model.decisions import Resource
from trails.model.tools import Action


class Need(msgspec.Struct, frozen=True, cache_hash=True):
    """One question: an action on a resource."""

    action: Action
    resource: Resource


_INVOKING: Final[frozenset[Action]] = frozenset({"InvokeCapability", "InvokeQuery", "Export"})


class Gate(msgspec.Struct, frozen=True, cache_hash=True):
    """What has to be allowed on some branch; where a call names one, on that one."""

    needs: tuple[Need, ...] = ()
    """All of these."""
    among: tuple[Need, ...] | None = None
    """And one of these; None where there is nothing to choose from."""
    whole: bool = False
    """Whether nothing may be hidden from the caller, because a text can name anything."""
    text: str = ""
    """A query that may touch nothing that is hidden from a caller who reads the graph."""
    takes: tuple[str, ...] = ()
    """The types of its parameters."""
    branch: str | None = None
    """The one branch that it works on, where a call can't name another."""

    @property
    def invokes(self) -> bool:
        """Whether it leads to something that is called or exported, and not to the graph."""
        needs = (*self.needs, *(self.among or ()))
        return any(each.action in _INVOKING for each in needs)


OPEN_GATE: Final = Gate()
"""The gate of what anybody may use who reached the server."""


def of_graph(graph: str, actions: Iterable[Action], *, whole: bool = False) -> Gate:
    """The gate of what is done to a graph."""
    resource = Resource("Graph", graph)
    return Gate(tuple(Need(each, resource) for each in actions), whole=whole)


def of_capability(capability: Capability, graph: str, branch: str) -> Gate:
    """The gate of a capability, or of an operation on the application: that works on ``branch``."""
    if capability.meta is None:
        return Gate((Need("InvokeCapability", Resource("Capability", capability.id)),))
    if capability.id == PING:
        return OPEN_GATE
    action = _meta_action(capability)
    return Gate((Need(action, Resource("Graph", graph)),), branch=branch)


PING = "trails.meta.ping"
"""Anybody who reached the server may ask whether it is there."""


def _meta_action(capability: Capability) -> Action:
    if capability.descriptor.reads_only:
        return "Read"
    assert capability.meta is not None  # noqa: S101 - the caller has looked
    return "SchemaApply" if capability.meta.scope == "builder" else "Admin"


def of_query(query: StoredQuery) -> Gate:
    """The gate of a stored query."""
    targets = (each.type.scalar.target for each in query.params)
    takes = tuple(each for each in targets if each is not None)
    return Gate((_invoking(query),), text=query.text, takes=takes)


def of_queries(queries: Iterable[StoredQuery], graph: str) -> Gate:
    """The gate of what lists or runs any of some stored queries; readers learn of none."""
    return Gate(among=tuple(map(_invoking, queries)) or (Need("Read", Resource("Graph", graph)),))


def _invoking(query: StoredQuery) -> Need:
    return Need("InvokeQuery", Resource("Query", query.name))
