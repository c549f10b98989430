"""Bytes that nobody should send: the front answers or hangs up, and goes on."""

from __future__ import annotations

import socket
from contextlib import suppress
from random import Random

import pytest
from tests.app.serve.http.fronts import KEY, Front, read_answers
from tests.app.serve.http.test_front_hosts import GARBAGE
from tests.app.serve.http.test_front_shapes import UNREADABLE
from tests.campaigns import sized

from trails.app.serve.http.limits import ClientLimits
from trails.app.serve.relay.links import Preamble

TOKEN = "canary-fuzz-02"
BEARER = b"authorization: Bearer %b\r\n" % TOKEN.encode()
CHUNKED = b"transfer-encoding: chunked\r\ncontent-type: application/json\r\n"
PREFLIGHT = b"origin: http://localhost\r\naccess-control-request-method: GET\r\n"
GOOD = [
    b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"GET /graphs HTTP/1.1\r\nhost: localhost\r\n%b\r\n" % BEARER,
    b"POST /graphs/main/query HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}",
    b"POST /graphs/main/mcp HTTP/1.1\r\nhost: localhost\r\n%b%b\r\n2\r\n{}\r\n0\r\n\r\n"
    % (BEARER, CHUNKED),
    b"OPTIONS /graphs HTTP/1.1\r\nhost: localhost\r\n%b\r\n" % PREFLIGHT,
    b"HEAD /healthz HTTP/1.0\r\nhost: [::1]\r\n\r\n",
]
PIECES = [
    *(b"\r\n", b"\n", b"\r", b"\x00", b"\xff", b" ", b"\t", b":", b"\r\n\r\n", b"\r\n ", b"%"),
    *(b"host: evil\r\n", b"content-length: 9\r\n", b"transfer-encoding: chunked\r\n", b"0\r\n\r\n"),
    *(
        b"connection: upgrade\r\nupgrade: h2c\r\n",
        b"expect: 100-continue\r\n",
        b"HTTP/1.1",
        b"9" * 40,
    ),
    *(
        b"a" * 20_000,
        b"x: y\r\n" * 200,
        b"GET ",
        b"POST ",
        b"http://",
        b"#",
        b"?",
        b"[",
        b"]",
        b"@",
    ),
]


def shoot(rng):
    """One stream of bytes: good requests and bad ones, cut, repeated, spoilt."""
    parts = [
        rng.choice((*GOOD, *GOOD, rng.choice([*UNREADABLE.values()])))
        for _ in range(rng.choice((1, 1, 2, 4)))
    ]
    data = bytearray(b"".join(parts))
    if rng.random() < 0.3:
        odd = rng.choice(GARBAGE).encode("latin-1", "replace")
        data = data.replace(b"localhost", odd, 1)
    for _ in range(rng.choice((0, 1, 1, 3, 8))):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.choice((0, 0, 1, 5))] = rng.choice(PIECES)
    return bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.2 else data)


def converse(front, rng):
    """Send a stream, whole or in pieces, and read what comes until it ends."""
    data, unix = shoot(rng), rng.random() < 0.3
    if unix:
        first = rng.choice((Preamble(), Preamble(operator=KEY), Preamble(operator="wrong"))).line()
        data = first + data if rng.random() < 0.8 else data
    got = bytearray()
    with front.connect(unix=unix) as sock, suppress(BrokenPipeError, ConnectionResetError):
        step = rng.choice((len(data), len(data), 1 + len(data) // 3))
        for at in range(0, len(data), step or 1):
            sock.sendall(data[at : at + step])
        with suppress(OSError):  # the other side has gone already
            sock.shutdown(socket.SHUT_WR)
        while block := sock.recv(1 << 16):
            got += block
    return data, bytes(got)


def campaign(seed, shots):
    """Shoot; whatever is answered is HTTP, and no fault of the server."""
    rng = Random(seed)
    limits = ClientLimits(idle=1.0, head_seconds=1.0, body_seconds=1.0, linger=0.2, connections=200)
    with Front(token=TOKEN, limits=limits) as front:
        for _ in range(shots):
            data, got = converse(front, rng)
            if b"HEAD " in data:  # its answers have a length and no body
                assert b"HTTP/1.1 5" not in got
                continue
            with suppress(ValueError):  # the last one may be cut off with its connection
                for answer in read_answers(got):
                    assert answer.status < 500, (data, answer)
                    assert TOKEN.encode() not in answer.body
                    assert KEY.encode() not in answer.body
        assert front.get("/healthz").status == 200


def test_a_few_hundred_streams_of_nonsense_change_nothing():
    """No answer is a server error, none takes for ever, and the next request is answered."""
    campaign(1, 400)


@pytest.mark.long(cases=5000)
@pytest.mark.parametrize("seed", range(sized(20, nightly=2)))
def test_many_thousand_streams_of_nonsense_change_nothing(seed):
    """The same, for long."""
    campaign(1000 + seed, 5000)
