"""A writer's calls while a thousand clients watch what it writes, beside the same with none.

The server has one core; the writer and the subscribers share another. A call changes one
part, durably. The peer is the same call with nobody watching, the floor an SQLite append
of its size is elsewhere (``save``). Told beside it: how long the last change of a burst took
to reach the slowest hundredth of the subscribers, and what an idle one costs in memory.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter, sleep
from typing import Final

import msgspec

from bench.listeners import PATH
from bench.measure import OUT, Goal, Result, Times
from bench.parts import make_project
from bench.serving.requests import call

SUBSCRIBERS: Final = 1_000
CAPABILITY: Final = '''
from bench.parts import Part, values
from trails import Context, capability


@capability("part.touch")
def touch(ctx: Context, number: int) -> int:
    """Change a part."""
    given = values(number)
    Part(**{**given, "code": "P-00000000"}).save(ctx, upsert=True)
    return number
'''


def run(*, quick: bool) -> list[Result]:
    """Rounds with and without subscribers, in turns."""
    count, calls, rounds = (50, 60, 1) if quick else (SUBSCRIBERS, 200, 3)
    with TemporaryDirectory(dir=OUT) as folder, serving(Path(folder) / "project") as (port, pid):
        writer = Writer(port)
        writer.write(calls)  # everything is loaded and compiled
        alone: list[float] = []
        watched: list[float] = []
        delays: list[float] = []
        told = 0
        memory: list[float] = []
        for _ in range(rounds):
            alone += writer.write(calls)
            before = resident(pid)
            with listening(port, count) as subscribers:
                memory.append((resident(pid) - before) / count)
                watched += writer.write(calls)
                ended = monotonic()
                sleep(2)
                times = ask(subscribers)
                delays += [max(0.0, at - ended) for at, _ in times]
                told += sum(each for _, each in times)
            sleep(0.5)
    quiet, busy = Times(alone), Times(watched)
    late = Times(delays)
    return [
        Result(
            f"a writer's call while {count:,} watch",
            "ms",
            busy.p50 * 1e3,
            quiet.p50 * 1e3,
            quiet.p50 * 1e3,
            Goal("<=", 1.2),
            "the same call while nobody does · likewise",
            {
                "p99": busy.p99 * 1e3,
                "peer_p99": quiet.p99 * 1e3,
                "notifications_a_write": told / (calls * rounds),
                "idle_subscriber_kib": memory[0] / 1024,
            },
        ),
        Result(
            f"the last change reaches {count:,} (p99)",
            "ms",
            late.p99 * 1e3,
            1e3,
            late.p50 * 1e3,
            Goal("<=", 1),
            "a second · the median subscriber",
            {"rounds": rounds},
        ),
    ]


class Writer:
    """Calls one after the other, each series on one connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._number = 0

    def write(self, calls: int) -> list[float]:
        """How long each call took."""
        # A server closes a connection that was idle for some seconds, so each series has its own.
        with socket.create_connection(("127.0.0.1", self._port), timeout=60) as connection:
            return [self._call(connection) for _ in range(calls)]

    def _call(self, connection: socket.socket) -> float:
        self._number += 1
        request = call(PATH, "part.touch", {"number": self._number})
        start = perf_counter()
        connection.sendall(request)
        answer = _receive(connection)
        if b'"isError":false' not in answer:
            raise ValueError(f"unexpected answer: {answer[:600]!r}")
        return perf_counter() - start


def _receive(connection: socket.socket) -> bytes:
    data = b""
    while part := connection.recv(65536):
        data += part
        head, found, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if found and length and len(body) >= int(length[1]):
            return data
    raise ConnectionError("the server hung up")


@contextmanager
def serving(project: Path) -> Iterator[tuple[int, int]]:
    """The port and the process of a server on the first core."""
    make_project(project)
    (project / "app.py").write_text(CAPABILITY, encoding="utf-8")
    process = subprocess.Popen(
        pinned(0, "trails", "serve", "--json", "--port", "0", "--project", str(project)),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        line = process.stdout.readline()
        found = re.search(r":(\d+)", line)
        if found is None:
            raise ValueError(f"no port in {line!r}")
        yield int(found[1]), process.pid
    finally:
        process.terminate()
        process.wait(30)


def pinned(core: int, module: str, *arguments: str) -> list[str]:
    """A command that runs a module on one core."""
    return ["taskset", "-c", str(core), sys.executable, "-m", module, *arguments]


@contextmanager
def listening(port: int, count: int) -> Iterator[subprocess.Popen[str]]:
    """Subscribers on the second core, all of them acknowledged."""
    process = subprocess.Popen(
        pinned(max(os.sched_getaffinity(0)), "bench.listeners", str(port), str(count)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        if process.stdout.readline() != "ready\n":
            raise ValueError("not everybody was acknowledged")
        yield process
    finally:
        process.kill()
        process.wait()


def ask(process: subprocess.Popen[str]) -> list[tuple[float, int]]:
    """When each subscriber was told last, and how often it was."""
    assert process.stdin is not None  # noqa: S101 - it was asked for
    assert process.stdout is not None  # noqa: S101
    process.stdin.write("\n")
    process.stdin.flush()
    return msgspec.json.decode(process.stdout.readline(), type=list[tuple[float, int]])


def resident(pid: int) -> int:
    """The memory of a process, in bytes."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
