"""The HTTP interface of an owner: one ASGI application for all its graphs.

A request goes through the same steps whatever it is for: the Host and Origin that its way in
allows, the size of its body, what a browser asks in advance, who sends it, and then the
surface that answers it. Every response has the headers of ``responses``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from trails.app.serving.cors import is_preflight, preflight_headers, shared_headers
from trails.app.serving.entrances import Entrance
from trails.app.serving.hosts import HostPolicy
from trails.app.serving.misplaced import AUTHORIZATION, has_misplaced_token
from trails.app.serving.responses import HSTS, SECURITY, Dressed, Headers, answer, error_body
from trails.app.settings import GraphSettings
from trails.identity.oauth.challenges import PLAIN, Challenges
from trails.model.decisions import EVERYTHING, Judge
from trails.model.outcomes import Failure
from trails.model.secrets import MISPLACED
from trails.request.authenticate import Authenticator
from trails.request.authorize import lists_graphs
from trails.request.pipeline import Kernel
from trails.surfaces.mcp.http import McpApp
from trails.surfaces.rest.app import build_app

ENTRANCE: Final = "trails.entrance"
"""Where the state of a connection carries its way in."""
_MCP_PATHS: Final = frozenset({"mcp", "sse", "messages"})
_LOAD: Final = "load"
"""The one body that is not read as a whole."""
_HEALTH: Final = "/healthz"
"""Whether the server lives is told to everybody."""
MAX_BODY: Final = 32 << 20


class HttpInterface:
    """Checks what a request asks for, says who asks, and hands it to the surface it is for."""

    def __init__(
        self,
        graphs: Mapping[str, Kernel | Failure],
        settings: Mapping[str, GraphSettings],
        authenticator: Authenticator,
        policy: HostPolicy,
        challenges: Challenges = PLAIN,
        *,
        max_body: int = MAX_BODY,
        judge: Judge = EVERYTHING,
    ) -> None:
        """``judge`` decides about the server itself."""
        self._challenges = challenges
        self.entrance = Entrance(policy, authenticator)
        """The way in of requests whose connection has none of its own."""
        self._max_body = max_body
        self._graphs = graphs
        self._rest = build_app(graphs, max_body, partial(lists_graphs, judge))
        self._endpoints = {
            name: McpApp(
                graph,
                legacy_sessions=settings[name].mcp.legacy_sessions,
                legacy_sse=settings[name].mcp.legacy_sse,
                validation_errors=settings[name].mcp.validation_errors,
                is_current=authenticator.is_current,
                max_body=max_body,
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
        """Answer one HTTP request; nothing else is served."""
        if scope["type"] != "http":
            await _refuse_other(scope, send)
            return
        entrance: Entrance = scope.get("state", {}).get(ENTRANCE, self.entrance)
        policy, headers = entrance.policy, scope["headers"]
        send = Dressed(send, _common_headers(policy, headers))
        objection = policy.refuse(headers, scope.get("http_version", "1.1"))
        if objection is not None:
            code = "forbidden" if objection.status == 403 else "bad_request"
            await answer(send, objection.status, error_body(code, objection.message))
            return
        parts = _parts(scope)
        if parts[3:] != [_LOAD] and _told_length(headers) > self._max_body:
            message = f"the body is too large; at most {self._max_body:,} bytes are read here"
            await answer(send, 413, error_body("too_large", message))
            return
        if is_preflight(scope["method"], headers):
            await answer(send, 204, b"", preflight_headers(policy, headers))
            return
        described = self._challenges.metadata(scope["path"])
        if described is not None and scope["method"] in {"GET", "HEAD"}:
            await answer(send, 200, described)
            return
        if scope["path"] != _HEALTH:
            authorization = _authorization(headers)
            actor = await entrance.identify(authorization)
            if isinstance(actor, Failure):
                await self._refuse(actor, authorization, send)
                return
            scope["trails.actor"] = actor
            scope["headers"] = [each for each in headers if each[0] != AUTHORIZATION]
            held = entrance.authenticator.scopes
            scope["trails.challenge"] = self._challenges.step_up(actor, held)
        if has_misplaced_token(scope):
            await answer(send, 400, error_body("misplaced_token", MISPLACED))
        elif len(parts) == 4 and parts[1] == "graphs" and parts[3] in _MCP_PATHS:
            await self._answer_mcp(parts[2], scope, receive, send)
        else:
            await self._rest(scope, receive, send)

    async def _refuse(self, failure: Failure, authorization: bytes | None, send: Send) -> None:
        """Ask for a credential, or for another one; if none can be checked now, for patience."""
        body = error_body(failure.code, failure.message)
        if failure.kind != "unauthenticated":
            await answer(send, 503, body, [(b"retry-after", b"5")])
            return
        wanted = self._challenges.ask(presented=authorization is not None)
        await answer(send, 401, body, [(b"www-authenticate", wanted)])

    async def _answer_mcp(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(name)
        if endpoint is not None:
            await endpoint(scope, receive, send)
            return
        found = self._graphs.get(name)
        if isinstance(found, Failure):
            await answer(send, 503, error_body(found.code, found.message))
            return
        message = f"there is no graph {name[:100]!r} here"
        await answer(send, 404, error_body("not_found", message))


def _common_headers(policy: HostPolicy, headers: Headers) -> Headers:
    if not (policy.shares or policy.bind.tls):
        return SECURITY
    secure = (HSTS,) if policy.bind.tls else ()
    return (*SECURITY, *secure, *shared_headers(policy, headers))


def _parts(scope: Scope) -> list[str]:
    """The path's segments, cut before they are decoded."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return [unquote(part) for part in raw.partition(b"?")[0].decode("latin-1").split("/")]


def _told_length(headers: Headers) -> int:
    """How long a body is said to be; 0 where that is not told."""
    for name, value in headers:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0


def _authorization(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The one header of that name; of several, none can be trusted."""
    found = [value for name, value in headers if name == AUTHORIZATION]
    return found[0] if len(found) == 1 else (b"" if found else None)


async def _refuse_other(scope: Scope, send: Send) -> None:
    """Web sockets are refused; whatever else a server might speak of is not known here."""
    if scope["type"] != "websocket":
        raise RuntimeError(f"{scope['type']} is not served")
    await send({"type": "websocket.close", "code": 1008})
