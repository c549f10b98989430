"""Entries: tools with everything that a call needs, and the gates that policies decide about.

A ``Request`` is one call of an entry. ``Rights`` answers what its actor may do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, Protocol

import msgspec

from trails.engine.graph.activities import CallRecord
from trails.engine.graph.ancestry import Permits
from trails.engine.session.arguments import Arguments
from trails.engine.session.context import GraphContext
from trails.engine.session.service import GraphService
from trails.engine.visibility.access import Access
from trails.model.capabilities import Action, Capability, StoredQuery, Tool
from trails.model.decisions import Resource
from trails.model.types import Schema
from trails.projections.json_schema import TypeLookup
from trails.registry.registry import Declared, Registry


class Need(msgspec.Struct, frozen=True, cache_hash=True):
    """An action on a resource, as policies are asked."""

    action: Action
    resource: Resource


_INVOKING: Final[frozenset[Action]] = frozenset({"InvokeCapability", "InvokeQuery", "Export"})


class Gate(msgspec.Struct, frozen=True, cache_hash=True):
    """What policies must allow: on the branch of the call or, for lists, on some branch."""

    needs: tuple[Need, ...] = ()
    """All of these must be allowed."""
    among: tuple[Need, ...] | None = None
    """And at least one of these; None if there is no such condition."""
    whole: bool = False
    """Whether the caller must see everything, because SPARQL text can name anything."""
    text: str = ""
    """A query that must not touch anything that is hidden from the caller."""
    takes: tuple[str, ...] = ()
    """The types of the query's parameters."""
    branch: str | None = None
    """The branch that it always works on; None if a call chooses one."""

    @property
    def invokes(self) -> bool:
        """Whether it is about calling or exporting, and not about the graph itself."""
        needs = (*self.needs, *(self.among or ()))
        return any(each.action in _INVOKING for each in needs)


OPEN_GATE: Final = Gate()
"""The gate of what every caller may use."""


def of_graph(graph: str, actions: Iterable[Action], *, whole: bool = False) -> Gate:
    """The gate of actions on a graph."""
    resource = Resource("Graph", graph)
    return Gate(tuple(Need(each, resource) for each in actions), whole=whole)


def of_capability(capability: Capability, graph: str, branch: str) -> Gate:
    """The gate of a capability, or of an operation on the application (on ``branch``)."""
    if capability.meta is None:
        return Gate((Need("InvokeCapability", Resource("Capability", capability.id)),))
    if capability.id == PING:
        return OPEN_GATE
    action = _meta_action(capability)
    return Gate((Need(action, Resource("Graph", graph)),), branch=branch)


PING = "trails.meta.ping"
"""Every caller may use it."""


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
    """The gate of listing or running stored queries; if there are none, that of reading."""
    return Gate(among=tuple(map(_invoking, queries)) or (Need("Read", Resource("Graph", graph)),))


def _invoking(query: StoredQuery) -> Need:
    return Need("InvokeQuery", Resource("Query", query.name))


Place = Literal["loop", "inline", "thread"]
"""Where a handler runs: on the event loop, called directly there, or in a thread."""


class Entry(msgspec.Struct, frozen=True, eq=False):
    """A tool, and everything that a call of it needs."""

    tool: Tool
    kind: str
    """The kind of its activities."""
    arguments: Arguments
    controls: Arguments
    """The control arguments that it takes, also those that its schema does not repeat."""
    declared: TypeLookup
    """The declarations of objects in its arguments."""
    place: Place
    handler: Callable[..., object]
    """Called with the context, and with the arguments by name."""
    gate: Gate
    """Decides whether it is listed and may be called."""
    shape: Callable[[object, Declared | None], bytes]
    """Writes the result as a JSON object; instances show only what the declarations contain."""
    largest: int = 4 << 20
    """The largest result in bytes."""
    source: Capability | StoredQuery | None = None
    """What it was made from; None for a built-in."""
    judged: Capability | None = None
    """The capability, if it has policy rules about arguments."""
    handler_on: Callable[[GraphService], Callable[..., object]] | None = None
    """Makes the handler for a draft of the graph; None if the context alone says what to use."""


def activity_kind(source: Capability | StoredQuery) -> str:
    """The kind of the activities of a capability or stored query."""
    if isinstance(source, StoredQuery):
        return "mutation" if source.mutation else "query"
    return "runtime" if source.meta is None else "meta"


class Rights(Access, Protocol):
    """What one actor may do on one graph."""

    def __hash__(self) -> int: ...

    @property
    def branches_version(self) -> int:
        """Changes when lists may change for other reasons than the actor and the registry."""
        ...

    def passes(self, gate: Gate) -> bool:
        """Whether the actor may pass a gate on at least one branch."""
        ...

    def permits(self, gate: Gate) -> Permits | None:
        """The branches on which the actor may pass a gate; None means all."""
        ...

    def see(self, entry: Entry, registry: Registry) -> Entry | None:
        """An entry as the actor sees it; None if it may not use it."""
        ...

    def gate(self, *actions: Action) -> Gate:
        """The gate of some actions on the graph."""
        ...

    def declared(self, registry: Registry) -> Registry | Declared:
        """The declarations that the actor sees on any branch."""
        ...

    def schema(self, branch: str) -> Schema:
        """The types that the actor sees on a branch; empty if it may not read the branch."""
        ...


Proposes = Literal["if_asked", "unless_permitted", "always"]
"""When a write to main becomes a proposal: if the call asks for it, unless the call asks for a
direct write (which policies permit), or always."""


class Request:
    """One call of an entry, with the registry from its start."""

    __slots__ = (
        "arguments",
        "call",
        "commit",
        "ctx",
        "entry",
        "max_chars",
        "offset",
        "prepared",
        "proposes",
        "registry",
        "rights",
    )

    def __init__(
        self,
        registry: Registry,
        entry: Entry,
        call: CallRecord,
        arguments: Mapping[str, object],
        rights: Rights,
        max_chars: int | None = None,
        proposes: Proposes = "if_asked",
    ) -> None:
        self.registry = registry
        self.entry = entry
        self.call = call
        self.arguments = arguments
        self.rights = rights
        """What its actor may do."""
        self.ctx: GraphContext | None = None
        """Its context, once it is open."""
        self.commit: str | None = None
        """The head of the branch or snapshot when that was opened."""
        self.max_chars = max_chars
        """The most characters of the answer; None means no limit."""
        self.offset = 0
        """How many items of the result are skipped."""
        self.prepared = False
        """Whether its arguments have passed their checks."""
        self.proposes = proposes
        """When a write becomes a proposal."""
