"""What a token opened ends with the token, on every transport, within seconds."""

import asyncio
import time
from contextlib import ExitStack

import pytest
from tests.worlds.clients import JSON, STREAMS, WATCHED, Client, Door, meta_of
from tests.worlds.processes import Web, wait_until
from tests.worlds.projects import code_of, dump_line, give_token, id_of, make_workshop, tokens_of
from tests.worlds.surfaces import MODERN, TrivialBackend, ask_app, hello, message_of

from trails.model.actors import Actor
from trails.model.capabilities import ToolList
from trails.surfaces.mcp import subscribers as revocations
from trails.surfaces.mcp.http import McpApp
from trails.surfaces.mcp.subscribers import Asked, Subscribers

SECONDS = 5.0
"""That it may take; the machine may add what it needs to wake up."""
PATIENCE = 20.0
LEGACY = "legacy_sessions = true\nlegacy_sse = true"


@pytest.fixture
def door():
    """Opens doors, and closes them."""
    with ExitStack() as stack:
        yield lambda url, token: stack.enter_context(Door(url, token))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server on a port, and its folder."""
    folder = make_workshop(tmp_path_factory.mktemp("served") / "p", mcp=LEGACY)
    writer = give_token(folder, "writer")
    with Web(folder) as server:
        yield folder, server.url, writer


def add(url, token, text):
    """Add a note."""
    call = {"name": "notes.add", "arguments": {"text": text}, "_meta": meta_of(None)}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "notes.add"}
    status, body, _ = Door(url, token).post(message_of(None, "tools/call", call), **headers)
    assert status == 200, body
    assert b"isError" not in body or b'"isError":false' in body, body


@pytest.mark.parametrize(
    ("way", "end"), [*((way, "revoked") for way in STREAMS), ("fast", "expired")]
)
def test_a_stream_over_http_ends_with_its_token(served, door, way, end):
    """It is told nothing after that, it ends, and others go on."""
    folder, url, writer = served
    lasting = STREAMS[way](door(url, give_token(folder, "bob")))
    expires = "10s" if end == "expired" else None
    token = give_token(folder, "ann", expires=expires)
    asked = door(url, token)
    stream = STREAMS[way](asked)
    add(url, writer, f"{way} {end} before")
    stream.wait_for("notifications/resources/updated")
    lasting.wait_for("notifications/resources/updated")
    if end == "revoked":
        assert stream.ended_at is None
        tokens_of(folder).revoke([id_of(token)])
    assert stream.has_ended((10 if end == "expired" else 0) + SECONDS + PATIENCE)
    if way in {"fast", "sdk"}:
        assert any('"resultType":"complete"' in line for line in stream.lines)
    told = len(stream.lines)
    lasting.lines.clear()
    add(url, writer, f"{way} {end} after")
    lasting.wait_for("notifications/resources/updated")
    assert len(stream.lines) == told
    assert lasting.ended_at is None
    status, body, _ = asked.post(message_of(None, "tools/list", {}))
    assert status == 401
    assert token.encode() not in body


@pytest.mark.parametrize("way", ["session", "sse"])
def test_a_session_belongs_to_the_credential_that_began_it(served, door, way):
    """Another token of the same actor can't use it: it may permit less, or last longer."""
    folder, url, _ = served
    one, two = (door(url, give_token(folder, "ann")) for _ in range(2))
    stream = STREAMS[way](one)
    listing = message_of(None, "tools/list", {}, 9)
    if way == "sse":
        path = next(x for x in stream.lines if "session_id=" in x).removeprefix("data: ")
        assert two.post(listing, path)[0] in {403, 404}
        assert one.post(listing, path)[0] == 202
        return
    status, _, headers = one.post(message_of(None, "initialize", hello()))
    known = {"mcp-session-id": headers["mcp-session-id"]}
    assert status == 200
    assert two.post(listing, **known)[0] in {403, 404}
    assert one.post(listing, **known)[0] == 200


def test_nothing_is_kept_for_a_session_whose_credential_is_gone(monkeypatch):
    """What it watched is watched no more, although its stream is there until it is cut."""
    monkeypatch.setattr(revocations, "PAUSE", 0.01)
    good = [True]
    app = McpApp(TrivialBackend(), legacy_sessions=True, is_current=lambda _actor: good[0])
    plain = [(b"host", b"localhost"), *((k.encode(), v.encode()) for k, v in JSON.items())]

    async def visit():
        async with app.run():
            began = await ask_app(app, plain, [dump_line(message_of(None, "initialize", hello()))])
            known = [*plain, (b"mcp-session-id", dict(began.headers)[b"mcp-session-id"])]
            initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await ask_app(app, known, [dump_line(initialized)])
            sent, cut = [], asyncio.Event()

            async def receive():
                await cut.wait()
                return {"type": "http.disconnect"}

            async def send(message):
                sent.append(message)

            scope = {"type": "http", "method": "GET", "path": "/mcp", "query_string": b""}
            lasting = asyncio.create_task(app({**scope, "headers": known}, receive, send))
            kept = app._sessions._subscriptions
            while not kept.actors():  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.01)
            good[0] = False
            while kept.actors():  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            cut.set()
            await lasting
            assert [each["type"] for each in sent].count("http.response.start") == 1

    asyncio.run(asyncio.wait_for(visit(), 60))


def test_what_is_due_to_somebody_revoked_is_not_told():
    """Neither changes of lists nor of what was watched, and nothing that comes later."""

    class Changing(TrivialBackend):
        version_ = "1"
        closed = False
        wake = print

        def tools(self, actor):
            return ToolList(self.version_, ())

        def watch(self, actor, uris):
            return self

        def take(self):
            return ["test://note"]

        def close(self):
            self.closed = True

    backend = Changing()
    subscribers = Subscribers(backend)
    one, other = (
        subscribers.open(Actor(name), Asked(["test://note"], tools=True)) for name in "ab"
    )
    backend.version_ = "2"
    for each in (one, other):
        each.compare()
    subscribers.end_those_of({Actor("a")})
    assert (one.ended, one.take(), backend.closed) == (True, [], True)
    assert (other.ended, len(other.take())) == (False, 2)
    backend.version_ = "3"
    one.compare()
    assert one.take() == []


def test_what_is_open_without_a_token_ends_with_the_first_one(tmp_path, door):
    """From then on it would not be opened any more."""
    folder = make_workshop(tmp_path / "p", mcp=LEGACY)
    with Web(folder) as server:
        streams = [STREAMS[way](door(server.url, None)) for way in STREAMS]
        give_token(folder)
        assert all(each.has_ended(SECONDS + PATIENCE) for each in streams)


def test_subscriptions_over_stdio_end_with_their_token(tmp_path):
    """A listen stream with its result, an older session's without a word; others go on."""
    folder = make_workshop(tmp_path / "p")
    ann, bob, writer = (give_token(folder, name) for name in ("ann", "bob", "writer"))
    with Client(folder) as old, Client(folder) as new:
        old.begin(ann)
        old.request("resources/subscribe", {"uri": "trails://kg/Note"})
        mine = new.ask("subscriptions/listen", {"notifications": WATCHED, "_meta": meta_of(ann)})
        other = new.ask("subscriptions/listen", {"notifications": WATCHED, "_meta": meta_of(bob)})
        wait_until(lambda: new.ping(bob) == "bob" and _told(new, "acknowledged") == 2, "both")
        new.new("tools/call", writer, name="notes.add", arguments={"text": "one"})
        old.wait_for("notifications/resources/updated")
        tokens_of(folder).revoke([id_of(ann)])
        began = time.monotonic()
        assert new.answer(mine)["result"]["resultType"] == "complete"
        assert time.monotonic() - began < SECONDS + PATIENCE
        wait_until(lambda: code_of(old.old("ping")) == -32001, "a refusal")
        old.notified.clear()
        new.notified.clear()
        new.new("tools/call", writer, name="notes.add", arguments={"text": "two"})
        new.wait_for("notifications/resources/updated")
        told = [each for each in new.notified if each["method"].endswith("/updated")]
        assert {_stream_of(each) for each in told} == {other}
        assert code_of(old.old("ping")) == -32001
        assert old.notified == []
        fresh = give_token(folder, "ann")
        wait_until(lambda: "result" in old.begin(fresh), "a token that is known")
        old.request("resources/subscribe", {"uri": "trails://kg/Note"})
        new.new("tools/call", writer, name="notes.add", arguments={"text": "three"})
        old.wait_for("notifications/resources/updated")


def _told(client, method):
    return sum(each["method"].endswith(method) for each in client.notified)


def _stream_of(notification):
    return notification["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]
