"""The standard streams of a process that serves one MCP client: a line is a message.

While the streams are claimed, descriptor 0 is empty and descriptor 1 is standard error, so a
project's own code can't disturb the protocol. Threads read and write, so pipes, files and
terminals all work and keep their modes.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Final, Protocol

from trails.app.serve.relay.frames import MAX_LINE, LineReader, LineTooLongError, error_answer

_BLOCK: Final = 1 << 16
_AHEAD: Final = 4
"""Blocks that are read in advance."""
_INVALID_REQUEST: Final = -32600


class StandardStreams:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        sys.stdout.flush()
        self._loop = loop
        self._input = os.dup(0)
        self._output = os.dup(1)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        os.dup2(2, 1)
        self._blocks: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = threading.Semaphore(_AHEAD)
        self._written: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()
        for work in (self._read_all, self._write_all):
            threading.Thread(target=work, name=work.__name__, daemon=True).start()

    async def read(self) -> bytes:
        """Return some bytes; none at the end."""
        block = await self._blocks.get()
        self._room.release()
        return block

    async def write(self, text: bytes) -> None:
        """Write all bytes; raise OSError if the reader is gone."""
        done = self._loop.create_future()
        self._written.put((text, done))
        await done

    def _read_all(self) -> None:
        block = b"-"
        while block:
            try:
                block = os.read(self._input, _BLOCK)
            except BlockingIOError:
                select.select([self._input], [], [])
                continue
            except OSError:
                block = b""
            self._room.acquire()
            self._call_in_loop(self._blocks.put_nowait, block)

    def _write_all(self) -> None:
        while True:
            text, done = self._written.get()
            error = self._write(text)
            self._call_in_loop(_settle, done, error)

    def _call_in_loop(self, function: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # it is closed, because the process ends
            self._loop.call_soon_threadsafe(function, *arguments)

    def _write(self, text: bytes) -> OSError | None:
        rest = memoryview(text)
        while rest:
            try:
                rest = rest[os.write(self._output, rest) :]
            except BlockingIOError:
                select.select([], [self._output], [])
            except OSError as error:
                return error
        return None


def _settle(done: asyncio.Future[None], error: OSError | None) -> None:
    """Report a finished write, if its caller still waits."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


class ByteStreams(Protocol):
    """Both directions, as bytes."""

    async def read(self) -> bytes:
        """Return some bytes; none at the end."""

    async def write(self, text: bytes) -> None:
        """Write all bytes; raise OSError if the reader is gone."""


class ClientLines:
    """The messages of the client, and the answers to it."""

    def __init__(self, streams: ByteStreams) -> None:
        self._streams = streams
        self._lines = LineReader(streams.read, keep_rest=True)

    async def next(self) -> bytes | None:
        """Return the next message, None at the end; one that is too long is answered here."""
        while True:
            try:
                return await self._lines.next()
            except LineTooLongError:
                message = f"a message may have at most {MAX_LINE >> 20} MiB; send less at once"
                await self.write([error_answer(None, _INVALID_REQUEST, message, {})])

    async def write(self, lines: Sequence[bytes]) -> None:
        """Send messages; raise OSError if the client is gone."""
        if lines:
            await self._streams.write(b"\n".join(lines) + b"\n")
