"""Stream a file through a worker: bytes of any RDF format in, N-Quads out.

Owner and worker write at the same time, so the owner never blocks on one direction. Output
that the reader has not taken yet stays in the worker.
"""

from __future__ import annotations

import select
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Final

from trails.errors import LimitError, QueryError
from trails.sandbox.limits import MIB, Limits
from trails.sandbox.processes import DeathError, WorkerHandle
from trails.sandbox.results import check_nesting
from trails.sandbox.wire import HEADER, MAX_FRAME, PIECE, Job, WorkerReply, encode, frame
from trails.sandbox.worker import FORMATS

_FREE: Final = 64 * MIB


def convert(
    worker: WorkerHandle, chunks: Iterable[bytes], name: str, base_iri: str | None, limits: Limits
) -> Iterator[bytes]:
    """Yield the statements of a file as N-Quads."""
    if name not in FORMATS:
        raise QueryError(f"unknown format {name!r}; use one of {', '.join(FORMATS)}")
    job = Job("parse", name, memory=limits.memory, base_iri=base_iri)
    yield from _Stream(worker, chunks, limits).run(frame(encode(job)))


class _Stream:
    """The conversion of one file."""

    def __init__(self, worker: WorkerHandle, chunks: Iterable[bytes], limits: Limits) -> None:
        self._worker = worker
        self._frames = _framed(chunks)
        self._limits = limits
        self._read = 0
        self._written = 0
        self._begun: list[bytes] = []

    def run(self, opening: bytes) -> Iterator[bytes]:
        """Send input and yield output until the worker is done."""
        pending = memoryview(opening)
        feeding = True
        received = bytearray()
        while True:
            # Each step gets a new deadline: only a lack of progress is limited.
            events = self._worker.wait(monotonic() + self._limits.seconds, writing=feeding)
            if feeding and events & select.POLLOUT:
                pending = pending[self._worker.offer(pending) :]
                if not pending:
                    following = next(self._frames, b"")
                    self._read += len(following)
                    pending, feeding = memoryview(following), bool(following)
            if events & ~select.POLLOUT:
                received += self._worker.take()
                for reply in self._replies(received):
                    if reply.outcome == "piece":
                        yield self._checked(reply.body)
                    elif feeding or reply.outcome != "done":
                        raise _refusal(reply)
                    else:
                        self._check_begun()
                        return

    def _replies(self, received: bytearray) -> Iterator[WorkerReply]:
        while len(received) >= HEADER:
            end = HEADER + int.from_bytes(received[:HEADER], "little")
            if end > MAX_FRAME:
                raise self._worker.broke_protocol()
            if len(received) < end:
                return
            payload = bytes(received[HEADER:end])
            del received[:end]
            yield self._worker.read(payload)

    def _checked(self, piece: bytes) -> bytes:
        """Return a piece after checking its size and nesting."""
        self._written += len(piece)
        limit = self._limits.expansion
        if self._written > _FREE + limit * self._read:
            raise LimitError(
                f"the file makes more than {limit} times its size in statements; split it, write "
                "it without entities that expand, or raise '[sandbox] expansion' in trails.toml",
                limit="expansion",
                value=limit,
            )
        # A statement may span several pieces.
        end = piece.rfind(b"\n") + 1
        self._begun.append(piece[:end] if end else piece)
        if end:
            self._check_begun()
            self._begun.append(piece[end:])
        return piece

    def _check_begun(self) -> None:
        """Check the statements that are complete."""
        check_nesting(b"".join(self._begun), self._limits.depth)
        self._begun.clear()


def _framed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Split chunks into frames, followed by an empty one."""
    for chunk in chunks:
        for start in range(0, len(chunk), PIECE):
            yield frame(chunk[start : start + PIECE])
    yield frame(b"")


def _refusal(reply: WorkerReply) -> QueryError | DeathError:
    if reply.outcome == "refused":
        return QueryError(f"the file can't be read: {reply.note[:1000]}")
    return DeathError(0, reply.note)
