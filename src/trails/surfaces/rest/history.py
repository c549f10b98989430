"""Versions: branches, commits, differences, merges."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.responses import Response

from trails.surfaces.rest.arguments import query_arguments
from trails.surfaces.rest.bodies import read_object
from trails.surfaces.rest.replies import reply
from trails.surfaces.rest.routing import Call


def ask(
    name: str, /, fixed: Mapping[str, object] | None = None, **parts: str
) -> Callable[[Call], Awaitable[Response]]:
    """Call a tool: arguments come from the query string, ``parts`` of them from the path."""

    async def answer(call: Call) -> Response:
        given = {argument: call.part(part) for argument, part in parts.items()}
        arguments = {**query_arguments(call), **given, **(fixed or {})}
        return reply(await call.backend.execute(call.actor, name, arguments))

    return answer


def tell(name: str) -> Callable[[Call], Awaitable[Response]]:
    """Call a tool whose arguments are the body."""

    async def answer(call: Call) -> Response:
        return reply(await call.backend.execute(call.actor, name, await read_object(call.request)))

    return answer


async def diff(call: Call) -> Response:
    """What turns the state ``from`` into the state ``to``."""
    return reply(await call.backend.diff(call.actor, query_arguments(call)))


async def diff_branch(call: Call) -> Response:
    """What a branch has that ``main``, or ``from``, has not."""
    given = {"from": "main", **query_arguments(call), "to": call.part("branch")}
    return reply(await call.backend.diff(call.actor, given))
