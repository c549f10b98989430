"""A kernel, and ways to reach it with a client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import uvicorn
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.subscriptions import ServerEvent
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import jsonrpc_message_adapter
from tests.surfaces.mcp.trivial import OneCaller

from trails import App
from trails.model.actors import LOCAL
from trails.request.admission import KernelOptions
from trails.request.pipeline import Kernel
from trails.request.watches import Watches
from trails.surfaces.mcp.http import McpApp
from trails.surfaces.mcp.streams import serve_stream


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
    async with Client(_Lines(backend), **options) as client:
        yield client


class _Lines:
    """A transport of lines to ``serve_stream``."""

    def __init__(self, backend: Stage) -> None:
        self._backend = backend

    async def __aenter__(self):
        to_client, self._read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self._write, from_client = anyio.create_memory_object_stream[SessionMessage](0)

        async def receive() -> bytes | None:
            try:
                message = (await from_client.receive()).message
            except anyio.EndOfStream:
                return None
            return json.dumps(message.model_dump(by_alias=True, exclude_unset=True)).encode()

        async def send(line: bytes) -> None:
            message = jsonrpc_message_adapter.validate_python(json.loads(line), by_name=False)
            with suppress(anyio.BrokenResourceError):  # the client has left
                await to_client.send(SessionMessage(message))

        async def serve() -> None:
            async with to_client, from_client:
                await serve_stream(self._backend, receive, send, callers=OneCaller(LOCAL))

        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(serve)
        return self._read, self._write

    async def __aexit__(self, *error: object):
        await self._read.aclose()
        await self._write.aclose()
        self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(None, None, None)


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
