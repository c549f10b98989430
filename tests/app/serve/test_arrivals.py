"""What connections hold before it is known who sends it is bounded, by address and in all."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack

import pytest
from tests.app.serve.http.fronts import PATIENCE, Front, read_all, read_answers
from tests.worlds.processes import wait_until

from trails.app.serve.http.limits import ArrivalBudget, ClientLimits

SIZE = 8 << 10
ROOM = ClientLimits(unknown=5 * SIZE // 2)
"""Room for two of them."""
TOKEN = "a token that nobody guesses"
HEAD = b"POST /graphs/main/query HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
UNFINISHED = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * SIZE
BODY = HEAD + b"content-length: 100000\r\n\r\n" + b" " * SIZE


def arrivals_of(front):
    """What is held."""
    wait_until(lambda: front.connections, "a connection")
    return next(iter(front.connections))._arrivals


def check_bounded(front, sent, held):
    """Two are held, a third is refused and closed, and small requests are answered."""
    socks = [held.enter_context(front.connect()) for _ in range(2)]
    arrivals = arrivals_of(front)
    for count, sock in enumerate(socks, 1):
        sock.sendall(sent)
        wait_until(lambda count=count: arrivals.total >= count * SIZE, "what was sent")
    with front.connect() as sock:
        sock.sendall(sent)
        (found,) = read_answers(read_all(sock))
    assert (found.status, found.code) == (503, "busy")
    assert found.header("retry-after") == "5"
    assert found.header("connection") == "close"
    wait_until(lambda: arrivals.total < 3 * SIZE, "the third to be forgotten")
    assert front.get("/healthz").status == 200
    return socks, arrivals


def test_unfinished_heads_are_bounded():
    """When a connection ends there is room again."""
    with Front(limits=ROOM) as front, ExitStack() as held:
        socks, arrivals = check_bounded(front, UNFINISHED, held)
        socks[0].close()
        wait_until(lambda: arrivals.total < 2 * SIZE, "room")
        with front.connect() as sock:
            sock.sendall(UNFINISHED + b"\r\nconnection: close\r\n\r\n")
            (found,) = read_answers(read_all(sock))
            assert found.status == 200
        held.close()
        wait_until(lambda: not arrivals.total, "nothing to be held")


def test_bodies_are_bounded_while_their_sender_is_looked_up():
    """They count until it is known, and then for the actor."""
    known = threading.Event()
    with Front(limits=ROOM, token=TOKEN) as front, ExitStack() as held:
        callers = front.interface.listener.callers
        authenticate = callers.authenticate

        async def wait(authorization):
            while not known.is_set():  # noqa: ASYNC110 - another thread sets it
                await asyncio.sleep(0.005)
            return await authenticate(authorization)

        callers.authenticate = wait
        socks, arrivals = check_bounded(front, BODY, held)
        known.set()
        wait_until(lambda: not arrivals.total, "nothing to be held")
        for sock in socks:
            (found,) = read_answers(sock.recv(1 << 16))
            assert found.status == 401


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_counts_for_its_actor_once_it_is_known(chunked):
    """A request that is read by its application holds nothing here."""
    length = b"transfer-encoding: chunked" if chunked else b"content-length: 100000"
    first = b"%x\r\n" % (12 * SIZE) if chunked else b""
    with Front(limits=ROOM) as front, front.connect() as sock:
        sock.sendall(HEAD + length + b"\r\n\r\n" + first)
        arrivals, budget = arrivals_of(front), front.interface._budget
        for _ in range(10):
            sock.sendall(b" " * SIZE)
        wait_until(lambda: budget.total >= 10 * SIZE, "the body")
        wait_until(lambda: not arrivals.total, "nothing to be held")


def test_an_idle_connection_holds_nothing_of_its_last_request():
    """Neither the body that nobody read nor the block that it came in."""
    body = b" " * (128 << 10)
    with Front(token=TOKEN) as front, front.connect() as sock:
        sock.settimeout(PATIENCE)
        sock.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        (found,) = read_answers(sock.recv(1 << 16))
        assert found.status == 401
        (connection,) = front.connections
        wait_until(lambda: connection._stage.name == "NOTHING", "the end of the body")
        assert connection._exchange.waiting == 0
        assert connection._parser._data == b""


def test_addresses_share_what_there_is():
    """Each has its part, all together have more, and a Unix socket is no address."""
    budget = ArrivalBudget(10, 25)
    assert budget.change("a", 10)
    assert not budget.change("a", 1)
    budget.change("a", -1)
    assert budget.change("b", 10)
    assert budget.change("", 5)
    assert not budget.change("c", 1)
    budget.change("c", -1)
    budget.change("b", -10)
    assert budget.change("", 10)
    budget.change("", -15)
    budget.change("a", -10)
    assert (budget.total, budget._held) == (0, {})
