"""The HTTP interface of an owner: one ASGI application for all its graphs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from trails.app.serving.hosts import HostPolicy
from trails.app.settings import GraphSettings
from trails.identity.oauth.challenges import PLAIN, Challenges
from trails.model.actors import Actor
from trails.model.outcomes import Failure
from trails.request.authenticate import Authenticator
from trails.request.pipeline import Kernel
from trails.surfaces.mcp.http import McpApp
from trails.surfaces.rest.app import build_app

_MCP_PATHS: Final = frozenset({"mcp", "sse", "messages"})
_HEALTH: Final = "/healthz"
"""Whether the server lives is told to everybody."""


class HttpInterface:
    """Checks the Host, says who asks, and hands a request to the surface it is for."""

    def __init__(
        self,
        graphs: Mapping[str, Kernel | Failure],
        settings: Mapping[str, GraphSettings],
        authenticator: Authenticator,
        policy: HostPolicy,
        challenges: Challenges = PLAIN,
    ) -> None:
        self._challenges = challenges
        self._authenticator = authenticator
        self._policy = policy
        self._graphs = graphs
        self._rest = build_app(graphs)
        self._endpoints = {
            name: McpApp(
                graph,
                legacy_sessions=settings[name].mcp.legacy_sessions,
                legacy_sse=settings[name].mcp.legacy_sse,
                validation_errors=settings[name].mcp.validation_errors,
                is_current=authenticator.is_current,
            )
            for name, graph in graphs.items()
            if not isinstance(graph, Failure)
        }

    @asynccontextmanager
    async def run(self) -> AsyncIterator[ASGIApp]:
        """Be open for requests."""
        async with AsyncExitStack() as stack:
            for endpoint in self._endpoints.values():
                await stack.enter_async_context(endpoint.run())
            yield self

    def end_streams(self) -> None:
        """Say goodbye to those who listen: the server waits for them when it stops."""
        for endpoint in self._endpoints.values():
            endpoint.end_streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        refused = self._policy.refuse(scope["headers"])
        if refused is not None:
            await _answer(send, 403, {"code": "forbidden", "message": refused})
            return
        described = self._challenges.metadata(scope["path"])
        if described is not None and scope["method"] in {"GET", "HEAD"}:
            await _send(send, 200, described)
            return
        authorization = _authorization(scope["headers"])
        actor = await self._authenticator.bearer(authorization)
        if isinstance(actor, Failure) and scope["path"] != _HEALTH:
            await self._refuse(actor, authorization, send)
            return
        scope["trails.actor"] = actor
        if isinstance(actor, Actor):
            scope["trails.challenge"] = self._challenges.step_up(actor, self._authenticator.scopes)
        parts = scope["path"].split("/")
        if len(parts) == 4 and parts[1] == "graphs" and parts[3] in _MCP_PATHS:
            await self._answer_mcp(parts[2], scope, receive, send)
        else:
            await self._rest(scope, receive, send)

    async def _refuse(self, failure: Failure, authorization: bytes | None, send: Send) -> None:
        """Ask for a credential, or for another one; if none can be checked now, for patience."""
        body = {"code": failure.code, "message": failure.message}
        if failure.kind != "unauthenticated":
            await _answer(send, 503, body, [(b"retry-after", b"5")])
            return
        wanted = self._challenges.ask(presented=authorization is not None)
        await _answer(send, 401, body, [(b"www-authenticate", wanted)])

    async def _answer_mcp(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(name)
        if endpoint is not None:
            await endpoint(scope, receive, send)
            return
        found = self._graphs.get(name)
        if isinstance(found, Failure):
            await _answer(send, 503, {"code": found.code, "message": found.message})
            return
        message = f"there is no graph {name[:100]!r}; there is {', '.join(self._graphs)}"
        await _answer(send, 404, {"code": "not_found", "message": message})


def _authorization(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The one header of that name; of several, none can be trusted."""
    found = [value for name, value in headers if name == b"authorization"]
    return found[0] if len(found) == 1 else None


async def _answer(
    send: Send,
    status: int,
    body: Mapping[str, object],
    more: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    await _send(send, status, msgspec.json.encode({"error": body}), more)


async def _send(
    send: Send, status: int, text: bytes, more: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(text)).encode()),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
