"""What owner and worker say to each other: length-prefixed msgpack over a socket pair.

The worker uses plain ``read`` and ``write``, so that its system-call filter needs to
allow nothing of the network.
"""

from __future__ import annotations

import os
from typing import Final, Literal

import msgspec

HEADER: Final = 4
PIECE: Final = 1 << 16
MAX_FRAME: Final = 1 << 30
"""More than any message that limits allow; a length beyond it is a lie."""

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
    """An answer. ``note`` is an error's message, or the name of the limit that cut a result."""

    outcome: Outcome
    note: str = ""
    body: bytes = b""
    added: bytes = b""
    held: int = 0
    """Address space in use."""
    thread: int = 0
    """The thread that does the next job, as the system numbers it."""


encode = msgspec.msgpack.Encoder().encode
decode_job = msgspec.msgpack.Decoder(Job).decode
decode_reply = msgspec.msgpack.Decoder(WorkerReply).decode


def frame(payload: bytes) -> bytes:
    """A payload with its length in front."""
    return len(payload).to_bytes(HEADER, "little") + payload


class Channel:
    """The worker's end: blocking reads and writes of whole frames."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""

    def read(self) -> bytes | None:
        """The next frame; None when the owner is gone."""
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
        """Send one frame."""
        data = frame(payload)
        sent = os.write(self._descriptor, data)
        while sent < len(data):
            sent += os.write(self._descriptor, memoryview(data)[sent:])
