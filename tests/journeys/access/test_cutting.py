"""Answers, uploads and writes that are under way end with the credential that they came with."""

import asyncio
import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import pytest
from tests.worlds.clients import Client, Door, meta_of
from tests.worlds.processes import Web, wait_until
from tests.worlds.projects import code_of, give_token, id_of, make_workshop, tokens_of
from tests.worlds.surfaces import MODERN, message_of

from trails import App, Context, Node, capability, node_type, predicate
from trails.app.kernels import kernel_of
from trails.app.serve.http.hosts import HostPolicy
from trails.app.serve.http.servers import HttpServer, Port
from trails.app.serve.http.sockets import bind_port
from trails.app.serve.relay.links import Listener, Listeners
from trails.model.actors import ACTOR_KEY, Actor, Secret
from trails.model.results import Failure, Success
from trails.request.authenticate import Authenticator

SECONDS = 5.0
"""That it may take; the machine may add what it needs to wake up."""
PATIENCE = 30.0
NOTES = 6_000
APP = '''
"""Notes that are long, and a call that is."""

from __future__ import annotations

import asyncio
from pathlib import Path

from trails import Context, Node, capability, node_type, predicate

BEGUN = Path(__file__).with_name("begun")
DONE = Path(__file__).with_name("done")


@node_type
class Note(Node):
    """A note."""

    text: str = predicate(key=True, label=True)
    body: str = ""


@capability("notes.wait")
async def wait(ctx: Context) -> str:
    """Wait for long, then add a note."""
    BEGUN.touch()
    try:
        await asyncio.sleep(120)
    except asyncio.CancelledError:
        DONE.write_text("cancelled")
        raise
    return "waited"


@capability("notes.doze", side_effects=["none"])
async def doze(ctx: Context, seconds: float) -> str:
    """Wait for some time."""
    BEGUN.touch()
    await asyncio.sleep(seconds)
    return "awake"
'''
EXPORTS = ("ndjson", "turtle", "nquads", "jsonld")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server whose graph is larger than what systems keep for a slow reader; its folder."""
    folder = make_workshop(tmp_path_factory.mktemp("served") / "p")
    (folder / "app.py").write_text(APP)
    temporary = folder.parent / "tmp"
    temporary.mkdir()
    token = give_token(folder, "loader")
    with Web(folder, env={"TMPDIR": str(temporary)}) as server:
        url = server.served["url"]
        lines = (
            json.dumps({"type": "Note", "data": {"text": f"n{at}", "body": f"{at} " * 450}})
            for at in range(NOTES)
        )
        body = "\n".join(lines).encode()
        with opened(url, "POST", "/graphs/main/load", token, body) as (_, response):
            assert response.status == 200, response.read()
        yield folder, url


@contextmanager
def opened(url, method, path, token, body=None, **headers):
    """A response whose body was not read yet, and its connection, which takes little at a time."""
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname, at.port, timeout=60)
    given = {"authorization": f"Bearer {token}", "content-type": "application/x-ndjson"}
    try:
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        connection.request(method, path, body, {**given, **headers})
        yield connection, connection.getresponse()
    finally:
        connection.close()


def read_slowly(response, seconds):
    """Read some at a time: how much came, and whether it came to an end that can be believed."""
    size, deadline = 0, time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            block = response.read(1 << 15)
            if not block:
                return size, "whole"
            size += len(block)
            time.sleep(0.05)
    except (http.client.IncompleteRead, ConnectionError):
        return size, "broken off"
    return size, "going on"


@pytest.mark.parametrize("end", ["revoked", "expired"])
def test_an_export_ends_with_its_token(served, end):
    """In the middle, so that nobody takes it for the whole; the exports of others go on."""
    folder, url = served
    token = give_token(folder, "ann", expires="10s" if end == "expired" else None)
    other = give_token(folder, "bob")
    wait_until(lambda: Door(url, other).get("/graphs/main/snapshot") == 200, "a token")
    paths = [f"/graphs/main/export?format={each}" for each in EXPORTS]
    with ExitStack() as stack, ThreadPoolExecutor() as readers:
        mine = [stack.enter_context(opened(url, "GET", path, token))[1] for path in paths]
        its = stack.enter_context(opened(url, "GET", paths[0], other))[1]
        assert {each.status for each in (*mine, its)} == {200}
        assert all(each.read(1000) for each in mine)
        if end == "revoked":
            tokens_of(folder).revoke([id_of(token)])
        seconds = SECONDS + PATIENCE + (10 if end == "expired" else 0)
        found = list(readers.map(read_slowly, mine, [seconds] * len(mine)))
        assert [how for _, how in found] == ["broken off"] * len(EXPORTS)
        assert all(size for size, _ in found)
        assert read_slowly(its, 1)[1] == "going on"


def test_an_export_through_another_process_ends_with_its_token(served):
    """The front that passes it on ends it as the owner does."""
    folder, _ = served
    token = give_token(folder, "ann")
    with Web(folder) as front:
        url = front.served["url"]
        wait_until(lambda: Door(url, token).get("/graphs/main/snapshot") == 200, "a token")
        with opened(url, "GET", "/graphs/main/export", token) as (_, response):
            assert response.read(1000)
            tokens_of(folder).revoke([id_of(token)])
            assert read_slowly(response, SECONDS + PATIENCE)[1] == "broken off"


def test_an_upload_ends_with_its_token(served):
    """It is refused while it is sent; nothing of it is there, nor left on the disk."""
    folder, url = served
    token = give_token(folder, "ann")
    door = Door(url, token)
    at = urlsplit(url)
    temporary = folder / ".trails/graphs/main/tmp"
    with socket.create_connection((at.hostname, at.port), timeout=60) as sock:
        sock.sendall(
            b"POST /graphs/main/load HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n"
            b"Authorization: Bearer " + token.encode() + b"\r\n\r\n"
        )
        line = b'{"type": "Note", "data": {"text": "never"}}\n'
        chunk = b"%x\r\n%b\r\n" % (len(line), line)
        sock.sendall(chunk)
        wait_until(lambda: list(temporary.glob("trails-*")), "a file")
        tokens_of(folder).revoke([id_of(token)])
        deadline, answer = time.monotonic() + SECONDS + PATIENCE, b""
        sock.settimeout(0.2)
        while b"\r\n\r\n" not in answer:
            assert time.monotonic() < deadline
            try:
                answer += sock.recv(1 << 16)
            except TimeoutError:
                sock.sendall(b"1\r\n\n\r\n")
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b'www-authenticate: Bearer error="invalid_token"' in answer
        assert b"the credential was revoked or expired during this request" in answer
    wait_until(lambda: not list(temporary.glob("trails-*")), "that the file is gone")
    assert door.get("/graphs/main/snapshot") == 401
    other = give_token(folder, "bob")
    wait_until(lambda: Door(url, other).get("/graphs/main/snapshot") == 200, "a token")
    assert Door(url, other).get("/graphs/main/kg/Note/never") == 404


@pytest.mark.parametrize("surface", ["mcp", "rest"])
def test_a_call_ends_with_its_token(served, surface):
    """It is answered that the credential is gone; over MCP what it does is cancelled too."""
    folder, url = served
    token = give_token(folder, "ann")
    door = Door(url, token)
    begun, done = folder / "begun", folder / "done"
    begun.unlink(missing_ok=True)
    done.unlink(missing_ok=True)
    if surface == "mcp":
        params = {"name": "notes.wait", "arguments": {}}
        headers = {
            "mcp-protocol-version": MODERN,
            "mcp-method": "tools/call",
            "mcp-name": "notes.wait",
        }
        path, body = "/graphs/main/mcp", message_of(MODERN, "tools/call", params)
    else:
        path, body, headers = "/graphs/main/invoke/notes.wait", {}, {}
    connection = door.connect()
    connection.request("POST", path, json.dumps(body), {**door.headers(), **headers})
    wait_until(begun.exists, "that it begins")
    tokens_of(folder).revoke([id_of(token)])
    connection.sock.settimeout(SECONDS + PATIENCE)
    response = connection.getresponse()
    assert response.status == 401
    assert b"during this request" in response.read()
    connection.close()
    if surface == "mcp":
        wait_until(done.exists, "that it is cancelled")


def test_a_call_over_stdio_is_not_answered_to_a_token_that_has_ended(tmp_path):
    """When the answer is there, it is told that the credential is not; others get theirs."""
    folder = make_workshop(tmp_path / "p")
    (folder / "app.py").write_text(APP)
    ann, bob = (give_token(folder, name) for name in ("ann", "bob"))
    with Client(folder) as client:
        wait_until(lambda: client.ping(ann) == "ann", "a token that is known")
        call = {"name": "notes.doze", "arguments": {"seconds": SECONDS}}
        mine, its = (
            client.ask("tools/call", {**call, "_meta": meta_of(each)}) for each in (ann, bob)
        )
        wait_until((folder / "begun").exists, "that mine begins")
        tokens_of(folder).revoke([id_of(ann)])
        refused = client.answer(mine)
        assert code_of(refused) == -32001
        assert "during this request" in refused["error"]["message"]
        assert client.answer(its)["result"]["structuredContent"] == {"result": "awake"}
        assert client.ping(bob) == "bob"


# --- a server, and an application that answers as it likes --------------------------------------


@contextmanager
def serving(answer, is_current):
    """A port where an application answers an actor whose credential can end."""
    listener = Listener(HostPolicy.for_bind("127.0.0.1"), Authenticator(Actor("ann")))
    listener.authenticator.is_current = is_current
    sock = bind_port("127.0.0.1", 0)
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["path"])
        scope[ACTOR_KEY] = Actor("ann", credential="t1")
        await answer(scope, receive, send)

    server = HttpServer(app, Listeners(listener, Secret("key")))

    def run():
        asyncio.run(server.run_on([Port(sock, listener)]))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}", seen
    finally:
        server.stop()
        thread.join(60)


async def answer_much(scope, receive, send):
    """One answer, whole and at once, larger than what systems keep."""
    del receive
    body = b"x" * (1 if scope["path"] == "/small" else 40 << 20)
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize("kept", [True, False])
def test_an_answer_that_waits_to_be_taken_ends_too(kept):
    """Whoever made it has long forgotten it; the connection has not."""
    good = [True]
    with serving(answer_much, lambda _: good[0]) as (url, _):
        closing = {} if kept else {"connection": "close"}
        with opened(url, "GET", "/", "t", **closing) as (_, response):
            assert len(response.read(1000)) == 1000
            time.sleep(2.5)  # as long as the credential is good, it may be taken as slowly
            assert len(response.read(1000)) == 1000
            good[0] = False
            size, how = read_slowly(response, SECONDS + PATIENCE)
            assert how == "broken off"
            assert size < 40 << 20


async def answer_on_and_on(scope, receive, send):
    """An answer without an end."""
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
        await asyncio.sleep(0.01)


def test_a_request_that_waits_for_its_turn_hides_nothing():
    """What is cut is the answer that is being sent, whatever was asked for after it."""
    good = [True]
    with serving(answer_on_and_on, lambda _: good[0]) as (url, seen):
        at = urlsplit(url)
        with socket.create_connection((at.hostname, at.port), timeout=60) as sock:
            sock.sendall(b"GET /1 HTTP/1.1\r\nhost: x\r\n\r\nGET /2 HTTP/1.1\r\nhost: x\r\n\r\n")
            assert sock.recv(1000).startswith(b"HTTP/1.1 200 ")
            good[0] = False
            deadline, last = time.monotonic() + SECONDS + PATIENCE, b""
            with suppress(ConnectionError):
                while block := sock.recv(1 << 16):
                    last = (last + block)[-10:]
                    assert time.monotonic() < deadline
            assert not last.endswith(b"0\r\n\r\n")
    assert seen == ["/1"]


def test_a_connection_on_which_nothing_is_under_way_stays():
    """Its next request is judged by what comes with that."""
    with (
        serving(answer_much, lambda _: False) as (url, seen),
        opened(url, "GET", "/small", "t") as (connection, response),
    ):
        assert response.read() == b"x"
        time.sleep(3.5)
        connection.request("GET", "/small")
        assert connection.getresponse().read() == b"x"
    assert seen == ["/small", "/small"]


# --- writes ------------------------------------------------------------------------------------


@node_type
class Leaf(Node):
    """A leaf."""

    name: str = predicate(key=True)


ANN = Actor("ann", frozenset({"runtime"}), credential="t1")
GOOD = [True]


@capability("leaves.grow")
def grow(ctx: Context, name: str, *, late: bool = False) -> str:
    """Add a leaf; late is when the credential has ended."""
    with ctx.kg.transaction():
        Leaf(name=name).save(ctx)
        GOOD[0] = not late
    return name


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A kernel for which a credential is good as long as GOOD says so."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    GOOD[0] = True
    with App(Leaf, grow) as app:
        kernel = kernel_of(app, is_current=lambda actor: actor != ANN or GOOD[0])
        yield app, kernel
        kernel.close()


def run(work):
    """What comes of it."""
    return asyncio.run(work)


def names(app):
    """The leaves that there are."""
    return sorted(each.name for each in Leaf.objects(app.context()))


@pytest.mark.parametrize("mode", ["merge", "append", "overwrite"])
@pytest.mark.parametrize("branch", ["main", "fresh"])
def test_a_load_whose_credential_ends_is_rolled_back(tree, tmp_path, mode, branch):
    """The body has arrived, the rows are being written: nothing of it is there."""
    app, kernel = tree
    assert isinstance(run(kernel.execute(ANN, "leaves.grow", {"name": "old"})), Success)
    before = app.graph().log.last_seq()

    async def body(*, ends):
        for at in range(3000):
            yield b'{"type": "Leaf", "data": {"name": "n%d"}}\n' % at
        GOOD[0] = not ends

    given = {"format": "ndjson", "mode": mode, "branch": branch, "from": "main"}
    given = given if branch != "main" else {"format": "ndjson", "mode": mode}
    outcome = run(kernel.transfers.load(ANN, body(ends=True), given))
    assert isinstance(outcome, Failure)
    assert (outcome.kind, outcome.code) == ("unauthenticated", "revoked")
    assert app.graph().log.last_seq() == before
    assert names(app) == ["old"]
    assert [each.name for each in app.versions().branches()] == ["main"]
    assert not list(tmp_path.glob("trails-*"))
    assert app.graph().activities.newest(1)[0].outcome == "revoked"
    GOOD[0] = True
    assert isinstance(run(kernel.transfers.load(ANN, body(ends=False), given)), Success)


def test_a_load_whose_credential_ends_is_not_read_to_its_end(tree):
    """Else it would be told first what is wrong with its rows."""
    _, kernel = tree

    async def body():
        yield b'{"type": "Nothing", "data": {}}\n'
        GOOD[0] = False

    assert run(kernel.transfers.load(ANN, body(), {"format": "ndjson"})).code == "revoked"
    GOOD[0] = True
    other = Actor("bob", ANN.scopes, credential="t3")
    assert run(kernel.transfers.load(other, body(), {"format": "ndjson"})).code == "validation"


def test_a_write_whose_credential_ends_is_rolled_back(tree):
    """Whatever makes it; others write on, and so does the same actor with another credential."""
    app, kernel = tree
    before = app.graph().log.last_seq()
    outcome = run(kernel.execute(ANN, "leaves.grow", {"name": "late", "late": True}))
    assert (outcome.kind, outcome.code) == ("unauthenticated", "revoked")
    change = {"operations": [{"op": "create", "type": "Leaf", "data": {"name": "typed"}}]}
    for tool, arguments in (
        ("graph_mutate", change),
        ("graph_load", {"data": '{"type": "Leaf", "data": {"name": "loaded"}}'}),
        ("branch_create", {"name": "side"}),
    ):
        assert run(kernel.execute(ANN, tool, arguments)).code == "revoked"
    assert app.graph().log.last_seq() == before
    again = Actor("ann", ANN.scopes, credential="t2")
    assert isinstance(run(kernel.execute(again, "graph_mutate", change)), Success)
    assert names(app) == ["typed"]


def test_a_merge_is_judged_again_before_it_is_written(tree):
    """A credential that was good when the merge began is asked about once more at its end."""
    app, kernel = tree
    history = app.versions()
    history.create_branch("side")
    run(kernel.execute(ANN, "leaves.grow", {"name": "mine"}))
    run(kernel.execute(ANN, "leaves.grow", {"name": "theirs", "branch": "side"}))
    before, answers = app.graph().log.last_seq(), iter([True, False])
    app.graph().is_current = lambda _: next(answers)
    assert run(kernel.execute(ANN, "branch_merge", {"source": "side"})).code == "revoked"
    assert (app.graph().log.last_seq(), names(app)) == (before, ["mine"])
    app.graph().is_current = lambda _: True
    assert isinstance(run(kernel.execute(ANN, "branch_merge", {"source": "side"})), Success)
    assert names(app) == ["mine", "theirs"]
