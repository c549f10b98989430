"""JSON-RPC messages, decoded only as far as a relay needs, and bounded lines of a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Self

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
        """Whether the sender waits for an answer."""
        return self.method is not None and self.id is not None

    @property
    def answers(self) -> Id | None:
        """The id of the request that this answers."""
        return self.id if self.method is None else None

    def __repr__(self) -> str:
        """Hide the content, which may contain a token."""
        return f"Frame({self.method})"


class Params(msgspec.Struct, frozen=True):
    """The parameters of some methods, as far as a relay needs them."""

    name: str = ""
    uri: str = ""
    request_id: Id | None = msgspec.field(default=None, name="requestId")
    meta: Mapping[str, object] = msgspec.field(default={}, name="_meta")
    notifications: Mapping[str, object] = {}

    def __repr__(self) -> str:
        """Hide the content, which may contain a token."""
        return "Params(…)"


_frames = msgspec.json.Decoder(Frame)
_params = msgspec.json.Decoder(Params)


def read_frame(line: bytes) -> Frame | None:
    """Decode a line; None if it isn't a message (its receiver will answer that)."""
    try:
        return _frames.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_large_frame(line: bytes) -> Frame | None:
    """The same for a large line, in a thread; one that its receiver would refuse isn't decoded."""
    try:
        scan_json(line)
    except ValueError:
        return None
    return read_frame(line)


def read_params(frame: Frame) -> Params:
    """Decode the parameters of a message; odd ones count as empty."""
    try:
        return _params.decode(frame.params)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Params()


class Message(msgspec.Struct, frozen=True):
    """A line, and what a relay reads of it."""

    line: bytes
    frame: Frame
    params: Params

    @classmethod
    def read(cls, line: bytes) -> Self:
        """Decode a line as far as possible."""
        frame = read_frame(line) or Frame()
        return cls(line, frame, read_params(frame))

    def __repr__(self) -> str:
        """Hide the content, which may contain a token."""
        return f"Message({self.frame.method})"


def notification(method: str, params: Mapping[str, object]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})


def error_answer(id: Id | None, code: int, message: str, data: Mapping[str, object]) -> bytes:
    """Make an answer that is a protocol error."""
    error = {"code": code, "message": message, "data": data}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "error": error})


MAX_LINE: Final = 32 << 20
"""The most bytes of one message."""


class LineTooLongError(Exception):
    """A line of more than MAX_LINE bytes was skipped."""


class LineReader:
    """The lines of a stream, without line ends and empty lines."""

    def __init__(
        self,
        read: Callable[[], Awaitable[bytes]],
        *,
        keep_rest: bool = False,
        longest: int = MAX_LINE,
    ) -> None:
        """``read`` returns some bytes, and none at the end.

        Bytes after the last line end are a line with ``keep_rest``; otherwise they were cut off
        and are dropped.
        """
        self._read = read
        self._keep_rest = keep_rest
        self._longest = longest
        self._buffer = bytearray()
        self._searched = 0
        self._ended = False

    async def next(self) -> bytes | None:
        """Return the next line, None at the end; raise LineTooLongError for a skipped one."""
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
        """Read more bytes; return whether there were any."""
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
        """Skip everything up to the next line end."""
        while (end := self._buffer.find(b"\n")) < 0:
            self._take(len(self._buffer))
            if not await self._fill():
                return
        self._take(end + 1)
