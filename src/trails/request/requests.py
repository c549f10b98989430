"""A request: one call of one entry, on its way."""

from __future__ import annotations

from collections.abc import Mapping

from trails.engine.activities import Call
from trails.engine.context import GraphContext
from trails.registry.registry import Registry
from trails.request.entries import Entry
from trails.request.rights import ActorAccess


class Request:
    """One call of one entry, with the registry it began with."""

    __slots__ = ("arguments", "call", "ctx", "entry", "prepared", "registry", "rights")

    def __init__(
        self,
        registry: Registry,
        entry: Entry,
        call: Call,
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
