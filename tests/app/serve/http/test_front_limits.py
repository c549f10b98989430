"""How much a client may send, and how long it may take: nobody waits for it, nothing breaks."""

from __future__ import annotations

import resource
import threading
import time

import pytest
from tests.app.serve.http.fronts import LOCALHOST, Front, read_all, read_answers
from tests.worlds.processes import wait_until

from trails.app.serve.http.limits import ClientLimits, limits_of_process

KB = 1024
LIMITS = ClientLimits(
    connections=40,
    target=2 * KB,
    line=4 * KB,
    lines=20,
    head=16 * KB,
    idle=2.0,
    head_seconds=3.0,
    body_seconds=3.0,
    linger=5.0,
)
MAX_BODY = 64 * KB
GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
CHUNKED = b"host: localhost\r\ntransfer-encoding: chunked\r\n"
MCP = "POST /graphs/main/mcp HTTP/1.1"
JSON = ("content-type: application/json", "accept: application/json, text/event-stream")
BODIES = ["/graphs/main/mcp", "/graphs/main/query", "/graphs/main/invoke/graph_health", "/nothing"]


@pytest.fixture(scope="module")
def front():
    """A front with narrow limits."""
    with Front(limits=LIMITS, max_body=MAX_BODY) as front:
        yield front


def test_headers_are_bounded(front):
    """In size, each and together, in number, and the URL in length; just below all is well."""
    assert front.get("/healthz", "x: " + "y" * (4 * KB - 10)).status == 200
    assert front.get("/healthz", "x: " + "y" * (4 * KB)).status == 431
    assert front.get("/healthz", *["x: y"] * 17).status == 200
    assert front.get("/healthz", *["x: y"] * 20).status == 431
    assert front.get("/healthz", *["x: " + "y" * 2 * KB] * 7).status == 200
    assert front.get("/healthz", *["x: " + "y" * 2 * KB] * 9).status == 431
    assert front.get("/healthz?" + "a" * (2 * KB - 20)).status == 200
    found = front.get("/healthz?" + "a" * (2 * KB))
    assert (found.status, found.code, found.header("connection")) == (414, "too_large", "close")


@pytest.mark.parametrize(
    ("begin", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nx: ", 431),
        (b"GET /healthz HTTP/1.1\r\nx", 431),
        (b"GET /", 414),
        (b"POST /graphs/main/query HTTP/1.1\r\n%b\r\n0\r\nx: " % CHUNKED, 431),
        (GET * 300 + b"GET /healthz HTTP/1.1\r\nx: ", 431),
    ],
)
def test_a_head_without_end_is_refused_before_it_is_kept(front, begin, status):
    """However it arrives: a header, a name, a URL or what follows a body, if it never ends."""
    with front.connect() as sock:
        sock.sendall(begin)
        for _ in range(10):
            sock.sendall(b"a" * 40 * KB)
            time.sleep(0.01)
        *before, found = read_answers(read_all(sock))
        assert found.status == status
        assert {each.status for each in before} <= {200}


def test_many_small_requests_at_once_are_no_large_one(front):
    """Sent without waiting for answers, in blocks far larger than one head may be."""
    found = front.send(GET * 3000)
    assert [each.status for each in found] == [200] * 3000


@pytest.mark.req("G14")
@pytest.mark.parametrize("path", BODIES)
def test_a_body_is_bounded(front, path):
    """By what is told and by what is sent, in chunks or not: 413, before anybody reads it."""
    body = b"x" * (MAX_BODY + 1)
    told = front.ask(f"POST {path} HTTP/1.1", LOCALHOST, *JSON, f"content-length: {1 << 40}")
    assert (told.status, told.code) == (413, "too_large")
    sent = front.ask(
        f"POST {path} HTTP/1.1", LOCALHOST, *JSON, f"content-length: {len(body)}", body=body
    )
    assert sent.status == 413
    chunks = b"".join(b"%x\r\n%b\r\n" % (KB, b"x" * KB) for _ in range(65)) + b"0\r\n\r\n"
    coded = ("transfer-encoding: chunked", *JSON)
    found = front.ask(f"POST {path} HTTP/1.1", LOCALHOST, *coded, body=chunks)
    assert found.status == (404 if path == "/nothing" else 413)


@pytest.mark.req("G14")
def test_a_body_of_the_largest_size_is_read(front):
    """One byte more is too many; a load is not bounded by this."""
    for size, status in ((MAX_BODY, 200), (MAX_BODY + 1, 413)):
        call = b'{"jsonrpc":"2.0","id":1,"method":"ping"'
        body = call + b" " * (size - len(call) - 1) + b"}"
        found = front.ask(MCP, LOCALHOST, *JSON, f"content-length: {size}", body=body)
        assert found.status == status, found.body
    lines = b"\n" * (4 * MAX_BODY)
    kind = "content-type: application/x-ndjson"
    length = f"content-length: {len(lines)}"
    found = front.ask("POST /graphs/main/load HTTP/1.1", LOCALHOST, kind, length, body=lines)
    assert found.status not in {413, 408}
    assert found.status < 500


def test_the_default_is_32_mib():
    """On MCP and REST alike, and in the settings."""
    with Front() as front:
        for path in BODIES:
            length = f"content-length: {(32 << 20) + 1}"
            assert front.ask(f"POST {path} HTTP/1.1", LOCALHOST, *JSON, length).status == 413


def silence(front, data, then=b""):
    """What comes of a client that sends something, then some bytes now and then, to its end."""
    with front.connect() as sock:
        sock.sendall(data)
        ended = threading.Event()

        def dribble():
            while then and not ended.wait(0.2):
                try:
                    sock.sendall(then)
                except OSError:
                    return

        sender = threading.Thread(target=dribble)
        sender.start()
        try:
            return read_answers(read_all(sock))
        finally:
            ended.set()
            sender.join()


SLOW = {
    "says nothing": (b"", b"", None),
    "sends empty lines": (b"", b"\r\n", None),
    "begins": (b"GET /heal", b"", 408),
    "dribbles a header": (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ", b"y", 408),
    "dribbles headers": (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n", b"x: y\r\n", 408),
    "sends no body": (
        b"POST /graphs/main/query HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n",
        b"",
        408,
    ),
    "dribbles a body": (
        b"POST /graphs/main/mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n",
        b"x",
        408,
    ),
    "dribbles chunks": (
        b"POST /graphs/main/load?format=ndjson HTTP/1.1\r\n%b\r\n" % CHUNKED,
        b"1\r\n\n\r\n",
        408,
    ),
    "asks once": (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", b"", 200),
    "asks once and hums": (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", b"\r\n", 200),
}


def test_slow_clients_are_let_go(front):
    """Whatever they are slow with; all at once, and others are served meanwhile."""
    found = {}
    clients = [
        threading.Thread(
            target=lambda n=name, d=data, t=then: found.update({n: silence(front, d, t)})
        )
        for name, (data, then, _) in SLOW.items()
    ]
    for client in clients:
        client.start()
    assert front.get().status == 200
    for client in clients:
        client.join(30)
    statuses = {name: [each.status for each in found[name]] for name in found}
    assert statuses == {name: [] if s is None else [s] for name, (_, _, s) in SLOW.items()}


def test_a_body_that_comes_steadily_has_the_time_it_needs(front):
    """A second for each KiB, beyond the first ones: slow lines are no attack."""
    lines = b"\n" * KB
    head = (
        b"POST /graphs/main/load HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        b"content-type: application/x-ndjson\r\ncontent-length: %d\r\n\r\n"
    )
    with front.connect() as sock:
        sock.sendall(head % (8 * KB))
        for _ in range(8):
            sock.sendall(lines)
            time.sleep(0.5)
        (found,) = read_answers(read_all(sock))
        assert found.status not in {408, 413}


def test_connections_are_bounded(front):
    """One too many is told so at once; when others go there is room again."""
    held = [front.connect() for _ in range(LIMITS.connections)]
    for each in held:
        each.__enter__()
    try:
        found = wait_until(lambda: refused(front), "a refusal")
        assert (found.status, found.code, found.header("retry-after")) == (503, "busy", "5")
    finally:
        for each in held:
            each.__exit__(None, None, None)
    wait_until(lambda: not refused(front), "an answer")


def refused(front):
    """The answer to a request that finds no room; None if it does."""
    (found,) = front.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    return found if found.status == 503 else None


def test_somebody_who_takes_no_answer_is_let_go():
    """A client that asks for much and reads nothing does not keep its connection for ever."""
    limits = ClientLimits(stall=2.0, idle=60.0)
    with Front(limits=limits) as front, front.connect() as sock:
        sock.sendall(b"GET /graphs/main/capabilities HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2000)
        wait_until(lambda: jammed(front), "a jam")
        wait_until(lambda: not front.connections, "the end of the connection")


def jammed(front):
    """The connections that nothing can be written to."""
    return [each for each in list(front.connections) if each.flow.write_paused]


def test_a_process_makes_room_for_clients():
    """As many open files as it may have, with some for itself."""
    found = limits_of_process()
    assert 0 < found.connections <= ClientLimits().connections
    assert found.connections < resource.getrlimit(resource.RLIMIT_NOFILE)[0]
