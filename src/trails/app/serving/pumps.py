"""Bytes between two connections, in both directions, as fast as the slower side takes them.

What they mean is not looked at, but for one case: a server that is gone while a client
waits for its answer. An answer is given then, because clients take a connection that just
ends for the end of everything.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import Final

from trails.app.serving.gateway_errors import interrupted

_BLOCK: Final = 1 << 16
_QUIET: Final = 0.1
"""Seconds of silence after which an answer is taken to be complete, and nothing to be asked."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pump:
    """One client's connection, and the one that it is passed on to."""

    def __init__(self, client: Streams, server: Streams) -> None:
        self._client = client
        self._server = server
        self._asked: bytes | None = None
        """How a request began that has no answer yet."""
        self._answered = 0.0

    @property
    def busy(self) -> bool:
        """Whether an answer is due or under way, as far as can be told without reading along."""
        return self._asked is not None or monotonic() - self._answered < _QUIET

    async def run(self) -> None:
        """Until the server closes its side, or either one is gone.

        A client that has said everything may still be listening; a server that has is done.
        """
        upwards = asyncio.create_task(self._pass_up())
        try:
            await self._pass_down()
        finally:
            upwards.cancel()
            await asyncio.gather(upwards, return_exceptions=True)
            self._server[1].close()
            self._client[1].close()

    async def _pass_up(self) -> None:
        reader, writer = self._client[0], self._server[1]
        try:
            while block := await reader.read(_BLOCK):
                if self._asked is None:
                    self._asked = block
                writer.write(block)
                await writer.drain()
            writer.write_eof()
        except OSError:
            writer.close()

    async def _pass_down(self) -> None:
        reader, writer = self._server[0], self._client[1]
        with suppress(OSError):
            while block := await reader.read(_BLOCK):
                self._asked = None
                writer.write(block)
                await writer.drain()
                self._answered = monotonic()
        if self._asked is None:
            await asyncio.sleep(_QUIET)  # a request may have been on its way to one who was gone
        with suppress(OSError):
            if self._asked is not None:
                writer.write(interrupted(self._asked))
                await writer.drain()
