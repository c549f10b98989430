"""A front's connection to the ``mcp`` socket of an owner."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Self

import msgspec

from trails.app.serving.greetings import Goodbye, Hello, Welcome, read_goodbye, write_hello
from trails.app.serving.lines import Lines, LineTooLongError
from trails.app.serving.owners import OwnerAddress
from trails.app.serving.socket_folders import connect_streams
from trails.errors import TrailsError

_BLOCK: Final = 1 << 16
_PATIENCE: Final = 10.0
"""Seconds that an owner has to answer a hello."""


class RefusedError(TrailsError):
    """An owner has no session for this front; the code is the one that it gave."""

    def __init__(self, welcome: Welcome) -> None:
        super().__init__(welcome.message, **welcome.data)
        self.code = welcome.code


class Link:
    """One connection, opened with a hello that was accepted."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._lines = Lines(lambda: reader.read(_BLOCK))
        self._writer = writer
        self.welcome = Welcome()
        self.goodbye: Goodbye | None = None
        """What the owner said at the end, if it ended in order."""

    @classmethod
    async def open(cls, address: OwnerAddress, hello: Hello) -> Self:
        """Connect; OSError when nobody is there, RefusedError when the owner says no."""
        reader, writer = await connect_streams(address.mcp)
        link = cls(reader, writer)
        try:
            link.welcome = await link._greet(hello)
        except BaseException:
            link.close()
            raise
        return link

    async def _greet(self, hello: Hello) -> Welcome:
        async with asyncio.timeout(_PATIENCE):
            await self.send([write_hello(hello)])
            line = await self.next()
        if line is None:
            raise ConnectionError
        welcome = msgspec.json.decode(line, type=Welcome)
        if welcome.code:
            raise RefusedError(welcome)
        return welcome

    async def send(self, lines: Sequence[bytes]) -> None:
        """Send lines; OSError when the owner is gone."""
        if lines:
            self._writer.write(b"\n".join(lines) + b"\n")
            await self._writer.drain()

    async def next(self) -> bytes | None:
        """The next line, or None when the owner is gone."""
        try:
            line = await self._lines.next()
        except (OSError, LineTooLongError):
            return None
        if line is not None:
            self.goodbye = read_goodbye(line)
        return None if self.goodbye is not None else line

    def close(self) -> None:
        """Let go of it."""
        self._writer.close()
