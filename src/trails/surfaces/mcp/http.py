"""MCP over HTTP: one endpoint for every revision.

A POST is answered with JSON, without a session. GET and DELETE exist only where sessions
of older revisions were asked for, and the two paths of the HTTP+SSE transport only where
that was. Host, Origin and credentials were checked in front; who calls stands in
``scope["trails.actor"]``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Final

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.jsonrpc import INVALID_REQUEST, PARSE_ERROR
from starlette.types import Message, Receive, Scope, Send

from trails.model.actors import LOCAL, Actor
from trails.surfaces.mcp.backend import Backend
from trails.surfaces.mcp.bodies import BodyError, parse, read_body
from trails.surfaces.mcp.disconnects import Gone, until_gone
from trails.surfaces.mcp.fast import FastDoor
from trails.surfaces.mcp.listening import Listening
from trails.surfaces.mcp.responses import Reencoder, send_empty, send_error, send_json
from trails.surfaces.mcp.server import Context, build_server
from trails.surfaces.mcp.subscriptions import Subscriptions
from trails.surfaces.mcp.wire import MAX_BODY, ValidationErrors

ACTOR: Final = "trails.actor"
"""Where a scope carries its caller."""


class McpApp:
    """The ASGI application of one graph's MCP endpoint."""

    def __init__(
        self,
        backend: Backend,
        *,
        legacy_sessions: bool = False,
        legacy_sse: bool = False,
        validation_errors: ValidationErrors = "protocol",
        max_body: int = MAX_BODY,
        fast: bool = True,
    ) -> None:
        self._legacy_sessions = legacy_sessions
        self._legacy_sse = legacy_sse
        self._max_body = max_body
        self._backend = backend
        server = build_server(backend, _actor_of, validation_errors, self._schema_of)
        self._subscriptions = Subscriptions(backend)
        self._subscriptions.register(server, _actor_of, sessions=False)
        self._listening = Listening(self._subscriptions, server)
        self._fast = FastDoor(backend, server, validation_errors) if fast else None
        self._stateless = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=max_body
        )

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Be open for requests."""
        async with self._stateless.run():
            yield

    def end_streams(self) -> None:
        """Let every open stream finish; a server that waits for them can then close."""
        self._subscriptions.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] != "POST":
            await send_empty(send, 405, [(b"allow", b"POST")])
            return
        try:
            body = await read_body(receive, self._max_body)
            await self._answer(scope, body, receive, send)
        except Gone:
            return
        except BodyError as error:
            more = [(b"connection", b"close")]
            await send_error(send, error.status, INVALID_REQUEST, error.message, more=more)

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Answer at the fast door, or let the SDK do it."""
        actor = scope.get(ACTOR, LOCAL)
        ticket = self._fast.admit(scope, body, actor) if self._fast is not None else None
        if self._fast is None or ticket is None:
            await self._ask_sdk(scope, body, receive, send)
            return
        if ticket.method == "subscriptions/listen":
            stream = self._listening.open(ticket, actor)
            if stream is None:
                await self._ask_sdk(scope, body, receive, send)
            else:
                await stream.serve(receive, send)
            return
        status, answer = await until_gone(receive, self._fast.answer(ticket, actor))
        await send_json(send, status, answer)

    async def _ask_sdk(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Let the SDK answer."""
        try:
            message = parse(body)
        except ValueError as error:
            await send_error(send, 400, PARSE_ERROR, f"the body is not JSON: {error}")
            return
        scope = {**scope, "headers": [(name, value.strip()) for name, value in scope["headers"]]}
        _caller.set(scope.get(ACTOR, LOCAL))
        work = self._stateless.handle_request(scope, _Replay(body, receive), Reencoder(send))
        if isinstance(message, dict) and message.get("method") == "subscriptions/listen":
            await work
        else:
            await until_gone(receive, work)

    def _schema_of(self, name: str) -> Mapping[str, object] | None:
        """The schema of a tool that the caller may use; asked before there is a context."""
        tools = self._backend.tools(_caller.get()).tools
        return next((tool.input_schema for tool in tools if tool.name == name), None)


_caller: ContextVar[Actor] = ContextVar("trails_mcp_caller", default=LOCAL)


class _Replay:
    """A ``receive`` that gives a body again."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        """The whole body, then whatever comes."""
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _actor_of(context: Context) -> Actor:
    """Who makes a request: every one is resolved anew, also within a session."""
    if context.request is None:
        return LOCAL
    actor: Actor = context.request.scope.get(ACTOR, LOCAL)
    return actor
