"""Where a request ends, and where a connection does: no request is lost, none is smuggled in."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import pytest
from tests.app.serve.http.fronts import PATIENCE, Front, read_all, read_answers
from tests.app.serve.http_streams import Ours
from tests.app.serve.test_exchanges import GET, LAST, Server, ask, body, length, says, start

from trails.app.serve.http import connections
from trails.app.serve.http.limits import ClientLimits

OK = says(start(length(2)), body(b"ok"))
POST = b"POST /graphs/main/query HTTP/1.1\r\nhost: localhost\r\n"
WISHES = {
    "h2c": b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAA\r\n",
    "a web socket": b"connection: upgrade\r\nupgrade: websocket\r\n",
    "anything": b"connection: upgrade\r\nupgrade: x\r\n",
}


class Recorder:
    """An application that takes down what it is asked, and answers."""

    def __init__(self):
        self.requests = []

    async def __call__(self, scope, receive, send):
        """Answer."""
        parts, more = [], True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            parts.append(message["body"])
            more = message["more_body"]
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        target = scope["raw_path"] + query
        self.requests.append((scope["method"], target, b"".join(parts)))
        await OK(scope, receive, send)


@pytest.mark.parametrize("wish", WISHES.values(), ids=WISHES)
@pytest.mark.parametrize("chunked", [False, True])
def test_a_wish_for_another_protocol_is_ignored(wish, chunked):
    """The body belongs to its request, also when it comes later and reads like a request."""
    inside = b"DELETE /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n"
    framing = b"transfer-encoding: chunked" if chunked else b"content-length: %d" % len(inside)
    sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(inside), inside) if chunked else inside
    app = Recorder()
    with Server(app) as server, server.connect() as sock:
        sock.sendall(b"POST /a HTTP/1.1\r\nhost: localhost\r\n%b%b\r\n\r\n" % (wish, framing))
        while not server.tasks:
            time.sleep(0.01)
        sock.sendall(sent)
        sock.sendall(LAST)
        found = read_answers(read_all(sock))
    assert [each.status for each in found] == [200, 200]
    assert app.requests == [("POST", b"/a", inside), ("GET", b"/", b"")]


# --- connections that end say so


def test_a_body_that_nobody_waits_for_is_read():
    """A short one that comes after its answer: the connection goes on with the next request."""
    with Server(OK) as server, server.connect() as sock:
        sock.sendall(POST + b"content-length: 5\r\n\r\n")
        first = sock.recv(1 << 16)
        assert b"connection: close" not in first
        sock.sendall(b"hello" + LAST)
        assert len(read_answers(first + read_all(sock))) == 2


@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 300000\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n",
        b"content-length: 5\r\nexpect: 100-continue\r\n\r\n",
    ],
    ids=["large", "unknown length", "waits to be told"],
)
def test_an_answer_that_comes_before_a_long_body_is_the_last(head):
    """It says so, it can be read although the body is sent to its end, and nothing follows it."""
    with Server(OK) as server, server.connect() as sock:
        sock.sendall(POST + head)
        first = sock.recv(1 << 16)
        assert read_answers(first)[0].header("connection") == "close"
        sock.sendall(b"x" * 300_000 + GET)
        assert len(read_answers(first + read_all(sock))) == 1


def test_an_answer_ends_its_connection_even_if_the_application_says_otherwise():
    """Whether a connection goes on is not for it to say."""
    app = says(start(length(2), (b"connection", b"keep-alive")), body(b"ok"))
    (answer,) = read_answers(ask(app))
    assert answer.header("connection") == "close"


ENDED = "reset by peer|Broken pipe"


def send_for_ever(sock, part, pause=0.0):
    """Send until the other side is gone."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        sock.sendall(part)
        time.sleep(pause)


def test_somebody_who_never_ends_a_body_is_let_go():
    """After an answer that was ended in order, by time and by amount."""
    limits = ClientLimits(linger_bytes=1 << 20, linger=60.0)
    with Server(OK, limits) as server, server.connect() as sock:
        sock.sendall(POST + b"transfer-encoding: chunked\r\n\r\n")
        with pytest.raises(OSError, match=ENDED):
            send_for_ever(sock, b"x" * 65536)
    with Server(OK, ClientLimits(linger=0.1, linger_most=1.0)) as server, server.connect() as sock:
        sock.sendall(POST + b"transfer-encoding: chunked\r\n\r\n")
        with pytest.raises(OSError, match=ENDED):
            send_for_ever(sock, b"x", 0.02)


def test_a_short_body_that_never_comes_ends_its_connection():
    """Without another answer, which would be taken for the one to the next request."""
    with Server(OK, ClientLimits(body_seconds=0.5)) as server, server.connect() as sock:
        sock.sendall(POST + b"content-length: 5\r\n\r\n")
        assert len(read_answers(read_all(sock))) == 1


class SlowBody(httpx.SyncByteStream):
    """A body that follows its head after a while."""

    def __init__(self, size):
        self._size = size

    def __iter__(self):
        """The parts."""
        time.sleep(0.02)
        yield b"x" * self._size


@pytest.mark.parametrize("size", [10, 400_000])
def test_no_request_is_lost_whose_body_comes_late(size):
    """600 of them to paths that are unknown or denied, on connections that are kept."""
    with Front(token="secret") as front:

        def client(number):
            denied = number % 2
            headers = {"content-length": str(size)}
            if not denied:
                headers["authorization"] = "Bearer secret"
            with httpx.Client(
                base_url=f"http://localhost:{front.port}", timeout=PATIENCE
            ) as client:
                return [
                    client.post("/nothing", content=SlowBody(size), headers=headers).status_code
                    for _ in range(30)
                ] == [401 if denied else 404] * 30

        with ThreadPoolExecutor(20) as pool:
            assert all(pool.map(client, range(20)))


JAVA = """
import java.net.URI;
import java.net.http.*;

class Posts {
    public static void main(String[] args) throws Exception {
        var client = HttpClient.newHttpClient();
        for (int i = 0; i < 20; i++) {
            var body = HttpRequest.BodyPublishers.ofString("x".repeat(i * 1000) + "!");
            var request = HttpRequest.newBuilder(URI.create(args[0] + i)).POST(body).build();
            var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(answer.statusCode() + " " + answer.body());
        }
    }
}
"""


@pytest.mark.skipif(shutil.which("java") is None, reason="needs a Java runtime")
def test_the_clients_of_a_jdk_can_post(tmp_path):
    """Its default client wishes for HTTP/2 with every request."""
    program = tmp_path / "Posts.java"
    program.write_text(JAVA)
    app = Recorder()
    with Server(app) as server:
        java = [shutil.which("java"), str(program), f"http://127.0.0.1:{server.port}/"]
        done = subprocess.run(java, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout.splitlines() == ["200 ok"] * 20, done.stderr
    wanted = [("POST", b"/%d" % each, b"x" * each * 1000 + b"!") for each in range(20)]
    assert app.requests == wanted


# --- who is made to wait


def converse(app, talk, limits=None):
    """Talk to a connection without a network."""

    async def run():
        ours = Ours(limits)
        try:
            await talk(ours.connect(app), ours.transport)
        finally:
            ours.close()

    asyncio.run(run())


async def settle():
    """Let tasks run."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_requests_with_the_same_head_do_not_share_headers():
    """The head is read once; what an application does to the headers of one request stays there."""
    seen = []

    async def app(scope, receive, send):
        seen.append(list(scope["headers"]))
        scope["headers"].append((b"x", b"y"))
        scope["path"] = "/other"
        await OK(scope, receive, send)

    async def talk(connection, transport):
        for _ in range(3):
            connection.data_received(GET)
            await settle()
        connection.data_received(GET.replace(b"\r\n\r\n", b"\r\nZ: 1\r\n\r\n"))
        await settle()

    converse(app, talk)
    assert len(seen) == 4
    assert seen[0] == seen[1] == seen[2]
    assert seen[3] == [*seen[0], (b"z", b"1")]


def test_requests_sent_ahead_are_read_with_pauses(monkeypatch):
    """So that one connection does not keep the event loop to itself."""
    monkeypatch.setattr(connections, "_PAUSE", 1.0)
    paths = []

    async def app(scope, receive, send):
        paths.append(scope["path"])
        await OK(scope, receive, send)

    async def talk(connection, transport):
        connection.data_received(GET * 9)
        for _ in range(20):
            await settle()
        assert len(paths) == 8
        while len(paths) < 9:  # noqa: ASYNC110 - the connection calls the application
            await asyncio.sleep(0.01)

    converse(app, talk)


def test_somebody_who_sends_requests_ahead_waits():
    """Nothing more is read until those before are answered; then all of it is, in order."""
    go, paths = asyncio.Event(), []

    async def app(scope, receive, send):
        paths.append(scope["path"])
        await go.wait()
        await OK(scope, receive, send)

    async def talk(connection, transport):
        ahead = b"".join(
            b"GET /%d HTTP/1.1\r\nhost: h\r\nx: %b\r\n\r\n" % (each, b"y" * 1000)
            for each in range(80)
        )
        connection.data_received(GET)
        await settle()
        connection.data_received(ahead)
        assert transport.paused
        await settle()
        assert paths == ["/"]
        go.set()
        while len(paths) < 81:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.001)
        assert not transport.paused
        assert paths == ["/", *[f"/{each}" for each in range(80)]]

    converse(app, talk)


def test_somebody_whose_body_is_not_read_waits():
    """Until the application asks for more of it."""
    go, seen = asyncio.Event(), []

    async def app(scope, receive, send):
        await go.wait()
        more = True
        while more:
            message = await receive()
            seen.append(len(message["body"]))
            more = message["more_body"]
        await OK(scope, receive, send)

    async def talk(connection, transport):
        connection.data_received(POST + b"content-length: 200000\r\n\r\n" + b"x" * 100_000)
        await settle()
        assert transport.paused
        assert not seen
        go.set()
        await settle()
        assert not transport.paused
        connection.data_received(b"x" * 100_000)
        await settle()
        assert sum(seen) == 200_000
        assert transport.written.startswith(b"HTTP/1.1 200")

    converse(app, talk)


def test_somebody_who_has_sent_much_ahead_is_not_read_for_an_application_that_waits():
    """Listening for the end of a client does not let it send without bound."""
    go = asyncio.Event()

    async def app(_scope, receive, _send):
        await receive()
        await go.wait()
        await receive()

    async def talk(connection, transport):
        connection.data_received(GET)
        await settle()
        connection.data_received(GET * 5000)
        go.set()
        await settle()
        assert transport.paused
        connection.connection_lost(None)

    converse(app, talk)


# --- HTTP/1.0


@pytest.mark.parametrize("more", [b"", b"connection: keep-alive\r\n"])
def test_a_connection_of_http_1_0_ends_with_its_answer(more):
    """Even if the client wishes for more; nothing that follows is read as a request."""
    app = Recorder()
    head = b"GET /a HTTP/1.0\r\n" + more + b"\r\n"
    (answer,) = read_answers(ask(app, head + GET))
    assert answer.header("connection") == "close"
    assert app.requests == [("GET", b"/a", b"")]


def test_http_1_0_knows_neither_chunks_nor_interim_answers():
    """A body of unknown length ends with its connection; one that fails is broken off."""
    parts = [start(), body(b"ab", more=True), body(b"c")]
    found = ask(says(*parts), b"GET / HTTP/1.0\r\n\r\n")
    assert found.endswith(b"\r\n\r\nabc")
    assert b"transfer-encoding" not in found
    head = b"POST / HTTP/1.0\r\ncontent-length: 1\r\nexpect: 100-continue\r\n\r\n"
    app = Recorder()
    with Server(app) as server, server.connect() as sock:
        sock.sendall(head)
        while not server.tasks:
            time.sleep(0.01)
        sock.sendall(b"x")
        assert read_all(sock).startswith(b"HTTP/1.1 200")

    async def fails(_scope, _receive, send):
        await send(start())
        await send(body(b"ab", more=True))
        raise ValueError

    with Server(fails) as server, server.connect() as sock:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            drain(sock)


def drain(sock):
    """Read to the end."""
    while sock.recv(1 << 16):
        pass


# --- the end of the server


def test_the_answer_that_is_made_when_the_server_ends_is_the_last():
    """It says so, and what the client sends next is not read."""
    began, go = threading.Event(), threading.Event()
    paths = []

    async def app(scope, receive, send):
        paths.append(scope["path"])
        began.set()
        await asyncio.to_thread(go.wait, PATIENCE)
        await OK(scope, receive, send)

    with Server(app) as server, server.connect() as sock, server.connect() as idle:
        sock.sendall(GET)
        assert began.wait(PATIENCE)
        server.stop()
        assert idle.recv(1) == b""  # so the others were told
        sock.sendall(GET.replace(b"/", b"/late", 1))
        go.set()
        (answer,) = read_answers(read_all(sock))
    assert answer.header("connection") == "close"
    assert paths == ["/"]
