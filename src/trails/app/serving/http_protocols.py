"""One HTTP connection: how requests are read, with bounds on their size and their time.

What can't be read is answered with the form of every error, and then the connection ends:
where one request ends and the next begins is not certain any more. Requests that came before it
are answered first. Time is looked at once a second, by ``expire``, so that a request costs none.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Never, cast
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from trails.app.serving.entrances import Entrance
from trails.app.serving.http import ACTOR, ENTRANCE
from trails.app.serving.http_exchanges import Exchange
from trails.app.serving.limits import Limits
from trails.app.serving.responses import write_refusal
from trails.app.serving.socket_folders import is_same_user
from trails.app.serving.underway import ENDED, break_off
from trails.model.actors import Actor

_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}
_VERSIONS: Final = frozenset({"1.0", "1.1"})
_ARRIVAL: Final = 64 << 10
"""Bytes of the line with which a connection to a Unix socket begins."""


class _Stage(Enum):
    """What is expected of the client."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()
    PATIENCE = auto()
    END = auto()


_NOTHING: Final = _Stage.NOTHING
_HEAD: Final = _Stage.HEAD
_BODY: Final = _Stage.BODY
_PATIENCE: Final = _Stage.PATIENCE
_END: Final = _Stage.END
_READING: Final = frozenset({_HEAD, _BODY})
_CODING: Final = b"transfer-encoding"
_TOO_LARGE: Final = "the headers are too many or too large; send less"


class Clock:
    """The time as of the last tick: near enough for what is looked at once a second."""

    __slots__ = ("now",)

    def __init__(self, now: float) -> None:
        self.now = now


class BoundedProtocol(asyncio.Protocol):
    """A connection; on a Unix socket of the same user only, and begun by an Arrival there."""

    def __init__(
        self,
        app: ASGIApp,
        state: ServerState,
        limits: Limits,
        entrance: Entrance | None,
        admit: Callable[[bytes], Entrance | None],
        clock: Clock,
    ) -> None:
        self._app = app
        self.server_state = state
        self._clock = clock
        self._limits = limits
        self._entrance = entrance
        self._admit = admit
        self._arrival = b""
        self._parser = HttpRequestParser(self)
        # What follows the last request of a connection is not read, and is no fault of that one.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._take: Callable[[tuple[bytes, bytes]], None] = self._measure
        """What is done with a header."""
        self._exchange: Exchange | None = None
        """Of the request that was read last."""
        self._next: Exchange | None = None
        """The one that begins when what has come is read."""
        self._running: Exchange | None = None
        """The one that is being answered."""
        self._waiting: deque[Exchange] = deque()
        """Those that begin when the ones before them are answered."""
        self._stage = _NOTHING
        self._due = 0.0
        self._is_measured = False
        self._head = self._lines = 0
        self._blocks = 0
        """Bytes that were read without the beginning of a request or any of its body."""
        self._progress = 0
        self._refusal: bytes | None = None
        self._unsent = 0
        self._stalled = 0.0
        self._condemned: Exchange | None = None

    # --- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or refuse somebody else."""
        self.transport = transport
        self.loop = asyncio.get_running_loop()  # asking each time is a system call
        self.flow = FlowControl(transport)
        self._server, self._client = get_local_addr(transport), get_remote_addr(transport)
        connections = cast(set[object], self.server_state.connections)
        connections.add(self)
        self._wait(_NOTHING, self._limits.head_seconds)
        sock: socket.socket = transport.get_extra_info("socket")
        if sock.family == socket.AF_UNIX and not is_same_user(sock):
            transport.abort()
        elif len(connections) > self._limits.connections:
            self._object(503, "busy", "too many clients are connected; try again in a while")
        elif self._entrance is not None:
            self._enter(self._entrance)

    def _enter(self, entrance: Entrance) -> None:
        self._entrance = entrance
        self._scheme = "https" if entrance.policy.bind.tls else "http"

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever works on a request."""
        cast(set[object], self.server_state.connections).discard(self)
        if self._running is not None and not self._running.complete:
            self._running.lose()
        self._exchange = self._next = self._running = None
        self._waiting.clear()
        del self._parser, self._take  # which hold this
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()

    def pause_writing(self) -> None:
        """The client takes less than is sent."""
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        """The client has taken enough."""
        self.flow.resume_writing()

    def _arrive(self, data: bytes) -> bytes:
        """Take the first line of a connection to a Unix socket; what follows it."""
        self._arrival += data
        line, end, rest = self._arrival.partition(b"\n")
        entrance = self._admit(line) if end else None
        if entrance is not None:
            self._enter(entrance)
        elif end or len(self._arrival) > _ARRIVAL:
            self._object(400, "bad_request", "this socket is for 'trails' commands alone")
        return rest

    def data_received(self, data: bytes) -> None:
        """Read on; what follows something that could not be read is not."""
        if self._refusal is None and self._entrance is None:
            data = self._arrive(data)
        if self._refusal is not None or not data:
            return
        # A head that is within one small block is within all bounds but the number of lines.
        self._is_measured = len(data) > self._limits.line
        if self._stage is _HEAD:
            self._take = self._measure
        before = self._progress
        try:
            self._parser.feed_data(data)
        except HttpParserError:  # no better reason was found
            self._object(400, "bad_request", "this is not an HTTP request that can be read")
        except HttpParserUpgrade:
            pass  # nothing else is spoken here; the request is answered as it is
        begun, self._next = self._next, None
        if begun is not None and not begun.disconnected:
            self._begin(begun)
        if self._progress != before or self._stage not in _READING:
            self._blocks = 0
            return
        self._blocks += len(data)
        if self._blocks > self._limits.head:
            self._object(431, "too_large", _TOO_LARGE)

    # --- one request

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url = b""
        self._headers = []
        self._take = self._measure if self._is_measured else self._headers.append
        self._head = self._lines = 0
        self._progress += 1
        self._wait(_HEAD, self._limits.head_seconds)

    def on_url(self, url: bytes) -> None:
        """Take a part of what it is for."""
        self._url += url
        if len(self._url) > self._limits.target:
            self._refuse(414, "too_large", "the URL is too long; send what it says in a body")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one that follows a body counts, and says nothing."""
        self._take((name.lower(), value))

    def _measure(self, header: tuple[bytes, bytes]) -> None:
        """Take a header whose size may be too much."""
        limits, size = self._limits, len(header[0]) + len(header[1]) + 4
        if self._stage is _HEAD:
            self._headers.append(header)
        self._head += size
        self._lines += 1
        if size > limits.line or self._head > limits.head or self._lines > limits.lines:
            self._refuse(431, "too_large", _TOO_LARGE)

    def on_headers_complete(self) -> None:
        """Begin to answer, when what has come is read or those before are answered."""
        self._take = self._measure
        headers = self._headers
        if len(headers) > self._limits.lines:
            self._refuse(431, "too_large", _TOO_LARGE)
        said = dict(headers)
        parser, url = self._parser, self._url
        version = parser.get_http_version()
        if version != "1.1" or _CODING in said:
            self._check_coding(version)
        if b"#" in url or url[:1] != b"/":
            url = self._check_target(url)
        raw_path, _, query = url.partition(b"?")
        path = raw_path.decode("ascii")
        scope: Scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "scheme": self._scheme,
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "server": self._server,
            "client": self._client,
            ENTRANCE: self._entrance,
        }
        kept = version != "1.0" and parser.should_keep_alive()
        before = self._exchange
        expects = said.get(b"expect", b"").lower() == b"100-continue"
        self._exchange = made = Exchange(self, scope, keep_alive=kept, expects=expects)
        if before is None or before.complete:
            self._next = made
        else:
            self.flow.pause_reading()
            self._waiting.append(made)
        self._wait(_BODY, self._limits.body_seconds)

    def _begin(self, exchange: Exchange) -> None:
        self._running = exchange
        exchange.begin(self._app)

    def _check_coding(self, version: str) -> None:
        """Refuse what two readers might read differently."""
        if version not in _VERSIONS:
            self._refuse(400, "bad_request", "HTTP/1.1 is spoken here")
        codings = [value.lower() for name, value in self._headers if name == _CODING]
        if codings and (version == "1.0" or codings != [b"chunked"]):
            self._refuse(400, "bad_request", "the Transfer-Encoding can only be 'chunked'")

    def _check_target(self, url: bytes) -> bytes:
        """The target in a whole URL, which must name the host that the header names.

        What is for a proxy is refused.
        """
        rest = url.partition(b"://")[2]
        authority = rest.partition(b"/")[0].partition(b"?")[0]
        hosts = [value for name, value in self._headers if name == b"host"]
        named = b"#" not in url and [authority.lower()] == [host.lower() for host in hosts]
        target = rest[len(authority) :]
        if not authority or not named or not target.startswith(b"/"):
            self._refuse(400, "bad_request", "a request must be for a path of this server")
        return target

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._progress += 1
        exchange = self._exchange
        assert exchange is not None  # noqa: S101 - its head is complete
        if not exchange.complete and exchange.feed(body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        if self._stage is _BODY:
            self._due += len(body) / self._limits.body_rate

    def on_message_complete(self) -> None:
        """Have all of it."""
        exchange = self._exchange
        assert exchange is not None  # noqa: S101 - its head is complete
        if not exchange.complete:
            exchange.feed_end()
        if self._stage is not _END:
            self._wait(_NOTHING if exchange.complete else _PATIENCE, self._limits.idle)

    def on_response_complete(self) -> None:
        """Go on with the next request, if there is one."""
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self._waiting:
            self._begin(self._waiting.popleft())
        elif self._refusal is not None:
            self._end(self._refusal)
        elif self._stage is _BODY:
            self._end(b"")
        elif self._stage is _PATIENCE:
            self._wait(_NOTHING, self._limits.idle)

    # --- its end

    def expire(self, now: float) -> None:
        """Refuse a client that takes too long to send, or to take what it asked for."""
        if self.flow.write_paused:
            self._expire_answer(now)
        elif self._stage is _PATIENCE or self.flow.read_paused:
            self._stalled = now
        elif now < self._due:
            return
        elif self._stage is _NOTHING:
            self.transport.close()
        elif self._stage is _END:
            self.transport.abort()
        else:
            self._object(408, "timeout", "the request did not arrive in time; send it again")

    def served(self) -> Actor | None:
        """For whom a body arrives, an answer is made, or one was not taken yet."""
        running = self._running
        if running is None or (running.complete and not self.transport.get_write_buffer_size()):
            return None
        actor: Actor | None = running.scope.get(ACTOR)
        return actor

    def cut(self) -> None:
        """End that, unless this is the first time that it is asked for: it may end in order."""
        running = self._running
        if running is None or self._condemned is not running:
            self._condemned = running
        elif running.started:
            break_off(self.transport)
        elif self._stage is not _END:
            self._abandon(running)
            self._end(ENDED)

    def shutdown(self) -> None:
        """Finish what is being answered, and end."""
        exchange = self._exchange
        if self._stage is _END or exchange is None or exchange.complete:
            self.transport.close()
        else:
            exchange.keep_alive = False

    def _expire_answer(self, now: float) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent, self._stalled = unsent, now
        elif now - self._stalled > self._limits.stall:
            self.transport.abort()

    def _wait(self, stage: _Stage, seconds: float) -> None:
        self._stage = stage
        self._due = self._clock.now + seconds

    def _refuse(self, status: int, code: str, message: str) -> Never:
        """Stop reading, from within the parser."""
        self._object(status, code, message)
        raise ValueError(message)

    def _object(self, status: int, code: str, message: str) -> None:
        """Answer what can't be read; requests before it come first."""
        if self._refusal is not None:
            return
        self._refusal = write_refusal(status, code, message)
        exchange = self._exchange
        if exchange is None or exchange.complete:
            self._end(self._refusal)
        elif self._stage is not _BODY:
            pass  # its turn comes when the requests before it are answered
        elif self._waiting and self._waiting[-1] is exchange:
            self._waiting.pop()
        else:
            self._abandon(exchange)
            self._end(self._refusal)

    def _abandon(self, exchange: Exchange) -> None:
        """Tell whoever works on a request that its client is gone."""
        if exchange.started:
            self._refusal = b""
        exchange.lose()

    def _end(self, last: bytes) -> None:
        """Say the last, and read on for a while: closing at once might take the answer away."""
        if self.transport.is_closing():
            return
        self._refusal = last
        if last:
            self.transport.write(last)
        self._wait(_END, self._limits.linger)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()
