"""An entry: a tool with all that is needed to call it, and the gate that policies decide about.

A request: one call of one entry, on its way. ``Rights`` is what is asked about its actor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, Protocol

import msgspec

from trails.engine.graph.activities import CallRecord
from trails.engine.graph.ancestry import Permits
from trails.engine.session.arguments import Arguments
from trails.engine.session.context import GraphContext
from trails.engine.visibility.access import Access
from trails.model.capabilities import Action, Capability, StoredQuery, Tool
from trails.model.decisions import Resource
from trails.model.types import Schema
from trails.projections.json_schema import TypeLookup
from trails.registry.registry import Declared, Registry


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


Place = Literal["loop", "inline", "thread"]
"""Where a handler runs: awaited, called at once, or called in a thread since it may wait."""


class Entry(msgspec.Struct, frozen=True, eq=False):
    """What a name in the catalog means."""

    tool: Tool
    kind: str
    """What its activities say of their kind."""
    arguments: Arguments
    controls: Arguments
    """``branch`` and ``snapshot``, where it takes them: they say where it works."""
    declared: TypeLookup
    """Where the objects in its arguments are declared."""
    place: Place
    handler: Callable[..., object]
    """Takes the context, and the arguments by name."""
    gate: Gate
    """What a policy is asked before it is listed or called."""
    shape: Callable[[object, Declared | None], bytes]
    """The result as the JSON text of an object, of instances only what is declared there."""
    largest: int = 4 << 20
    """Bytes that it may have at most."""
    source: Capability | StoredQuery | None = None
    """What it was made from; None for what is built in."""
    judged: Capability | None = None
    """The capability whose policy rules look at the arguments, where there are any."""


def activity_kind(source: Capability | StoredQuery) -> str:
    """The kind that activities of a capability or stored query have."""
    if isinstance(source, StoredQuery):
        return "mutation" if source.mutation else "query"
    return "runtime" if source.meta is None else "meta"


class Rights(Access, Protocol):
    """What one actor may do on one graph."""

    def __hash__(self) -> int: ...

    @property
    def branches_version(self) -> int:
        """All that lists depend on beside the actor and the registry."""
        ...

    def passes(self, gate: Gate) -> bool:
        """Whether some branch would let the actor through a gate."""
        ...

    def permits(self, gate: Gate) -> Permits | None:
        """The branches on which the actor may pass a gate; None means all."""
        ...

    def see(self, entry: Entry, registry: Registry) -> Entry | None:
        """What an entry is for the actor; None if it does not exist for it."""
        ...

    def gate(self, *actions: Action) -> Gate:
        """The gate of some actions on the graph."""
        ...

    def declared(self, registry: Registry) -> Registry | Declared:
        """What the actor sees of the declarations: of what is seen on any branch."""
        ...

    def schema(self, branch: str) -> Schema:
        """The types that the actor sees on a branch; none on one that it may not read."""
        ...


class Request:
    """One call of one entry, with the registry it began with."""

    __slots__ = ("arguments", "call", "ctx", "entry", "prepared", "registry", "rights")

    def __init__(
        self,
        registry: Registry,
        entry: Entry,
        call: CallRecord,
        arguments: Mapping[str, object],
        rights: Rights,
    ) -> None:
        self.registry = registry
        self.entry = entry
        self.call = call
        self.arguments = arguments
        self.rights = rights
        """What its actor may do."""
        self.ctx: GraphContext | None = None
        """Where it works, once that is known."""
        self.prepared = False
        """Whether its arguments were found good."""
