"""The table of routes, and the ASGI application that serves them.

The routes of built-ins are in their declarations (``request/builtins``); those of streams and of
what is not a built-in are here.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from trails.model.fairness import LargeBodies
from trails.model.results import Failure
from trails.model.scope_keys import MAX_BODY
from trails.request.builtins import OPERATIONS
from trails.request.builtins.declare import Builtin
from trails.surfaces.rest import endpoints
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
        at("/kg/{type}", get=endpoints.list_instances),
        at("/kg/{type}/{id}", get=endpoints.get_instance),
        at("/capabilities", get=endpoints.list_capabilities),
        at("/invoke/{name}", post=endpoints.invoke),
        at("/load", post=endpoints.load),
        at("/export", get=endpoints.export),
        *(at(f"/{path}", **found) for path, found in operation_routes(OPERATIONS).items()),
    ]


def operation_routes(operations: Sequence[Builtin]) -> dict[str, dict[str, Handler]]:
    """The handlers of built-ins by path and method; paths with parameters come last.

    ``branches/merge`` is also the branch of that name: it has the methods of ``branches/{name}``.
    """
    declared = [(route, each) for each in operations for route in each.routes]
    paths = dict.fromkeys(route.path for route, _ in declared)
    found: dict[str, dict[str, Handler]] = {}
    for path in sorted(paths, key=lambda path: [part[0] == "{" for part in path.split("/")]):
        methods = found[path] = {}
        for route, operation in declared:
            method, fixed = route.method.lower(), _matched(route.path, path)
            if route.path == path or (fixed and method not in methods):
                methods[method] = endpoints.operation_handler(operation, route, fixed)
    return found


def _matched(template: str, path: str) -> dict[str, str]:
    """The parameters with which a template gives a path without any; empty if it does not."""
    found = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>[^/{}]+)", template), path)
    return {} if found is None else found.groupdict()


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
