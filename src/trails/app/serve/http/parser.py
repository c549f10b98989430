"""HTTP/1.1 requests out of a stream of bytes (RFC 9112), read strictly.

Where one request ends and the next begins is what a client, a proxy and this server must agree
on; an attacker who makes them disagree can smuggle a request into another client's connection. So
only one spelling of everything that frames a message is accepted, and anything else is refused with
``BadRequestError``, after which the parser can't be used: the connection has to end.

Pure: bytes in, a ``RequestHead``, parts of its body and ``END`` out, in order. What has a limit
is refused as soon as the limit is passed, not when all of it has come.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Literal
from urllib.parse import unquote

import msgspec

from trails.app.serve.http.limits import ClientLimits
from trails.app.serve.http.responses import AccessHeaders, Headers, Passage
from trails.model.caches import BoundedCache

_METHODS: Final = {
    each.encode(): each
    for each in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
}
_LINE: Final = re.compile(rb"([A-Z]+) ([!-~]+) HTTP/1\.([01])(?=\r\n)")
_BEGINNING: Final = re.compile(rb"[A-Z]{1,20}(?: [!-~]*|$)")
_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_TEXT: Final = rb"[^\x00-\x08\x0a-\x1f\x7f]*"
# Possessive, so that no text takes longer than its length.
_FIELD: Final = re.compile(rb"\r\n(%b+):[ \t]*+(%b+)(?=\r\n)" % (_TOKEN, _TEXT))
_PATH: Final = re.compile(rb"/[^#]*")
_TAB: Final = re.compile(
    rb"\r\n(?:host|content-length|transfer-encoding|expect):[^\r\t]*\t", re.IGNORECASE
)
_SCHEMES: Final = frozenset({b"http", b"https"})
_CLOSE: Final = re.compile(rb"(?:^|,)[ \t]*close[ \t]*(?:,|$)")
_CHUNK: Final = re.compile(
    rb"([0-9A-Fa-f]{1,16})(?:;%b(?:=%b)?)*" % (_TOKEN, _TOKEN)  # RFC 9112, 7.1.1
)
_KEPT: Final = 4 << 10
"""Bytes of a head that is kept for the next request."""
_HEADS: Final = 1024
"""Heads that are kept."""
_CHUNK_LINE: Final = 1 << 10
"""Bytes of the line that says how large a chunk is."""
_DIGITS: Final = 18
"""The most digits of a Content-Length."""
_SINGLE: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"expect"})
"""Headers that must not be repeated: one reader would take the first, another the last."""
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"connection", b"upgrade"})
"""Headers about the connection, which are not allowed after a body."""


class BadRequestError(Exception):
    """An invalid request, with its status and message."""

    def __init__(self, status: int, code: str, message: str, more: Headers = ()) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.more = more


class End(Enum):
    """What follows the last part of a body."""

    END = auto()


END: Final = End.END


class RequestHead(msgspec.Struct, gc=False):
    """The head of a request. Requests with the same bytes share it."""

    method: str
    raw_path: bytes
    path: str
    query: bytes
    version: Literal["1.0", "1.1"]
    headers: list[tuple[bytes, bytes]]
    """Names in lower case, values without surrounding white space."""
    length: int | None
    """Bytes of the body; None for one in chunks."""
    keep_alive: bool
    """Whether another request may follow on the connection."""
    expects: bool
    """Whether the client waits before it sends the body (``Expect: 100-continue``)."""
    access: AccessHeaders | None = None
    """What the headers say about access, once that was read."""
    passage: Passage | None = None
    """What the front has decided about it, once it was asked."""


class KnownHeads(BoundedCache[bytes, RequestHead]):
    """The heads that a server has read lately: most clients send the same ones again and again."""

    def __init__(self) -> None:
        super().__init__(_HEADS)


class RequestParser:
    """Reads the requests of one connection.

    ``next`` is called for what comes next; it returns None when more bytes are needed to know.
    """

    __slots__ = ("_at", "_data", "_known", "_left", "_limits", "_searched", "next")

    def __init__(self, limits: ClientLimits, known: KnownHeads) -> None:
        """``known`` is shared by the parsers of a server, which have the same limits."""
        self._limits = limits
        self._known = known
        self._data = b""
        self._at = 0
        """The position in the data."""
        self._searched = 0
        """The position up to which the end of a head was searched."""
        self._left = 0
        """Bytes that are missing from the body or chunk."""
        self.next: Callable[[], RequestHead | bytes | End | None] = self._read_head

    def match(self, data: bytes) -> tuple[RequestHead, bytes] | None:
        """A head and its body, if the data is all of a request whose head was read before.

        Only for a connection that waits for a request. None of the data is taken.
        """
        end = data.find(b"\r\n\r\n")
        head = self._known.get(data[: end + 2])
        if head is None or self._data or head.length != len(data) - end - 4:
            return None
        return head, data[end + 4 :]

    def feed(self, data: bytes) -> None:
        """Add bytes."""
        rest = self._data[self._at :]
        self._searched = max(self._searched - self._at, 0)
        self._data, self._at = rest + data if rest else data, 0

    def drop(self) -> None:
        """Drop unread bytes; nothing is read any more."""
        self._data, self._at = b"", 0

    @property
    def backlog(self) -> int:
        """The number of unread bytes."""
        return len(self._data) - self._at

    # --- heads

    def _read_head(self) -> RequestHead | None:
        # An empty line before a request is ignored (RFC 9112, 2.2).
        while self._data.startswith(b"\r\n", self._at):
            self._at += 2
        data, at = self._data, self._at
        end = data.find(b"\r\n\r\n", max(at, self._searched))
        if end < 0:
            self._searched = max(len(data) - 3, at)
            self._check_beginning(data, at)
            return None
        text = data[at : end + 2]
        head = self._known.get(text)
        if head is None:
            head = parse_head(text, self._limits)
            if len(text) <= _KEPT:
                self._known[text] = head
        self._at = end + 4
        if head.length is None:
            self.next = self._read_chunk
        else:
            self._left = head.length
            self.next = self._read_body
        return head

    def _check_beginning(self, data: bytes, at: int) -> None:
        """Refuse immediately what can't become a valid request, or is too large."""
        size, limits = len(data) - at, self._limits
        if size and data[at:] != b"\r" and not _BEGINNING.match(data, at, at + 24):
            raise _bad("This is not an HTTP/1.1 request.")
        if size <= min(limits.target, limits.line):
            return
        line = data.find(b"\r\n", at)
        if line < 0 and size > limits.target:
            raise _long_target()
        if (
            size > limits.target + limits.head
            or len(data) - data.rfind(b"\n", at) > limits.line + 2
        ):
            raise _large_head()

    # --- bodies

    def _read_body(self) -> bytes | End | None:
        """A part of a body whose length is known."""
        if not self._left:
            return self._end()
        return self._take()

    def _take(self) -> bytes | None:
        data, at = self._data, self._at
        size = len(data) - at
        if size <= self._left:
            self._left -= size
            self._data, self._at = b"", 0  # a connection that waits for more holds none of it
            return data[at:] if size else None
        self._at = end = at + self._left
        self._left = 0
        return data[at:end]

    def _end(self) -> End:
        self.next = self._read_head
        self._searched = 0
        return END

    def _read_chunk(self) -> bytes | End | None:
        """A part of a chunk, after the line that says how large the chunk is."""
        if not self._left:
            size = self._read_size()
            if size is None:
                return None
            if not size:
                self.next = self._read_trailers
                self._searched = 0
                return self._read_trailers()
            self._left = size
        part = self._take()
        if not self._left:
            self.next = self._read_chunk_end
        return part

    def _read_size(self) -> int | None:
        data, at = self._data, self._at
        end = data.find(b"\r\n", at, at + _CHUNK_LINE)
        if end < 0:
            if len(data) - at >= _CHUNK_LINE:
                raise _bad("Bad chunked body: the line with a chunk's size is too long.")
            return None
        found = _CHUNK.fullmatch(data, at, end)
        if found is None:
            raise _bad("Bad chunked body: a chunk must begin with its size in hexadecimal digits.")
        self._at = end + 2
        return int(found[1], 16)

    def _read_chunk_end(self) -> bytes | End | None:
        if self.backlog < 2:
            if self.backlog and self._data[self._at] != 13:
                raise _bad("Bad chunked body: a chunk is longer than its size says.")
            return None
        if not self._data.startswith(b"\r\n", self._at):
            raise _bad("Bad chunked body: a chunk is longer than its size says.")
        self._at += 2
        self.next = self._read_chunk
        return self._read_chunk()

    def _read_trailers(self) -> End | None:
        """Read the trailers; they are ignored, and must not frame anything."""
        data, at = self._data, self._at
        if data.startswith(b"\r\n", at):
            self._at = at + 2
            return self._end()
        end = data.find(b"\r\n\r\n", max(at, self._searched))
        if (len(data) if end < 0 else end) - at > self._limits.head:
            raise _large_head()
        if end < 0:
            self._searched = max(len(data) - 3, at)
            return None
        trailers = _parse_fields(b"\r\n" + data[at : end + 2], self._limits)
        if any(name in _FRAMING for name, _ in trailers):
            raise _bad("Bad trailer: a header that frames the request must come before the body.")
        self._at = end + 4
        return self._end()


def parse_head(data: bytes, limits: ClientLimits) -> RequestHead:
    """Read a head, from its first byte to the end of its last line."""
    line = _LINE.match(data)
    if line is None:
        raise _bad("Bad request line: it must be 'METHOD /path HTTP/1.1'.")
    method, target, minor = line.groups()
    if len(target) > limits.target:
        raise _long_target()
    headers = _parse_fields(data[line.end() :], limits)
    named = _METHODS.get(method)
    if named is None:
        raise _wrong_method(method)
    said = dict(headers)
    if len(said) != len(headers):
        _join_repeated(headers, said)
    is_newest = minor == b"1"
    if is_newest and b"host" not in said:
        raise _bad("A request must have one Host header.")
    if not _PATH.fullmatch(target):
        target = _path_of(target, said.get(b"host", b""))
    expects = False
    if b"expect" in said:
        if said[b"expect"].lower() != b"100-continue":
            raise BadRequestError(417, "bad_request", "Expect can only be '100-continue'.")
        expects = is_newest  # RFC 9110, 10.1.1
    kept = is_newest and (
        b"connection" not in said or not _CLOSE.search(said[b"connection"].lower())
    )
    raw_path, _, query = target.partition(b"?")
    path = raw_path.decode("ascii")
    return RequestHead(
        named,
        raw_path,
        unquote(path) if "%" in path else path,
        query,
        "1.1" if is_newest else "1.0",
        headers,
        _length_of(said, is_newest=is_newest),
        kept,
        expects,
    )


def _parse_fields(data: bytes, limits: ClientLimits) -> list[tuple[bytes, bytes]]:
    """Header lines, or those that follow a body in chunks, from the end of the line before them."""
    found: list[tuple[bytes, bytes]] = _FIELD.findall(data)
    if len(found) != data.count(b"\r\n") - 1:
        raise _bad("Bad header line: it must be 'name: value', on one line that ends with CR LF.")
    if len(found) > limits.lines or len(data) > limits.head:
        raise _large_head()
    if len(data) > limits.line and max(map(len, data.split(b"\r\n"))) > limits.line - 2:
        raise _large_head()
    if b"\t" in data and _TAB.search(data):
        raise _bad(
            "Bad header: Host, Content-Length, Transfer-Encoding and Expect must not contain a tab."
        )  # not every reader skips it
    if b" \r" in data or b"\t\r" in data:
        return [(name.lower(), value.rstrip(b" \t")) for name, value in found]
    return [(name.lower(), value) for name, value in found]


def _join_repeated(headers: list[tuple[bytes, bytes]], said: dict[bytes, bytes]) -> None:
    """Join repeated Connection headers, and refuse other repeated ones."""
    names = [name for name, _ in headers if name in _SINGLE]
    if len(names) != len(set(names)):
        twice = next(name for name in names if names.count(name) > 1)
        raise _bad(f"A request must have one {twice.decode().title()} header.")
    if b"connection" in said:
        values = [value for name, value in headers if name == b"connection"]
        said[b"connection"] = b",".join(values)


def _length_of(said: dict[bytes, bytes], *, is_newest: bool) -> int | None:
    """How long the body is; None for one in chunks."""
    if b"transfer-encoding" in said:
        if b"content-length" in said:
            raise _bad("Send either Content-Length or Transfer-Encoding, not both.")
        if not is_newest or said[b"transfer-encoding"].lower() != b"chunked":
            raise _bad("Transfer-Encoding can only be 'chunked', and only in HTTP/1.1.")
        return None
    length = said.get(b"content-length")
    if length is None:
        return 0
    if not length.isdigit() or len(length) > _DIGITS:
        raise _bad("Content-Length must be a number of bytes.")
    return int(length)


def _path_of(target: bytes, host: bytes) -> bytes:
    """The path in an absolute URL, which must have the host of the Host header."""
    scheme, _, rest = target.partition(b"://")
    authority = rest.partition(b"/")[0].partition(b"?")[0]
    path = rest[len(authority) :]
    is_named = authority and authority.lower() == host.lower()
    if scheme.lower() not in _SCHEMES or not is_named or not _PATH.fullmatch(path):
        raise _bad("The request target must be a path of this server.")
    return path


def _bad(message: str) -> BadRequestError:
    return BadRequestError(400, "bad_request", message)


def _wrong_method(method: bytes) -> BadRequestError:
    if method != b"CONNECT":
        return _bad("Unknown HTTP method.")
    allow = b", ".join(sorted(_METHODS))
    message = "Method CONNECT not allowed: this server is not a proxy."
    return BadRequestError(405, "not_allowed", message, [(b"allow", allow)])


def _long_target() -> BadRequestError:
    message = "The URL is too long; send long values in a body."
    return BadRequestError(414, "too_large", message)


def _large_head() -> BadRequestError:
    return BadRequestError(431, "too_large", "The headers are too many or too large; send fewer.")
