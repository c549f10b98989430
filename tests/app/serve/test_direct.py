"""Requests that arrive whole are answered without ASGI, and exactly as with it."""

import asyncio
import json
import socket
import threading
import time
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.app.serve.http.fronts import PATIENCE, Front, read_answers
from tests.app.serve.test_exchanges import Server

from trails.app.serve.http.front import HttpInterface
from trails.model.actors import Actor
from trails.model.replies import JSON_LINES, Reply, Taken
from trails.request.authenticate import Authenticator
from trails.surfaces.rest import compression, invoking

MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
TOKEN = "a-token-of-this-process-0123456789"


def message(method="tools/call", meta=META, **params):
    """The body of an MCP request."""
    given = {**params, **({} if meta is None else {"_meta": meta})}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": given}).encode()


def post(body, *headers, path="/graphs/main/mcp", host="localhost"):
    """A whole request."""
    lines = [
        f"POST {path} HTTP/1.1",
        f"host: {host}",
        f"content-length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def mcp(body, *headers, method="tools/call", name="schema_get", **more):
    """A request of the newest revision."""
    own = ["content-type: application/json", "accept: application/json, text/event-stream"]
    own += [f"mcp-protocol-version: {MODERN}", f"mcp-method: {method}", f"mcp-name: {name}"]
    return post(body, *own, *headers, **more)


def ask(sock, data):
    """The answer to one request on a connection that stays open."""
    sock.sendall(data)
    found = b""
    while b"\r\n\r\n" not in found or not read_answers_whole(found):
        block = sock.recv(1 << 16)
        if not block:
            break
        found += block
    (answer,) = read_answers(found)
    kept = sorted(each for each in answer.headers if each[0] != "date")
    return answer.status, kept, without_trace(answer.body)


def read_answers_whole(found):
    """Whether an answer has come to its end."""
    (answer,) = read_answers(found)
    return len(answer.body) == int(answer.header("content-length") or 0)


def without_trace(body):
    """An answer, whose trace is another each time."""
    with suppress(ValueError):
        value = json.loads(body)
        if isinstance(value, dict) and value.get("error", {}).get("data", {}).pop("trace_id", ""):
            return {**value, "error": {**value["error"], "message": ""}}
    return body


@pytest.fixture
def taken(monkeypatch):
    """What each request that arrived whole came to: whether it was answered without ASGI."""
    found, take = [], HttpInterface.take

    def watched(self, *given):
        answer = take(self, *given)
        found.append(answer is not None)
        return answer

    monkeypatch.setattr(HttpInterface, "take", watched)
    return found


CALL = message(name="schema_get", arguments={})


def rest(body, *headers, name="schema_get", media="application/json", **more):
    """A call over REST."""
    path = f"/graphs/main/invoke/{name}"
    return post(body, f"content-type: {media}", *headers, **{"path": path, **more})


UNUSUAL = {
    "REST: another host": rest(b"{}", host="evil.example"),
    "REST: another media type": rest(b"{}", media="text/plain"),
    "REST: a token in the body": rest(f'{{"x":"trails_{"0" * 12}_{"A" * 43}"}}'.encode()),
    "REST: a token in the path": rest(b"{}", name=f"trails_{'0' * 12}_{'A' * 43}"),
    "REST: an escape": rest(rb'{"x":"\u0041"}'),
    "REST: a list": rest(b"[]"),
    "REST: no JSON": rest(b"{]"),
    "REST: a precondition": rest(b"{}", 'if-match: "x"', name="graph_mutate"),
    "REST: a key": rest(b"{}", "idempotency-key: x", name="graph_mutate"),
    "REST: another graph": rest(b"{}", path="/graphs/other/invoke/schema_get"),
    "REST: another path": rest(b'{"text":"ASK {}"}', path="/graphs/main/query"),
    "another host": mcp(CALL, host="evil.example"),
    "a page's origin": mcp(CALL, "origin: https://evil.example"),
    "a token elsewhere": mcp(CALL, f"x-token: trails_{'0' * 12}_{'A' * 43}"),
    "a token in the body": mcp(message(name=f"trails_{'0' * 12}_{'A' * 43}", arguments={})),
    "a token in the client info": mcp(
        message(
            name="schema_get",
            arguments={},
            meta={**META, "io.modelcontextprotocol/clientInfo": {"authorization": "x"}},
        )
    ),
    "another name in the head": mcp(CALL, name="other"),
    "another media type": post(CALL, "content-type: text/plain"),
    "an unknown revision": post(
        CALL, "content-type: application/json", "mcp-protocol-version: 1999-01-01"
    ),
    "no JSON": mcp(b"{"),
    "nothing": mcp(b""),
    "a large body": mcp(message(name="schema_get", arguments={"x": "y" * (17 << 10)})),
    "a deep body": mcp(b"[" * 500 + b"]" * 500),
    "another graph": mcp(CALL, path="/graphs/other/mcp"),
    "a notification": mcp(b'{"jsonrpc":"2.0","method":"notifications/initialized"}'),
}
USUAL = {
    "REST: a call": rest(b"{}"),
    "REST: another media type of JSON": rest(b"{}", media="application/x+json; charset=utf-8"),
    "REST: an encoded name": rest(b"{}", name="schema%5Fget"),
    "REST: wrong arguments": rest(b'{"nothing":1}'),
    "REST: an unknown tool": rest(b"{}", name="nothing"),
    "REST: what needs another scope": rest(b"{}", name="trails_meta_reload"),
    "REST: gzip": rest(b"{}", "accept-encoding: gzip"),
    "a call": mcp(CALL),
    "a call with a query string": mcp(CALL, path="/graphs/main/mcp?x=1"),
    "a call of an older revision": post(
        message(name="schema_get", meta=None),
        "content-type: application/json",
        "accept: application/json",
        "mcp-protocol-version: 2025-11-25",
    ),
    "wrong arguments": mcp(message(name="schema_get", arguments={"nothing": 1})),
    "an unknown tool": mcp(message(name="nothing", arguments={}), name="nothing"),
    "a list": mcp(message("tools/list"), method="tools/list", name=""),
    "a read": mcp(
        message("resources/read", uri="trails://schema"),
        method="resources/read",
        name="trails://schema",
    ),
    "a read of nothing": mcp(
        message("resources/read", uri="trails://nothing"),
        method="resources/read",
        name="trails://nothing",
    ),
}


@pytest.mark.parametrize("least", [1, 1 << 10])
@pytest.mark.parametrize("name", [*USUAL, *UNUSUAL])
def test_the_answer_is_that_of_asgi(taken, monkeypatch, name, least):
    """The first request with a head comes through ASGI; those that follow have the same answer."""
    if least == 1 and not name.startswith("REST"):
        return
    for module in (compression, invoking):  # bodies from this size on are compressed
        monkeypatch.setattr(module, "LEAST", least)
    data = {**USUAL, **UNUSUAL}[name]
    with Front() as front, front.connect() as sock:
        first = ask(sock, data)
        assert taken == []
        if ("connection", "close") in first[1]:
            return
        assert [ask(sock, data), ask(sock, data)] == [first, first]
        assert (True in taken, False in taken) == (name in USUAL, name not in USUAL and bool(taken))


names = st.sampled_from(["schema_get", "graph_stats", "nothing", "", "ä"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


def test_any_message_is_answered_as_by_asgi(taken, monkeypatch):
    """Whatever a body holds: a front that takes nothing gives the same answer."""
    with Front() as front, front.connect() as sock:

        @settings(max_examples=60, deadline=None, suppress_health_check=[*HealthCheck])
        @given(names, names, st.dictionaries(st.sampled_from(["name", "arguments", "x"]), values))
        def compare(name, header, more):
            given = {"name": name, "arguments": {}, **more}
            data = mcp(message(**given), name=header.encode("utf-8").decode("latin-1"))
            first = ask(sock, data)
            assert ask(sock, data) == first

        compare()
    assert any(taken)


def test_every_request_is_authenticated_anew(taken, monkeypatch):
    """A head that was answered before gives nobody access whose credential has ended."""
    data = mcp(CALL, f"authorization: Bearer {TOKEN}")
    with Front(token=TOKEN) as front, front.connect() as sock:
        assert [ask(sock, data)[0] for _ in range(3)] == [200, 200, 200]
        assert taken == [True, True]
        assert ask(sock, data.replace(b"0123456789", b"9876543210"))[0] == 401
        monkeypatch.setattr(Authenticator, "is_current", lambda *_: False)
        monkeypatch.setattr(Authenticator, "_is_static", lambda *_: False)
        assert ask(sock, data)[0] == 401
    assert taken == [True, True, False]


def test_an_overload_is_refused_at_once(taken):
    """A request that could be taken is refused like any other."""
    data = mcp(CALL)
    with Front() as front, front.connect() as sock:
        assert [ask(sock, data)[0] for _ in range(2)] == [200, 200]
        kernel = front.interface._graphs["main"]
        kernel._admission._most_of_all = 0
        assert ask(sock, data)[0] == 503
        kernel._admission._most_of_all = 10
        assert ask(sock, data)[0] == 200
    assert taken == [True, False, True]


def test_what_is_cut_or_sent_ahead_is_read_as_usual(taken):
    """Only a block that is exactly one request is taken."""
    data = mcp(CALL)
    with Front() as front, front.connect() as sock:
        expected = ask(sock, data)
        sock.sendall(data[:-1])
        time.sleep(0.1)
        assert ask(sock, data[-1:]) == expected
        sock.sendall(data + data + data[:50])
        time.sleep(0.1)
        sock.sendall(data[50:])
        found = b""
        while found.count(b"HTTP/1.1 200") < 3:
            found += sock.recv(1 << 16)
        assert taken == []
        assert ask(sock, data) == expected
    assert taken == [True]


class Direct:
    """An application that takes every whole request, and does some work for it."""

    def __init__(self, work):
        self._work = work

    async def __call__(self, _scope, _receive, send):
        """Answer what did not come whole, or for the first time."""
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def take(self, _head, body, _listener):
        """Take it."""
        return Taken(Actor("ann"), self._work(body), b"x-more: 1\r\n")


HEAD = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\n"


def begun(sock):
    """Have the head remembered."""
    sock.sendall(HEAD + b"0")
    assert sock.recv(1 << 16).startswith(b"HTTP/1.1 200")


def wait_for(condition):
    """Wait until something is true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_client_that_leaves_cancels_the_work():
    """And the task is forgotten."""
    started, cancelled = threading.Event(), threading.Event()

    async def work(_body):
        started.set()
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return Reply(200, b"", b"late")

    with Server(Direct(work)) as server:
        with server.connect() as sock:
            begun(sock)
            sock.sendall(HEAD + b"1")
            assert started.wait(PATIENCE)
            assert server.tasks == 1
        assert cancelled.wait(PATIENCE)
        wait_for(lambda: server.tasks == 0)


def test_work_that_fails_is_answered_and_ends_the_connection():
    """As with an application of ASGI."""

    async def work(_body):
        raise ValueError("a secret")

    with Server(Direct(work)) as server, server.connect() as sock:
        begun(sock)
        sock.sendall(HEAD + b"1")
        found = b""
        while block := sock.recv(1 << 16):
            found += block
    assert found.startswith(b"HTTP/1.1 500 ")
    assert b"secret" not in found


def test_what_can_not_be_taken_comes_through_asgi():
    """An error on the short way is logged, and costs nobody an answer."""

    def work(_body):
        raise ValueError("a mistake")

    with Server(Direct(work)) as server, server.connect() as sock:
        begun(sock)
        assert ask(sock, HEAD + b"1")[0] == 200


def test_a_reply_at_once_and_a_large_one():
    """Replies need no task; large ones come whole."""
    with Server(Direct(lambda _body: Reply(202, JSON_LINES, b"x" * 100_000))) as server:
        with server.connect() as sock:
            begun(sock)
            for _ in range(3):
                status, headers, body = ask(sock, HEAD + b"1")
                assert (status, body) == (202, b"x" * 100_000)
                assert ("x-more", "1") in headers
                assert ("content-type", "application/json") in headers
        assert server._server.server_state.responses == {200: 1, 202: 3}


def test_a_server_that_stops_waits_for_the_reply():
    """And says in it that the connection ends."""
    go_on = threading.Event()

    async def work(_body):
        await asyncio.to_thread(go_on.wait, PATIENCE)
        return Reply(200, b"", b"done")

    with Server(Direct(work)) as server, server.connect() as sock:
        begun(sock)
        sock.sendall(HEAD + b"1")
        wait_for(lambda: server.tasks == 1)
        server.stop()
        wait_for(lambda: not is_listening(server.port))
        go_on.set()
        status, headers, body = ask(sock, b"")
    assert (status, body) == (200, b"done")
    assert ("connection", "close") in headers


def is_listening(port):
    """Whether somebody can connect."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
