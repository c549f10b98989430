"""What comes back from workers: results of queries, effects of updates, statements of files.

A worker wrote these bytes, so they are untrusted: nested triples are counted before a recursive
parser reads them. ``convert`` streams a file of any RDF format through a worker. Owner and worker
write at the same time, so the owner never blocks on one direction; output that the reader has not
taken yet stays in the worker.
"""

from __future__ import annotations

import re
import select
from collections.abc import Iterable, Iterator
from functools import cached_property
from time import monotonic
from typing import Final, Literal

import msgspec
import pyoxigraph as ox

from trails.errors import LimitError, QueryError
from trails.model.history import Position
from trails.sandbox.limits import MIB, Limits
from trails.sandbox.processes import DeathError, WorkerHandle
from trails.sandbox.wire import HEADER, MAX_FRAME, PIECE, Job, WorkerReply, encode, frame
from trails.sandbox.worker import FORMATS

Form = Literal["select", "ask", "graph"]
Row = tuple[object, ...]

_OPEN: Final = b"<<("
_STRING: Final = re.compile(rb'"(?:[^"\\\n]|\\.)*"')
_NESTING: Final = re.compile(rb"<<\(|\)>>")


class Effect(msgspec.Struct, frozen=True):
    """The N-Quads that an update would remove and add at a position; nothing was changed."""

    position: Position
    removed: bytes
    added: bytes


class Result:
    """The answer to a query. Rows are decoded on first use.

    A SELECT has rows of RDF terms in the order of ``variables`` (None: unbound); CONSTRUCT and
    DESCRIBE have rows of subject, predicate, object; ASK has only ``truth``.
    """

    def __init__(self, form: Form, body: bytes, cut: str, seconds: float, limits: Limits) -> None:
        self.form: Form = form
        self.seconds = seconds
        self.truth = bool(body) if form == "ask" else None
        self.truncated = cut or None
        """The limit that cut it: "rows" or "bytes"."""
        self.notice = _notice(cut, limits)
        """A note for the reader of a truncated result: which limit applied, and what to do."""
        self.body = body
        """The rows as the worker wrote them: TSV for SELECT, N-Triples for a graph."""
        self.depth = limits.depth
        """How deeply triples may be nested."""

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The names of the columns."""
        if self.form == "graph":
            return ("subject", "predicate", "object")
        names = self.body[: self.body.find(b"\n")] if self.form == "select" else b""
        return tuple(name[1:] for name in names.decode().split("\t")) if names else ()

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The rows, as RDF terms."""
        if self.form == "ask":
            return ()
        check_nesting(self.body, self.depth)
        try:
            if self.form == "select":
                found = ox.parse_query_results(self.body, ox.QueryResultsFormat.TSV)
                assert isinstance(found, ox.QuerySolutions)  # noqa: S101 - TSV has no other
                return tuple(map(tuple, found))
            return tuple(
                (quad.subject, quad.predicate, quad.object)
                for quad in ox.parse(self.body, ox.RdfFormat.N_TRIPLES, lenient=True)
            )
        except (SyntaxError, ValueError):
            raise QueryError("the result contains a term that can't be parsed") from None

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rows)


def check_nesting(text: bytes, depth: int) -> None:
    """Refuse triples nested deeper than a parser can handle."""
    if text.count(_OPEN) <= depth:
        return
    for line in text.split(b"\n"):
        if line.count(_OPEN) <= depth:
            continue
        level = 0
        for bracket in _NESTING.findall(_STRING.sub(b"", line)):
            level += 1 if bracket == _OPEN else -1
            if level > depth:
                raise LimitError(
                    f"triples are nested within triples more than {depth} levels deep; "
                    "nest them less",
                    limit="depth",
                    value=depth,
                )


def _notice(cut: str, limits: Limits) -> str | None:
    if cut == "rows":
        return (
            f"only the first {limits.rows:,} rows are shown; narrow the query, page through it "
            "with ORDER BY, LIMIT and OFFSET, or raise '[sandbox] rows' in trails.toml"
        )
    if cut == "bytes":
        return (
            f"only the first {limits.result_bytes / MIB:g} MiB are shown; select fewer variables "
            "or rows, or raise '[sandbox] result_mb' in trails.toml"
        )
    return None


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
