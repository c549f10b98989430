"""``python -m tests.conformance.app SERVER DESCRIPTOR``: the surface, with the fixture behind it.

The guard against rebound names stands in front, as it does in ``trails serve``.
"""

from __future__ import annotations

import socket
import sys
import warnings
from collections.abc import Mapping
from typing import Any, Final

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPDeprecationWarning
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.conformance.extras import APART, install
from tests.conformance.fixture import FixtureBackend

from trails.app.serve.http.hosts import HostPolicy
from trails.app.serve.http.responses import AccessHeaders
from trails.surfaces.mcp import fast, http
from trails.surfaces.mcp import legacy as sessions
from trails.surfaces.mcp.http import McpApp

SERVERS: Final[Mapping[str, Mapping[str, bool]]] = {
    "fast": {"fast": True, "legacy_sessions": True},
    "sdk": {"fast": False, "legacy_sessions": True},
    "plain": {"fast": True, "legacy_sessions": False},
}
"""Both doors with all that can be switched on, and the surface as it is by default."""


def make(server: str) -> ASGIApp:
    """The application; extras bypass the fast path, which does not know them."""
    build, read = http.build_server, fast.FastPath.read

    def build_with_extras(*args: Any, **options: Any) -> Server[Any]:
        built = build(*args, **options)
        install(built)
        return built

    def read_own(self: Any, *args: Any, **options: Any) -> Any:
        ticket = read(self, *args, **options)
        return None if ticket is not None and ticket.name in APART else ticket

    class Streaming(StreamableHTTPSessionManager):
        """Answers that can carry progress and questions, which no tool of ours sends."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "json_response": False})

    http.build_server = build_with_extras
    fast.FastPath.read = read_own  # type: ignore[method-assign]
    if server != "plain":
        http.StreamableHTTPSessionManager = Streaming  # type: ignore[misc]
        sessions.StreamableHTTPSessionManager = Streaming  # type: ignore[misc]
    return guard(McpApp(FixtureBackend(), **SERVERS[server]))


def guard(app: McpApp) -> ASGIApp:
    """The surface behind the check of Host and Origin, alive as long as the server is."""
    policy = HostPolicy.for_bind("127.0.0.1")

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await live(scope, receive, send)
            return
        head = AccessHeaders(scope)
        refused = policy.refuse(head.hosts, head.origins)
        answer = app if refused is None else PlainTextResponse(refused.message, refused.status)
        await answer(scope, receive, send)

    live = Starlette(lifespan=lambda _app: app.run())
    return serve


if __name__ == "__main__":
    warnings.simplefilter("ignore", MCPDeprecationWarning)  # the suite asks for what is deprecated
    config = uvicorn.Config(make(sys.argv[1]), log_level="warning")
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(sys.argv[2]))])
