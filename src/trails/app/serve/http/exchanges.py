"""One request and its answer: what an ASGI application sees of a connection.

A body has usually arrived when the application asks for it, and an answer with a length usually
follows its head at once: the one is handed over without waiting, the other written in one piece.
A ``DirectExchange`` is for requests that a surface answers without ASGI.
``ActiveRequests`` lists the answers and bodies in transit; those whose credential is no longer
valid are ended by a check once a second.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Collection, Coroutine, Iterable, Iterator
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, Protocol

from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from trails.app.serve.http.parser import KnownHeads, RequestHead
from trails.app.serve.http.responses import write_refusal
from trails.model.actors import ACTOR_KEY, Actor
from trails.model.replies import Answer, Reply, Taken, write_lines

ENDED: Final = write_refusal(
    401,
    "unauthenticated",
    "the credential was revoked or expired during this request, which was aborted; authenticate "
    "again and check whether the request took effect before you repeat it",
    [(b"www-authenticate", b'Bearer error="invalid_token"')],
)
"""The answer to a running request whose credential has ended."""
_AT_ONCE: Final = struct.pack("ii", 1, 0)


class ActiveConnection(Protocol):
    """What ``ActiveRequests`` needs of a connection."""

    def served(self) -> Actor | None:
        """The actor of the running request, if any."""

    def cut(self) -> None:
        """End it on the second call; the first gives it time to end in order."""


class ActiveRequests:
    """The requests under way, by connection."""

    def __init__(self, connections: Collection[ActiveConnection]) -> None:
        """``connections`` is the live collection of all connections."""
        self._connections = connections

    def actors(self) -> set[Actor]:
        """The actors of running requests."""
        return {actor for _, actor in self._served()}

    def end_those_of(self, actors: set[Actor]) -> None:
        """End the requests of some actors."""
        for each, actor in self._served():
            if actor in actors:
                each.cut()

    def _served(self) -> Iterator[tuple[ActiveConnection, Actor]]:
        for each in tuple(self._connections):
            actor = each.served()
            if actor is not None:
                yield each, actor


def break_off(transport: asyncio.Transport) -> None:
    """End a connection so that a partial answer can't be taken for a complete one.

    Unsent data is dropped, here and in the operating system.
    """
    with suppress(OSError):  # it is gone already
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    transport.abort()


_logger: Final = logging.getLogger("trails")
_STATUS: Final = {
    each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus
}
_BODILESS: Final = frozenset({204, 304})
_SMALL: Final = 16 << 10
"""Bodies up to this size (in bytes) are copied and sent together with the head."""
_UNKNOWN: Final = -1
"""The length of a body that ends with its connection: HTTP/1.0 has no chunks."""
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_FAILED: Final = "Internal error; details are in the server log."


class CountingState(ServerState):
    """What all connections of a server share."""

    def __init__(self) -> None:
        super().__init__()
        self.responses: dict[int, int] = {}
        """Answers by status; what is refused before its head is read is not among them."""
        self.heads = KnownHeads()
        self._beginnings: dict[int, bytes] = {}
        self._headers = self.default_headers
        """Those of the beginnings: the server replaces them every second, with their date."""

    def begin_response(self, status: int) -> bytes:
        """Count an answer; the status line, and the headers of every answer of the server."""
        self.responses[status] = self.responses.get(status, 0) + 1
        if self._headers is not self.default_headers:
            self._headers = self.default_headers
            self._beginnings.clear()
        found = self._beginnings.get(status)
        if found is None:
            found = self._beginnings[status] = _STATUS[status] + write_lines(self._headers)
        return found


class ExchangeConnection(Protocol):
    """What an exchange needs of its connection."""

    transport: asyncio.Transport
    flow: FlowControl
    server_state: CountingState
    loop: asyncio.AbstractEventLoop

    def resume_reading(self) -> None:
        """Read more."""

    def can_drain(self, unread: int | None) -> bool:
        """Whether this much of a body (None: unknown) can be read and dropped."""

    def on_response_complete(self) -> None:
        """Continue with the next request, or end."""

    def end(self, last: bytes) -> None:
        """End the connection after some last bytes."""


class Exchange:
    """A request, and the state of its answer."""

    __slots__ = (
        "_arrived",
        "_body",
        "_connection",
        "_expected",
        "_head",
        "_is_chunked",
        "_left",
        "_news",
        "_task",
        "_unread",
        "begun",
        "complete",
        "disconnected",
        "keep_alive",
        "scope",
        "started",
        "waits_to_continue",
    )

    def __init__(self, connection: ExchangeConnection, scope: Scope, head: RequestHead) -> None:
        self._connection = connection
        self.scope = scope
        self.begun = False
        self.keep_alive = head.keep_alive
        self.disconnected = False
        self._unread = head.length
        """Bytes of the body that have not arrived; None if unknown."""
        self.waits_to_continue = head.expects
        """Whether the client waits for ``100 Continue`` before it sends its body."""
        self._body: bytes | bytearray = b""
        self._expected = True
        """Whether more of the body will arrive."""
        self._arrived = False
        """Set when there is something new for the application."""
        self._news: asyncio.Event | None = None
        self.started = False
        self.complete = False
        self._head = b""
        """The head, until it is written together with the first part of the body."""
        self._is_chunked = False
        self._left = 0
        """Bytes of the answer's body that were declared and not written yet."""
        self._task: asyncio.Task[None] | None = None

    # --- the request

    def feed(self, data: bytes) -> int:
        """Add a part of the body; returns how many bytes wait to be read."""
        self.waits_to_continue = False
        if self._unread is not None:
            self._unread -= len(data)
        if not self._body:
            self._body = data
        else:
            self._body = bytearray(self._body) if isinstance(self._body, bytes) else self._body
            self._body += data
        self.wake()
        return len(self._body)

    @property
    def waiting(self) -> int:
        """Bytes of the body that the application has not read."""
        return len(self._body)

    @property
    def actor(self) -> Actor | None:
        """Who sent it, once that is known."""
        found: Actor | None = self.scope.get(ACTOR_KEY)
        return found

    @property
    def is_taken(self) -> bool:
        """Whether its sender is known and its answer is not complete."""
        return not self.complete and ACTOR_KEY in self.scope

    def feed_end(self) -> None:
        """Mark the body as complete."""
        self._expected = self.waits_to_continue = False
        self.wake()

    def lose(self) -> None:
        """Report that the client is gone."""
        self.disconnected = True
        self._body = b""
        self.wake()

    def wake(self) -> None:
        """Wake the application."""
        self._arrived = True
        if self._news is not None:
            self._news.set()

    async def receive(self) -> Message:
        """ASGI's ``receive``: the next part of the body, or the disconnect."""
        connection = self._connection
        if self.waits_to_continue and not connection.transport.is_closing():
            connection.transport.write(_CONTINUE)
            self.waits_to_continue = False
        if not self.disconnected and not self.complete:
            connection.resume_reading()
            if not self._arrived:
                if self._news is None:
                    self._news = asyncio.Event()
                self._news.clear()
                await self._news.wait()
            self._arrived = False
        if self.disconnected or self.complete:
            return {"type": "http.disconnect"}
        body, self._body = self._body, b""
        return {"type": "http.request", "body": bytes(body), "more_body": self._expected}

    # --- the answer

    def begin(self, app: ASGIApp) -> None:
        """Start the application."""
        connection = self._connection
        self.begun = True
        self._task = task = connection.loop.create_task(self._run(app))
        connection.server_state.tasks.add(task)

    async def _run(self, app: ASGIApp) -> None:
        try:
            await app(self.scope, self.receive, self.send)
            if not self.complete and not self.disconnected:
                _logger.error(
                    "a request was not answered to the end", extra={"event": "request.unanswered"}
                )
                self._fail()
        except asyncio.CancelledError:
            self._fail()
        except Exception:
            _logger.exception("a request could not be answered", extra={"event": "request.failed"})
            self._fail()
        finally:
            task, self._task = self._task, None
            if task is not None:
                self._connection.server_state.tasks.discard(task)

    def _fail(self) -> None:
        """End a connection whose request failed, with a 500 answer if nothing was written yet."""
        if self.disconnected:
            self._connection.transport.close()
        elif not self.started or self._head:
            self._connection.end(write_refusal(500, "internal", _FAILED))
        elif self._left == _UNKNOWN:
            break_off(self._connection.transport)
        else:
            self._connection.end(b"")

    async def send(self, message: Message) -> None:
        """ASGI's ``send``."""
        connection = self._connection
        if connection.flow.write_paused and not self.disconnected:
            await connection.flow.drain()
        if self.disconnected:
            return
        kind = message["type"]
        if kind == "http.response.start" and not self.started:
            self._start(message["status"], message.get("headers", ()))
        elif kind == "http.response.body" and self.started and not self.complete:
            self._write(message.get("body", b""), last=not message.get("more_body", False))
        else:
            raise RuntimeError(f"{kind} can't be sent now")

    def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        beginning = self._connection.server_state.begin_response(status)
        headers = [*headers]
        said = dict(headers)
        if self._expected and self.keep_alive:
            # A client that waits for 100 Continue may or may not send its body now.
            can_drain = not self.waits_to_continue and self._connection.can_drain(self._unread)
            self.keep_alive = can_drain
        if b"connection" in said:
            self.keep_alive = self.keep_alive and b"close" not in said[b"connection"].lower()
            headers = [each for each in headers if each[0] != b"connection"]
        if not self.keep_alive:
            headers.append((b"connection", b"close"))
        bodiless = self.scope["method"] == "HEAD" or status in _BODILESS
        if b"content-length" in said:
            self._left = 0 if bodiless else int(said[b"content-length"])
        elif self.scope["http_version"] == "1.0":
            self._left = 0 if bodiless else _UNKNOWN
        elif not bodiless:
            self._is_chunked = True
            if b"transfer-encoding" not in said:
                headers.append((b"transfer-encoding", b"chunked"))
        head = b"%b%b\r\n" % (beginning, write_lines(headers))
        self.started = True
        self.waits_to_continue = False
        if self._left > 0:
            self._head = head
        else:
            self._connection.transport.write(head)

    def _write(self, body: bytes, *, last: bool) -> None:
        transport = self._connection.transport
        if self.scope["method"] == "HEAD":
            pass
        elif self._is_chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            transport.write(chunk + b"0\r\n\r\n" if last else chunk)
        elif self._left == _UNKNOWN:
            transport.write(body)
        elif body or self._left:
            self._write_promised(body, last=last)
        if last:
            self._finish()

    def _write_promised(self, body: bytes, *, last: bool) -> None:
        """Write a part of a body whose length was declared."""
        transport = self._connection.transport
        self._left -= len(body)
        if self._left < 0 or (last and self._left):
            raise RuntimeError("a body has not the length that its head says")
        head, self._head = self._head, b""
        if head and len(body) > _SMALL:
            transport.write(head)
            head = b""
        transport.write(head + body)

    def _finish(self) -> None:
        self.complete = True
        self._body = b""  # it is not needed any more, and the connection may stay open for long
        self.wake()
        self._connection.on_response_complete()


class DirectExchange:
    """A request that arrived whole, and its answer."""

    __slots__ = (
        "_connection",
        "_is_running",
        "_lines",
        "_task",
        "actor",
        "complete",
        "disconnected",
        "keep_alive",
        "started",
    )
    begun: Final = True
    waiting: Final = 0

    def __init__(self, connection: ExchangeConnection, taken: Taken) -> None:
        self._connection = connection
        self.actor, _, self._lines = taken
        self.keep_alive = True
        self.disconnected = self.started = self.complete = self._is_running = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_taken(self) -> bool:
        """Whether its sender is known, as always, and its answer is not complete."""
        return not self.complete

    def begin(self, answer: Answer) -> None:
        """Write the answer, or start the work that makes it."""
        if isinstance(answer, Reply):
            self._write(answer)
            return
        connection = self._connection
        self._task = task = connection.loop.create_task(self._run(answer))
        connection.server_state.tasks.add(task)

    async def _run(self, work: Coroutine[Any, Any, Reply]) -> None:
        self._is_running = True
        try:
            if self.disconnected:
                work.close()
                return
            reply = await work
            if not self.disconnected:
                self._write(reply)
        except asyncio.CancelledError:
            self._fail()
        except Exception:
            _logger.exception("a request could not be answered", extra={"event": "request.failed"})
            self._fail()
        finally:
            task, self._task = self._task, None
            if task is not None:
                self._connection.server_state.tasks.discard(task)

    def lose(self) -> None:
        """Stop the work: the client is gone."""
        self.disconnected = True
        if self._task is not None and self._is_running:
            self._task.cancel()

    def _fail(self) -> None:
        if not self.disconnected and not self.started:
            self._connection.end(write_refusal(500, "internal", _FAILED))

    def _write(self, reply: Reply) -> None:
        connection = self._connection
        status, lines, body = reply
        close = b"" if self.keep_alive else b"connection: close\r\n"
        head = b"%b%bcontent-length: %d\r\n%b%b\r\n" % (
            connection.server_state.begin_response(status),
            lines,
            len(body),
            self._lines,
            close,
        )
        self.started = self.complete = True
        if len(body) > _SMALL:
            connection.transport.write(head)
            connection.transport.write(body)
        else:
            connection.transport.write(head + body)
        connection.on_response_complete()
