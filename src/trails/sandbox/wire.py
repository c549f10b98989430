"""The protocol between owner and worker: length-prefixed msgpack over a socket pair.

The worker uses plain ``read`` and ``write``, so its system-call filter needs to allow no
network calls.
"""

from __future__ import annotations

import os
from typing import Final, Literal

import msgspec

HEADER: Final = 4
PIECE: Final = 1 << 16
MAX_FRAME: Final = 1 << 30
"""More than any message within the limits; a larger length is rejected."""

Task = Literal["query", "update", "check query", "check update", "parse", "follow"]
Outcome = Literal["ready", "select", "ask", "graph", "effect", "piece", "done", "refused", "broken"]


class Job(msgspec.Struct, frozen=True, array_like=True):
    """A request: first apply the deltas, then do the task."""

    task: Task
    text: str = ""
    prefixes: dict[str, str] = {}
    deltas: tuple[tuple[bytes, bytes], ...] = ()
    rows: int = 0
    size: int = 0
    memory: int = 0
    base_iri: str | None = None


class WorkerReply(msgspec.Struct, frozen=True, array_like=True):
    """A reply; ``note`` is an error message, or the name of the limit that cut a result."""

    outcome: Outcome
    note: str = ""
    body: bytes = b""
    added: bytes = b""
    held: int = 0
    """Address space in use."""
    thread: int = 0
    """The native id of the thread that does the next job."""


encode = msgspec.msgpack.Encoder().encode
decode_job = msgspec.msgpack.Decoder(Job).decode
decode_reply = msgspec.msgpack.Decoder(WorkerReply).decode


def frame(payload: bytes) -> bytes:
    """Prefix a payload with its length."""
    return len(payload).to_bytes(HEADER, "little") + payload


class Channel:
    """The worker's end: blocking reads and writes of whole frames."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""

    def read(self) -> bytes | None:
        """Return the next frame; None when the owner has closed the socket."""
        data = self._rest or os.read(self._descriptor, PIECE)
        while len(data) < HEADER:
            if not (more := os.read(self._descriptor, PIECE)):
                return None
            data += more
        end = HEADER + int.from_bytes(data[:HEADER], "little")
        if len(data) < end:
            buffer = bytearray(data)
            while len(buffer) < end:
                if not (more := os.read(self._descriptor, PIECE)):
                    return None
                buffer += more
            data = bytes(buffer)
        self._rest = data[end:]
        return data[HEADER:end]

    def write(self, payload: bytes) -> None:
        data = frame(payload)
        sent = os.write(self._descriptor, data)
        while sent < len(data):
            sent += os.write(self._descriptor, memoryview(data)[sent:])
