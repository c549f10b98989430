"""The owner's side of the sandbox processes: one zygote, and a socket to each worker.

A worker that misses its deadline (``LateError``), dies or breaks the protocol
(``DeathError``) is killed. ``zygote`` and ``worker`` are the other side; ``wire`` is the
protocol.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from trails.model.history import Position
from trails.sandbox.confine import Confinement
from trails.sandbox.wire import (
    HEADER,
    MAX_FRAME,
    PIECE,
    Job,
    WorkerReply,
    decode_reply,
    encode,
    frame,
)
from trails.sandbox.worker import PATIENCE
from trails.sandbox.zygote import Spawn, Status, ZygoteReply

_START: Final = 30.0
"""Seconds that a zygote or a worker may take to start on a busy machine."""
_LONG: Final = 0.025
"""Seconds after which a query gets a lower priority."""
_SHORT_WAIT: Final = struct.pack("ll", 0, int(_LONG * 1_000_000))
"""The same as a ``timeval``."""
_LARGE: Final = 1 << 20
"""Bytes to read at once of a reply that did not come whole. As a buffer for each, it would cost
a small reply its mapping in memory."""
_LAST_WORDS: Final = 4096


class LateError(Exception):
    """The deadline passed; the worker was killed."""


class DeathError(Exception):
    """The worker ended by itself, or broke the protocol and was killed."""

    def __init__(self, signal_number: int, words: str, *, unread: bool = False) -> None:
        super().__init__(signal_number, words)
        self.signal = signal_number
        self.words = words
        self.unread = unread
        """Whether it left input unread: a single job was then never started."""


class WorkerSpawner:
    """The zygote, started on first use and again if it dies."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._confinement: Confinement | None = None
        self._closed = False

    @property
    def confinement(self) -> Confinement:
        """How the workers are confined."""
        if self._confinement is None:  # later calls must not wait for a fork
            with self._lock:
                if self._confinement is None:
                    self._start()
        assert self._confinement is not None  # noqa: S101 - set by the start
        return self._confinement

    def _start(self) -> socket.socket:
        if self._closed:
            raise DeathError(0, "the sandbox is closed")
        self._stop()
        ours, theirs = socket.socketpair()
        with theirs:
            # A clean environment keeps the owner's secrets from workers. A process group of
            # its own: Ctrl-C is for the owner. The same session: where Linux shares processor
            # time between sessions, the priority of a long query counts within one only.
            # -P: no code from the current folder.
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "trails.sandbox.zygote",
                    str(theirs.fileno()),
                    str(self._memory),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
                env={
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                    "MALLOC_ARENA_MAX": "1",  # otherwise threads reserve GiB of address space
                    "LC_ALL": "C.UTF-8",
                },
            )
        ours.settimeout(_START)
        self._control = ours
        said = ours.recv(PIECE)
        if not said:
            self._confinement = Confinement(missing="the sandbox process did not start")
        else:
            self._confinement = msgspec.msgpack.decode(said, type=Confinement)
        return ours

    def spawn(self, folder: Path | None) -> WorkerHandle:
        """Start a worker and wait until it has opened the store of its folder."""
        ours, theirs = socket.socketpair()
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        os.set_blocking(reader, False)
        sent = [theirs.fileno(), writer]
        try:
            if folder is not None:
                sent.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
            pid, descriptors = self._order(Spawn(self._memory), sent)
        except BaseException:
            ours.close()
            os.close(reader)
            raise
        finally:
            theirs.close()
            for descriptor in sent[1:]:
                os.close(descriptor)
        worker = WorkerHandle(
            self, pid, descriptors[0] if descriptors else None, ours, reader, folder
        )
        try:
            worker.receive(monotonic() + _START)
        except BaseException:
            worker.end()
            raise
        return worker

    def status(self, pid: int) -> int:
        """Return how a dead worker ended: an exit code, or a negative signal number."""
        try:
            return self._order(Status(pid), [], retry=False)[0]
        except (DeathError, OSError):
            return 0

    def _order(
        self, order: Spawn | Status, sent: list[int], *, retry: bool = True
    ) -> tuple[int, list[int]]:
        with self._lock:
            control = self._control or self._start()
            try:
                socket.send_fds(control, [encode(order)], sent)
                said, received, _, _ = socket.recv_fds(control, PIECE, 1)
            except OSError:
                said, received = b"", []
            if said:
                return msgspec.msgpack.decode(said, type=ZygoteReply).value, received
            self._stop()
        if not retry:
            raise DeathError(0, "the sandbox process ended")
        return self._order(order, sent, retry=False)

    def close(self) -> None:
        """End the zygote, which ends every worker."""
        with self._lock:
            self._closed = True
            self._stop()

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            try:
                self._process.wait(1)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._control = self._process = None


class WorkerHandle:
    """One worker, as its owner sees it."""

    def __init__(
        self,
        nursery: WorkerSpawner,
        pid: int,
        process: int | None,
        link: socket.socket,
        errors: int,
        folder: Path | None,
    ) -> None:
        self.pid = pid
        self.folder = folder
        self.position = Position(0, "")
        self.caller = ""
        """The caller that used it last; empty if none has."""
        self.fed = 0
        """Bytes of deltas that it has applied."""
        self.held = 0
        """Bytes of address space that it uses."""
        self._spawner = nursery
        self._process = process
        self._link = link
        self._errors = errors
        self._thread = 0
        self._open = True
        self.alive = True
        """False once we have killed it."""
        # A thread that sleeps in ``recv`` is woken in half the time of one that polls first, and
        # most queries are answered within this wait. Everything else asks not to wait.
        link.setblocking(True)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _SHORT_WAIT)
        self._poller = select.poll()
        self._poller.register(link, select.POLLIN)

    def ask(self, job: Job, deadline: float) -> WorkerReply:
        """Run one job by the deadline; after LateError or DeathError the worker is dead."""
        self.send(frame(encode(job)), deadline)
        if deadline - monotonic() <= _LONG:
            return self.receive(deadline)
        begun = self._read(PIECE, 0)
        if not begun:
            self._demote()
        return self.receive(deadline, begun)

    def send(self, data: bytes, deadline: float) -> None:
        """Send bytes that a worker reads before it writes."""
        sent = self.offer(data)
        if sent == len(data):
            return
        rest = memoryview(data)[sent:]
        self._poller.modify(self._link, select.POLLOUT)
        while rest:
            self._wait(deadline)
            rest = rest[self.offer(rest) :]
        self._poller.modify(self._link, select.POLLIN)

    def offer(self, data: bytes | memoryview) -> int:
        """Send as many bytes as fit now; return their number."""
        try:
            return self._link.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError:
            raise self._death(unread=True) from None

    def receive(self, deadline: float, data: bytes = b"") -> WorkerReply:
        """Wait for one reply, of which ``data`` has arrived."""
        while len(data) < HEADER:
            self._wait(deadline)
            data += self.take()
        length = int.from_bytes(data[:HEADER], "little")
        if length > MAX_FRAME:
            raise self.broke_protocol()
        if len(data) < HEADER + length:
            buffer = bytearray(data)
            while len(buffer) < HEADER + length:
                self._wait(deadline)
                buffer += self.take()
            data = bytes(buffer)
        return self.read(data[HEADER:])

    def read(self, payload: bytes) -> WorkerReply:
        """Decode a reply."""
        try:
            reply = decode_reply(payload)
        except (msgspec.DecodeError, ValueError):
            raise self.broke_protocol() from None
        self.held = reply.held
        self._thread = reply.thread
        return reply

    def take(self) -> bytes:
        """Read the bytes that have arrived."""
        return self._read(_LARGE, socket.MSG_DONTWAIT)

    def _read(self, size: int, flags: int) -> bytes:
        """Read bytes; none if there are none in time."""
        try:
            data = self._link.recv(size, flags)
        except BlockingIOError:
            return b""
        except ConnectionResetError:  # the worker closed its end with unread bytes
            raise self._death(unread=True) from None
        except OSError:
            raise self._death() from None
        if not data:
            raise self._death()
        return data

    def wait(self, deadline: float, *, writing: bool) -> int:
        """Wait until the socket is readable (or writable); return the events."""
        events = select.POLLIN | (select.POLLOUT if writing else 0)
        self._poller.modify(self._link, events)
        return self._wait(deadline)

    def _wait(self, deadline: float) -> int:
        remaining = deadline - monotonic()
        ready = self._poller.poll(remaining * 1000) if remaining > 0 else []
        if not ready:
            self.kill()
            raise LateError
        return ready[0][1]

    def _demote(self) -> None:
        """Lower the priority of the working thread; the worker then continues in a new one."""
        # The worker sent this number: accept only one of its own threads.
        if Path(f"/proc/{self.pid}/task/{self._thread}").exists():
            with contextlib.suppress(OSError):
                usual = os.getpriority(os.PRIO_PROCESS, 0)
                os.setpriority(os.PRIO_PROCESS, self._thread, usual + PATIENCE)

    def quiet(self) -> bool:
        """Whether it is idle and alive: the socket of a dead worker is readable."""
        return not self._poller.poll(0)

    def kill(self) -> None:
        """Stop it immediately."""
        if not self.alive:
            return
        self.alive = False
        with contextlib.suppress(ProcessLookupError):
            if self._process is not None:
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            else:
                os.kill(self.pid, signal.SIGKILL)

    def broke_protocol(self) -> DeathError:
        """End a worker that broke the protocol: it may have been taken over."""
        self.kill()
        return DeathError(0, "")

    def _death(self, *, unread: bool = False) -> DeathError:
        """Say why it ended: its signal and its last output."""
        self.kill()  # it may have closed its socket without ending
        code = self._spawner.status(self.pid)
        words = b""
        with contextlib.suppress(OSError):
            words = os.read(self._errors, _LAST_WORDS)
        said = words.decode("utf-8", "replace")
        return DeathError(-code if code < 0 else 0, said, unread=unread)

    def end(self) -> None:
        """Kill it and close its descriptors; the caller removes the folder."""
        self.kill()
        if self._open:
            self._open = False
            self._link.close()
            os.close(self._errors)
            if self._process is not None:
                gone = select.poll()  # its files can be removed only after it has ended
                gone.register(self._process, select.POLLIN)
                gone.poll(1000)
                os.close(self._process)
