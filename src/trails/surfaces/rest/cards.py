"""The card of each graph, and the directory of all cards, as Thing Descriptions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from trails.model.actors import SECURITY_KEY
from trails.model.caches import LRUCache
from trails.model.results import Failure
from trails.projections.thing_description import (
    MEDIA_TYPE,
    Card,
    Security,
    project_card,
    project_directory,
)
from trails.surfaces.rest.routing import REGISTRY, Graphs, Lists, RestCall, actor_of

_OPEN: Final = Security()
_CARDS: Final = LRUCache[tuple[object, ...], bytes](64)
"""Encoded cards: they change with the registry, the types and what a caller may use."""


async def card(call: RestCall) -> Response:
    """The Thing Description of a graph, as far as the caller sees it."""
    found, request = call.backend.card(call.actor), call.request
    base, security = f"{origin_of(request)}/graphs/{call.part('graph')}/", security_of(request)
    key = found.iri, found.registry, found.schema.digest, found.graph, base, security
    body = _CARDS.get(key, lambda: _encode(found, base, security))
    return Response(body, headers={REGISTRY: found.registry}, media_type=MEDIA_TYPE)


def _encode(found: Card, base: str, security: Security) -> bytes:
    return msgspec.json.encode(project_card(found, base, security))


def directory(graphs: Graphs, lists: Lists) -> Callable[[Request], Awaitable[Response]]:
    """What lists the cards: of all graphs for who may list them, else of those it can read."""

    async def answer(request: Request) -> Response:
        actor = actor_of(request)
        shown = [
            name
            for name, graph in graphs.items()
            if not isinstance(graph, Failure) and (lists(actor) or graph.card(actor).schema.types)
        ]
        body = project_directory(shown, f"{origin_of(request)}/", security_of(request))
        return Response(msgspec.json.encode(body), media_type=MEDIA_TYPE)

    return answer


def origin_of(request: Request) -> str:
    """Where the caller reached this server; the front has checked the host."""
    return f"{request.scope.get('scheme', 'http')}://{request.headers.get('host', 'localhost')}"


def security_of(request: Request) -> Security:
    """How this server recognises its callers."""
    found = request.scope.get(SECURITY_KEY)
    return found if isinstance(found, Security) else _OPEN
