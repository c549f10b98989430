"""Large bodies keep nobody waiting but those who send them, and take a bounded amount of memory."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import ExitStack, suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.app.serve.http.fronts import LOCALHOST, PATIENCE, Front, read_answers
from tests.worlds.processes import wait_until
from tests.worlds.surfaces import PLAIN, TrivialBackend, Wires, ask_app, session_of, talk

from trails import App
from trails.app.serve.http.limits import BodyBudget
from trails.app.serve.relay import frames
from trails.app.serve.relay.frames import read_frame, read_large_frame
from trails.app.serve.relay.sessions import RelayConnection
from trails.model import texts as json_scans
from trails.model.actors import Actor
from trails.model.fairness import LARGE, LargeBodies, is_large
from trails.model.texts import MAX_DEPTH, MAX_PARTS, MAX_VALUES, JsonTooLargeError, scan_json
from trails.surfaces.mcp import bodies as mcp_bodies
from trails.surfaces.mcp import streams
from trails.surfaces.mcp.http import McpApp
from trails.surfaces.rest import bodies as rest_bodies
from trails.surfaces.rest.routes import build_app

HOSTILE = b"[[]],"


def call(arguments, method="tools/call"):
    """A message with arguments that are written already."""
    head = b'{"jsonrpc":"2.0","id":1,"method":"%b","params":{"name":"echo","arguments":'
    return head % method.encode() + arguments + b"}}"


LARGE_CALL = call(b'{"a":"' + b"x" * LARGE + b'"}')


# --- what is in a text


def depth_of(value):
    """How deep a value is."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    nests = isinstance(value, dict | list)
    return nests + max(map(depth_of, inner), default=0)


def parts_of(value):
    """How many arrays, objects and members it has."""
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(parts_of, value.values()))
    return 1 + sum(map(parts_of, value)) if isinstance(value, list) else 0


TEXTS = st.text(st.sampled_from('ab"\\[]{},:é\n'), max_size=12)
VALUES = st.recursive(
    st.none() | st.integers(0, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=30,
)


@given(VALUES, st.integers(2, 40), st.booleans())
def test_a_scan_sees_what_a_decoder_builds(value, block, ascii_only):
    """Depth and parts, wherever a block ends, whatever is within quotes."""
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    depth, parts = depth_of(value), parts_of(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_scans, "_BLOCK", block)
        patch.setattr(json_scans, "MAX_DEPTH", depth)
        patch.setattr(json_scans, "MAX_PARTS", parts)
        scan_json(body)
        patch.setattr(json_scans, "MAX_DEPTH", depth - 1)
        if depth:
            with pytest.raises(ValueError, match="deeper"):
                scan_json(body)
        patch.setattr(json_scans, "MAX_DEPTH", depth)
        patch.setattr(json_scans, "MAX_PARTS", parts - 1)
        if parts:
            with pytest.raises(JsonTooLargeError):
                scan_json(body)


@pytest.mark.parametrize(
    "body",
    [b'"', b'"\\', b'["a\\', b'"\\"' * 9, b"]" * 500, b'"' + b"\\" * 99_999, b"\xff" * 9, b""],
)
def test_a_scan_ends_whatever_it_is_given(body):
    """What is not JSON is for the decoder to refuse."""
    scan_json(body)


def test_the_limits_of_a_scan():
    """As many as are allowed pass, and one more does not."""
    scan_json(b"[" * MAX_DEPTH)
    with pytest.raises(ValueError, match="deeper"):
        scan_json(b"[" * (MAX_DEPTH + 1))
    scan_json(b"[" + b"1," * (MAX_VALUES - 1) + b"1]")
    with pytest.raises(JsonTooLargeError):
        scan_json(b"[" + b"1," * MAX_VALUES + b"1]")
    with pytest.raises(JsonTooLargeError):
        scan_json(HOSTILE * MAX_PARTS)
    scan_json(b'["' + HOSTILE * MAX_PARTS + b'"]')


# --- others do not wait


class Gate:
    """Stops every scan until it is opened, and counts them."""

    def __init__(self, patch, *modules):
        self._open = threading.Event()
        self.begun = threading.Semaphore(0)
        self.running = self.most = self.count = 0
        for module in modules:
            patch.setattr(module, "scan_json", self._scan)

    def _scan(self, body):
        self.count += 1
        self.running += 1
        self.most = max(self.most, self.running)
        self.begun.release()
        assert self._open.wait(PATIENCE)
        self.running -= 1
        return scan_json(body)

    async def until_begun(self):
        """Wait for a scan."""
        assert await asyncio.to_thread(self.begun.acquire, timeout=PATIENCE)

    def open(self):
        """Let them go on."""
        self._open.set()


ALICE = {"trails.actor": Actor("alice", credential="a")}
BOB = {"trails.actor": Actor("bob", credential="b")}


def mcp(app, body, who, path="/mcp"):
    """An MCP request."""
    return ask_app(app, list(PLAIN), [body], path=path, **who)


async def serve_mcp(check, **options):
    """Run a check beside an MCP endpoint."""
    app = McpApp(TrivialBackend(), **options)
    async with app.run():
        await check(app)


MCP_WAYS = {
    "fast": ({}, "/mcp", LARGE_CALL),
    "sdk": ({"fast": False}, "/mcp", LARGE_CALL),
    "sessions": ({"legacy_sessions": True}, "/mcp", call(b'"' + b"x" * LARGE + b'"', "ping")),
    "sse": ({"legacy_sse": True}, "/messages", LARGE_CALL),
}


@pytest.mark.parametrize("way", MCP_WAYS)
def test_a_large_message_keeps_nobody_else_waiting(way, monkeypatch):
    """While it is read others are answered; its sender's next one waits for its turn."""
    options, path, body = MCP_WAYS[way]
    gate = Gate(monkeypatch, mcp_bodies)

    async def check(app):
        first = asyncio.create_task(mcp(app, body, ALICE, path))
        await gate.until_begun()
        second = asyncio.create_task(mcp(app, body, ALICE, path))
        small = await mcp(app, call(b"{}"), ALICE)
        assert small.status == 200
        assert (gate.count, first.done(), second.done()) == (1, False, False)
        other = asyncio.create_task(mcp(app, body, BOB, path))
        await gate.until_begun()  # another's does not wait for that
        gate.open()
        assert len({each.status for each in await asyncio.gather(first, second, other)}) == 1

    asyncio.run(serve_mcp(check, **options))
    assert (gate.count, gate.most) == (3, 2)


def test_a_large_document_keeps_nobody_else_waiting(monkeypatch):
    """Over REST likewise."""
    gate = Gate(monkeypatch, rest_bodies)
    body = b'{"query":"' + b"x" * LARGE + b'"}'
    typed = [(b"content-type", b"application/json")]
    path = {"path": "/graphs/main/mutate", "raw_path": b"/graphs/main/mutate"}
    healthy = {"path": "/healthz", "raw_path": b"/healthz"}

    async def check(app):
        ask = partial(ask_app, app, typed, [body], **path)
        first = asyncio.create_task(ask(**ALICE))
        await gate.until_begun()
        second = asyncio.create_task(ask(**ALICE))
        assert (await ask_app(app, [], [], "GET", **healthy)).status == 200
        assert (gate.count, first.done()) == (1, False)
        gate.open()
        for each in await asyncio.gather(first, second):
            assert each.status in {400, 422}

    with App() as app, Wires(app) as wires:
        asyncio.run(check(build_app({"main": wires.kernel})))
    assert (gate.count, gate.most) == (2, 1)


def test_a_large_line_keeps_nobody_else_waiting(monkeypatch):
    """In a session of lines: the others go on."""
    gate = Gate(monkeypatch, streams)
    message = json.loads(LARGE_CALL)["params"]

    async def check():
        large = LargeBodies()
        lines = session_of("2025-06-18", "tools/call", message)
        slow = asyncio.create_task(talk(TrivialBackend(), lines, large=large))
        await gate.until_begun()
        small = session_of("2025-06-18", "tools/call", {"name": "echo", "arguments": {}})
        assert [each["id"] for each in await talk(TrivialBackend(), small, large=large)][-1] == 1
        assert not slow.done()
        gate.open()
        assert (await slow)[-1]["id"] == 1

    asyncio.run(check())


@pytest.mark.parametrize("way", ["mcp", "query"])
def test_a_body_of_too_many_values_is_refused(way):
    """Without building them: with 413, and what to do instead."""
    body = call(b"[" + HOSTILE * MAX_PARTS + b"1]")
    with Front() as front:
        found = front.ask(
            f"POST /graphs/main/{way} HTTP/1.1",
            LOCALHOST,
            "content-type: application/json",
            f"content-length: {len(body)}",
            body=body,
        )
        assert found.status == 413
        assert b"send fewer at a time" in found.body


@pytest.mark.parametrize(("fast", "status"), [(True, 200), (False, 413)])
def test_the_sdk_is_given_fewer_values(fast, status):
    """Since it reads them on the event loop once more."""
    body = call(b'{"a":[' + HOSTILE * 15_000 + b"1]}")

    async def check(app):
        assert (await mcp(app, body, ALICE)).status == status

    asyncio.run(serve_mcp(check, fast=fast))


@pytest.mark.parametrize("way", ["mcp", "query"])
def test_a_deep_large_body_is_refused(way):
    """On its bytes."""
    body = b'["' + b"x" * LARGE + b'",' + b"[" * 50_000
    with Front() as front:
        found = front.ask(
            f"POST /graphs/main/{way} HTTP/1.1",
            LOCALHOST,
            "content-type: application/json",
            f"content-length: {len(body)}",
            body=body,
        )
        assert found.status == 400
        assert b"nest deeper" in found.body


def test_a_small_body_of_many_parts_is_a_large_one():
    """What counts is the work that it makes."""
    assert is_large(b"x" * (LARGE + 1))
    assert not is_large(b"x" * LARGE)
    assert is_large(HOSTILE * 5000)
    assert not is_large(b"[" * 100)


def test_who_leaves_gives_its_turn_to_the_next():
    """Whether it had the turn, waited for it, or its thread still runs."""
    go, done = threading.Event(), []

    async def check():
        large = LargeBodies()
        first = asyncio.create_task(large.run("a", go.wait, PATIENCE))
        waiting = [asyncio.create_task(large.run("a", done.append, each)) for each in range(4)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        first.cancel()
        await asyncio.sleep(0)
        assert not done  # the thread of the first still runs
        go.set()
        await asyncio.gather(first, *waiting, return_exceptions=True)
        assert done == [0, 2, 3]
        assert await large.run("a", int, "7") == 7
        with pytest.raises(ValueError, match="invalid"):
            await large.run("a", int, "x")
        assert await large.run("a", int, "8") == 8

    asyncio.run(check())


# --- lines to an owner


def test_a_deep_line_is_no_end_of_a_session():
    """Whoever passes it on knows nothing of it, and its receiver answers it."""
    line = b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 200_000
    assert read_frame(line) is None
    assert read_large_frame(line) is None
    assert read_large_frame(LARGE_CALL).method == "tools/call"


def test_an_owner_reads_one_large_line_at_a_time(monkeypatch):
    """The next one stays with its front until the first is taken."""
    monkeypatch.setattr(frames, "scan_json", lambda _body: None)

    async def check():
        reader = asyncio.StreamReader()
        connection = RelayConnection(reader, None)
        for _ in range(5):
            reader.feed_data(LARGE_CALL + b"\n")
        for _ in range(100):
            await asyncio.sleep(0)
        assert connection._inbox.qsize() == 1
        assert await connection.receive() == LARGE_CALL
        assert await connection.receive() == LARGE_CALL
        connection._reading.cancel()

    asyncio.run(check())


# --- memory


def test_bodies_of_all_actors_are_bounded():
    """Each may have some, all together have more, and what is answered counts no more."""
    budget = BodyBudget(100)
    assert budget.take("a", 400) is None
    assert (budget.take("a", 1).status, budget.take("b", 1)) == (429, None)
    for each in "cde":
        assert budget.take(each, 380) is None
    full = budget.take("f", 100)
    assert (full.status, dict(full.more)[b"retry-after"]) == (503, b"5")
    budget.give_back("a", 400)
    assert budget.take("f", 100) is None
    assert budget.total == 1 + 3 * 380 + 100


SIZE = 64 << 10
HEAD = "POST /graphs/main/query HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
UNFINISHED = {
    "told": (HEAD + f"content-length: {SIZE}\r\n\r\n").encode() + b"{" + b" " * (SIZE // 2),
    "chunked": (HEAD + "transfer-encoding: chunked\r\n\r\n").encode()
    + b"%x\r\n{" % SIZE
    + b" " * (SIZE - 1),
}


@pytest.mark.parametrize("how", UNFINISHED)
def test_unfinished_bodies_are_bounded(how):
    """One too many is told to come again; when another ends there is room."""
    with Front(max_body=SIZE) as front, ExitStack() as held:
        budget = front.interface._budget
        socks = [held.enter_context(front.connect()) for _ in range(4)]
        for count, sock in enumerate(socks, 1):
            sock.sendall(UNFINISHED[how])
            wait_until(lambda count=count: budget.total == count * SIZE, "a body")
        with front.connect() as sock:
            sock.sendall(UNFINISHED[how])
            (found,) = read_answers(sock.recv(1 << 16))
            assert (found.status, found.code) == (429, "budget")
            assert found.header("retry-after") == "1"
        assert front.get("/graphs/main/capabilities").status == 200
        assert load(front).status != 429
        socks[0].close()
        wait_until(lambda: budget.total == 3 * SIZE, "room")
    assert budget.total == 0


def load(front):
    """A load, which goes to disk as it comes."""
    lines = b"\n" * (8 * SIZE)
    head = ("POST /graphs/main/load HTTP/1.1", LOCALHOST, "content-type: application/x-ndjson")
    return front.ask(*head, f"content-length: {len(lines)}", body=lines)


def test_a_document_that_comes_too_slowly_is_refused(monkeypatch):
    """Even if it comes steadily: it would keep its memory for hours."""
    monkeypatch.setattr(rest_bodies, "_SECONDS", 0.5)
    ended = threading.Event()
    with Front() as front, front.connect() as sock:
        sock.sendall((HEAD + "content-length: 100000\r\n\r\n").encode())

        def dribble():
            with suppress(OSError):
                while not ended.is_set():
                    sock.sendall(b" ")
                    time.sleep(0.02)

        sender = threading.Thread(target=dribble)
        sender.start()
        found = sock.recv(1 << 16)
        ended.set()
        sender.join()
        (answer,) = read_answers(found)
        assert (answer.status, answer.code) == (408, "timeout")
