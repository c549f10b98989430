"""Sessions of older revisions over HTTP, for those who ask for them.

A session begins with ``initialize`` and lives in this process. Its answers are JSON, as
without one; what the server says unasked comes on the session's GET.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from trails.surfaces.mcp.callers import is_legacy, name_caller
from trails.surfaces.mcp.responses import Reencoder
from trails.surfaces.mcp.subscriptions import Subscriptions

_SESSION_ID: Final = b"mcp-session-id"


class Sessions:
    """The sessions of one endpoint."""

    def __init__(self, server: Server[Any], subscriptions: Subscriptions, max_body: int) -> None:
        self._subscriptions = subscriptions
        self._manager = StreamableHTTPSessionManager(
            server, json_response=True, max_request_body_size=max_body
        )

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Keep sessions."""
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
            with self._subscriptions.stream(session.decode("latin-1"), reencoded) as told:
                await self._manager.handle_request(name_caller(scope), receive, told)
        else:
            await self._manager.handle_request(name_caller(scope), receive, Reencoder(scope, send))
