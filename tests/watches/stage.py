"""A backend of the real watches and the real registry, and ways to reach it with a client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import uvicorn
from mcp.client.client import Client
from mcp.client.subscriptions import ServerEvent
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import jsonrpc_message_adapter

from trails import App
from trails.model.actors import LOCAL, Actor
from trails.model.outcomes import Failure, Outcome, Success
from trails.model.resources import Completions, Content, ResourceList
from trails.model.tools import Hints, Tool, ToolList
from trails.request.lists import listen_to_lists
from trails.request.reading import Reader
from trails.request.watches import Watcher, Watches
from trails.surfaces.mcp.http import McpApp
from trails.surfaces.mcp.streams import serve_stream


class Stage:
    """As much of a kernel as watching needs."""

    name = "shelf/main"
    version = "1"
    instructions = "Watch me."

    def __init__(self, app: App) -> None:
        self.app = app
        self._service = app.service()
        self._reader = Reader(self._service)
        self.watches = Watches(self._service)

    def tools(self, actor: Actor) -> ToolList:
        """The capabilities that are registered now."""
        registry = self._service.registry
        schema = {"type": "object"}
        hints = Hints(read_only=False, destructive=False, idempotent=False)
        tools = [
            Tool(name=name, title=name, description=name, input_schema=schema, hints=hints)
            for name in sorted(registry.capabilities)
        ]
        return ToolList(str(sorted(registry.capabilities)), tuple(tools))

    async def execute(self, actor: Actor, name: str, arguments: Mapping[str, object]) -> Outcome:
        """Call a capability."""
        ctx = self.app.context()
        await asyncio.to_thread(self._service.call, ctx, name, arguments)
        return Success(b"{}")

    def resources(self, actor: Actor) -> ResourceList:
        """The types."""
        found = self._reader.resources(actor)
        return ResourceList(self._service.graph.main.schema.digest, found.resources, ())

    async def read(self, actor: Actor, uri: str) -> Sequence[Content] | Failure:
        """Read."""
        return await self._reader.read(actor, uri)

    async def complete(
        self, actor: Actor, template: str, variable: str, value: str, given: Mapping[str, str]
    ) -> Completions | Failure:
        """Nothing."""
        return Completions(())

    def refuse_watch(self, actor: Actor, uri: str) -> Failure | None:
        """Ask the watches."""
        return self.watches.refuse_watch(actor, uri)

    def watch(self, actor: Actor, uris: Sequence[str]) -> Watcher | Failure:
        """Ask the watches."""
        return self.watches.watch(actor, uris)

    def listen(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Be told of new lists."""
        return listen_to_lists(self._service, changed)


Connect = Callable[..., "AsyncIterator[Client]"]


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
            await to_client.send(SessionMessage(message))

        async def serve() -> None:
            async with to_client, from_client:
                await serve_stream(self._backend, receive, send, actor=LOCAL)

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
async def over_http(
    backend: Stage, serving: Mapping[str, object] | None = None, **options: object
) -> AsyncIterator[Client]:
    """A client on an endpoint over HTTP."""
    async with served(backend, **(serving or {})) as url, Client(url, **options) as client:
        yield client


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something that nobody tells is true."""
    async with asyncio.timeout(10):
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
        async with asyncio.timeout(10):
            while not condition(self.messages):
                self._news.clear()
                await self._news.wait()


async def next_events(subscription, count: int) -> set[ServerEvent]:
    """So many events."""
    found = set()
    async with asyncio.timeout(10):
        while len(found) < count:
            found.add(await anext(subscription))
    return found
