"""MCP over HTTP: methods, versions, bodies, and what is advertised."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.worlds.surfaces import (
    ECHO,
    LEGACY,
    MODERN,
    PLAIN,
    REVISIONS,
    Doors,
    Reply,
    TrivialBackend,
    ask_app,
    headers_of,
    hello,
    message_of,
)

from trails.model.actors import Actor
from trails.model.results import Success
from trails.surfaces.mcp import bodies
from trails.surfaces.mcp.http import McpApp

CALL = {"name": "echo", "arguments": {"a": 1}}
HELLO = hello("2025-11-25")


def body_of(revision: str | None, method: str, params: dict) -> bytes:
    """A request, encoded."""
    return json.dumps(message_of(revision, method, params)).encode()


def run(app: McpApp, scenario):
    """Run a scenario while an app is open."""

    async def main():
        async with app.run():
            return await asyncio.wait_for(scenario(app), 90)

    return asyncio.run(main())


def ask(app: McpApp, revision: str | None, method: str, params: dict, **scope: object) -> Reply:
    """One request to an app."""
    headers, body = headers_of(revision, method, params), body_of(revision, method, params)
    return run(app, lambda app: ask_app(app, headers, [body], **scope))


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("revision", REVISIONS)
def test_only_posts_are_taken(method, revision):
    """Without sessions there is nothing to GET or DELETE, and the answer says what there is."""
    headers = headers_of(revision, "tools/list", {})
    app = McpApp(TrivialBackend())
    reply = run(app, lambda app: ask_app(app, headers, [b""], method=method))
    assert reply.status == 405
    assert (b"allow", b"POST") in reply.headers
    assert "accepts POST with one JSON-RPC message" in reply.message["error"]["message"]


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "sdk"])
@pytest.mark.parametrize("revision", REVISIONS)
def test_every_revision_is_served_from_one_endpoint(revision, fast):
    """The version header chooses the revision, and its absence the one before headers."""
    app = McpApp(TrivialBackend(), fast=fast)
    reply = ask(app, revision, "tools/call", CALL)
    assert (reply.status, reply.message["result"]["structuredContent"]) == (200, {"a": 1})
    assert ("resultType" in reply.message["result"]) == (revision == MODERN)


@pytest.mark.parametrize("revision", ["2023-01-01", "2027-01-01", "x", ""])
def test_other_revisions_are_refused(revision):
    """A version that nobody speaks is a bad request."""
    headers = [*PLAIN, (b"mcp-protocol-version", revision.encode())]
    for body in (body_of(None, "tools/call", CALL), body_of(None, "initialize", HELLO)):
        reply = run(McpApp(TrivialBackend()), lambda app, body=body: ask_app(app, headers, [body]))
        assert reply.status == 400
        assert reply.message["error"]["code"] < 0


def capabilities(app: McpApp, revision: str) -> dict:
    """What an app says it can do."""
    if revision == MODERN:
        return ask(app, revision, "server/discover", {}).message["result"]["capabilities"]
    return ask(app, revision, "initialize", hello(revision)).message["result"]["capabilities"]


@pytest.mark.parametrize("revision", LEGACY)
def test_nothing_is_advertised_that_could_not_be_delivered(revision):
    """Without a session nobody can be told of changes, so nothing of it is offered."""
    offered = capabilities(McpApp(TrivialBackend()), revision)
    assert offered == {
        "completions": {},
        "resources": {"subscribe": False, "listChanged": False},
        "tools": {"listChanged": False},
    }


def test_the_newest_revision_can_be_told_of_changes():
    """A listen stream delivers, so changes of lists and resources are offered."""
    offered = capabilities(McpApp(TrivialBackend()), MODERN)
    assert offered["tools"] == {"listChanged": True}
    assert offered["resources"] == {"listChanged": True, "subscribe": True}


@pytest.mark.parametrize("revision", LEGACY)
def test_a_session_can_be_told_of_changes(revision):
    """Where there is a session, older revisions are offered what it delivers."""
    offered = capabilities(McpApp(TrivialBackend(), legacy_sessions=True), revision)
    assert offered["tools"] == {"listChanged": True}
    assert offered["resources"] == {"listChanged": True, "subscribe": True}


class Changing(TrivialBackend):
    """Has other things to say each time."""

    def instructions(self, actor):
        """Say how often it was asked."""
        self.calls.append(f"asked by {actor.name}")
        return f"asked {len(self.calls)} times"


@pytest.mark.parametrize("revision", ["2025-06-18", MODERN])
def test_instructions_are_those_of_now(revision):
    """What a server says of itself follows its registry."""
    app = McpApp(Changing())
    method, params = ("server/discover", {}) if revision == MODERN else ("initialize", HELLO)
    headers, body = headers_of(revision, method, params), body_of(revision, method, params)

    async def scenario(app):
        return [
            (await ask_app(app, headers, [body])).message["result"]["instructions"]
            for _ in range(2)
        ]

    first, second = run(app, scenario)
    assert first != second


@pytest.mark.parametrize("revision", REVISIONS)
def test_what_is_not_a_message_is_refused_in_our_own_words(revision):
    """A batch or a broken request is an invalid request; no validator is quoted."""
    headers = headers_of(revision, "tools/list", {})

    async def scenario(app):
        for body in (b"[]", b"{}", b"5", b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}'):
            reply = await ask_app(app, headers, [body])
            assert (reply.status, reply.message["error"]["code"]) == (400, -32600)
            assert b"pydantic" not in reply.body

    run(McpApp(TrivialBackend()), scenario)


def test_a_body_may_come_in_parts():
    """Parts are put together."""
    headers, body = headers_of(MODERN, "tools/call", CALL), body_of(MODERN, "tools/call", CALL)
    parts = [body[:10], b"", body[10:50], body[50:]]
    reply = run(McpApp(TrivialBackend()), lambda app: ask_app(app, headers, parts))
    assert reply.message["result"]["structuredContent"] == {"a": 1}


@pytest.mark.parametrize("parts", [1, 7])
@pytest.mark.parametrize("revision", [None, MODERN])
def test_a_body_that_is_too_large_is_not_taken(parts, revision):
    """The limit holds for one part and for many; a body of just that size is taken."""
    headers, body = headers_of(revision, "tools/call", CALL), body_of(revision, "tools/call", CALL)
    size = -(-len(body) // parts)
    cut = [body[at : at + size] for at in range(0, len(body), size)]
    taken, refused = (
        run(McpApp(TrivialBackend(), max_body=limit), lambda app: ask_app(app, headers, cut))
        for limit in (len(body), len(body) - 1)
    )
    assert (taken.status, refused.status) == (200, 413)
    assert (b"connection", b"close") in refused.headers


def test_a_body_that_never_comes_is_not_waited_for(monkeypatch):
    """A body has a deadline, whether it begins late or never ends."""
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.2)
    headers = headers_of(MODERN, "tools/call", CALL)

    async def scenario(app):
        for first in ([], [{"type": "http.request", "body": b"{", "more_body": True}]):
            left, sent = list(first), []

            async def receive(left=left):
                return left.pop() if left else await asyncio.Event().wait()

            async def send(message, sent=sent):
                sent.append(message)

            scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers}
            await asyncio.wait_for(app(scope, receive, send), 60)
            assert sent[0]["status"] == 408

    run(McpApp(TrivialBackend()), scenario)


class Slow(TrivialBackend):
    """Takes its time, and notes when it was interrupted."""

    def __init__(self):
        super().__init__()
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()

    async def execute(self, actor, name, arguments):
        """Wait."""
        self.begun.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return Success(b"{}")


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "sdk"])
@pytest.mark.parametrize("revision", [None, "2025-11-25", MODERN])
def test_a_client_that_leaves_ends_its_call(revision, fast):
    """A call is cancelled when nobody waits for it, and the server lives on."""
    backend = Slow()
    headers, body = headers_of(revision, "tools/call", CALL), body_of(revision, "tools/call", CALL)

    async def scenario(app):
        left, sent = [{"type": "http.request", "body": body}], []

        async def receive():
            if left:
                return left.pop()
            await backend.begun.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers}
        await app({**scope, "query_string": b""}, receive, send)
        await asyncio.wait_for(backend.cancelled.wait(), 60)
        assert asyncio.current_task().cancelling() == 0
        assert not sent
        listed = await ask_app(
            app, headers_of(revision, "tools/list", {}), [body_of(revision, "tools/list", {})]
        )
        assert listed.status == 200

    run(McpApp(backend, fast=fast), scenario)


class Asking(TrivialBackend):
    """Says who asks."""

    async def execute(self, actor, name, arguments):
        """Name the actor."""
        return Success(json.dumps({"actor": actor.name}).encode())


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "sdk"])
@pytest.mark.parametrize("revision", [None, MODERN])
def test_the_caller_comes_with_the_request(revision, fast):
    """Who calls was resolved in front; without that it is whoever sits here."""
    app = McpApp(Asking(), fast=fast)
    scope = {"trails.actor": Actor("ada")}
    named = ask(app, revision, "tools/call", CALL, **scope)
    assert named.message["result"]["structuredContent"] == {"actor": "ada"}
    local = ask(McpApp(Asking(), fast=fast), revision, "tools/call", CALL)
    assert local.message["result"]["structuredContent"] == {"actor": "local"}


class Broken(TrivialBackend):
    """Raises where it must not."""

    async def execute(self, actor, name, arguments):
        """Fail."""
        raise RuntimeError("a secret of the server")

    async def read(self, actor, uri):
        """Fail."""
        raise KeyError("a secret of the server")

    def resources(self, actor):
        """Fail."""
        raise ValueError("a secret of the server")


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "sdk"])
@pytest.mark.parametrize("revision", REVISIONS)
def test_unexpected_errors_are_told_as_a_number(revision, fast, caplog):
    """What nobody expected is −32603 with a trace id that the server's log has too."""
    for method, params in (
        ("tools/call", CALL),
        ("resources/read", {"uri": "test://note"}),
        ("resources/list", {}),
    ):
        reply = ask(McpApp(Broken(), fast=fast), revision, method, params)
        error = reply.message["error"]
        assert (reply.status, error["code"]) == (200, -32603)
        assert error["data"]["trace_id"] in caplog.text
        assert error["data"]["trace_id"] in error["message"]
        assert b"secret" not in reply.body


class TestSessions:
    """Sessions of older revisions, where they were asked for."""

    def begin(self, actor="ada"):
        """The reply to an ``initialize``, within a running app."""
        headers = headers_of("2025-11-25", "initialize", HELLO)
        body = body_of(None, "initialize", HELLO)
        return lambda app: ask_app(app, headers, [body], **{"trails.actor": Actor(actor)})

    def test_a_session_lives_until_it_is_deleted(self):
        """``initialize`` begins a session, DELETE ends it, and it belongs to its caller."""

        async def scenario(app):
            reply = await self.begin()(app)
            session = dict(reply.headers)[b"mcp-session-id"]
            mine, other = {"trails.actor": Actor("ada")}, {"trails.actor": Actor("bob")}
            headers = [
                *headers_of("2025-11-25", "tools/call", CALL),
                (b"mcp-session-id", session),
            ]
            body = body_of(None, "tools/call", CALL)
            called = await ask_app(app, headers, [body], **mine)
            assert called.message["result"]["structuredContent"] == {"a": 1}
            assert (await ask_app(app, headers, [body], **other)).status == 404
            assert (await ask_app(app, headers, [b""], method="DELETE", **other)).status == 404
            assert (await ask_app(app, headers, [b""], method="DELETE", **mine)).status == 200
            assert (await ask_app(app, headers, [body], **mine)).status == 404

        run(McpApp(TrivialBackend(), legacy_sessions=True), scenario)

    def test_requests_without_a_session_are_served_as_ever(self):
        """Sessions are offered, not demanded."""
        for revision in REVISIONS:
            app = McpApp(TrivialBackend(), legacy_sessions=True)
            reply = ask(app, revision, "tools/call", CALL)
            assert reply.message["result"]["structuredContent"] == {"a": 1}
            assert b"mcp-session-id" not in dict(reply.headers)

    def test_other_methods_are_refused(self):
        """The answer says which there are."""
        app = McpApp(TrivialBackend(), legacy_sessions=True)
        reply = run(app, lambda app: ask_app(app, PLAIN, [b""], method="PUT"))
        assert (reply.status, reply.headers[-1]) == (405, (b"allow", b"GET, POST, DELETE"))


class TestSse:
    """The paths of the HTTP+SSE transport."""

    def test_without_the_setting_there_is_no_such_path(self):
        """Neither a stream nor a second endpoint is there."""
        app = McpApp(TrivialBackend())
        body = body_of(None, "tools/call", CALL)

        async def scenario(app):
            for method, path in (("GET", "/g/sse"), ("POST", "/g/sse"), ("POST", "/g/messages")):
                reply = await ask_app(app, PLAIN, [body], method=method, path=path)
                assert reply.status == 404
                assert "is disabled" in reply.message["error"]["message"]

        run(app, scenario)

    def test_a_message_is_posted(self):
        """The other path takes nothing but messages, and only JSON."""
        app = McpApp(TrivialBackend(), legacy_sse=True)

        async def scenario(app):
            got = await ask_app(app, PLAIN, [b""], method="GET", path="/g/messages")
            assert (got.status, got.headers[-1]) == (405, (b"allow", b"POST"))
            bad = await ask_app(app, PLAIN, [b"{"], path="/g/messages")
            assert (bad.status, bad.message["error"]["code"]) == (400, -32700)

        run(app, scenario)

    @pytest.mark.parametrize(
        ("query", "status"), [(b"", 400), (b"session_id=x", 400), (b"session_id=" + b"0" * 32, 404)]
    )
    def test_messages_need_a_session(self, query, status):
        """A message without a stream, or for an unknown one, is refused."""
        app = McpApp(TrivialBackend(), legacy_sse=True)
        body = body_of(None, "tools/call", CALL)
        scope = {"path": "/g/messages", "query_string": query}
        assert run(app, lambda app: ask_app(app, PLAIN, [body], **scope)).status == status

    def test_a_stream_belongs_to_its_caller(self):
        """Only who opened a stream posts to it; the path that it names is the graph's own."""
        app = McpApp(TrivialBackend(), legacy_sse=True)
        mine, other = {"trails.actor": Actor("ada")}, {"trails.actor": Actor("bob")}
        body = body_of(None, "initialize", HELLO)

        async def scenario(app):
            frames: asyncio.Queue[bytes] = asyncio.Queue()
            gone = asyncio.Event()

            async def receive():
                await gone.wait()
                return {"type": "http.disconnect"}

            async def send(message):
                frames.put_nowait(message.get("body", b""))

            scope = {"type": "http", "method": "GET", "path": "/graphs/g/sse", "headers": PLAIN}
            opened = asyncio.ensure_future(
                app({**scope, "query_string": b"", **mine}, receive, send)
            )
            while b"endpoint" not in (frame := await frames.get()):
                pass
            path, _, query = frame.split(b"data: ")[1].strip().partition(b"?")
            assert path == b"/graphs/g/messages"
            posted = {"path": path.decode(), "query_string": query}
            assert (await ask_app(app, PLAIN, [body], **posted, **other)).status == 404
            assert (await ask_app(app, PLAIN, [body], **posted, **mine)).status == 202
            while b"protocolVersion" not in await frames.get():
                pass
            gone.set()
            await opened

        run(app, scenario)

    def test_a_stream_is_got(self):
        """Posting to the stream's path is refused."""
        app = McpApp(TrivialBackend(), legacy_sse=True)
        reply = run(app, lambda app: ask_app(app, PLAIN, [b""], path="/g/sse"))
        assert (reply.status, reply.headers[-1]) == (405, (b"allow", b"GET"))


def test_the_alias_of_a_tool_stands_on_every_wire():
    """A tool says its kind under ``_meta`` and again at the top, on both doors."""
    with Doors() as doors:
        for revision in REVISIONS:
            body = body_of(revision, "tools/list", {})
            for reply in doors.ask(headers_of(revision, "tools/list", {}), body):
                (tool,) = reply.message["result"]["tools"]
                assert tool["name"] == ECHO.name
                assert tool["trails"] == tool["_meta"]["dev.trails/tool"] == {"kind": "runtime"}
                assert "nextCursor" not in reply.message["result"]
