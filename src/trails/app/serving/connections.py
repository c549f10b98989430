"""A connection to the ``mcp`` socket as its owner sees it: lines, and which requests run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from trails.app.serving.frames import Id, read_frame, read_large_frame, read_params
from trails.app.serving.greetings import Goodbye
from trails.app.serving.lines import Lines, LineTooLongError
from trails.model.large_bodies import is_large

_BLOCK: Final = 1 << 16
_AHEAD: Final = 16
"""Lines that are read before somebody takes them."""


class Connection:
    """One front's lines. A line is taken when ``receive`` gives it, and then it is answered."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._lines = Lines(lambda: reader.read(_BLOCK))
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
        with suppress(OSError, LineTooLongError):  # a front sends none that are too long
            while (line := await self._lines.next()) is not None:
                await self._inbox.put(line)
                if is_large(line):
                    await self._inbox.join()  # one at a time
        await self._inbox.put(None)

    def begin(self, answered: Callable[[], None]) -> None:
        """The session begins: lines are counted, and the first answer is told."""
        self._taken = 0
        self._answered = answered

    async def receive(self) -> bytes | None:
        """The next line, or None when there are no more: the front or the owner ends."""
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
        """Send a line of the session; after the goodbye there is nobody for it."""
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
        """Take no more lines; those that were taken have ``grace`` seconds to be answered.

        What waits was never taken, and its front will say it again.
        """
        self._ending = True
        self._grace = grace
        self._reading.cancel()
        while not self._inbox.empty():
            self._inbox.get_nowait()
        self._inbox.put_nowait(None)

    async def _leave(self) -> None:
        """Wait for what runs, then tell how far the front's lines were taken."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace):
                await self._idle.wait()
        if self._answered is not None:
            await self.send(Goodbye(self._taken))
        self._gone = True

    async def send(self, greeting: msgspec.Struct) -> None:
        """Send a line that is not part of the session."""
        await self._write(msgspec.json.encode(greeting))

    async def _write(self, line: bytes) -> None:
        self._writer.write(line + b"\n")
        await self._writer.drain()

    def close(self) -> None:
        """Let go of the connection."""
        self._reading.cancel()
        self._writer.close()
