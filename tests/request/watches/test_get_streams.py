"""Sessions over HTTP whose GET stream is not open, or breaks: what is due waits for it."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.request.watches.shelf import Book, make_app, save
from tests.request.watches.test_listening import Exchange
from tests.worlds.mcp_clients import Stage, until
from tests.worlds.surfaces import hello

from trails import App
from trails.surfaces.mcp.http import McpApp

BOOKS = "trails://kg/Book"
BOOK = "trails://kg/Book/b"


@pytest.fixture
def app():
    """A graph with a book."""
    with make_app() as app:
        save(app.context(), Book, "b")
        yield app


class Session:
    """One session, request by request."""

    def __init__(self, endpoint: McpApp) -> None:
        self._endpoint = endpoint
        self._id: str | None = None

    def _headers(self) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        if self._id is not None:
            headers |= {"mcp-session-id": self._id, "mcp-protocol-version": "2025-06-18"}
        return headers

    async def post(self, method: str, params: object = None, id_: int | None = 1) -> dict:
        """One message, and its answer."""
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if id_ is not None:
            message["id"] = id_
        exchange = Exchange(self._endpoint, json.dumps(message).encode(), self._headers())
        await asyncio.wait_for(exchange.task, 60)
        for name, value in exchange.sent[0]["headers"]:
            if name == b"mcp-session-id":
                self._id = value.decode()
        return json.loads(exchange.body) if exchange.body else {}

    async def begin(self, *uris: str) -> None:
        """Initialize, and subscribe."""
        await self.post("initialize", hello())
        await self.post("notifications/initialized", id_=None)
        for uri in uris:
            assert "result" in await self.post("resources/subscribe", {"uri": uri})

    def get(self) -> Exchange:
        """Open the stream."""
        return Exchange(self._endpoint, b"", self._headers(), method="GET")


def told(exchange: Exchange) -> list[str]:
    """The URIs, or the methods, that a stream told."""
    return [
        each["params"]["uri"] if "params" in each else each["method"] for each in exchange.frames
    ]


async def leave(exchange: Exchange) -> None:
    """Hang up."""
    exchange.left.set()
    await asyncio.wait_for(exchange.task, 60)


async def change(app: App, pages: int) -> None:
    """Change the book."""
    await asyncio.to_thread(save, app.context(), Book, "b", pages=pages)


def test_what_is_due_waits_for_the_stream(app):
    """Changes before the GET are told when it opens, once each."""

    async def run() -> None:
        endpoint = McpApp(Stage(app), legacy_sessions=True)
        async with endpoint.run():
            session = Session(endpoint)
            await session.begin(BOOKS, BOOK)
            await change(app, 1)
            await change(app, 2)
            stream = session.get()
            await until(lambda: set(told(stream)) == {BOOKS, BOOK})
            await change(app, 3)
            await until(lambda: len(told(stream)) == 4)
            await leave(stream)

    asyncio.run(run())


def test_a_stream_that_breaks_loses_nothing(app):
    """Whatever may have been lost is told on the next one."""

    async def run() -> None:
        backend = Stage(app)
        endpoint = McpApp(backend, legacy_sessions=True)
        async with endpoint.run():
            session = Session(endpoint)
            await session.begin(BOOK)
            first = session.get()
            await change(app, 1)
            await until(lambda: told(first) == [BOOK])
            await leave(first)
            second = session.get()
            await until(lambda: BOOK in told(second))  # nothing changed, but nobody knows
            await session.post("resources/unsubscribe", {"uri": BOOK})
            await session.post("resources/subscribe", {"uri": BOOKS})
            await leave(second)
            await change(app, 2)
            third = session.get()
            await until(lambda: BOOKS in told(third))
            assert BOOK not in told(third)
            await leave(third)

    asyncio.run(run())


def test_a_stream_that_is_refused_is_no_stream(app):
    """A second GET beside the first is refused, and the first goes on being told."""

    async def run() -> None:
        endpoint = McpApp(Stage(app), legacy_sessions=True)
        async with endpoint.run():
            session = Session(endpoint)
            await session.begin(BOOK)
            first = session.get()
            await until(lambda: bool(first.sent))
            await asyncio.sleep(0.05)
            second = session.get()
            await asyncio.wait_for(second.task, 60)
            assert second.sent[0]["status"] == 409
            await change(app, 1)
            await until(lambda: told(first) == [BOOK])
            await leave(first)

    asyncio.run(run())
