"""Lines out of a stream of bytes, each of them bounded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

MAX_LINE: Final = 32 << 20
"""Bytes of one message."""


class LineTooLongError(Exception):
    """A line of more than MAX_LINE bytes came, and was left out."""


class Lines:
    """The lines of a stream, without their ends; empty ones are left out."""

    def __init__(
        self,
        read: Callable[[], Awaitable[bytes]],
        *,
        keep_rest: bool = False,
        longest: int = MAX_LINE,
    ) -> None:
        """``read`` gives some bytes, and none at the end.

        What stands after the last line's end is a line with ``keep_rest``, and otherwise one
        that was cut off, which nobody gets to see.
        """
        self._read = read
        self._keep_rest = keep_rest
        self._longest = longest
        self._buffer = bytearray()
        self._searched = 0
        self._ended = False

    async def next(self) -> bytes | None:
        """The next line, None at the end; LineTooLongError for one that is not given out."""
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end > self._longest:
                self._take(end + 1)
                raise LineTooLongError
            if end >= 0:
                line = self._take(end + 1).strip()
                if line:
                    return line
                continue
            self._searched = len(self._buffer)
            if self._searched > self._longest:
                await self._skip()
                raise LineTooLongError
            if not await self._fill():
                rest = self._take(len(self._buffer)).strip()
                return rest if rest and self._keep_rest else None

    async def _fill(self) -> bool:
        """Read some more; whether there was any."""
        block = b"" if self._ended else await self._read()
        self._ended = not block
        self._buffer += block
        return bool(block)

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        self._searched = 0
        return taken

    async def _skip(self) -> None:
        """Leave out everything up to the next end of a line."""
        while (end := self._buffer.find(b"\n")) < 0:
            self._take(len(self._buffer))
            if not await self._fill():
                return
        self._take(end + 1)
