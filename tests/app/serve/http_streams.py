"""Streams of HTTP requests, good and bad, and three readers of them: h11, llhttp and ours.

A stream is made of a grammar that knows what confuses readers, and then spoilt. Every reader says
which requests it found and where each of them ended.
"""

from __future__ import annotations

import asyncio
import re
import socket
from typing import NamedTuple

import h11
import httptools

from trails.app.serve.http.connections import BoundedProtocol, Clock
from trails.app.serve.http.exchanges import CountingState
from trails.app.serve.http.hosts import HostPolicy
from trails.app.serve.http.limits import ArrivalBudget, ClientLimits
from trails.app.serve.relay.links import Listener
from trails.model.actors import LOCAL
from trails.request.authenticate import Authenticator


class Request(NamedTuple):
    """A request as a reader found it."""

    method: bytes
    target: bytes
    body: bytes
    end: int
    """Bytes of the stream up to its end."""


class Reading(NamedTuple):
    """What a reader made of a stream."""

    requests: list[Request]
    refused: bool
    """Whether it gave up."""


# --- streams

_METHODS = [b"GET", b"POST", b"POST", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH"]
_ODD_METHODS = [b"CONNECT", b"PRI", b"FOO", b"get", b"SOURCE", b"DESCRIBE", b"", b"G\tT", b"QUERY"]
_TARGETS = [b"/", b"/a", b"/a?b=c", b"/%2f", b"http://h/x"]
_ODD_TARGETS = [
    *(b"*", b"h:80", b"http://other/x", b"/a b", b"/a#b", b"/\xff", b"", b"/a\tb", b"//x", b"x"),
    *(b"http://h", b"http:///x", b"ftp://h/x", b"/\x0c", b"http://u@h/x", b"/?\xe4"),
]
_VERSIONS = [b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"http/1.1", b"RTSP/1.1", b"HTTP/1.1 ", b""]
_LENGTHS = [
    b"+%d",
    b"-%d",
    b"0x%x",
    b"%d, %d",
    b"%d,",
    b" %d ",
    b"\t%d",
    b"0%d",
    b"%d 1",
    b"%d\x0b",
    b"%d\t",
]
_CODINGS = [
    *(b"chunked", b"Chunked", b"chunked ", b"\tchunked", b"gzip", b"gzip, chunked", b"identity"),
    *(
        b"chunked, chunked",
        b"xchunked",
        b"chunked;a=b",
        b"\x0bchunked",
        b"",
        b"chunked,",
        b", chunked",
        b"chunked\t",
    ),
]
_CONNECTIONS = [
    *(b"close", b"Close", b"keep-alive", b"upgrade", b"Upgrade, HTTP2-Settings", b"close, upgrade"),
    *(b"keep-alive, close", b"x, close", b"closed", b"", b",,", b"upgrade,close", b"close\t"),
    *(b"close ", b"\tclose", b"close \t", b"close\t, x", b"x,close\t,y", b"close x", b"close,"),
]
_UPGRADES = [b"h2c", b"websocket", b"x", b"TLS/1.0", b""]
_EXPECTS = [b"100-continue", b"100-Continue", b"200-ok", b""]
_SMUGGLED = b"DELETE /smuggled HTTP/1.1\r\nhost: h\r\n\r\n"
_FIELDS = [
    *(b"x: y", b"x:", b"x : y", b" x: y", b"x: y\r\n z", b"x\x00: y", b"x: a\x00b", b"x: a\rb"),
    *(b"x: a\nb: c", b"x", b": y", b"x: \xff", b"x: a\x0bb", b"x: a\x7fb", b"host: other"),
    *(b"x: " + b"y" * 300, b"content-length : 3", b"transfer-encoding\x00: chunked"),
    *(b"proxy-connection: close", b"proxy-connection: upgrade", b"content-length: 3"),
    *(b"transfer-encoding: chunked", b"te: trailers", b"trailer: x", b"x: a  b\t", b"x\x0b: y"),
]
_EXTENSIONS = [
    b";a",
    b";a=b",
    b';a="b"',
    b" ;a",
    b"; a=b",
    b";a\nb",
    b";",
    b";a=",
    b" ",
    b"\t",
    b';a="\r"',
]
_TRAILERS = [
    *(b"x: y\r\n", b"x: y\r\nz: \r\n", b"content-length: 3\r\n", b"transfer-encoding: chunked\r\n"),
    *(
        b"connection: close\r\n",
        b"x : y\r\n",
        b" x: y\r\n",
        b"connection: upgrade\r\nupgrade: x\r\n",
    ),
    *(b"host: x\r\n", b"x: y\n", b"x\r\n"),
]
_PIECES = [
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\x00",
        b"\xff",
        b" ",
        b"\t",
        b":",
        b"\r\n\r\n",
        b"\r\n ",
        b"%",
        b"0",
    ),
    *(b"content-length: 9\r\n", b"transfer-encoding: chunked\r\n", b"0\r\n\r\n", b"5\r\nhello\r\n"),
    *(b"connection: upgrade\r\nupgrade: h2c\r\n", b"connection: close\r\n", b"HTTP/1.1", b"9" * 25),
    *(b"expect: 100-continue\r\n", b"host: h\r\n", b";", b",", b"f" * 17, b"GET ", _SMUGGLED),
]


def make_stream(rng):
    """Some requests one behind the other, as they should be or spoilt."""
    data = bytearray(b"".join(_make_request(rng) for _ in range(rng.choice((1, 1, 2, 2, 3, 5)))))
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 4))):
        _spoil(data, rng)
    return bytes(data)


def _spoil(data, rng):
    at = rng.randrange(len(data) + 1)
    kind = rng.randrange(5)
    if kind == 0:
        data[at:at] = rng.choice(_PIECES)
    elif kind == 1:
        data[at : at + rng.choice((1, 1, 2, 5, 30))] = b""
    elif kind == 2:
        data[at : at + 1] = bytes([rng.randrange(256)])
    elif kind == 3:
        start = rng.randrange(len(data) + 1)
        data[at:at] = data[start : start + rng.choice((1, 2, 10, 60))]
    else:
        data[at : at + rng.choice((1, 2, 4))] = rng.choice(_PIECES)


def _make_request(rng):
    """One request; most of them have at most one thing that is odd."""
    odd = rng.choice((None, None, *range(12)))
    body = rng.choice((b"", b"x", b"hello", _SMUGGLED, b"0\r\n\r\n", bytes(rng.randbytes(40))))
    method = rng.choice(_ODD_METHODS if odd == 0 else _METHODS)
    target = rng.choice(_ODD_TARGETS if odd == 1 else _TARGETS)
    version = rng.choice(_VERSIONS) if odd == 2 else b"HTTP/1.1"
    gap = rng.choice((b"  ", b"\t", b"")) if odd == 3 and rng.random() < 0.3 else b" "
    fields = [b"host: h"] if rng.random() < 0.98 else []
    if odd == 4:
        fields.append(rng.choice(_FIELDS))
    if odd == 5 or rng.random() < 0.1:
        fields += _make_upgrade(rng)
    if odd == 6:
        fields.append(b"connection: " + rng.choice(_CONNECTIONS))
    if odd == 7:
        fields.append(b"expect: " + rng.choice(_EXPECTS))
    framed = rng.random()
    if framed < 0.45:
        length = rng.choice(_LENGTHS) if odd == 8 else b"%d"
        size = len(body) + (rng.choice((-1, 1, 7)) if odd == 9 else 0)
        said = length % ((size,) * length.count(b"%"))
        fields.append(rng.choice((b"content-length", b"Content-Length")) + b": " + said)
    elif framed < 0.8:
        coding = rng.choice(_CODINGS) if odd == 10 else b"chunked"
        fields.append(b"transfer-encoding: " + coding)
        body = _make_chunks(body, rng, odd=odd == 11)
    elif rng.random() < 0.8:
        body = b""
    rng.shuffle(fields)
    line = method + gap + target + b" " + version
    before = rng.choice((b"\r\n", b"\n", b"\r", b"\r\n\r\n")) if rng.random() < 0.02 else b""
    return before + b"\r\n".join([line, *fields, b"", b""]) + body


def _make_upgrade(rng):
    """A wish to speak another protocol, as the JDK's client has it for every request."""
    wish = [b"connection: " + rng.choice(_CONNECTIONS), b"upgrade: " + rng.choice(_UPGRADES)]
    return wish if rng.random() < 0.9 else wish[:1]


def _make_chunks(body, rng, *, odd):
    parts = []
    while body:
        size = rng.randint(1, len(body))
        said = rng.choice((b"%x", b"%X", b"0%x")) % size
        if odd and rng.random() < 0.5:
            said = rng.choice((said + rng.choice(_EXTENSIONS), b"0x" + said, b"%x" % (size + 1)))
        parts.append(said + b"\r\n" + body[:size] + b"\r\n")
        body = body[size:]
    last = b"0" + (rng.choice(_EXTENSIONS) if odd and rng.random() < 0.3 else b"") + b"\r\n"
    trailers = rng.choice(_TRAILERS) if odd or rng.random() < 0.1 else b""
    return b"".join(parts) + last + trailers + b"\r\n"


def cut(data, rng):
    """A stream in blocks, as a network may deliver it."""
    kind = rng.randrange(8)
    if kind < 3 or len(data) < 2:
        return [data]
    if kind == 3:
        return [data[at : at + 1] for at in range(len(data))]
    at = sorted(rng.sample(range(1, len(data)), min(len(data) - 1, rng.choice((1, 1, 2, 5)))))
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]


# --- two readers of others

_EMPTY = re.compile(rb"(?:\r\n)*")
_WISH = re.compile(rb"(\n)upgrade(:)", re.IGNORECASE)


def read_h11(data):
    """What h11 finds; empty lines before a request are left out for it (RFC 9112, 2.2)."""
    found, at = [], 0
    while True:
        at = _EMPTY.match(data, at).end()
        if at == len(data):
            return Reading(found, refused=False)
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        connection.receive_data(data[at:])
        head, parts = None, []
        try:
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    return Reading(found, refused=False)
                if isinstance(event, h11.Request):
                    head = event
                elif isinstance(event, h11.Data):
                    parts.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    break
        except h11.RemoteProtocolError:
            return Reading(found, refused=True)
        at = len(data) - len(connection.trailing_data[0])
        found.append(Request(bytes(head.method), bytes(head.target), b"".join(parts), at))
        if _is_last(head):
            return Reading(found, refused=False)


def _is_last(head):
    """Whether a client says that it sends nothing after a request."""
    said = b",".join(value for name, value in head.headers if name == b"connection")
    return head.http_version < b"1.1" or b"close" in re.split(rb"[ \t]*,[ \t]*", said.lower())


class _Llhttp:
    """Takes down what llhttp finds."""

    def __init__(self):
        self.begin()
        self.parser = httptools.HttpRequestParser(self)
        self.done = False

    def begin(self):
        """Forget a request."""
        self.target, self.body = b"", b""

    on_message_begin = begin

    def on_url(self, part):
        """Take a part."""
        self.target += part

    def on_body(self, part):
        """Take a part."""
        self.body += part

    def on_message_complete(self):
        """Have all."""
        self.done = True


def read_llhttp(data, at=0):
    """The next request that llhttp finds, byte for byte; None if it needs more, or why not.

    It is not shown the wish for another protocol: httptools would skip the body of such a request.
    """
    reader = _Llhttp()
    end = data.find(b"\r\n\r\n", _EMPTY.match(data, at).end())
    if end >= 0:
        data = data[:at] + _WISH.sub(rb"\1xpgrade\2", data[at:end]) + data[end:]
    for end in range(at, len(data)):
        try:
            reader.parser.feed_data(data[end : end + 1])
        except httptools.HttpParserUpgrade:
            return "refused"  # a tunnel
        except httptools.HttpParserError:
            return "refused"
        if reader.done:
            method = reader.parser.get_method()
            return Request(method, reader.target, reader.body, end + 1)
    return None


def read_agreed(data):
    """What both find; whether one of them refused what follows, or they differ."""
    by_h11, found, at = read_h11(data), [], 0
    for request in by_h11.requests:
        other = read_llhttp(data, at)
        if other != request:
            return Reading(found, refused=other is not None)
        found.append(request)
        at = request.end
    other = read_llhttp(data, at)
    return Reading(found, refused=other == "refused" or (by_h11.refused and other is not None))


# --- our own

_STRICT_METHODS = frozenset(
    {b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE"}
)
_EXPECTATION = re.compile(rb"\r\nexpect:[ \t]*([^\r]*?)[ \t]*(?=\r\n)", re.IGNORECASE)
_HOST = re.compile(rb"\r\nhost:[ \t]*([^\r]*?)[ \t]*\r\n", re.IGNORECASE)
_TAB = re.compile(rb"\r\n(?:host|content-length|transfer-encoding|expect):[^\r]*\t", re.IGNORECASE)
_TRANSFER = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_CHUNK_LINE = re.compile(
    rb"[0-9a-fA-F]{1,16}(?:;[^]:;,=\"()<>@/?{}\\\\[\\s]+(?:=[^]:;,=\"()<>@/?{}\\\\[\\s]+)?)*"
)


def _has_odd_chunks(body):
    """Whether a body in chunks has a line that we read in no way, or a trailer that frames."""
    while True:
        line, _, body = body.partition(b"\r\n")
        if not _CHUNK_LINE.fullmatch(line):
            return True
        size = int(re.match(rb"[0-9a-fA-F]+", line)[0], 16)
        if not size:
            names = [each.partition(b":")[0].lower() for each in body.split(b"\r\n")]
            return bool(
                {b"content-length", b"transfer-encoding", b"connection", b"upgrade"} & {*names}
            )
        body = body[size + 2 :]


def is_refused(request, data, start):
    """Whether we refuse a request that others read; each rule is one that the parser states."""
    text = data[start : request.end].lstrip(b"\r\n")
    head, _, rest = text.partition(b"\r\n\r\n")
    head += b"\r\n"
    expects = _EXPECTATION.findall(head)
    host = _HOST.search(head)
    chunked = _TRANSFER.search(head) is not None
    return (
        request.method not in _STRICT_METHODS
        or path_of(request.target, host[1] if host else b"") is None
        or not re.match(rb"\S+ \S+ HTTP/1\.[01]\r\n", head)
        or len(expects) > 1
        or _TAB.search(head)
        or (expects and expects[0].lower() != b"100-continue")
        or (chunked and re.match(rb"\S+ \S+ HTTP/1\.0\r\n", head) is not None)
        or (chunked and _has_odd_chunks(rest))
    )


def path_of(target, host=None):
    """The path and query in a target; None where it is not of this server, if that is asked.

    An application can't tell an empty query from none.
    """
    if target.endswith(b"?") and target.count(b"?") == 1:
        target = target[:-1]
    if target.startswith(b"/"):
        return None if b"#" in target else target
    found = re.fullmatch(rb"(?i:https?)://([^/?]+)(/[^#]*)", target)
    is_ours = found and (host is None or host.lower() == found[1].lower())
    return found[2] if is_ours else None


class FakeTransport(asyncio.Transport):
    """A connection that keeps what is written, and delivers when it is not paused."""

    def __init__(self, sock):
        super().__init__({"socket": sock})
        self.written = bytearray()
        self.paused = False
        self.ended = False

    def write(self, data):
        """Keep."""
        assert not self.ended or not data
        self.written += data

    def write_eof(self):
        """Nothing more is written."""
        self.ended = True

    def can_write_eof(self):
        """It can be half closed."""
        return True

    def close(self):
        """It ends."""
        self.ended = True

    abort = close

    def is_closing(self):
        """Whether it was closed."""
        return self.ended

    def pause_reading(self):
        """Deliver nothing."""
        self.paused = True

    def resume_reading(self):
        """Deliver again."""
        self.paused = False

    def get_write_buffer_size(self):
        """All is taken at once."""
        return 0


class Ours:
    """Our connections, one after the other, on a transport that is none."""

    def __init__(self, limits=None):
        self._sock = socket.socket()
        self._listener = Listener(HostPolicy.for_bind("127.0.0.1"), Authenticator(LOCAL))
        self._limits = limits or ClientLimits()
        self.found: list[Request] = []
        self.begun: list[tuple[bytes, bytes]] = []
        self.read = 0
        self.transport = FakeTransport(self._sock)

    def connect(self, app=None):
        """A connection."""
        self.found, self.begun, self.read = [], [], 0
        self.transport = FakeTransport(self._sock)
        protocol = BoundedProtocol(
            app or self._app,
            CountingState(),
            self._limits,
            self._listener,
            lambda _: None,
            Clock(0.0),
            ArrivalBudget(self._limits.unknown, self._limits.unknown_in_all),
        )
        protocol.connection_made(self.transport)
        return protocol

    def close(self):
        """Let go."""
        self._sock.close()

    async def _app(self, scope, receive, send):
        """Read a request to its end, take it down, and answer it."""
        target = scope["raw_path"] + (
            b"?" + scope["query_string"] if scope["query_string"] else b""
        )
        parts, more = [], True
        self.begun.append((scope["method"].encode(), target))
        while more and not self.hasty:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            parts.append(message["body"])
            more = message["more_body"]
        if not self.hasty:
            found = Request(scope["method"].encode(), target, b"".join(parts), self.read)
            self.found.append(found)
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
        )
        await send({"type": "http.response.body", "body": b""})

    hasty = False
    """Whether requests are answered before their bodies are read."""

    async def read_stream(self, blocks, *, hasty=False):
        """Which requests are executed; whether the connection was ended."""
        self.hasty = hasty
        protocol = self.connect()
        for block in blocks:
            self.read += len(block)
            protocol.data_received(block)
            await self._settle()
            assert not self.transport.paused, "nobody will ever read on"
        ended = self.transport.ended
        protocol.connection_lost(None)
        await self._settle()
        return Reading(self.found, refused=ended)

    async def _settle(self):
        """Let what was begun end."""
        while True:
            before = len(self.begun), len(self.transport.written)
            for _ in range(3):
                await asyncio.sleep(0)
            if (len(self.begun), len(self.transport.written)) == before:
                return
