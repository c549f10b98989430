"""The routes: what exists at which path. Each is a translation to a call and back.

REST as an application of its own, for whoever serves it.
"""

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
from trails.request.scope_keys import MAX_BODY
from trails.surfaces.rest import endpoints as calls
from trails.surfaces.rest import endpoints as data
from trails.surfaces.rest.endpoints import ask, diff_branch, tell
from trails.surfaces.rest.replies import JSON, refuse_http
from trails.surfaces.rest.routing import (
    Graphs,
    Handler,
    Lists,
    Methods,
    SegmentRoute,
    everybody,
    graph_route,
)


def build_routes(graphs: Graphs, lists: Lists = everybody) -> list[BaseRoute]:
    """Everything that REST offers on some graphs; which there are is told to some."""

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
        at("/queries", get=ask("stored_query_list")),
        at("/queries/{name}", get=calls.query_by_link, post=calls.query_by_name),
        at("/query", post=calls.query),
        at("/mutate", post=calls.mutate),
        at("/load", post=data.load),
        at("/export", get=data.export),
        at("/branches", get=ask("branch_list"), post=tell("branch_create")),
        at(
            "/branches/merge",
            post=tell("branch_merge"),
            delete=ask("branch_delete", {"name": "merge"}),
        ),
        at("/branches/{branch}", delete=ask("branch_delete", name="branch")),
        at("/branches/{branch}/diff", get=diff_branch),
        at("/commits", get=ask("commit_list")),
        at("/commits/{commit}", get=ask("commit_get", commit="commit")),
        at("/diff", get=ask("graph_diff")),
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
    lists: Lists = everybody,
    large: LargeBodies | None = None,
) -> Starlette:
    """Everything that REST offers; what no route answers is told in the same form.

    ``lists`` says to whom it is told which graphs there are; ``large`` is where large bodies wait.
    """
    routes = build_routes(graphs, lists)
    app = Starlette(routes=routes, exception_handlers={HTTPException: refuse_http})
    app.router.redirect_slashes = False
    app.state.max_body = max_body
    app.state.large = LargeBodies() if large is None else large
    return app
