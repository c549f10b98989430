"""The official client, connected to a backend over every transport."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import uvicorn
from mcp.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import jsonrpc_message_adapter
from tests.surfaces.mcp.trivial import OneCaller

from trails.model.actors import LOCAL
from trails.surfaces.mcp.http import McpApp
from trails.surfaces.mcp.streams import serve_stream

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"
WAYS = [
    *(("fast", revision) for revision in ("2024-11-05", "2025-06-18", "2025-11-25", MODERN)),
    *(("sdk", revision) for revision in ("2025-03-26", MODERN)),
    *(("sessions", revision) for revision in ("2025-03-26", "2025-11-25")),
    ("sse", "2024-11-05"),
    *(("stream", revision) for revision in ("2024-11-05", "2025-11-25", MODERN)),
]
"""Sessions and HTTP+SSE exist for older revisions alone."""


class Lifespan:
    """An ASGI application with the life of an McpApp."""

    def __init__(self, app: McpApp) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve HTTP, and open and close the app."""
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return
        await receive()
        async with self.app.run():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


@contextmanager
def serve_http(backend: Any, **options: Any) -> Iterator[str]:
    """A real server on a free port; its base URL."""
    app = Lifespan(McpApp(backend, **options))
    config = uvicorn.Config(
        app, port=0, log_level="warning", timeout_graceful_shutdown=1, lifespan="on"
    )
    server = uvicorn.Server(config)
    ready = threading.Event()

    async def startup(sockets=None):
        await type(server).startup(server, sockets)
        ready.set()

    server.startup = startup
    thread = threading.Thread(target=server.run)
    thread.start()
    assert ready.wait(60)
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@asynccontextmanager
async def stream_transport(backend: Any) -> AsyncIterator[Any]:
    """Lines in memory, where a pipe would be."""
    to_server: asyncio.Queue[bytes | None] = asyncio.Queue()
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](100)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def send(line: bytes) -> None:
        assert b"\n" not in line
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        await incoming.send(SessionMessage(message))

    async def pump() -> None:
        async for one in outgoing:
            text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
            to_server.put_nowait(text.encode())
        to_server.put_nowait(None)

    async with read, write, outgoing, incoming, anyio.create_task_group() as tasks:
        tasks.start_soon(pump)
        tasks.start_soon(
            lambda: serve_stream(backend, to_server.get, send, callers=OneCaller(LOCAL))
        )
        yield read, write
        await write.aclose()
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def connect(transport: str, revision: str, backend: Any, url: str) -> AsyncIterator[Client]:
    """The official client, on a transport and a revision."""
    if transport == "stream":
        target: Any = stream_transport(backend)
    elif transport == "sse":
        target = sse_client(f"{url}/graphs/g/sse")
    else:
        target = streamable_http_client(f"{url}/graphs/g/mcp")
    async with Client(target, mode="auto" if revision == MODERN else "legacy") as client:
        assert client.protocol_version == revision
        yield client
