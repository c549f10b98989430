"""Requests that two readers might read differently are not read at all."""

from __future__ import annotations

import pytest
from tests.app.serve.http.fronts import Front, read_all, read_answers

from trails.app.serve.http.limits import ClientLimits

HEAD = b"POST /graphs/main/query HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"

UNREADABLE = {
    "length and coding": HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding and length": HEAD + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\nxx",
    "one length twice": HEAD + b"content-length: 1\r\ncontent-length: 1\r\n\r\nx",
    "a list of lengths": HEAD + b"content-length: 1, 1\r\n\r\nx",
    "a length with a sign": HEAD + b"content-length: +1\r\n\r\nx",
    "a negative length": HEAD + b"content-length: -1\r\n\r\nx",
    "a hexadecimal length": HEAD + b"content-length: 0x1\r\n\r\nx",
    "an endless length": HEAD + b"content-length: " + b"9" * 30 + b"\r\n\r\nx",
    "an empty length": HEAD + b"content-length: \r\n\r\nx",
    "a length with a gap": HEAD + b"content-length: 1 1\r\n\r\nx",
    "gzip": HEAD + b"transfer-encoding: gzip\r\n\r\nx",
    "chunked, then gzip": HEAD + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "gzip, then chunked": HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": HEAD + b"transfer-encoding: chunked\r\n" * 2 + b"\r\n0\r\n\r\n",
    "identity": HEAD + b"transfer-encoding: identity\r\n\r\n",
    "xchunked": HEAD + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a vertical tab": HEAD + b"transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "space before the colon": HEAD + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    "chunks in 1.0": CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n",
    "a folded line": GET + b"x-a: b\r\n c\r\n\r\n",
    "a folded coding": HEAD + b"transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a folded host": b"GET /healthz HTTP/1.1\r\nhost:\r\n localhost\r\n\r\n",
    "a line that begins with space": b"GET /healthz HTTP/1.1\r\n host: localhost\r\n\r\n",
    "line feeds alone": b"GET /healthz HTTP/1.1\nhost: localhost\n\n",
    "one line feed alone": GET.removesuffix(b"\r\n") + b"\nx: y\r\n\r\n",
    "a carriage return alone": GET.removesuffix(b"\r\n") + b"\rx: y\r\n\r\n",
    "a zero byte": GET + b"x: a\x00b\r\n\r\n",
    "a control character": GET + b"x: a\x01b\r\n\r\n",
    "a name with a gap": GET + b"x y: a\r\n\r\n",
    "no name": GET + b": a\r\n\r\n",
    "no colon": GET + b"xyz\r\n\r\n",
    "a chunk of no size": CHUNKED + b"zz\r\nx\r\n0\r\n\r\n",
    "a chunk of a negative size": CHUNKED + b"-1\r\nx\r\n0\r\n\r\n",
    "a chunk with a prefix": CHUNKED + b"0x1\r\nx\r\n0\r\n\r\n",
    "a chunk that is longer": CHUNKED + b"1\r\nxyz\r\n0\r\n\r\n",
    "a chunk that overflows": CHUNKED + b"1" + b"0" * 16 + b"\r\nx\r\n0\r\n\r\n",
    "a chunk and a line feed": CHUNKED + b"1\nx\r\n0\r\n\r\n",
    "an extension and a line feed": CHUNKED + b"1;a\nb\r\nx\r\n0\r\n\r\n",
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/2.0 in words": GET.replace(b"1.1", b"2.0") + b"\r\n",
    "HTTP/1.2": GET.replace(b"1.1", b"1.2") + b"\r\n",
    "another host in the target": GET.replace(b"/healthz", b"http://evil.example/healthz")
    + b"\r\n",
    "a user in the target": GET.replace(b"/healthz", b"http://u:p@localhost/healthz") + b"\r\n",
    "no path in the target": GET.replace(b"/healthz", b"http://localhost") + b"\r\n",
    "a target without a host": GET.replace(b"/healthz", b"http:///healthz") + b"\r\n",
    "a fragment": GET.replace(b"/healthz", b"/healthz#x") + b"\r\n",
    "a star": GET.replace(b"GET /healthz", b"OPTIONS *") + b"\r\n",
    "another protocol's name": GET.replace(b"HTTP/1.1", b"RTSP/1.1") + b"\r\n",
    "another scheme": GET.replace(b"/healthz", b"ftp://localhost/healthz") + b"\r\n",
    "two gaps": GET.replace(b"GET /", b"GET  /") + b"\r\n",
    "no host": GET.replace(b"host", b"x") + b"\r\n",
    "two hosts": GET + b"host: localhost\r\n\r\n",
    "two expectations": GET + b"expect: 100-continue\r\n" * 2 + b"\r\n",
    "a tab behind a length": HEAD + b"content-length: 1\t\r\n\r\nx",
    "a tab behind a coding": HEAD + b"transfer-encoding: chunked\t\r\n\r\n0\r\n\r\n",
    "an extension with a quote": CHUNKED + b'1;a="b"\r\nx\r\n0\r\n\r\n',
    "an extension without a name": CHUNKED + b"1;\r\nx\r\n0\r\n\r\n",
    "an extension without end": CHUNKED + b"1;" + b"a" * 2000 + b"\r\nx\r\n0\r\n\r\n",
    "a gap behind a chunk's size": CHUNKED + b"1 \r\nx\r\n0\r\n\r\n",
    "a length after the body": CHUNKED + b"0\r\ncontent-length: 5\r\n\r\n",
    "a coding after the body": CHUNKED + b"0\r\ntransfer-encoding: chunked\r\n\r\n",
    "a wish after the body": CHUNKED + b"0\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    "a line feed after the body": CHUNKED + b"0\r\nx: y\n\r\n",
    "bytes in the target": GET.replace(b"/healthz", b"/\xff") + b"\r\n",
    "a gap in the target": GET.replace(b"/healthz", b"/health z") + b"\r\n",
    "an unknown method": GET.replace(b"GET", b"FOO") + b"\r\n",
    "a method in small letters": GET.replace(b"GET", b"get") + b"\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + b"\0" * 50,
    "a Preamble": b'{"operator":"the-owners-key"}\n' + GET + b"\r\n",
    "nonsense": b"\x00\xff" * 100,
}


@pytest.fixture(scope="module")
def front():
    """A front that is not patient."""
    with Front(
        limits=ClientLimits(idle=2.0, head_seconds=5.0, body_seconds=5.0, linger=0.2)
    ) as front:
        yield front


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_request_in_doubt_is_refused(front, what):
    """With 400, in the form of every error; what follows on the connection is not read."""
    (found,) = front.send(UNREADABLE[what] + GET + b"\r\n")
    assert (found.status, found.code) == (400, "bad_request")
    assert found.header("connection") == "close"
    assert found.header("x-content-type-options") == "nosniff"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost:80\r\n\r\n", 405),
        (b"CONNECT / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n", 405),
        (GET + b"expect: a-miracle\r\n\r\n", 417),
    ],
)
def test_what_is_not_offered_is_refused_and_ends_the_connection(front, head, status):
    """A tunnel, or an expectation that nobody meets: what follows is not read."""
    (found,) = front.send(head + GET + b"\r\n")
    assert (found.status, found.header("connection")) == (status, "close")
    assert (found.header("allow") is not None) == (status == 405)


def test_extensions_of_chunks_say_nothing(front):
    """They are left out, as RFC 9112 asks."""
    more = b"\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    (found,) = front.send(CHUNKED.replace(b"\r\n\r\n", more) + b"2;a;b=c\r\n{}\r\n0;d\r\n\r\n")
    assert found.status == 422


def test_a_whole_url_is_a_target_if_it_names_the_host(front):
    """As RFC 9112 asks of a server; case does not count."""
    whole = GET.replace(b"/healthz", b"http://LOCALHOST/healthz")
    assert [each.status for each in front.send(whole + b"\r\n")] == [200]


def test_trailers_say_nothing(front):
    """Neither a Host nor a credential nor an Origin comes after a body."""
    late = b"host: evil.example\r\nauthorization: Bearer x\r\norigin: https://evil.example\r\n"
    head = CHUNKED.replace(b"\r\n\r\n", b"\r\ncontent-type: application/json\r\n\r\n")
    (plain,) = front.send(head + b"2\r\n{}\r\n0\r\n\r\n")
    (trailed,) = front.send(head + b"2\r\n{}\r\n0\r\n" + late + b"\r\n")
    assert plain.status == 422
    assert (trailed.status, trailed.body) == (plain.status, plain.body)


def test_requests_before_a_bad_one_are_answered_first(front):
    """In order; the bad one is the last."""
    found = front.send((GET + b"\r\n") * 3 + b"garbage\r\n\r\n" + GET + b"\r\n")
    assert [each.status for each in found] == [200, 200, 200, 400]
    slow = HEAD + b"content-length: 2\r\ncontent-type: application/json\r\n\r\n{}"
    assert [each.status for each in front.send(slow + UNREADABLE["two lengths"])] == [422, 400]
    assert [each.status for each in front.send(slow * 2 + UNREADABLE["a chunk of no size"])] == [
        422,
        422,
        400,
    ]


def test_a_body_that_is_not_asked_for_is_no_request(front):
    """An answer that comes before the body's end is the last on its connection."""
    inside = GET + b"\r\n"
    head = (
        b"POST /graphs/main/query HTTP/1.1\r\nhost: evil.example\r\ncontent-length: 1000000\r\n\r\n"
    )
    with front.connect() as sock:
        sock.sendall(head)
        first = sock.recv(1 << 16)
        assert first.startswith(b"HTTP/1.1 403 ")
        sock.sendall(inside)
        assert len(read_answers(first + read_all(sock))) == 1
