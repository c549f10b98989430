"""Reader: what can be read by URI, and reading it.

A URI is parsed (``model.uris``), its branch or commit is found, and the answer is made from
rows of the node index: no instance of a class is built on the way. What takes microseconds
runs on the event loop; the rest in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from trails.engine.context import GraphContext
from trails.engine.graph import Graph
from trails.engine.lines import SNAPSHOT
from trails.engine.service import GraphService
from trails.errors import NotFoundError, TrailsError
from trails.model.actors import Actor
from trails.model.names import suggest
from trails.model.outcomes import Failure
from trails.model.resources import Content, ResourceList
from trails.model.types import Schema
from trails.model.uris import (
    Address,
    InstanceAddress,
    ListAddress,
    Place,
    format_address,
    parse_address,
)
from trails.projections.jsonld import JsonLd
from trails.projections.resources import project_resources
from trails.request.listing import read_page

LD_JSON: Final = "application/ld+json"
_CHEAP_OFFSET: Final = 1000


class Reader:
    """Reads one graph by URI, for any actor."""

    def __init__(self, service: GraphService) -> None:
        self._service = service
        self._documents: dict[str, JsonLd] = {}

    def resources(self, actor: Actor) -> ResourceList:
        """What an actor may read: a list of each type, built-in documents, and templates."""
        del actor
        return project_resources(self._service.graph.main.schema)

    async def read(self, actor: Actor, uri: str) -> Sequence[Content] | Failure:
        """Read a URI. Never raises but for cancellation."""
        try:
            address = parse_address(uri, self._service.graph.names.nodes)
            if self._is_quick(address):
                return self._read(actor, uri, address)
            return await asyncio.to_thread(self._read, actor, uri, address)
        except NotFoundError as error:
            return Failure("unknown", error.code, error.message, error.data)
        except TrailsError as error:
            return Failure("validation", error.code, error.message, error.data)

    def _is_quick(self, address: Address) -> bool:
        """Whether a read takes so little time that handing it to a thread would take more."""
        if not isinstance(address, InstanceAddress | ListAddress):
            return False
        if not _is_open(self._service.graph, address.place):
            return False
        return isinstance(address, InstanceAddress) or (
            address.where is None and (address.offset or 0) <= _CHEAP_OFFSET
        )

    def _read(self, actor: Actor, uri: str, address: Address) -> Sequence[Content]:
        match address:
            case InstanceAddress():
                return [self._read_instance(self._context(actor, address.place), uri, address)]
            case ListAddress():
                ctx = self._context(actor, address.place)
                _check_type(ctx.kg.schema, address.type)
                return read_page(ctx, uri, address)
        raise NotFoundError(f"there is no resource {uri!r}", uri=uri)

    def _context(self, actor: Actor, place: Place) -> GraphContext:
        if place.commit is not None:
            return self._service.context(actor.name, snapshot=place.commit)
        return self._service.context(actor.name, place.branch or "main")

    def _read_instance(self, ctx: GraphContext, uri: str, address: InstanceAddress) -> Content:
        kg = ctx.kg
        _check_type(kg.schema, address.type)
        state = kg.find_by_id(address.type, address.id)
        if state is None:
            listing = format_address(ListAddress(address.type, address.place))
            raise NotFoundError(
                f"there is no {address.type} with the id {address.id!r}; {listing} lists those "
                "that exist",
                uri=uri,
            )
        document = self._documents_of(kg.schema).document(state)
        return Content(uri, LD_JSON, msgspec.json.encode(document).decode())

    def _documents_of(self, schema: Schema) -> JsonLd:
        found = self._documents.get(schema.digest)
        if found is None:
            found = self._documents[schema.digest] = JsonLd(schema, self._service.graph.names)
        return found


def _is_open(graph: Graph, place: Place) -> bool:
    """Whether a branch or snapshot is at hand."""
    if place.branch is None and place.commit is None:
        return True
    name = place.branch if place.commit is None else SNAPSHOT + place.commit
    return name in graph.lines


def _check_type(schema: Schema, name: str) -> None:
    if name not in schema.by_name:
        hint = suggest(name, schema.by_name)
        raise NotFoundError(
            f"there is no type {name!r}; {hint}; trails://kg/types lists all", type=name[:100]
        )
