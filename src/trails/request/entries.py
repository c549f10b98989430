"""An entry: a tool with all that is needed to call it, whatever population it is of.

A request: one call of one entry, on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from trails.engine.graph.activities import CallRecord
from trails.engine.session.arguments import Arguments
from trails.engine.session.context import GraphContext
from trails.model.capabilities import Capability, StoredQuery, Tool
from trails.projections.json_schema import TypeLookup
from trails.registry.registry import Declared, Registry
from trails.request.rights import ActorAccess, Gate

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


class Request:
    """One call of one entry, with the registry it began with."""

    __slots__ = ("arguments", "call", "ctx", "entry", "prepared", "registry", "rights")

    def __init__(
        self,
        registry: Registry,
        entry: Entry,
        call: CallRecord,
        arguments: Mapping[str, object],
        rights: ActorAccess | None = None,
    ) -> None:
        self.registry = registry
        self.entry = entry
        self.call = call
        self.arguments = arguments
        self.rights = rights
        """What its actor may do; None where nothing is denied."""
        self.ctx: GraphContext | None = None
        """Where it works, once that is known."""
        self.prepared = False
        """Whether its arguments were found good."""
