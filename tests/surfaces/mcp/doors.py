"""The same backend behind both doors, asked the same."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.surfaces.mcp.messages import MODERN
from tests.surfaces.mcp.trivial import TrivialBackend

from trails.surfaces.mcp.http import McpApp

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
        fast, slow = (self.run(ask_app(app, headers, [body], **scope)) for app in self.apps)
        first, second = ([repr(call) for call in calls_of(backend)] for backend in self.backends)
        assert first == second
        assert len(first) <= 1
        return fast, slow

    def is_fast(self, headers: Headers, body: bytes) -> bool:
        """Whether the fast door takes a request."""
        door = self.apps[0]._fast
        ticket = door.read({"headers": headers}, body)
        return ticket is not None and door.takes(ticket)
