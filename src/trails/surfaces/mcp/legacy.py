"""Older HTTP transports, if enabled: HTTP+SSE of 2024-11-05, and sessions.

A GET of ``…/sse`` is the stream of one session and names the path to which its messages are
posted. A session of a later revision begins with ``initialize`` and lives in this process; its
answers are JSON, and its GET carries the notifications.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from trails.model.actors import PRESENTED_KEY
from trails.model.fairness import LargeBodies, is_large
from trails.model.results import Failure
from trails.model.texts import Body
from trails.surfaces.mcp.backend import McpBackend
from trails.surfaces.mcp.bodies import (
    BodyError,
    ClientDisconnected,
    Replay,
    check_for_sdk,
    check_large,
    parse_body,
    read_body,
    run_until_disconnect,
)
from trails.surfaces.mcp.callers import caller_of, is_legacy, name_caller, without_bearer
from trails.surfaces.mcp.responses import Reencoder, refuse, refuse_body, refuse_unread
from trails.surfaces.mcp.subscriptions import Subscriptions

STREAM: Final = "/sse"
MESSAGES: Final = "/messages"


class SseTransport:
    """The two paths of the transport."""

    def __init__(
        self, server: Server[Any], backend: McpBackend, max_body: int, large: LargeBodies
    ) -> None:
        self._server = server
        self._backend = backend
        self._large = large
        self._max_body = max_body
        self._transport = SseServerTransport(MESSAGES, max_request_body_size=max_body)

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a session."""
        if scope["method"] != "GET":
            await refuse(send, 405, "Method not allowed; use GET.", [(b"allow", b"GET")])
            return
        base = scope["path"].removesuffix(STREAM)
        scope = name_caller({**scope, "root_path": base})
        async with self._transport.connect_sse(scope, receive, send) as (read, write):
            await self._server.run(read, write, self._server.create_initialization_options())

    async def take(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a message of a session."""
        if scope["method"] != "POST":
            await refuse(send, 405, "Method not allowed; use POST.", [(b"allow", b"POST")])
            return
        try:
            body = await read_body(receive, self._max_body)
            if is_large(body):
                await self._take_large(scope, body, receive, send)
            else:
                await self._hand_on(scope, _read(scope, body), receive, send)
        except ClientDisconnected:
            return
        except BodyError as error:
            await refuse_body(send, error)

    async def _take_large(self, scope: Scope, body: Body, receive: Receive, send: Send) -> None:
        """Handle a large message; its sender is admitted before anything is parsed."""
        actor = caller_of(scope)
        admitted = self._backend.reserve(actor)
        if isinstance(admitted, Failure):
            await refuse_unread(send, admitted)
            return
        with admitted:
            reading = self._large.run(actor.name, _read_large, scope, body)
            await self._hand_on(scope, await run_until_disconnect(receive, reading), receive, send)

    async def _hand_on(self, scope: Scope, body: Body, receive: Receive, send: Send) -> None:
        # Not ended with its request: the message is handed on after the answer.
        replayed = Replay(body, receive)
        await self._transport.handle_post_message(name_caller(scope), replayed, send)


def _read_large(scope: Scope, body: Body) -> Body:
    """The message of a large body, in a thread."""
    check_for_sdk(check_large(body))
    return _read(scope, body)


def _read(scope: Scope, body: Body) -> Body:
    """The message of a valid body, without its token."""
    body = without_bearer(body, scope.get(PRESENTED_KEY))
    parse_body(body)
    return body


_SESSION_ID: Final = b"mcp-session-id"


class LegacySessions:
    """The sessions of one endpoint."""

    def __init__(self, server: Server[Any], subscriptions: Subscriptions, max_body: int) -> None:
        self._subscriptions = subscriptions
        self._manager = StreamableHTTPSessionManager(
            server, json_response=True, max_request_body_size=max_body
        )

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Run the session manager."""
        async with self._manager.run():
            yield

    def takes(self, scope: Scope, message: object) -> bool:
        """Whether a POST belongs to a session, or begins one."""
        begins = isinstance(message, dict) and message.get("method") == "initialize"
        return is_legacy(scope) and (begins or _SESSION_ID in dict(scope["headers"]))

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        session = dict(scope["headers"]).get(_SESSION_ID)
        if scope["method"] == "GET" and session is not None:
            reencoded = Reencoder(scope, send)
            with self._subscriptions.stream(session.decode("latin-1"), reencoded) as observed:
                await self._manager.handle_request(name_caller(scope), receive, observed)
        else:
            await self._manager.handle_request(name_caller(scope), receive, Reencoder(scope, send))
