"""Listen streams over HTTP: what both doors send, and what a stream does in bad company."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.request.watches.shelf import Book, Shelf, branch, make_app, save
from tests.request.watches.test_subscriptions import make_capability, make_type
from tests.worlds.mcp_clients import Stage, until
from tests.worlds.surfaces import MODERN, message_of

from trails import App
from trails.surfaces.mcp import subscriptions as listening
from trails.surfaces.mcp.http import McpApp

HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": MODERN,
    "mcp-method": "subscriptions/listen",
}
BOOKS = "trails://kg/Book"


@pytest.fixture
def app():
    """A graph with a book, a shelf and a branch."""
    with make_app() as app:
        save(app.context(), Shelf, "s")
        save(app.context(), Book, "b")
        branch(app, "draft")
        yield app


class Exchange:
    """One HTTP request to an endpoint, in this process; ``gate`` can hold up what is sent."""

    def __init__(
        self,
        endpoint: McpApp,
        body: bytes,
        headers: dict[str, str] | None = None,
        method: str = "POST",
    ) -> None:
        self.sent: list[dict] = []
        self.left = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self._body: bytes | None = body
        scope = {
            "type": "http",
            "method": method,
            "path": "/mcp",
            "raw_path": b"/mcp",
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "http_version": "1.1",
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1),
            "headers": [
                (name.encode(), value.encode()) for name, value in (headers or HEADERS).items()
            ],
        }
        self.task = asyncio.ensure_future(endpoint(scope, self._receive, self._send))

    async def _receive(self) -> dict:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict) -> None:
        await self.gate.wait()
        self.sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self.left.set()

    @property
    def body(self) -> bytes:
        """What was sent so far."""
        return b"".join(each.get("body", b"") for each in self.sent[1:])

    @property
    def frames(self) -> list[dict]:
        """The messages of the stream."""
        lines = self.body.decode().split("\r\n")
        return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def request(id_: object, **notifications: object) -> bytes:
    """A listen request."""
    params = {"notifications": notifications}
    return json.dumps(message_of(MODERN, "subscriptions/listen", params, id_)).encode()


REQUESTS = {
    "one type": request(1, resourceSubscriptions=[BOOKS]),
    "an id of text": request('listen-"1"\\é\n', resourceSubscriptions=[BOOKS]),
    "a big id": request(2**53 + 1, resourceSubscriptions=[BOOKS]),
    "an empty id": request("", resourceSubscriptions=[BOOKS, f"{BOOKS}/b"]),
    "zero": request(0, resourceSubscriptions=[f"{BOOKS}/b"], toolsListChanged=True),
    "all": request(
        -5,
        toolsListChanged=True,
        promptsListChanged=True,
        resourcesListChanged=True,
        resourceSubscriptions=[
            f"{BOOKS}/%C3%A9%20x",
            f"{BOOKS}/é",
            "trails://kg/Bok",
            BOOKS,
            BOOKS,
        ],
    ),
    "lists": request("l", toolsListChanged=True, resourcesListChanged=True),
    "prompts": request("p", promptsListChanged=True),
    "nothing": request(3),
    "nothing twice": request(4, toolsListChanged=False, resourceSubscriptions=[]),
    "nulls": request(5, toolsListChanged=None, resourceSubscriptions=None),
    "a number for a flag": request(6, toolsListChanged=1),
    "something unknown": request(7, taskIds=["x"]),
    "a URI that is none": request(8, resourceSubscriptions=[5]),
    "no filter": json.dumps(message_of(MODERN, "subscriptions/listen", {}, 9)).encode(),
    "no id": b'{"jsonrpc":"2.0","method":"subscriptions/listen","params":{"notifications":{}}}',
}


async def converse(app: App, body: bytes, headers: dict[str, str], *, fast: bool) -> list[object]:
    """A stream, some changes, and its end: everything that was sent."""
    backend = Stage(app)
    endpoint = McpApp(backend, fast=fast)
    async with endpoint.run():
        exchange = Exchange(endpoint, body, headers)
        await until(lambda: exchange.task.done() or b"acknowledged" in exchange.body)
        ctx = app.context()
        for act in (
            lambda: save(ctx, Book, "b", pages=2),
            lambda: save(ctx, Book, "é", pages=2),
            lambda: Book.get(ctx, "é").delete(ctx),
            lambda: save(ctx, Book, "b", pages=None),
        ):
            await asyncio.to_thread(act)
            await until(lambda: not backend.watches._awake)
            for _ in range(50):  # turns of the loop, until what is due is on its way
                await asyncio.sleep(0)
        endpoint.end_streams()
        await asyncio.wait_for(exchange.task, 60)
    return [exchange.sent[0], exchange.body]


@pytest.mark.parametrize("body", REQUESTS.values(), ids=REQUESTS)
def test_both_doors_send_the_same(app, body):
    """Headers, acknowledgement, notifications and the result, byte for byte."""
    fast = asyncio.run(converse(app, body, HEADERS, fast=True))
    slow = asyncio.run(converse(app, body, HEADERS, fast=False))
    assert fast == slow


@pytest.mark.parametrize(
    "change",
    [
        {"accept": "application/json"},
        {"accept": "text/event-stream"},
        {"accept": "*/*"},
        {"mcp-method": "tools/list"},
        {"mcp-name": "x"},
        {"mcp-protocol-version": "2025-06-18"},
        {"content-type": "text/plain"},
    ],
    ids=str,
)
def test_both_doors_judge_headers_the_same(app, change):
    """A stream is opened by both, or refused by both in the same words."""
    headers = {**HEADERS, **change}
    body = REQUESTS["one type"]
    fast = asyncio.run(converse(app, body, headers, fast=True))
    slow = asyncio.run(converse(app, body, headers, fast=False))
    assert fast == slow


def test_lists_are_told_the_same_by_both_doors():
    """Also what is said when lists change."""

    async def run(*, fast: bool) -> bytes:
        with make_app() as app:
            endpoint = McpApp(Stage(app), fast=fast)
            async with endpoint.run():
                exchange = Exchange(endpoint, REQUESTS["lists"])
                await until(lambda: b"acknowledged" in exchange.body)
                await asyncio.to_thread(app.register, make_capability("late.one"))
                await until(lambda: b"tools/list_changed" in exchange.body)
                await asyncio.to_thread(app.register, make_type())
                await until(lambda: b"resources/list_changed" in exchange.body)
                endpoint.end_streams()
                await asyncio.wait_for(exchange.task, 60)
            return exchange.body

    assert asyncio.run(run(fast=True)) == asyncio.run(run(fast=False))


def test_the_simple_case_does_not_ask_the_sdk(app, monkeypatch):
    """A plain request is served by the stream of this package."""
    served = []
    real = listening.Stream.serve

    async def serve(self, receive, send) -> None:
        served.append(self)
        await real(self, receive, send)

    monkeypatch.setattr(listening.Stream, "serve", serve)
    asyncio.run(converse(app, REQUESTS["one type"], HEADERS, fast=True))
    assert len(served) == 1


def test_a_connection_that_is_full_is_told_once_when_it_is_not(app):
    """Changes meanwhile are one frame a URI; nobody else waits, and nothing is lost."""

    async def run() -> None:
        endpoint = McpApp(Stage(app))
        async with endpoint.run():
            slow = Exchange(endpoint, REQUESTS["one type"])
            quick = Exchange(endpoint, REQUESTS["one type"])
            await until(lambda: all(b"acknowledged" in each.body for each in (slow, quick)))
            slow.gate.clear()
            ctx = app.context()
            for number in range(20):
                before = len(quick.frames)
                await asyncio.to_thread(save, ctx, Book, "b", pages=number)
                await until(lambda before=before: len(quick.frames) > before)
            assert len(slow.frames) == 1
            slow.gate.set()
            await until(lambda: len(slow.frames) == 3)  # the one that waited, and the rest
            await asyncio.sleep(0.05)
            assert len(slow.frames) == 3
            endpoint.end_streams()
            await asyncio.gather(slow.task, quick.task)

    asyncio.run(run())


def test_a_client_that_leaves_while_it_is_told_is_forgotten(app):
    """Nothing of it is left, though its connection was full."""

    async def run() -> None:
        backend = Stage(app)
        endpoint = McpApp(backend)
        async with endpoint.run():
            exchange = Exchange(endpoint, REQUESTS["one type"])
            await until(lambda: b"acknowledged" in exchange.body)
            exchange.gate.clear()
            await asyncio.to_thread(save, app.context(), Book, "b", pages=9)
            await asyncio.sleep(0.05)
            exchange.left.set()
            await asyncio.wait_for(exchange.task, 60)
            assert not backend.watches._watchers
            assert len(endpoint._subscriptions) == 0
            assert not app.graph().feed.listened

    asyncio.run(run())


def test_a_connection_that_breaks_harms_nobody(app, caplog):
    """A send that fails ends one stream and is logged; the others are notified."""

    async def run() -> None:
        endpoint = McpApp(Stage(app))
        async with endpoint.run():
            broken = Exchange(endpoint, REQUESTS["one type"])
            other = Exchange(endpoint, REQUESTS["one type"])
            await until(lambda: all(b"acknowledged" in each.body for each in (broken, other)))
            broken.gate = None  # type: ignore[assignment]
            for number in range(3):
                before = len(other.frames)
                await asyncio.to_thread(save, app.context(), Book, "b", pages=number)
                await until(lambda before=before: len(other.frames) > before)
            broken.left.set()
            await asyncio.wait_for(broken.task, 60)
            endpoint.end_streams()
            await other.task

    asyncio.run(run())
    (fault,) = caplog.records
    assert fault.getMessage() == "a listen stream failed"
    assert fault.exc_info is not None


def test_a_silent_stream_is_kept_alive(app, monkeypatch):
    """A comment after a while, and again; a change in between is told as ever."""
    monkeypatch.setattr(listening, "KEEPALIVE_SECONDS", 0.05)

    async def run() -> None:
        endpoint = McpApp(Stage(app))
        async with endpoint.run():
            exchange = Exchange(endpoint, REQUESTS["one type"])
            await until(lambda: exchange.body.count(b": ping\r\n\r\n") >= 2)
            await asyncio.to_thread(save, app.context(), Book, "b", pages=1)
            await until(lambda: len(exchange.frames) == 2)
            endpoint.end_streams()
            await exchange.task
            assert exchange.frames[-1]["result"]["resultType"] == "complete"

    asyncio.run(run())


def test_a_stream_after_the_end_is_ended_at_once(app):
    """A server that shuts down acknowledges, and says goodbye."""

    async def run() -> None:
        endpoint = McpApp(Stage(app))
        async with endpoint.run():
            endpoint.end_streams()
            exchange = Exchange(endpoint, REQUESTS["one type"])
            await asyncio.wait_for(exchange.task, 60)
            assert [("result" in each) for each in exchange.frames] == [False, True]

    asyncio.run(run())


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("limit", "asked", "says"),
    [
        ("trails.request.watches.MAX_WATCHES", "one type", "1 watches already"),
        ("trails.surfaces.mcp.subscribers.MAX_SUBSCRIBERS", "nothing", "too many open streams"),
        ("trails.surfaces.mcp.subscriptions.MAX_URIS", "an empty id", "1 URIs, not 2"),
        ("trails.request.watches.MAX_URIS", "an empty id", "1 URIs"),
    ],
)
def test_too_much_is_refused_in_words(app, monkeypatch, fast, limit, asked, says):
    """The refusal is an error of the budget, before anything is acknowledged."""
    monkeypatch.setattr(limit, 1)

    async def run() -> None:
        endpoint = McpApp(Stage(app), fast=fast)
        async with endpoint.run():
            first = Exchange(endpoint, REQUESTS["one type"])
            await until(lambda: b"acknowledged" in first.body)
            second = Exchange(endpoint, REQUESTS[asked])
            await asyncio.wait_for(second.task, 60)
            error = json.loads(second.body)["error"]
            assert error["code"] == -32003
            assert says in error["message"]
            endpoint.end_streams()
            await first.task

    asyncio.run(run())
