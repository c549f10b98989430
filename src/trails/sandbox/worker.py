"""The code inside a worker: apply deltas, answer queries, parse files.

The process is the security boundary. Nothing here checks the text: the owner's clock, the
limits and the confinement stop whatever it makes the engine do.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import threading
from collections.abc import Callable
from typing import IO, Final, cast

import pyoxigraph as ox

from trails.errors import TrailsError
from trails.model.iris import TRAILS
from trails.sandbox.confine import confine
from trails.sandbox.updates import DEFAULT_BASE, effect_of
from trails.sandbox.wire import PIECE, Channel, Job, Outcome, WorkerReply, decode_job, encode
from trails.views.long_strings import parse_file
from trails.views.terms import load_statements, long_token, read_statements, stored_form

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
PATIENCE: Final = 19
"""Priority (nice) steps for long work: the lowest priority, which short work does not notice."""
_BULK: Final = 1 << 20
"""Bytes of a delta above which a bulk load is faster than single additions."""
_REFUSALS: Final = (SyntaxError, ValueError, OSError, RuntimeError, NotImplementedError)
FORMATS: Final = {
    "turtle": ox.RdfFormat.TURTLE,
    "n-triples": ox.RdfFormat.N_TRIPLES,
    "n-quads": ox.RdfFormat.N_QUADS,
    "trig": ox.RdfFormat.TRIG,
    "rdf-xml": ox.RdfFormat.RDF_XML,
    "json-ld": ox.RdfFormat.JSON_LD,
}


def serve(descriptor: int, folder: int | None, memory: int) -> None:
    """Confine this process, open the store, and answer until the owner closes the socket."""
    worker = Worker(Channel(descriptor))
    if folder is not None:
        os.fchdir(folder)
    held = confine(folder, memory)
    if folder is not None:
        # Threads inherit the priority, so compaction gives way as well.
        _in_thread(worker.open)
        if worker.store is None:
            return
    gc.disable()
    worker.pending = WorkerReply("ready", body=encode(held))
    while worker.pending is not None:
        _in_thread(worker.run)


def _in_thread(work: Callable[[], None]) -> None:
    """Run in a new thread, because the priority of a thread can't be raised again."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


class Worker:
    """One worker: its channel, and its store if it has one."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._memory = 0
        self._usual = os.getpriority(os.PRIO_PROCESS, 0)
        # Opened now, because the confinement forbids it later.
        self._usage: int | None = None
        with contextlib.suppress(OSError):
            self._usage = os.open("/proc/self/statm", os.O_RDONLY)
        self.store: ox.Store | None = None
        self.pending: WorkerReply | None = None
        """The reply that the next thread sends."""

    def open(self) -> None:
        """Open the store of this folder, and retry for a while."""
        os.setpriority(os.PRIO_PROCESS, 0, self._usual + PATIENCE)
        # A relative path, because this user may not be able to enter the parent folders.
        self.store = ox.Store(".")
        # The view's own metadata is not data; the owner sends a worker its position.
        self.store.remove_graph(ox.NamedNode(TRAILS + "view"))

    def run(self) -> None:
        """Answer jobs until this thread's priority was lowered; a new thread then continues."""
        reply, self.pending = self.pending, None
        while reply is not None:
            self._answer(reply)
            payload = self._channel.read()
            if payload is None:
                return
            job = decode_job(payload)
            reply = self._step(job)
            if job.task == "parse" and reply.outcome != "done":
                self._give_up(reply)
                return
            if os.getpriority(os.PRIO_PROCESS, 0) > self._usual:
                self.pending = reply
                return

    def _give_up(self, reply: WorkerReply) -> None:
        """Send the reason, then discard the rest of a file until the owner kills us."""
        self._answer(reply)
        while self._channel.read() is not None:
            pass

    def _step(self, job: Job) -> WorkerReply:
        self._limit(job.memory)
        try:
            return self._run(job)
        except MemoryError:
            os.abort()  # as the engine does when it gets no memory
        except BaseException as error:  # noqa: BLE001 - a panic of the engine is not an Exception
            return WorkerReply("broken", f"{type(error).__name__}: {error}")

    def _answer(self, reply: WorkerReply) -> None:
        """Send a reply, with the memory in use."""
        held = 0
        if self._usage is not None:
            held = int(os.pread(self._usage, 32, 0).split(None, 1)[0]) * _PAGE
        self._channel.write(
            encode(
                WorkerReply(
                    reply.outcome,
                    reply.note,
                    reply.body,
                    reply.added,
                    held,
                    threading.get_native_id(),
                )
            )
        )

    def _limit(self, memory: int) -> None:
        """Lower the memory limit for one call; the hard limit stays."""
        if memory != self._memory:
            _, hard = resource.getrlimit(resource.RLIMIT_AS)
            soft = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
            self._memory = memory

    def _run(self, job: Job) -> WorkerReply:
        store = self.store
        if store is None:
            store = ox.Store()
        for removed, added in job.deltas:
            _apply(store, removed, added)
        try:
            return self._tasks[job.task](self, store, job)
        except TrailsError as error:
            return WorkerReply("refused", error.message)
        except _REFUSALS as error:
            return WorkerReply("refused", str(error))

    def _query(self, store: ox.Store, job: Job) -> WorkerReply:
        found = store.query(job.text, base_iri=job.base_iri, prefixes=job.prefixes, named_graphs=[])
        if isinstance(found, ox.QueryBoolean):
            return WorkerReply("ask", body=b"1" if found else b"")
        form: Outcome
        cut = Cut(job.rows, job.size)
        with contextlib.suppress(CutError):
            if isinstance(found, ox.QuerySolutions):
                form = "select"
                cut.lines += 1  # the names of the variables
                found.serialize(cast(IO[bytes], cut), ox.QueryResultsFormat.TSV)
            else:
                form = "graph"
                found.serialize(cast(IO[bytes], cut), ox.RdfFormat.N_TRIPLES)
        return WorkerReply(form, cut.by, cut.taken())

    def _update(self, store: ox.Store, job: Job) -> WorkerReply:
        removed, added = effect_of(store, job.text, job.prefixes, base=job.base_iri or DEFAULT_BASE)
        if len(removed) + len(added) > job.size:
            return WorkerReply("effect", "effect_bytes")
        return WorkerReply("effect", "", removed, added)

    def _check_query(self, store: ox.Store, job: Job) -> WorkerReply:
        store.query(job.text, base_iri=job.base_iri, prefixes=job.prefixes)
        return WorkerReply("done")

    def _check_update(self, store: ox.Store, job: Job) -> WorkerReply:
        store.update(job.text, base_iri=job.base_iri, prefixes=job.prefixes)
        return WorkerReply("done")

    def _parse(self, store: ox.Store, job: Job) -> WorkerReply:  # noqa: ARG002 - as the others
        source, output = Input(self._channel), Pieces(self._channel)
        try:
            quads = parse_file(source.read, FORMATS[job.text], job.base_iri)
            ox.serialize(quads, cast(IO[bytes], output), ox.RdfFormat.N_QUADS)
        except MemoryError as error:
            reason = long_token(error)
            if reason is None:
                raise
            return WorkerReply("refused", reason)
        output.send()
        source.finish()
        return WorkerReply("done")

    def _follow(self, store: ox.Store, job: Job) -> WorkerReply:  # noqa: ARG002 - as the others
        return WorkerReply("done")

    _tasks: Final = {
        "query": _query,
        "update": _update,
        "check query": _check_query,
        "check update": _check_update,
        "parse": _parse,
        "follow": _follow,
    }


def _apply(store: ox.Store, removed: bytes, added: bytes) -> None:
    """Apply one commit to the store."""
    if removed:
        for quad in read_statements(stored_form(removed), lenient=True):
            store.remove(quad)
    if len(added) > _BULK:
        load_statements(store, added)
    elif added:
        store.extend(ox.parse(stored_form(added), ox.RdfFormat.N_QUADS, lenient=True))


class CutError(Exception):
    """Enough output was written."""


class Cut:
    """A file that accepts a limited number of lines and bytes.

    In TSV and N-Triples a line is a row.
    """

    def __init__(self, lines: int, size: int) -> None:
        self.lines = lines
        self.by = ""
        self._size = size
        self._buffer = bytearray()
        self._seen = 0

    def write(self, data: bytes) -> int:
        """Accept a piece; raise CutError after the last line wanted."""
        self._buffer += data
        self._seen += data.count(b"\n")
        if self._seen > self.lines:
            self.by = "rows"
        elif len(self._buffer) > self._size:
            self.by = "bytes"
        else:
            return len(data)
        raise CutError

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def taken(self) -> bytes:
        """Return the output, cut after a whole line."""
        if self.by == "rows":
            lines = self._buffer.split(b"\n", self.lines)
            del self._buffer[len(self._buffer) - len(lines[-1]) :]
        if len(self._buffer) > self._size:
            self.by = "bytes"
            # The line of names is kept even if it is too long: without it there is no result.
            end = self._buffer.rfind(b"\n", 0, self._size) + 1
            del self._buffer[end or self._buffer.find(b"\n") + 1 :]
        return bytes(self._buffer)


class Input:
    """A file that arrives in frames; an empty frame is its end."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._rest = memoryview(b"")
        self._ended = False

    def read(self, size: int) -> bytes:
        """Return as many bytes as requested, unless the file ends.

        With fewer, a parser would scan the beginning of a long token again and again.
        """
        pieces: list[memoryview] = []
        while size:
            if not self._rest and not self._ended:
                self._rest = memoryview(self._channel.read() or b"")
                self._ended = not self._rest
            if not self._rest:
                break
            pieces.append(self._rest[:size])
            self._rest = self._rest[size:]
            size -= len(pieces[-1])
        return b"".join(pieces)

    def finish(self) -> None:
        """Discard the input that the parser did not read."""
        while not self._ended:
            self._ended = not self._channel.read()


class Pieces:
    """A file that is sent in frames."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._buffer = bytearray()

    def write(self, data: bytes) -> int:
        """Buffer bytes and send them when there are enough."""
        self._buffer += data
        if len(self._buffer) >= PIECE:
            self.send()
        return len(data)

    def flush(self) -> None:
        """Do nothing: ``write`` and ``send`` decide when to send."""

    def send(self) -> None:
        if self._buffer:
            self._channel.write(encode(WorkerReply("piece", body=bytes(self._buffer))))
            self._buffer.clear()
