"""One request and its answer, on a real connection, whatever the application behind it does."""

import asyncio
import logging
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from tests.app.serve.http.fronts import PATIENCE, read_all, read_answers

from trails.app.serve.http.hosts import HostPolicy
from trails.app.serve.http.limits import ClientLimits
from trails.app.serve.http.servers import HttpServer, Port
from trails.app.serve.http.sockets import bind_port
from trails.app.serve.relay.links import Listener, Listeners
from trails.model.actors import LOCAL, Secret
from trails.request.authenticate import Authenticator

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
LAST = GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")


def start(*headers, status=200):
    """The first message of an answer."""
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(text, *, more=False):
    """Another one."""
    return {"type": "http.response.body", "body": text, "more_body": more}


def length(count):
    """The header that says how long a body is."""
    return b"content-length", str(count).encode()


def says(*messages):
    """An application that sends some messages."""

    async def app(_scope, _receive, send):
        for message in messages:
            await send(message)

    return app


class Server:
    """An application on a port."""

    def __init__(self, app, limits=None):
        self._app = app
        self._limits = limits or ClientLimits()
        self._sock = bind_port("127.0.0.1", 0)
        self.port = self._sock.getsockname()[1]
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self):
        listener = Listener(HostPolicy.for_bind("127.0.0.1"), Authenticator(LOCAL))
        server = HttpServer(self._app, Listeners(listener, Secret("k")), self._limits)
        self._loop, self._server = asyncio.get_running_loop(), server
        self._loop.call_soon(self._ready.set)
        await server.run_on([Port(self._sock, listener)])

    def stop(self):
        """Tell it to end, unless it has."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._server.stop)

    @property
    def tasks(self):
        """How many requests are being answered."""
        return len(self._server.server_state.tasks)

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(self, *_error):
        self.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    @contextmanager
    def connect(self):
        """A connection."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as sock:
            yield sock

    def send(self, data):
        """All that comes back for some bytes."""
        with self.connect() as sock:
            sock.sendall(data)
            return read_all(sock)


def ask(app, data=LAST):
    """What an application's answer is on the wire."""
    with Server(app) as server:
        return server.send(data)


def test_an_answer_whose_length_is_told():
    """Head and body come as they were given, in order, with nothing between them."""
    found = ask(says(start((b"x-a", b"1"), length(5)), body(b"hello")))
    assert found.startswith(b"HTTP/1.1 200 OK\r\n")
    assert found.endswith(b"\r\n\r\nhello")
    (answer,) = read_answers(found)
    assert answer.header("x-a") == "1"
    assert answer.header("date")
    assert answer.header("connection") == "close"
    assert answer.header("transfer-encoding") is None


@pytest.mark.parametrize("size", [0, 1, 16 << 10, (16 << 10) + 1, 3 << 20])
def test_a_body_of_any_size(size):
    """Arrives whole."""
    text = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    (answer,) = read_answers(ask(says(start(length(size)), body(text))))
    assert answer.body == text


def test_a_body_in_parts():
    """With a length or in chunks, empty parts among them."""
    parts = [body(b"ab", more=True), body(b"", more=True), body(b"c", more=True), body(b"")]
    (told,) = read_answers(ask(says(start(length(3)), *parts)))
    (chunked,) = read_answers(ask(says(start(), *parts)))
    assert told.body == chunked.body == b"abc"
    assert chunked.header("transfer-encoding") == "chunked"


def test_a_stream_begins_at_once():
    """The head of an answer without a length is there before any of its body."""
    go = threading.Event()

    async def app(_scope, _receive, send):
        await send(start())
        await asyncio.to_thread(go.wait, PATIENCE)
        await send(body(b"end"))

    with Server(app) as server, server.connect() as sock:
        sock.sendall(LAST)
        head = sock.recv(1 << 16)
        assert head.endswith(b"\r\n\r\n")
        go.set()
        assert read_answers(head + read_all(sock))[0].body == b"end"


@pytest.mark.parametrize("status", [204, 304])
def test_a_status_without_a_body(status):
    """Has none, and does not speak of chunks."""
    found = ask(says(start(status=status), body(b"")))
    assert found.endswith(b"\r\n\r\n")
    assert b"transfer-encoding" not in found


@pytest.mark.parametrize("headers", [[length(5)], []])
def test_only_the_head_was_asked_for(headers):
    """What the application says of its body is told, and the body is not sent."""
    found = ask(says(start(*headers), body(b"hello")), LAST.replace(b"GET", b"HEAD"))
    assert found.endswith(b"\r\n\r\n")
    assert (b"content-length: 5" in found) == bool(headers)


def test_requests_on_one_connection():
    """Are answered in order, whether they come together or apart; the last one ends it."""

    async def app(scope, receive, send):
        given = (await receive())["body"]
        await asyncio.sleep(0.02 if given == b"0" else 0)
        text = given + scope["path"].encode()
        await send(start(length(len(text))))
        await send(body(text))

    requests = [
        b"POST /%d HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\n%d" % (n, n)
        for n in range(5)
    ]
    requests.append(requests.pop().replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    wanted = [b"%d/%d" % (n, n) for n in range(5)]
    with Server(app) as server:
        together = server.send(b"".join(requests))
        with server.connect() as sock:
            apart = b""
            for request in requests[:-1]:
                sock.sendall(request)
                apart += sock.recv(1 << 16)
            sock.sendall(requests[-1])
            apart += read_all(sock)
    for found in (together, apart):
        assert [answer.body for answer in read_answers(found)] == wanted


def test_a_body_that_comes_in_parts():
    """Each part is handed over as it comes, and the last one says so."""
    seen, first = [], threading.Event()

    async def app(_scope, receive, send):
        more = True
        while more:
            message = await receive()
            more = message["more_body"]
            seen.append(message["body"])
            first.set()
        await send(start(length(0)))
        await send(body(b""))

    head = LAST.replace(b"GET", b"POST").replace(b"\r\n\r\n", b"\r\ncontent-length: 6\r\n\r\n")
    with Server(app) as server, server.connect() as sock:
        sock.sendall(head + b"ab")
        assert first.wait(PATIENCE)
        sock.sendall(b"cdef")
        assert read_answers(read_all(sock))[0].status == 200
    assert b"".join(seen) == b"abcdef"
    assert seen[0] == b"ab"


def test_a_client_waits_to_be_told_to_go_on():
    """It is told so when the application asks for the body, once."""

    async def app(_scope, receive, send):
        text = (await receive())["body"]
        await send(start(length(len(text))))
        await send(body(text))

    more = b"\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n"
    with Server(app) as server, server.connect() as sock:
        sock.sendall(LAST.replace(b"GET", b"POST").replace(b"\r\n\r\n", more))
        assert sock.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"ab")
        assert read_answers(read_all(sock))[0].body == b"ab"


@pytest.mark.parametrize("before", [b"", GET])
def test_whoever_leaves_is_noticed(before):
    """The application is told, also of a client that has asked for more behind it."""
    gone = threading.Event()
    began = threading.Event()

    async def app(scope, receive, send):
        if scope["path"] == "/":
            await receive()
            began.set()
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()
            await send(start(length(0)))  # nobody is left to take it, which is no error
            await send(body(b""))

    with Server(app) as server:
        with server.connect() as sock:
            sock.sendall(GET + before)
            assert began.wait(PATIENCE)
        assert gone.wait(PATIENCE)


def test_whoever_takes_nothing_is_not_sent_everything():
    """The application waits for its client, and then goes on."""
    part, count, sent = b"x" * (1 << 20), 64, []

    async def app(_scope, _receive, send):
        await send(start(length(len(part) * count)))
        for each in range(count):
            await send(body(part, more=each < count - 1))
            sent.append(each)

    with Server(app) as server, server.connect() as sock:
        sock.sendall(LAST)
        assert sock.recv(1)
        sizes = [-1]
        while len(sent) != sizes[-1]:  # it goes on until what lies between the two is full
            sizes.append(len(sent))
            time.sleep(0.5)
        assert len(sent) < count
        rest = read_all(sock)
        assert rest.endswith(part)
        assert rest.count(b"x") == len(part) * count


def test_a_request_that_is_refused_while_it_is_read():
    """Is not begun, even if its head was good."""
    begun = []

    async def app(_scope, _receive, send):
        begun.append(1)
        await says(start(length(0)), body(b""))(_scope, _receive, send)

    chunked = LAST.replace(b"GET", b"POST").replace(
        b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n\r\nno size\r\n"
    )
    (answer,) = read_answers(ask(app, chunked))
    assert answer.status == 400
    assert not begun


@pytest.mark.parametrize("pause", [0, 0.3])
def test_a_header_that_is_too_long_in_any_number_of_blocks(pause):
    """Is refused, though each block is small."""
    app, limits = says(start(length(0)), body(b"")), ClientLimits(line=1000)
    with Server(app, limits) as server, server.connect() as sock:
        sock.sendall(LAST[:-2] + b"x-a: " + b"a" * 600)
        time.sleep(pause)
        sock.sendall(b"a" * 600 + b"\r\n\r\n")
        assert read_answers(read_all(sock))[0].status == 431


FAULTS = {
    "raises": [],
    "raises late": [start(length(5))],
    "says nothing": [start(length(5))],
    "too long": [start(length(1)), body(b"hello")],
    "too short": [start(length(9)), body(b"hello")],
    "a line in a header": [start((b"x-a", b"b\r\nset-cookie: c"), length(0)), body(b"")],
    "a line in a name": [start((b"x-a: b\r\nx-c", b"d"), length(0)), body(b"")],
    "a bare return": [start((b"x-a", b"b\rc"), length(0)), body(b"")],
    "a zero": [start((b"x-a", b"b\0c"), length(0)), body(b"")],
    "a body first": [body(b"hello")],
    "twice": [start(length(5)), start(length(5))],
}


@pytest.mark.parametrize("what", FAULTS)
def test_an_application_that_fails(what, caplog):
    """Is answered for in the form of every error, without a word of what it was, and logged."""

    async def app(_scope, _receive, send):
        for message in FAULTS[what]:
            await send(message)
        if what.startswith("raises"):
            raise ValueError("a secret")

    with caplog.at_level(logging.ERROR, "trails"):
        (answer,) = read_answers(ask(app, GET))
    assert answer.status == 500
    assert answer.code == "internal"
    assert answer.header("connection") == "close"
    assert b"secret" not in answer.body
    assert caplog.records


def test_an_application_that_fails_in_the_middle():
    """Ends the connection, so that nobody takes a part for the whole."""

    async def app(_scope, _receive, send):
        await send(start())
        await send(body(b"hello", more=True))
        raise ValueError

    found = ask(app, GET)
    assert b"hello" in found
    assert not found.endswith(b"0\r\n\r\n")


def test_something_else_is_asked_for():
    """A request to speak another protocol is answered as one that stays with this one."""
    upgrade = b"\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    found = ask(
        says(start(length(2), (b"connection", b"close")), body(b"ok")),
        GET.replace(b"\r\n\r\n", upgrade),
    )
    (answer,) = read_answers(found)
    assert (answer.status, answer.body) == (200, b"ok")


def test_the_end_of_the_server():
    """What is being answered is finished, and the connection ends after it."""
    began, go = threading.Event(), threading.Event()

    async def app(_scope, _receive, send):
        began.set()
        await asyncio.to_thread(go.wait, PATIENCE)
        await send(start(length(2)))
        await send(body(b"ok"))

    with Server(app) as server, server.connect() as sock:
        sock.sendall(GET)
        assert began.wait(PATIENCE)
        assert server.tasks == 1
        server.stop()
        go.set()
        (answer,) = read_answers(read_all(sock))
        assert answer.body == b"ok"
    assert server.tasks == 0


def test_whoever_does_not_end_with_the_server(caplog):
    """Is cancelled after some seconds, and its client is told."""
    cancelled = threading.Event()
    began = threading.Event()

    async def app(_scope, _receive, _send):
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with Server(app) as server, server.connect() as sock:
        sock.sendall(GET)
        assert began.wait(PATIENCE)
        server.stop()
        found = read_all(sock)
    assert cancelled.is_set()
    assert found == b"" or read_answers(found)[0].status == 500
