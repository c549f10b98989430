"""The table of routes, and the ASGI application that serves them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from trails.model.fairness import LargeBodies
from trails.model.results import Failure
from trails.model.scope_keys import MAX_BODY
from trails.surfaces.rest import endpoints as calls
from trails.surfaces.rest import endpoints as data
from trails.surfaces.rest.endpoints import call_with_body, call_with_query, diff_branch
from trails.surfaces.rest.replies import JSON, refuse_http
from trails.surfaces.rest.routing import (
    Graphs,
    Handler,
    Lists,
    Methods,
    SegmentRoute,
    graph_route,
    visible_to_all,
)


def build_routes(graphs: Graphs, lists: Lists = visible_to_all) -> list[BaseRoute]:
    """All routes; ``lists`` decides who may list the graphs."""

    def at(path: str, **handlers: Handler) -> SegmentRoute:
        return graph_route(graphs, path, **handlers)

    return [
        SegmentRoute("/healthz", Methods({"GET": _health(graphs)})),
        SegmentRoute("/graphs", Methods({"GET": _lister(graphs)}, lists)),
        at("/snapshot", get=calls.snapshot),
        at("/kg/{type}", get=data.list_instances),
        at("/kg/{type}/{id}", get=data.get_instance),
        at("/capabilities", get=calls.list_capabilities),
        at("/invoke/{name}", post=calls.invoke),
        at("/queries", get=call_with_query("stored_query_list")),
        at("/queries/{name}", get=calls.query_by_link, post=calls.query_by_name),
        at("/query", post=calls.query),
        at("/mutate", post=calls.mutate),
        at("/load", post=data.load),
        at("/export", get=data.export),
        at("/branches", get=call_with_query("branch_list"), post=call_with_body("branch_create")),
        at(
            "/branches/merge",
            post=call_with_body("branch_merge"),
            delete=call_with_query("branch_delete", {"name": "merge"}),
        ),
        at("/branches/{branch}", delete=call_with_query("branch_delete", name="branch")),
        at("/branches/{branch}/diff", get=diff_branch),
        at("/commits", get=call_with_query("commit_list")),
        at("/commits/{commit}", get=call_with_query("commit_get", commit="commit")),
        at("/diff", get=call_with_query("graph_diff")),
    ]


def _health(graphs: Graphs) -> Callable[[Request], Awaitable[Response]]:
    """The worst status of any graph; a log that has lost data is not healthy."""

    async def answer(request: Request) -> Response:
        del request
        found = {
            each.data.get("reason") if isinstance(each, Failure) else each.status
            for each in graphs.values()
        }
        worst = next((each for each in ("behind", "read_only") if each in found), "ok")
        body = msgspec.json.encode({"status": worst})
        return Response(body, 503 if worst == "behind" else 200, media_type=JSON)

    return answer


def _lister(graphs: Graphs) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        del request
        found = [
            {"graph_id": name, "uri": graph.transfers.uri}
            for name, graph in graphs.items()
            if not isinstance(graph, Failure)
        ]
        return Response(msgspec.json.encode({"graphs": found}), media_type=JSON)

    return answer


def build_app(
    graphs: Graphs,
    max_body: int = MAX_BODY,
    lists: Lists = visible_to_all,
    large: LargeBodies | None = None,
) -> Starlette:
    """Build the application; unknown paths get an error in the same form.

    ``lists`` decides who may list the graphs; ``large`` is the queue of large bodies.
    """
    routes = build_routes(graphs, lists)
    app = Starlette(routes=routes, exception_handlers={HTTPException: refuse_http})
    app.router.redirect_slashes = False
    app.state.max_body = max_body
    app.state.large = LargeBodies() if large is None else large
    return app
