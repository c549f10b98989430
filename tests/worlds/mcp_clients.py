"""The official MCP client on every transport: lines, HTTP with and without sessions, HTTP+SSE."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import anyio
import uvicorn
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ServerEvent
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import jsonrpc_message_adapter
from tests.worlds.surfaces import MODERN, OneCaller

from trails import App
from trails.app.serve.relay.endpoint import RemoteEndpoint
from trails.app.serve.relay.remote import RemoteFront
from trails.app.serve.relay.streams import ClientLines
from trails.app.sessions.servers import parse_address
from trails.model.actors import LOCAL
from trails.request.admission import KernelOptions
from trails.request.pipeline import Kernel
from trails.request.watches import Watches
from trails.surfaces.mcp.http import McpApp
from trails.surfaces.mcp.streams import serve_stream

WAYS = [
    *(("fast", revision) for revision in ("2024-11-05", "2025-06-18", "2025-11-25", MODERN)),
    *(("sdk", revision) for revision in ("2025-03-26", MODERN)),
    *(("sessions", revision) for revision in ("2025-03-26", "2025-11-25")),
    ("sse", "2024-11-05"),
    *(("stream", revision) for revision in ("2024-11-05", "2025-11-25", MODERN)),
    *(("bridge", revision) for revision in ("2024-11-05", "2025-11-25", MODERN)),
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
    """A session of lines."""

    async def serve(receive: Any, send: Any) -> None:
        await serve_stream(backend, receive, send, callers=OneCaller(LOCAL))

    async with line_transport(serve) as streams:
        yield streams


@asynccontextmanager
async def bridge_transport(url: str, graph: str = "g") -> AsyncIterator[Any]:
    """``trails serve --stdio --server``, with lines in memory."""

    async def serve(receive: Any, send: Any) -> None:
        class Streams:
            async def read(self) -> bytes:
                line = await receive()
                return b"" if line is None else line + b"\n"

            async def write(self, text: bytes) -> None:
                for line in text.splitlines():
                    await send(line)

        endpoint = RemoteEndpoint(parse_address(url), graph, None)
        await RemoteFront(endpoint, ClientLines(Streams()), lambda _line: None).run()

    async with line_transport(serve) as streams:
        yield streams


@asynccontextmanager
async def line_transport(serve: Callable[[Any, Any], Awaitable[None]]) -> AsyncIterator[Any]:
    """Lines in memory, where a pipe would be."""
    to_server: asyncio.Queue[bytes | None] = asyncio.Queue()
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](100)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def send(line: bytes) -> None:
        assert b"\n" not in line
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        with suppress(anyio.BrokenResourceError):  # the client has left
            await incoming.send(SessionMessage(message))

    async def pump() -> None:
        async for one in outgoing:
            text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
            to_server.put_nowait(text.encode())
        to_server.put_nowait(None)

    async with read, write, outgoing, incoming, anyio.create_task_group() as tasks:
        tasks.start_soon(pump)
        tasks.start_soon(serve, to_server.get, send)
        yield read, write
        await write.aclose()
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def connect(transport: str, revision: str, backend: Any, url: str) -> AsyncIterator[Client]:
    """The official client, on a transport and a revision."""
    if transport == "stream":
        target: Any = stream_transport(backend)
    elif transport == "bridge":
        target = bridge_transport(url)
    elif transport == "sse":
        target = sse_client(f"{url}/graphs/g/sse")
    else:
        target = streamable_http_client(f"{url}/graphs/g/mcp")
    async with Client(target, mode="auto" if revision == MODERN else "legacy") as client:
        assert client.protocol_version == revision
        yield client


class Stage(Kernel):
    """A kernel whose watches can be looked at."""

    def __init__(self, app: App) -> None:
        super().__init__(app.service(), KernelOptions(project="shelf", version="1", env="test"))

    @property
    def watches(self) -> Watches:
        """Its watches."""
        return self._watches


@asynccontextmanager
async def over_stream(backend: Stage, **options: object) -> AsyncIterator[Client]:
    """A client on a session of lines, as over stdio."""
    async with Client(stream_transport(backend), **options) as client:
        yield client


@asynccontextmanager
async def served(backend: Stage, **options: object) -> AsyncIterator[str]:
    """The address at which an endpoint is served over HTTP."""
    endpoint = McpApp(backend, **options)
    server = uvicorn.Server(
        uvicorn.Config(endpoint, port=0, log_level="warning", lifespan="off", ws="none")
    )
    async with endpoint.run():
        running = asyncio.ensure_future(server.serve())
        await until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            endpoint.end_streams()
            server.should_exit = True
            await running


@asynccontextmanager
async def over_http(backend: Stage, **options: object) -> AsyncIterator[Client]:
    """A client on an endpoint over HTTP."""
    async with served(backend) as url, Client(url, **options) as client:
        yield client


@asynccontextmanager
async def over_bridge(backend: Stage, **options: object) -> AsyncIterator[Client]:
    """A client that can only start a command, which passes its lines on to an endpoint."""
    async with served(backend) as url:
        transport = bridge_transport(url.removesuffix("/mcp"))
        async with Client(transport, **options) as client:
            yield client


@asynccontextmanager
async def over_sessions(backend: Stage, **options: object) -> AsyncIterator[Client]:
    """A client on an endpoint that keeps sessions."""
    async with served(backend, legacy_sessions=True) as url, Client(url, **options) as client:
        yield client


@asynccontextmanager
async def over_sse(backend: Stage, **options: object) -> AsyncIterator[Client]:
    """A client that knows HTTP+SSE alone.

    When it leaves while a message comes in, it stumbles over the stream that it has itself closed.
    """
    async with served(backend, legacy_sse=True) as url:
        left = False
        try:
            async with Client(sse_client(url.replace("/mcp", "/sse")), **options) as client:
                yield client
                left = True
        except* anyio.BrokenResourceError:
            if not left:
                raise


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something that nobody tells is true."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


class Heard:
    """A message handler that keeps what it hears."""

    def __init__(self) -> None:
        self.messages: list[object] = []
        self._news = asyncio.Event()

    async def __call__(self, message: object) -> None:
        """Keep it."""
        self.messages.append(message)
        self._news.set()

    async def until(self, condition: Callable[[list[object]], bool]) -> None:
        """Wait until what was heard meets a condition."""
        async with asyncio.timeout(60):
            while not condition(self.messages):
                self._news.clear()
                await self._news.wait()


async def event_of(subscription, wanted: ServerEvent) -> None:
    """Wait for an event, whatever comes before."""
    async with asyncio.timeout(60):
        while await anext(subscription) != wanted:
            pass


async def next_events(subscription, count: int) -> set[ServerEvent]:
    """So many events."""
    found = set()
    async with asyncio.timeout(60):
        while len(found) < count:
            found.add(await anext(subscription))
    return found
