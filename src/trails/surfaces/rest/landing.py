"""``/``: what this server is, which graphs the caller may see, and how to connect an agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from trails.model.actors import ACTOR_KEY, Actor
from trails.model.results import Failure
from trails.projections.landing import (
    LINKS,
    GraphSummary,
    Landing,
    TypeSummary,
    project_landing,
    project_landing_page,
)
from trails.projections.pages import HTML, PAGE_HEADERS
from trails.surfaces.rest.backend import RestBackend
from trails.surfaces.rest.cards import origin_of, security_of
from trails.surfaces.rest.negotiation import Representation, choose_form
from trails.surfaces.rest.replies import JSON
from trails.surfaces.rest.routing import Graphs, Lists

LANDING_PATH: Final = "/"
_FORMS: Final = (Representation("html", HTML), Representation("json", JSON))


class _Snapshot(msgspec.Struct):
    nodes: int
    types: list[TypeSummary]


def landing(
    graphs: Graphs, lists: Lists, paths: Collection[str]
) -> Callable[[Request], Awaitable[Response]]:
    """Answer with the first page; ``paths`` are those that the server has, to be linked."""
    links = tuple(each for each in LINKS if each.path in paths)

    async def answer(request: Request) -> Response:
        form, security = choose_form(request, _FORMS), security_of(request)
        # Without a credential there is no actor: LOCAL is for servers that ask for none.
        actor = request.scope.get(ACTOR_KEY)
        shown = [] if not isinstance(actor, Actor) else await _summaries(graphs, actor, lists)
        found = Landing(
            origin_of(request),
            shown,
            known=isinstance(actor, Actor),
            guarded=security.scheme != "nosec",
            issuer=security.issuer,
            links=[each for each in links if each.public or isinstance(actor, Actor)],
        )
        vary = {"Vary": "Accept, Authorization"}
        if form.name == "json":
            return Response(msgspec.json.encode(project_landing(found)), 200, vary, JSON)
        return Response(project_landing_page(found), 200, {**PAGE_HEADERS, **vary}, HTML)

    return answer


async def _summaries(graphs: Graphs, actor: Actor, lists: Lists) -> list[GraphSummary]:
    """The graphs that an actor may list or read."""
    found = []
    for name, graph in graphs.items():
        if not isinstance(graph, Failure):
            summary = await _summarize(name, graph, actor)
            if summary.types or lists(actor):
                found.append(summary)
    return found


async def _summarize(name: str, graph: RestBackend, actor: Actor) -> GraphSummary:
    card = graph.card(actor)
    outcome = await graph.transfers.record(actor, "graph_snapshot", {})
    counted = _Snapshot(0, [])
    if not isinstance(outcome, Failure):
        counted = msgspec.json.decode(outcome.body, type=_Snapshot)
    called = card.title if name == "main" else f"{card.title}-{name}"
    return GraphSummary(name, called, counted.nodes, counted.types, len(card.actions))
