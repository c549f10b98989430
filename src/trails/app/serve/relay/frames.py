"""JSON-RPC messages, read only as far as whoever passes them on must know them.

Lines out of a stream of bytes, each of them bounded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from trails.model.texts import scan_json

Id = int | str


class Frame(msgspec.Struct, frozen=True):
    """A message: a request, a notification or an answer."""

    id: Id | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()

    @property
    def is_request(self) -> bool:
        """Whether somebody waits for an answer to it."""
        return self.method is not None and self.id is not None

    @property
    def answers(self) -> Id | None:
        """Which request this is the answer to."""
        return self.id if self.method is None else None

    def __repr__(self) -> str:
        """Nothing of what it says, which may hold a token."""
        return f"Frame({self.method})"


class Params(msgspec.Struct, frozen=True):
    """What the parameters of some methods say, as far as it matters on the way."""

    name: str = ""
    uri: str = ""
    request_id: Id | None = msgspec.field(default=None, name="requestId")
    meta: Mapping[str, object] = msgspec.field(default={}, name="_meta")
    notifications: Mapping[str, object] = {}

    def __repr__(self) -> str:
        """Nothing of what it says, which may hold a token."""
        return "Params(…)"


_frames = msgspec.json.Decoder(Frame)
_params = msgspec.json.Decoder(Params)


def read_frame(line: bytes) -> Frame | None:
    """What a line is; None for anything but a message, which its receiver will answer."""
    try:
        return _frames.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_large_frame(line: bytes) -> Frame | None:
    """The same for a large line, in a thread; one that its receiver refuses is not looked at."""
    try:
        scan_json(line)
    except ValueError:
        return None
    return read_frame(line)


def read_params(frame: Frame) -> Params:
    """The parameters of a message; of odd ones nothing is known."""
    try:
        return _params.decode(frame.params)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Params()


def notification(method: str, params: Mapping[str, object]) -> bytes:
    """A notification."""
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})


def error_answer(id: Id | None, code: int, message: str, data: Mapping[str, object]) -> bytes:
    """An answer that is an error of the protocol."""
    error = {"code": code, "message": message, "data": data}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "error": error})


MAX_LINE: Final = 32 << 20
"""Bytes of one message."""


class LineTooLongError(Exception):
    """A line of more than MAX_LINE bytes came, and was left out."""


class LineReader:
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
