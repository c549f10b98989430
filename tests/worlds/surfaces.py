"""Every surface in this process: MCP messages by revision, a small backend, a kernel to ask.

``Doors`` asks the fast path and the SDK the same and compares what the backend got; ``Wires``
adds sessions of lines and REST.

"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from trails.app.kernels import kernel_of
from trails.engine.graph import cursors
from trails.model.actors import LOCAL, Actor
from trails.model.capabilities import Hints, Tool, ToolList
from trails.model.results import Failure, Outcome, Success
from trails.model.uris import Completions, Content, ListedResource, ResourceList, ResourceTemplate
from trails.surfaces.mcp import streams
from trails.surfaces.mcp.http import McpApp
from trails.surfaces.mcp.streams import serve_stream
from trails.surfaces.rest.routes import build_app

MODERN = "2026-07-28"
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
REVISIONS = (None, *LEGACY, MODERN)
"""None is an absent header."""
OLD = "2025-06-18"
"""An older one, where it does not matter which."""
INFO = MappingProxyType({"name": "test", "version": "1"})
"""Read-only, since fuzzers spoil what they are given."""
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def envelope(revision: str | None, info: Mapping[str, object] = INFO) -> dict[str, Any]:
    """The ``_meta`` of a request."""
    if revision != MODERN:
        return {}
    return {
        "io.modelcontextprotocol/protocolVersion": revision,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": dict(info),
    }


META = envelope(MODERN)


def message_of(
    revision: str | None, method: str, params: dict[str, Any], id_: object = 1
) -> dict[str, Any]:
    """A request."""
    meta = envelope(revision)
    full = {**params, "_meta": meta} if meta else params
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": full}


def hello(revision: str = OLD, info: Mapping[str, object] = INFO) -> dict[str, Any]:
    """What a client says of itself when a session begins."""
    return {"protocolVersion": revision, "capabilities": {}, "clientInfo": dict(info)}


def session_of(revision: str, method: str, params: dict[str, Any]) -> list[dict[str, Any]]:
    """A session with one request; its id is 1."""
    asked = message_of(revision, method, params)
    if revision == MODERN:
        return [asked]
    return [message_of(None, "initialize", hello(revision), 0), INITIALIZED, asked]


# What is under way when the lines of a session end is waited for, however busy the machine is.
streams.GRACE = 60.0  # type: ignore[misc]

ECHO = Tool(
    name="echo",
    title="Echo",
    description="Gives back its arguments.",
    input_schema={"type": "object"},
    output_schema={"type": "object"},
    hints=Hints(read_only=True, destructive=False, idempotent=True),
)
NOTE = ListedResource(
    uri="test://note", name="note", title="Note", description="A note.", mime_type="text/plain"
)
LINE = ResourceTemplate(
    uri_template="test://line/{n}",
    name="line",
    title="Line",
    description="A line.",
    mime_type="text/plain",
)


class OneCaller:
    """Every message is of the same actor."""

    default_token = None

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    async def resolve(self, token: object, *, begins: bool) -> Actor:
        """Whatever it carries."""
        del token, begins
        return self._actor

    def is_current(self, actor: Actor) -> bool:
        """For ever."""
        return actor == self._actor


class TrivialBackend:
    """Echoes, reads one note, and counts what it was asked."""

    name, version = "trivial", "1.0"

    def __init__(self, failures: Mapping[str, Failure] | None = None) -> None:
        self.failures = failures or {}
        self.calls: list[tuple[str, Any]] = []

    def instructions(self, actor: Actor) -> str:
        """What to do."""
        return "Call echo."

    def tools(self, actor: Actor) -> ToolList:
        """One tool."""
        return ToolList("1", (ECHO,))

    def schema_of(self, name: str) -> Mapping[str, object] | None:
        """What a tool takes."""
        tools = self.tools(LOCAL).tools
        return next((each.input_schema for each in tools if each.name == name), None)

    def reserve(self, actor: Actor) -> AbstractContextManager[object]:
        """Everybody is admitted."""
        return nullcontext()

    async def execute(self, actor: Actor, name: str, arguments: Mapping[str, object]) -> Outcome:
        """Echo, or fail as the name says."""
        self.calls.append((name, arguments))
        if name == "echo":
            return Success(msgspec.json.encode(arguments))
        return self.failures.get(name) or Failure("unknown", "unknown", f"unknown tool: {name}")

    async def invoke(self, actor: Actor, name: str, arguments: Mapping[str, object]) -> Outcome:
        """The same, for programs."""
        return await self.execute(actor, name, arguments)

    def resources(self, actor: Actor) -> ResourceList:
        """One note and one template."""
        return ResourceList("1", (NOTE,), (LINE,))

    async def read(self, actor: Actor, uri: str) -> Sequence[Content] | Failure:
        """The note."""
        self.calls.append(("read", uri))
        if uri == NOTE.uri:
            return [Content(uri, "text/plain", "hello")]
        return self.failures.get(uri) or Failure("unknown", "not_found", f"no resource: {uri}")

    async def complete(
        self, actor: Actor, template: str, variable: str, value: str, given: Mapping[str, str]
    ) -> Completions | Failure:
        """Ten lines."""
        return Completions(tuple(str(n) for n in range(10) if str(n).startswith(value)), total=10)

    def refuse_watch(self, actor: Actor, uri: str) -> Failure | None:
        """Nothing changes here."""
        return Failure("unknown", "not_found", f"no resource: {uri}")

    def watch(self, actor: Actor, uris: Sequence[str]) -> Any:
        """Nothing changes here."""
        raise NotImplementedError

    def listen(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Nothing changes here."""
        return lambda: None


Headers = list[tuple[bytes, bytes]]

PLAIN = [
    (b"host", b"127.0.0.1"),
    (b"accept", b"application/json, text/event-stream"),
    (b"content-type", b"application/json"),
]


class Reply(NamedTuple):
    """What a door answers."""

    status: int
    headers: Headers
    body: bytes

    @property
    def message(self) -> Any:
        """The JSON of the body."""
        return json.loads(self.body)


def headers_of(revision: str | None, method: str, params: dict[str, Any]) -> Headers:
    """The headers that a client sends with a request."""
    headers = list(PLAIN)
    if revision is not None:
        headers.append((b"mcp-protocol-version", revision.encode()))
    if revision == MODERN:
        headers.append((b"mcp-method", method.encode()))
        name = params.get("name", params.get("uri"))
        if isinstance(name, str):
            headers.append((b"mcp-name", name.encode()))
    return headers


async def ask_app(
    app: Any, headers: Headers, parts: Iterable[bytes], method: str = "POST", **scope: object
) -> Reply:
    """Send one HTTP request to an ASGI application."""
    left = list(parts) or [b""]
    sent: list[dict[str, Any]] = []
    done = asyncio.Event()

    async def receive():
        if left:
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}
        await done.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    full = {"type": "http", "method": method, "path": "/mcp", "headers": headers, **scope}
    await app({"query_string": b"", **full}, receive, send)
    done.set()
    start, *rest = sent
    return Reply(start["status"], list(start["headers"]), b"".join(one["body"] for one in rest))


def calls_of(backend: Any) -> list[Any]:
    """What a backend that counts was asked."""
    return getattr(backend, "calls", [])


class Doors:
    """Two apps in a loop of their own: one with the fast door, one without."""

    def __init__(self, make: Any = TrivialBackend, **options: Any) -> None:
        self.backends = make(), make()
        self.apps = tuple(
            McpApp(backend, fast=fast, **options)
            for backend, fast in zip(self.backends, (True, False), strict=True)
        )
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self):
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object):
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with self.apps[0].run(), self.apps[1].run():
            self._ready.set()
            await self._end.wait()

    def run(self, work: Any) -> Any:
        """Run a coroutine in the loop of the apps."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    def ask(self, headers: Headers, body: bytes, **scope: object) -> tuple[Reply, Reply]:
        """What both answer; what the backends were asked is compared here."""
        for backend in self.backends:
            calls_of(backend).clear()
        now = cursors.time()
        with patch.object(cursors, "time", lambda: now):  # cursors of both expire together
            fast, slow = (self.run(ask_app(app, headers, [body], **scope)) for app in self.apps)
        first, second = ([repr(call) for call in calls_of(backend)] for backend in self.backends)
        assert first == second
        assert len(first) <= 1
        return fast, slow

    def is_fast(self, headers: Headers, body: bytes) -> bool:
        """Whether the fast door takes a request."""
        door = self.apps[0]._fast
        head = door.read_head(headers)
        ticket = None if head is None else door.read(head, body)
        return ticket is not None and door.takes(ticket)


async def talk(
    backend: Any, lines: Iterable[object], actor: Any = LOCAL, **options: Any
) -> list[dict[str, Any]]:
    """Give a session some lines, or messages; what it answers."""
    given = iter(lines)
    said: list[dict[str, Any]] = []

    async def receive():
        line = next(given, None)
        return line if line is None or isinstance(line, bytes) else json.dumps(line).encode()

    async def send(line):
        said.append(json.loads(line))

    await serve_stream(backend, receive, send, callers=OneCaller(actor), **options)
    return said


WIRES = 2 * len(REVISIONS) + len(LEGACY) + 1
"""Answers that one MCP request gets: two doors with and without a revision, and lines."""


class Wires:
    """A graph of an app, asked over all of them."""

    def __init__(self, app, graph="main"):
        self.kernel = kernel_of(app, graph)
        self.doors = Doors(lambda: self.kernel)
        self.rest_app = build_app({graph: self.kernel})
        self.graph = graph

    def __enter__(self):
        self.doors.__enter__()
        return self

    def __exit__(self, *_):
        self.doors.__exit__()
        self.kernel.close()

    def by_doors(self, revision, method, params, actor=LOCAL):
        """What both doors answer, as they answer it."""
        headers = headers_of(revision, method, params)
        body = json.dumps(message_of(revision, method, params)).encode()
        return self.doors.ask(headers, body, **{"trails.actor": actor})

    def by_lines(self, revision, method, params, actor=LOCAL):
        """What a session of lines answers."""
        said = self.doors.run(talk(self.kernel, session_of(revision, method, params), actor))
        return [one for one in said if one.get("id") == 1]

    def everywhere(self, method, params, actor=LOCAL):
        """All answers to one MCP request, each with its revision."""
        for revision in REVISIONS:
            for reply in self.by_doors(revision, method, params, actor):
                yield revision, reply.message
        for revision in (*LEGACY, MODERN):
            for message in self.by_lines(revision, method, params, actor):
                yield revision, message

    def rest(self, method, path, document=None, actor=LOCAL, query=b""):
        """What REST answers on a path of the graph."""
        body = b"" if document is None else json.dumps(document).encode()
        headers = [] if document is None else [(b"content-type", b"application/json")]
        full = f"/graphs/{self.graph}{path}"
        scope = {"path": full, "raw_path": full.encode(), "query_string": query}
        return self.doors.run(
            ask_app(self.rest_app, headers, [body], method, **{"trails.actor": actor}, **scope)
        )
