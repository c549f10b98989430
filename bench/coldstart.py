"""From nothing to the first answer over standard streams, beside the SDK's bare server.

A client starts a process, sends ``initialize`` and waits; that is done again and again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import IO, Final, cast

import msgspec

from bench.measure import OUT, Goal, Result, interleave
from bench.serving.projects import make_project
from bench.serving.servers import ROOT
from bench.startup import ENVIRONMENT

ALLOWED: Final = 0.1
INITIALIZE: Final = msgspec.json.encode(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        },
    }
)


def run(*, quick: bool) -> list[Result]:
    """A project that was opened before, as it is on all days but one."""
    with TemporaryDirectory(dir=OUT) as temporary:
        folder = make_project(Path(temporary) / "project", 4)
        commands = {
            "ours": ["-m", "trails", "serve", "--stdio", "-p", str(folder)],
            "peer": ["-m", "bench.serving.bare_stdio"],
            "floor": ["-m", "bench.serving.no_protocol"],
        }
        used: dict[str, list[float]] = {name: [] for name in commands}

        def start(name: str) -> None:
            used[name].append(first_answer(commands[name]))

        calls = {name: partial(start, name) for name in commands}
        times = interleave(calls, 3 if quick else 20)
    return [
        Result(
            "cold start of serve --stdio",
            "ms",
            times["ours"].p50 * 1e3,
            (times["peer"].p50 + ALLOWED) * 1e3,
            times["floor"].p50 * 1e3,
            Goal("<=", 1),
            "the SDK's bare server + 100 ms · a bare interpreter that answers",
            {
                "sdk": times["peer"].p50 * 1e3,
                "p99": times["ours"].p99 * 1e3,
                "processor": {name: median(each) * 1e3 for name, each in used.items()},
            },
        )
    ]


def first_answer(arguments: list[str]) -> float:
    """Start a server, and have one answer from it; what it used of a processor."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**ENVIRONMENT, "PYTHONPATH": path},
    )
    reading, writing = cast(IO[bytes], process.stdout), cast(IO[bytes], process.stdin)
    try:
        writing.write(INITIALIZE + b"\n")
        writing.flush()
        if b'"serverInfo"' not in reading.readline():
            raise RuntimeError(f"{arguments} gave no answer")
    finally:
        # Not process.kill(), which would reap one that has ended, and with it what it used.
        os.kill(process.pid, signal.SIGKILL)
        process.returncode, usage = os.wait4(process.pid, 0)[1:]
        writing.close()
        reading.close()
    return usage.ru_utime + usage.ru_stime
