"""MCP over HTTP: one endpoint for every revision.

A POST is answered with JSON, without a session. GET and DELETE exist only if sessions
of older revisions are enabled, and the two paths of the HTTP+SSE transport only if that is.
The front has checked Host, Origin and credentials; the caller is in ``scope[ACTOR_KEY]`` of
``model.actors``. A request that has arrived whole and that the fast path admits needs no ASGI
(``take_for``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from trails.model.actors import LOCAL, MAX_BODY, PRESENTED_KEY, Actor, IsCurrent, Lasting, Secret
from trails.model.fairness import LargeBodies, is_large
from trails.model.origins import ORIGIN, begin_request
from trails.model.replies import JSON_LINES, Answer, Reply, Take
from trails.model.results import Failure
from trails.model.texts import Body
from trails.surfaces.mcp.backend import McpBackend
from trails.surfaces.mcp.bodies import (
    BodyError,
    ClientDisconnected,
    Replay,
    check_for_sdk,
    check_large,
    check_shape,
    parse_body,
    read_body,
    run_until_disconnect,
)
from trails.surfaces.mcp.callers import (
    actor_of,
    caller_of,
    is_legacy,
    may_hold_token,
    without_bearer,
)
from trails.surfaces.mcp.fast import FastPath, FastResponse, Headers, Ticket
from trails.surfaces.mcp.legacy import MESSAGES, STREAM, LegacySessions, SseTransport
from trails.surfaces.mcp.responses import (
    STEP_UP,
    Reencoder,
    challenge,
    refuse,
    refuse_body,
    refuse_unread,
    send_json,
)
from trails.surfaces.mcp.server import build_server
from trails.surfaces.mcp.subscribers import sweep
from trails.surfaces.mcp.subscriptions import ListenStreams, Subscriptions
from trails.surfaces.mcp.wire import ValidationErrors

_SSE_PATHS: Final = (STREAM, MESSAGES)
_POST: Final = "Method not allowed: this MCP endpoint accepts POST with one JSON-RPC message."
_NO_SSE: Final = (
    "the deprecated HTTP+SSE transport is disabled; POST to the path that ends in /mcp, or set "
    "legacy_sse = true in [graphs.<id>.mcp]"
)
_caller: ContextVar[Actor] = ContextVar("trails_mcp_caller", default=LOCAL)


class _Posted(NamedTuple):
    """A body that was read: for the fast path, or as a message for the SDK."""

    body: Body
    ticket: Ticket | None
    message: object


class McpApp:
    """The ASGI application of one graph's MCP endpoint."""

    def __init__(
        self,
        backend: McpBackend,
        *,
        legacy_sessions: bool = False,
        legacy_sse: bool = False,
        validation_errors: ValidationErrors = "protocol",
        max_body: int = MAX_BODY,
        fast: bool = True,
        is_current: IsCurrent = lambda _actor: True,
        large: LargeBodies | None = None,
    ) -> None:
        self._backend = backend
        self._large = LargeBodies() if large is None else large
        self._is_current = is_current
        self._max_body = max_body
        server = build_server(backend, actor_of, validation_errors, self._schema_of)
        self._subscriptions = Subscriptions(backend)
        self._lasting: list[Lasting] = [self._subscriptions]
        self._subscriptions.register(server, actor_of, sessions=False)
        self._listening = ListenStreams(self._subscriptions, server)
        self._stateless = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=max_body
        )
        self._fast = FastPath(backend, server, validation_errors) if fast else None
        self._sessions: LegacySessions | None = None
        self._sse: SseTransport | None = None
        if legacy_sessions or legacy_sse:
            connected = build_server(backend, actor_of, validation_errors)
            session_subscriptions = Subscriptions(backend)
            session_subscriptions.register(connected, actor_of, sessions=True)
            self._lasting.append(session_subscriptions)
            if legacy_sessions:
                self._sessions = LegacySessions(connected, session_subscriptions, max_body)
            if legacy_sse:
                self._sse = SseTransport(connected, backend, max_body, self._large)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Accept requests."""
        async with AsyncExitStack() as open_:
            await open_.enter_async_context(self._stateless.run())
            if self._sessions is not None:
                await open_.enter_async_context(self._sessions.run())
            sweeping = asyncio.create_task(sweep(self._is_current, *self._lasting))
            open_.callback(sweeping.cancel)
            yield

    def end_streams(self) -> None:
        """End all open streams, so that the server can stop."""
        self._subscriptions.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        begin_request("mcp", scope["headers"])
        if scope["path"].endswith(_SSE_PATHS):
            await self._answer_sse(scope, receive, send)
        elif scope["method"] == "POST":
            await self._post(scope, receive, send)
        elif self._sessions is not None and scope["method"] in {"GET", "DELETE"}:
            await self._sessions.handle(scope, receive, send)
        else:
            allowed = b"POST" if self._sessions is None else b"GET, POST, DELETE"
            await refuse(send, 405, _POST, [(b"allow", allowed)])

    def take_for(self, headers: Headers, presented: Secret | None) -> Take | None:
        """What answers POST requests with these headers that have arrived whole.

        ``presented`` is the token that they came with.
        """
        fast = self._fast
        head = None if fast is None else fast.read_head(headers)
        if fast is None or head is None:
            return None

        def take(actor: Actor, body: bytes) -> Answer | None:
            if is_large(body) or may_hold_token(body, presented):
                return None
            ticket = fast.read(head, body)
            if ticket is None or ticket.method == "subscriptions/listen" or not fast.takes(ticket):
                return None
            if ticket.method == "tools/list":
                return _reply(fast.answer_list(ticket, actor))
            return answer(ticket, actor)

        async def answer(ticket: Ticket, actor: Actor) -> Reply:
            ORIGIN.set(head.origin)
            return _reply(await fast.answer(ticket, actor))

        return take

    async def _answer_sse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer on a path of the HTTP+SSE transport, if that is enabled."""
        if self._sse is None:
            await refuse(send, 404, _NO_SSE)
        elif scope["path"].endswith(STREAM):
            await self._sse.stream(scope, receive, send)
        else:
            await self._sse.take(scope, receive, send)

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read a body, and answer it."""
        try:
            body = await read_body(receive, self._max_body)
            if is_large(body):
                await self._post_large(scope, body, receive, send)
            else:
                await self._answer(scope, self._read(scope, body), receive, send)
        except ClientDisconnected:
            return
        except BodyError as error:
            await refuse_body(send, error)

    async def _post_large(self, scope: Scope, body: Body, receive: Receive, send: Send) -> None:
        """Answer a large body; its sender is admitted before anything is parsed."""
        actor = caller_of(scope)
        admitted = self._backend.reserve(actor)
        if isinstance(admitted, Failure):
            await refuse_unread(send, admitted)
            return
        with admitted:
            reading = self._large.run(actor.name, self._read_large, scope, body)
            posted = await run_until_disconnect(receive, reading)
            await self._answer(scope, posted, receive, send)

    def _read_large(self, scope: Scope, body: Body) -> _Posted:
        """Read a large body, in a thread."""
        parts = check_large(body)
        posted = self._read(scope, body, is_scanned=True)
        if posted.ticket is None:
            check_for_sdk(parts)
        return posted

    def _read(self, scope: Scope, body: Body, *, is_scanned: bool = False) -> _Posted:
        body, fast = without_bearer(body, scope.get(PRESENTED_KEY)), self._fast
        head = None if fast is None else fast.read_head(scope["headers"])
        ticket = None
        if fast is not None and head is not None:
            ticket = fast.read(head, body, is_scanned=is_scanned)
        message = parse_body(body, is_scanned=is_scanned) if ticket is None else None
        return _Posted(body, ticket, message)

    async def _answer(self, scope: Scope, posted: _Posted, receive: Receive, send: Send) -> None:
        """Answer on the fast path, or let the SDK do it."""
        actor, ticket = caller_of(scope), posted.ticket
        if self._fast is None or ticket is None or not self._fast.takes(ticket):
            await self._ask_sdk(scope, posted, receive, send)
        elif ticket.method != "subscriptions/listen":
            answer = await run_until_disconnect(receive, self._fast.answer(ticket, actor))
            more = challenge(scope, answer.lacking) if answer.lacking else None
            await send_json(send, STEP_UP if more else answer.status, answer.body, more)
        elif (stream := self._listening.open(ticket, actor)) is not None:
            await stream.serve(receive, send)
        else:
            await self._ask_sdk(scope, posted, receive, send)

    async def _ask_sdk(self, scope: Scope, posted: _Posted, receive: Receive, send: Send) -> None:
        """Let the SDK answer; it gets valid JSON, and headers without white space."""
        message = parse_body(posted.body) if posted.message is None else posted.message
        scope = {**scope, "headers": [(name, value.strip()) for name, value in scope["headers"]]}
        replayed = Replay(posted.body, receive)
        if is_legacy(scope):
            check_shape(message)
        if self._sessions is not None and self._sessions.takes(scope, message):
            await self._sessions.handle(scope, replayed, send)
        elif isinstance(message, dict) and message.get("method") == "subscriptions/listen":
            await self._handle(scope, replayed, send)
        else:
            await run_until_disconnect(receive, self._handle(scope, replayed, send))

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the SDK answer, without a session."""
        _caller.set(caller_of(scope))
        await self._stateless.handle_request(scope, receive, Reencoder(scope, send))

    def _schema_of(self, name: str) -> Mapping[str, object] | None:
        """The schema of a tool that the caller may use; called before there is a context."""
        tools = self._backend.tools(_caller.get()).tools
        return next((tool.input_schema for tool in tools if tool.name == name), None)


def _reply(answer: FastResponse) -> Reply:
    """A response to a caller who could not obtain a missing scope: it has no access token."""
    return Reply(answer.status, JSON_LINES, answer.body)
