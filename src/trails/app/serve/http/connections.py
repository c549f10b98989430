"""One HTTP connection: reads requests, with limits on their size and time.

Requests are answered one after another: what a client sends ahead waits unread. An invalid request
is answered with an error, and then the connection ends, because it is no longer certain where the
next request begins. A connection that ends says so in its last answer, and is read for a while
longer: closing a socket while data arrives would take the answer away from the client. Timeouts are
checked once a second, by ``expire``, so they cost nothing for each request.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, cast

from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.utils import get_local_addr, get_remote_addr

from trails.app.serve.http.exchanges import (
    ENDED,
    CountingState,
    DirectExchange,
    Exchange,
    break_off,
)
from trails.app.serve.http.limits import ArrivalBudget, ClientLimits
from trails.app.serve.http.parser import END, BadRequestError, RequestHead, RequestParser
from trails.app.serve.http.responses import HEAD_KEY, Headers, write_refusal
from trails.app.serve.relay.links import Listener
from trails.app.serve.relay.owners import is_same_user
from trails.model.actors import LISTENER_KEY, Actor
from trails.model.replies import Taken

TakeWhole = Callable[[RequestHead, bytes, Listener], Taken | None]
"""Takes a request that has arrived whole, or leaves it to the ASGI application."""

_logger: Final = logging.getLogger("trails")
_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}
_AHEAD: Final = 8
"""Requests sent without waiting for answers after which a connection pauses, so that it does not
keep the event loop busy, for which threads that write would wait."""
_PAUSE: Final = 0.008
"""Seconds of such a pause."""
_UNCOUNTED: Final = 4 << 10
"""Smaller requests (in bytes) are not counted."""
_FULL: Final = (
    "The server holds as many bytes of requests from unknown senders as it can; try again in a "
    "while, and send less before the request is accepted."
)
_PREAMBLE: Final = 64 << 10
"""The longest first line of a connection to a Unix socket, in bytes."""


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


class Clock:
    """The time of the last tick, precise enough for checks once a second."""

    __slots__ = ("now",)

    def __init__(self, now: float) -> None:
        self.now = now


class BoundedProtocol(asyncio.Protocol):
    """One connection; on a Unix socket only of the same user, and beginning with a Preamble."""

    def __init__(
        self,
        app: ASGIApp,
        state: CountingState,
        limits: ClientLimits,
        listener: Listener | None,
        admit: Callable[[bytes], Listener | None],
        clock: Clock,
        arrivals: ArrivalBudget,
        take: TakeWhole | None = None,
    ) -> None:
        self._app = app
        self._take = take
        self._arrivals = arrivals
        self._held = 0
        """Bytes that are counted in ``_arrivals``."""
        self._ahead = 0
        """Requests answered since the last pause while others were waiting behind them."""
        self.server_state = state
        self._clock = clock
        self._limits = limits
        self._listener = listener
        self._admit = admit
        self._preamble = b""
        self._parser = RequestParser(limits, state.heads)
        self._shown: RequestHead | None = None
        self._scope: Scope = {}
        """The scope of the head that was shown last, without its headers."""
        self._exchange: Exchange | DirectExchange | None = None
        """The exchange of the last request."""
        self._stage = _NOTHING
        self._due = 0.0
        self._last_due = 0.0
        """When a connection that ends is closed at the latest."""
        self._dropped = 0
        self._unsent = 0
        self._stalled = 0.0
        self._condemned: Exchange | DirectExchange | None = None

    # --- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the connection; refuse another user."""
        self.transport = transport
        self.loop = asyncio.get_running_loop()  # asking each time would be a system call
        self.flow = FlowControl(transport)
        self._server, self._client = get_local_addr(transport), get_remote_addr(transport)
        self._address = "" if self._client is None else self._client[0]
        connections = cast(set[object], self.server_state.connections)
        connections.add(self)
        self._wait(_NOTHING, self._limits.head_seconds)
        sock: socket.socket = transport.get_extra_info("socket")
        if sock.family == socket.AF_UNIX and not is_same_user(sock):
            transport.abort()
        elif len(connections) > self._limits.connections:
            self._refuse(503, "busy", "Too many clients are connected; try again in a while.")
        elif self._listener is not None:
            self._enter(self._listener)

    def _enter(self, listener: Listener) -> None:
        self._listener = listener
        self._scheme = "https" if listener.policy.bind.tls else "http"

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the running request that the client is gone."""
        cast(set[object], self.server_state.connections).discard(self)
        self._arrivals.change(self._address, -self._held)
        self._held = 0
        if self._exchange is not None and not self._exchange.complete:
            self._exchange.lose()
        self._exchange = None
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()

    def pause_writing(self) -> None:
        """Wait until the client has read more."""
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        """Continue to send."""
        self.flow.resume_writing()

    def resume_reading(self) -> None:
        """Read more for an application that waits for its body."""
        if self._held:
            self._count_held()  # the application asks for a body when it knows whose it is
        if self._stage is not _PATIENCE or self._parser.backlog <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()

    def _arrive(self, data: bytes) -> bytes:
        """Read the Preamble of a connection to a Unix socket; returns the bytes after it."""
        self._preamble += data
        line, end, rest = self._preamble.partition(b"\n")
        listener = self._admit(line) if end else None
        if listener is not None:
            self._enter(listener)
            return rest
        if end or len(self._preamble) > _PREAMBLE:
            self._refuse(400, "bad_request", "This socket is for 'trails' commands only.")
        return b""

    def data_received(self, data: bytes) -> None:
        """Read data; after the last request it is dropped, and requests sent ahead wait."""
        if self._stage is _NOTHING and self._take_whole(data):
            return
        if self._stage is _END:
            self._drop(len(data))
            return
        if self._listener is None:
            data = self._arrive(data)
            if not data:
                return
        if self._stage is not _PATIENCE:
            self._parser.feed(data)
            self._read()
        elif self._exchange is not None and self._exchange.keep_alive:
            self._parser.feed(data)
            if self._parser.backlog > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
        else:
            self._dropped += len(data)
        exchange = self._exchange
        if (
            (self._held or self._parser.backlog or (exchange is not None and exchange.waiting))
            and not self._count_held()
            and (exchange is None or not exchange.is_taken)
        ):
            self._refuse(503, "busy", _FULL)

    def _take_whole(self, data: bytes) -> bool:
        """Have data answered without ASGI if it is a whole request, and the surface takes it."""
        if self._take is None or self._listener is None or self.flow.write_paused:
            return False
        found = self._parser.match(data)
        if found is None:
            return False
        try:
            taken = self._take(*found, self._listener)
        except Exception:
            _logger.exception("a request could not be taken", extra={"event": "request.failed"})
            return False
        if taken is None:
            return False
        self._stage = _PATIENCE
        self._exchange = exchange = DirectExchange(self, taken)
        exchange.begin(taken.answer)
        return True

    def _count_held(self) -> bool:
        """Count the bytes of unknown senders; returns whether they are within the limit."""
        exchange, held = self._exchange, self._parser.backlog
        if exchange is not None and not exchange.is_taken:
            held += exchange.waiting
        if held <= _UNCOUNTED:
            held = 0
        more, self._held = held - self._held, held
        return not more or self._arrivals.change(self._address, more) or more < 0

    def _drop(self, count: int) -> None:
        """Let the client finish sending for a limited time, so that it reads the answer."""
        self._dropped += count
        self._due = min(self._clock.now + self._limits.linger, self._last_due)
        if self._dropped > self._limits.linger_bytes:
            self.transport.abort()

    # --- one request

    def _read(self) -> None:
        """Read up to the end of one request, and have it answered."""
        try:
            self._read_events()
        except BadRequestError as error:
            self._refuse(error.status, error.code, error.message, error.more)
            return
        if self._stage is _NOTHING and self._parser.backlog:
            self._wait(_HEAD, self._limits.head_seconds)
        exchange = self._exchange
        if isinstance(exchange, Exchange) and not exchange.begun:
            exchange.begin(self._app)

    def _read_events(self) -> None:
        parser = self._parser
        while (event := parser.next()) is not None:
            if isinstance(event, RequestHead):
                self._exchange = Exchange(self, self._scope_of(event), event)
                self._wait(_BODY, self._limits.body_seconds)
                continue
            exchange = self._exchange
            assert isinstance(exchange, Exchange)  # noqa: S101 - its head came before
            if event is not END:
                self._due += len(event) / self._limits.body_rate
                if not exchange.complete and exchange.feed(event) > HIGH_WATER_LIMIT:
                    self.flow.pause_reading()
            elif not exchange.complete:
                exchange.feed_end()
                self._stage = _PATIENCE
                return
            else:
                self._wait(_NOTHING, self._limits.idle)

    def _scope_of(self, head: RequestHead) -> Scope:
        if head is not self._shown:
            self._shown, self._scope = head, self._make_scope(head)
        return {**self._scope, "headers": [*head.headers]}

    def _make_scope(self, head: RequestHead) -> Scope:
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": head.version,
            "method": head.method,
            "scheme": self._scheme,
            "path": head.path,
            "raw_path": head.raw_path,
            "query_string": head.query,
            "root_path": "",
            "server": self._server,
            "client": self._client,
            LISTENER_KEY: self._listener,
            HEAD_KEY: head,
        }

    def can_drain(self, unread: int | None) -> bool:
        """Whether the rest of an unwanted body is short enough to be read and dropped."""
        return unread is not None and unread <= self._limits.drain

    def on_response_complete(self) -> None:
        """Continue with the next request, or end."""
        exchange = self._exchange
        if exchange is None or self._stage is _END or self.transport.is_closing():
            return
        if not exchange.keep_alive:
            self._close()
            return
        self.flow.resume_reading()
        if self._stage is _PATIENCE:
            self._wait(_NOTHING, self._limits.idle)
            self._ahead = self._ahead + 1 if self._parser.backlog else 0
            if self._ahead == _AHEAD:
                self._ahead = 0
                self.loop.call_later(_PAUSE, self._read_ahead)
            elif self._ahead:
                self._read()
        if self._held or exchange.waiting:
            self._count_held()

    def _read_ahead(self) -> None:
        """Read the next request that was sent ahead, after a pause for other connections."""
        if self._stage is _NOTHING and not self.transport.is_closing():
            self._read()

    # --- its end

    def expire(self, now: float) -> None:
        """End a connection whose client is too slow to send or to read."""
        if self.flow.write_paused:
            self._expire_answer(now)
        elif self._stage is _PATIENCE or self.flow.read_paused:
            self._stalled = now
        elif now < self._due:
            return
        elif self._stage is _END and self.transport.can_write_eof():
            self.transport.abort()
        elif self._stage in {_NOTHING, _END} or self._is_draining:
            self.transport.close()
        else:
            self._refuse(408, "timeout", "The request did not arrive in time; send it again.")

    def served(self) -> Actor | None:
        """The actor whose body arrives, or whose answer is being made or sent."""
        running = self._exchange
        if running is None or (running.complete and not self.transport.get_write_buffer_size()):
            return None
        return running.actor

    def cut(self) -> None:
        """End it on the second call; the first gives it time to end in order."""
        running = self._exchange
        if running is None or self._condemned is not running:
            self._condemned = running
        elif running.started:
            break_off(self.transport)
        elif self._stage is not _END:
            running.lose()
            self.end(ENDED)

    def shutdown(self) -> None:
        """Finish the running request, and end."""
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

    def _refuse(self, status: int, code: str, message: str, more: Headers = ()) -> None:
        """Answer an invalid request; it is the last answer."""
        exchange, last = self._exchange, write_refusal(status, code, message, more)
        if exchange is not None and not exchange.complete:
            last = b"" if exchange.started else last
            exchange.lose()
        elif self._is_draining:
            last = b""
        self.end(last)

    @property
    def _is_draining(self) -> bool:
        """Whether the body of an answered request still arrives."""
        exchange = self._exchange
        return self._stage is _BODY and exchange is not None and exchange.complete

    def _close(self) -> None:
        """End after the last answer; immediately if the client has nothing more to send."""
        if self._stage is _PATIENCE and not self._dropped and not self._parser.backlog:
            self.transport.close()
        else:
            self.end(b"")

    def end(self, last: bytes) -> None:
        """Send the last bytes, and read for a while: closing at once might lose the answer."""
        if self.transport.is_closing():
            return
        if last:
            self.transport.write(last)
        self._parser.drop()
        self._count_held()
        self._wait(_END, self._limits.linger)
        self._last_due = self._clock.now + self._limits.linger_most
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
