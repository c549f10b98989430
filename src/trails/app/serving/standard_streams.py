"""Standard input and output as a wire that nothing else in this process can touch.

While they are claimed, descriptor 0 is empty and descriptor 1 is standard error: what a
project's own code reads or prints does not disturb the protocol. Threads do the reading
and writing, so that pipes, files and terminals work alike and are left as they were.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Final

_BLOCK: Final = 1 << 16
_AHEAD: Final = 4
"""Blocks that are read before somebody takes them."""


class StandardStreams:
    """The claimed streams."""

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
        """Some bytes; none at the end."""
        block = await self._blocks.get()
        self._room.release()
        return block

    async def write(self, text: bytes) -> None:
        """Write all of it; OSError when nobody reads any more."""
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
            self._tell_loop(self._blocks.put_nowait, block)

    def _write_all(self) -> None:
        while True:
            text, done = self._written.get()
            error = self._write(text)
            self._tell_loop(_settle, done, error)

    def _tell_loop(self, function: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # it is closed: the process ends
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
    """Tell whoever waits for a write, if anybody still does."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
