"""Records: branches, commits, differences, stored queries, as the built-ins know them."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from trails.surfaces.rest.arguments import query_arguments
from trails.surfaces.rest.bodies import read_object
from trails.surfaces.rest.replies import reply
from trails.surfaces.rest.routing import Call, Handler


async def record(call: Call, name: str, arguments: Mapping[str, object]) -> Response:
    """What a built-in gives."""
    return reply(await call.backend.transfers.record(call.actor, name, arguments))


def ask(name: str, /, fixed: Mapping[str, object] | None = None, **parts: str) -> Handler:
    """Ask a built-in: arguments come from the query string, ``parts`` of them from the path."""

    async def answer(call: Call) -> Response:
        given = {argument: call.part(part) for argument, part in parts.items()}
        return await record(call, name, {**query_arguments(call), **given, **(fixed or {})})

    return answer


def tell(name: str) -> Handler:
    """Ask a built-in whose arguments are the body."""

    async def answer(call: Call) -> Response:
        return await record(call, name, await read_object(call))

    return answer


async def diff_branch(call: Call) -> Response:
    """What a branch has that ``main``, or ``from``, has not."""
    given = {"from": "main", **query_arguments(call), "to": call.part("branch")}
    return await record(call, "graph_diff", given)
