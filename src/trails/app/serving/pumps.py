"""Bytes between two connections, in both directions, as fast as the slower side takes them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import Final

_BLOCK: Final = 1 << 16
_QUIET: Final = 0.1
"""Seconds of silence after which an answer is taken to be complete."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pump:
    """One client's connection, and the one that it is passed on to."""

    def __init__(self, client: Streams, server: Streams) -> None:
        self._client = client
        self._server = server
        self._asked = self._answered = 0.0

    @property
    def busy(self) -> bool:
        """Whether an answer is due, as far as can be told without reading along."""
        return self._asked > self._answered or monotonic() - self._answered < _QUIET

    async def run(self) -> None:
        """Until the server closes its side, or either one is gone.

        A client that has said everything may still be listening; a server that has is done.
        """
        upwards = asyncio.create_task(self._pass_up())
        try:
            with suppress(OSError):
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
                self._asked = monotonic()
                writer.write(block)
                await writer.drain()
            writer.write_eof()
        except OSError:
            writer.close()

    async def _pass_down(self) -> None:
        reader, writer = self._server[0], self._client[1]
        while block := await reader.read(_BLOCK):
            writer.write(block)
            await writer.drain()
            self._answered = monotonic()
