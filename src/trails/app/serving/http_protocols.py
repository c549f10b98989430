"""One HTTP connection: uvicorn's, with bounds on what a client may send and how long it may take.

What can't be read is answered with the form of every error, and then the connection ends:
where one request ends and the next begins is not certain any more. Requests that came before it
are answered first. Time is looked at once a second, by ``expire``, so that a request costs none.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Never

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from trails.app.serving.entrances import Entrance
from trails.app.serving.http import ENTRANCE
from trails.app.serving.limits import Limits
from trails.app.serving.responses import write_refusal
from trails.app.serving.socket_folders import is_same_user

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


_HEAD: Final = _Stage.HEAD
_BODY: Final = _Stage.BODY
_READING: Final = frozenset({_HEAD, _BODY})
_CODING: Final = b"transfer-encoding"


class Clock:
    """The time as of the last tick: near enough for what is looked at once a second."""

    __slots__ = ("now",)

    def __init__(self, now: float) -> None:
        self.now = now


class BoundedProtocol(HttpToolsProtocol):
    """A connection; on a Unix socket of the same user only, and begun by an Arrival there."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        limits: Limits,
        entrance: Entrance | None,
        admit: Callable[[bytes], Entrance | None],
        clock: Clock,
    ) -> None:
        super().__init__(config, state, {})
        self._clock = clock
        self._limits = limits
        self._longest, self._largest, self._most = limits.line, limits.head, limits.lines
        self._entrance = entrance
        self._admit = admit
        self._arrival = b""
        self._stage = _Stage.NOTHING
        self._due = 0.0
        self._head = self._lines = 0
        self._blocks = 0
        """Bytes that were read without the beginning of a request or any of its body."""
        self._progress = 0
        self._refusal: bytes | None = None
        self._unsent = 0
        self._stalled = 0.0

    # --- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or refuse somebody else."""
        super().connection_made(transport)
        self._wait(_Stage.NOTHING, self._limits.head_seconds)
        sock: socket.socket = transport.get_extra_info("socket")
        if sock.family == socket.AF_UNIX and not is_same_user(sock):
            transport.abort()
        elif len(self.connections) > self._limits.connections:
            self._object(503, "busy", "too many clients are connected; try again in a while")
        elif self._entrance is not None:
            self._enter(self._entrance)

    def _enter(self, entrance: Entrance) -> None:
        self._entrance = entrance
        self.app_state = {ENTRANCE: entrance}
        if entrance.policy.bind.tls:
            self.scheme = "https"

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
        if self._refusal is not None or not data or self.parser is None:
            return
        before = self._progress
        super().data_received(data)
        if self._progress != before or self._stage not in _READING:
            self._blocks = 0
            return
        self._blocks += len(data)
        if self._blocks > self._limits.head:
            self._object(431, "too_large", "the headers are too large")

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - ours says what to do
        """Refuse what is not HTTP, if no better reason was found."""
        self._object(400, "bad_request", "this is not an HTTP request that can be read")

    # --- one request

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._head = self._lines = 0
        self._progress += 1
        self._wait(_HEAD, self._limits.head_seconds)

    def on_url(self, url: bytes) -> None:
        """Take a part of what it is for."""
        super().on_url(url)
        if len(self.url) > self._limits.target:
            self._refuse(414, "too_large", "the URL is too long; send what it says in a body")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one that follows a body counts, and says nothing."""
        size = len(name) + len(value) + 4
        self._head = head = self._head + size
        self._lines = lines = self._lines + 1
        if size > self._longest or head > self._largest or lines > self._most:
            self._refuse(431, "too_large", "the headers are too many or too large; send less")
        if self._stage is _HEAD:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._check_head()
        super().on_headers_complete()
        self._wait(_BODY, self._limits.body_seconds)

    def _check_head(self) -> None:
        """Refuse what two readers might read differently."""
        version = self.parser.get_http_version()
        if version not in _VERSIONS:
            self._refuse(400, "bad_request", "HTTP/1.1 is spoken here")
        codings = [value.lower() for name, value in self.headers if name == _CODING]
        if codings and (version == "1.0" or codings != [b"chunked"]):
            self._refuse(400, "bad_request", "the Transfer-Encoding can only be 'chunked'")
        if b"#" in self.url or not self.url.startswith(b"/"):
            self._check_target()

    def _check_target(self) -> None:
        """Refuse what is for a proxy; a whole URL must name the host that the header names."""
        authority = self.url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]
        hosts = [value for name, value in self.headers if name == b"host"]
        named = b"#" not in self.url and [authority.lower()] == [host.lower() for host in hosts]
        if not authority or not named:
            self._refuse(400, "bad_request", "a request must be for a path of this server")

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        super().on_body(body)
        self._progress += 1
        if self._stage is _BODY:
            self._due += len(body) / self._limits.body_rate

    def on_message_complete(self) -> None:
        """Have all of it."""
        super().on_message_complete()
        if self._stage is not _Stage.END:
            answered = self.cycle.response_complete
            self._wait(_Stage.NOTHING if answered else _Stage.PATIENCE, self._limits.idle)

    def on_response_complete(self) -> None:
        """Go on with the next request, if there is one."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self._refusal is not None:
            self._end(self._refusal)
        elif self._stage is _Stage.BODY:
            self._end(b"")
        elif self._stage is _Stage.PATIENCE:
            self._wait(_Stage.NOTHING, self._limits.idle)

    # --- its end

    def expire(self, now: float) -> None:
        """Refuse a client that takes too long to send, or to take what it asked for."""
        if self.flow.write_paused:
            self._expire_answer(now)
        elif self._stage is _Stage.PATIENCE or self.flow.read_paused:
            self._stalled = now
        elif now < self._due:
            return
        elif self._stage is _Stage.NOTHING:
            self.transport.close()
        elif self._stage is _Stage.END:
            self.transport.abort()
        else:
            self._object(408, "timeout", "the request did not arrive in time; send it again")

    def shutdown(self) -> None:
        """Finish what is being answered, and end."""
        if self._stage is _Stage.END:
            self.transport.close()
        else:
            super().shutdown()

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
        cycle: RequestResponseCycle | None = self.cycle
        if self._stage is _Stage.BODY and cycle is not None and not cycle.response_complete:
            if self.pipeline and self.pipeline[0][0] is cycle:
                self.pipeline.popleft()
                return
            self._abandon(cycle)
        elif cycle is not None and not cycle.response_complete:
            return
        self._end(self._refusal)

    def _abandon(self, cycle: RequestResponseCycle) -> None:
        """Tell whoever works on a request that its client is gone."""
        if cycle.response_started:
            self._refusal = b""
        cycle.disconnected = True
        cycle.message_event.set()

    def _end(self, last: bytes) -> None:
        """Say the last, and read on for a while: closing at once might take the answer away."""
        if self.transport.is_closing():
            return
        self._refusal = last
        if last:
            self.transport.write(last)
        self._wait(_Stage.END, self._limits.linger)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()
