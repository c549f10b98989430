"""``python -m trails.sandbox.zygote``: the process that workers are forked from.

It imports what workers need, gives up root, and stays single-threaded without open files, so
a fork takes a millisecond. It ends, with its workers, when its owner ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import select
import signal
import socket
import sys
import termios
import traceback
from typing import Final

import msgspec

from trails.sandbox.confine import Confinement, confine, drop_root, end_with_parent
from trails.sandbox.worker import serve

_CHECK: Final = 1000
"""Milliseconds between checks for dead workers and for the owner."""
_REMEMBERED: Final = 1000


class Spawn(msgspec.Struct, tag="spawn"):
    """Fork a worker, with its socket, its error pipe and, if it has one, its folder."""

    memory: int


class Status(msgspec.Struct, tag="status"):
    """Ask how a worker ended; the owner has already killed it if it was running."""

    pid: int


class ZygoteReply(msgspec.Struct):
    """The reply: a pid, with a descriptor of the process; or how a worker ended."""

    value: int


_decode_order = msgspec.msgpack.Decoder(Spawn | Status).decode


class Zygote:
    """The loop: fork on request, remember how workers ended."""

    def __init__(self, control: socket.socket, owner: int) -> None:
        self._control = control
        self._owner = owner
        self._ended: dict[int, int] = {}
        self._living: set[int] = set()

    def run(self) -> None:
        """Serve until the owner ends."""
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        while os.getppid() == self._owner:
            if poller.poll(_CHECK) and not self._obey():
                break
            self._reap()
        for pid in self._living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _obey(self) -> bool:
        """Execute one request; return False when the owner has closed the socket."""
        data, descriptors, _, _ = socket.recv_fds(self._control, 4096, 4)
        if not data:
            return False
        order = _decode_order(data)
        if isinstance(order, Status):
            self._control.sendall(msgspec.msgpack.encode(ZygoteReply(self._status(order.pid))))
            return True
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become_worker(parent, self._control, descriptors, order.memory)
        for descriptor in descriptors:
            os.close(descriptor)
        self._living.add(pid)
        answer = msgspec.msgpack.encode(ZygoteReply(pid))
        if sys.platform == "linux":
            process = os.pidfd_open(pid)
            socket.send_fds(self._control, [answer], [process])
            os.close(process)
        else:
            self._control.sendall(answer)
        return True

    def _status(self, pid: int) -> int:
        if pid in self._living:
            _, status = os.waitpid(pid, 0)
            self._note(pid, status)
        return self._ended.pop(pid, 0)

    def _reap(self) -> None:
        while self._living:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self._note(pid, status)

    def _note(self, pid: int, status: int) -> None:
        self._living.discard(pid)
        self._ended[pid] = os.waitstatus_to_exitcode(status)
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]


def _become_worker(
    parent: int, control: socket.socket, descriptors: list[int], memory: int
) -> None:
    """In the child: keep only a worker's descriptors, serve, and never return."""
    try:
        end_with_parent(parent)
        control.close()
        os.dup2(descriptors[1], 2)
        os.close(descriptors[1])
        kept = [0, 1, 2, descriptors[0], *descriptors[2:]]
        for low, high in zip(sorted(kept), [*sorted(kept)[1:], 4096], strict=True):
            os.closerange(low + 1, high)
        serve(descriptors[0], descriptors[2] if len(descriptors) > 2 else None, memory)
    except BaseException:  # noqa: BLE001 - this process has no caller
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def probe(memory: int) -> Confinement:
    """Find out how a worker would be confined here, by confining a child."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, msgspec.msgpack.encode(confine(None, memory)))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    if not said:
        return Confinement(missing="a confined test process ended unexpectedly")
    return msgspec.msgpack.decode(said, type=Confinement)


def leave_terminal() -> None:
    """Give up the terminal of this session, which a worker that was taken over could use."""
    with contextlib.suppress(OSError):  # there is none
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        fcntl.ioctl(terminal, termios.TIOCNOTTY)
        os.close(terminal)


def main(descriptor: int, memory: int) -> None:
    """Report the confinement, then serve."""
    leave_terminal()
    owner = os.getppid()
    control = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        drop_root()
    except OSError as error:
        held = Confinement(missing=f"can't give up root: {error}", uid=0)
        control.sendall(msgspec.msgpack.encode(held))
        return
    control.sendall(msgspec.msgpack.encode(probe(memory)))
    gc.collect()
    gc.freeze()
    Zygote(control, owner).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
