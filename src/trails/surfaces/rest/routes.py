"""The routes: what exists at which path. Each is a translation to a call and back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from trails.model.outcomes import Failure
from trails.surfaces.rest import calls, data
from trails.surfaces.rest.records import ask, diff_branch, tell
from trails.surfaces.rest.replies import JSON
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
