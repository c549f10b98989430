"""The owner's side of the ``mcp`` socket: one MCP session per connection.

A front announces what its process was started with: scopes, a token that it presents for its
client (``TRAILS_TOKEN``), and the hash of one that it requires (``TRAILS_MCP_TOKEN``). Any
process of the same user can connect and claim anything, so these claims can only narrow what
the session may do. One exception: if the project requires no credentials, the token that the
front requires counts as one, as it would if that process owned the folder.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from trails.app.access import describe_access
from trails.app.app import App
from trails.app.kernels import ServedGraphs
from trails.app.serve.relay.frames import (
    Id,
    LineReader,
    LineTooLongError,
    read_frame,
    read_large_frame,
    read_params,
)
from trails.app.serve.relay.links import Goodbye, Welcome, read_hello
from trails.app.serve.relay.owners import is_same_user
from trails.model.fairness import LargeBodies, is_large
from trails.model.results import Failure
from trails.request.authenticate import Authenticator, SessionCallers
from trails.surfaces.mcp.streams import serve_stream

_logger: Final = logging.getLogger("trails")
_BLOCK: Final = 1 << 16
_AHEAD: Final = 16
"""Lines that are read in advance."""


class RelayConnection:
    """The lines of one front; one that ``receive`` has returned counts as taken."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._lines = LineReader(lambda: reader.read(_BLOCK))
        self._writer = writer
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue(_AHEAD)
        self._reading = asyncio.create_task(self._read())
        self._ending = False
        self._grace = 0.0
        self._gone = False
        self._answered: Callable[[], None] | None = None
        self._taken = 0
        self._running: set[Id] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def _read(self) -> None:
        with suppress(OSError, LineTooLongError):  # a front never sends one that is too long
            while (line := await self._lines.next()) is not None:
                await self._inbox.put(line)
                if is_large(line):
                    await self._inbox.join()  # one at a time
        await self._inbox.put(None)

    def begin(self, answered: Callable[[], None]) -> None:
        """Start the session: count lines, and signal the first answer."""
        self._taken = 0
        self._answered = answered

    async def receive(self) -> bytes | None:
        """Return the next line; None when the front or the owner ends."""
        line = None if self._gone else await self._inbox.get()
        if line is None:
            if self._ending and not self._gone:
                await self._leave()
            return None
        self._inbox.task_done()
        self._taken += 1
        if is_large(line):
            frame = await asyncio.to_thread(read_large_frame, line)
        else:
            frame = read_frame(line)
        if frame is not None:
            if frame.is_request and frame.method != "subscriptions/listen":
                self._running.add(frame.id or "")
                self._idle.clear()
            elif frame.method == "notifications/cancelled":
                self._finish(read_params(frame).request_id)
        return line

    async def answer(self, line: bytes) -> None:
        """Send a line of the session; after the goodbye, drop it."""
        if self._gone:
            return
        await self._write(line)
        frame = read_frame(line)
        if frame is not None and frame.answers is not None:
            self._finish(frame.answers)
        if self._answered is not None:
            self._answered()

    def _finish(self, id: Id | None) -> None:
        self._running.discard(id or "")
        if not self._running:
            self._idle.set()

    def end(self, grace: float) -> None:
        """Take no more lines; those taken have ``grace`` seconds to be answered.

        Lines that were not taken are sent again by the front to the next owner.
        """
        self._ending = True
        self._grace = grace
        self._reading.cancel()
        while not self._inbox.empty():
            self._inbox.get_nowait()
        self._inbox.put_nowait(None)

    async def _leave(self) -> None:
        """Wait for active requests, then say how many lines were taken."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace):
                await self._idle.wait()
        if self._answered is not None:
            await self.send(Goodbye(self._taken))
        self._gone = True

    async def send(self, greeting: msgspec.Struct) -> None:
        """Send a line outside the session."""
        await self._write(msgspec.json.encode(greeting))

    async def _write(self, line: bytes) -> None:
        self._writer.write(line + b"\n")
        await self._writer.drain()

    def close(self) -> None:
        self._reading.cancel()
        self._writer.close()


_FAREWELL: Final = 1.0
"""Seconds that a front has to read the goodbye."""


def access_lines(app: App, authenticator: Authenticator) -> list[str]:
    """Describe who may do what on the served graphs."""
    served = [name for name in app.settings.graphs if name not in app.quarantined]
    modes = {name: app.policies.judge(name).mode for name in served}
    return describe_access(modes, guarded=authenticator.required)


class RelaySessions:
    """All connections to the ``mcp`` socket."""

    def __init__(
        self,
        graphs: ServedGraphs,
        app: App,
        authenticator: Authenticator,
    ) -> None:
        self._graphs = graphs
        self._app = app
        self._authenticator = authenticator
        self._large = LargeBodies()
        self._running: dict[asyncio.Task[None], RelayConnection] = {}
        self._ending = False
        self.answered = asyncio.Event()
        """Set when a session was answered for the first time."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, from hello to goodbye."""
        task = asyncio.current_task()
        if task is None or self._ending or not is_same_user(writer.get_extra_info("socket")):
            writer.close()
            return
        connection = self._running[task] = RelayConnection(reader, writer)
        try:
            await self._serve(connection)
        except* OSError:
            pass  # the front is gone
        except* Exception as group:
            _logger.exception(
                "An MCP session failed; the other sessions continue.",
                exc_info=group,
                extra={"event": "session.failed"},
            )
        finally:
            del self._running[task]
            connection.close()

    async def _serve(self, connection: RelayConnection) -> None:
        line = await connection.receive()
        if line is None:
            return
        try:
            hello = read_hello(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            await connection.send(Welcome("hello", f"invalid hello: {error}"))
            return
        if hello.graph is None:
            reasons = {name: each.message for name, each in self._app.quarantined.items()}
            access = access_lines(self._app, self._authenticator)
            await connection.send(Welcome(data={"quarantined": reasons, "access": access}))
            await connection.receive()
            return
        found = self._graphs.get(hello.graph)
        if found is None:
            message = (
                f"there is no graph {hello.graph!r}; this project has {', '.join(self._graphs)}"
            )
            found = Failure("semantic", "not_found", message)
        if isinstance(found, Failure):
            await connection.send(Welcome(found.code, found.message, found.data))
            return
        await connection.send(Welcome(data={"repeatable": found.repeatable()}))
        connection.begin(self.answered.set)
        await serve_stream(
            found,
            connection.receive,
            connection.answer,
            callers=SessionCallers(
                self._authenticator, frozenset(hello.scopes), hello.token, hello.wanted
            ),
            validation_errors=self._app.settings.graphs[hello.graph].mcp.validation_errors,
            large=self._large,
        )

    async def end(self, grace: float) -> None:
        """Let active calls finish within ``grace`` seconds, say goodbye, close all connections."""
        self._ending = True
        for connection in self._running.values():
            connection.end(grace)
        if self._running:
            await asyncio.wait(self._running, timeout=grace + _FAREWELL)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
