"""Server processes, each on the first core; the generator has the others."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Final, cast

import msgspec

from bench.serving.load import Case

ROOT: Final = Path(__file__).parents[2]
FASTMCP: Final = ("fastmcp==4.1.2", "uvloop", "httptools")
PEERS: Final = ROOT / "build" / "peers"


class Server(msgspec.Struct, frozen=True):
    """A process that serves HTTP."""

    pid: int
    port: int
    path: str

    def case(self, expect: bytes, *requests: bytes) -> Case:
        """Requests to it, sent in turn."""
        return Case(self.port, requests, expect, self.pid)


@contextmanager
def generator_pinned() -> Iterator[None]:
    """Keep this process off the servers' core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before - {min(before)} or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def peer(kind: str, tools: int, python: str | Path = sys.executable) -> Iterator[Server]:
    """A peer; see ``bench.serving.peers``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["-m", "bench.serving.peers", kind, str(tools), str(port)]
    with _process([str(python), *arguments]) as process:
        _wait_for(port, process)
        yield Server(process.pid, port, "/mcp")


@contextmanager
def ours(folder: Path, environment: Mapping[str, str] = {}) -> Iterator[Server]:
    """``trails serve`` on a project folder, with more variables of its environment."""
    arguments = ["-m", "trails", "serve", "--port", "0", "--json", "-p", str(folder)]
    with _process([sys.executable, *arguments], subprocess.PIPE, environment) as process:
        said = json.loads(cast(IO[bytes], process.stdout).readline())
        port = int(said["url"].rpartition(":")[2])
        yield Server(process.pid, port, "/graphs/main/mcp")


def fastmcp_python() -> Path | None:
    """The interpreter of an environment with FastMCP, made when first asked for."""
    python = PEERS / "bin" / "python"
    ready = PEERS / "ready.json"
    wanted = json.dumps(FASTMCP)
    if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
        return python
    venv.create(PEERS, with_pip=True, clear=True)
    command = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *FASTMCP]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        print(f"  FastMCP is left out, it can't be installed: {done.stderr.strip()[-300:]}")
        return None
    ready.write_text(wanted, encoding="utf-8")
    return python


@contextmanager
def _process(
    command: Sequence[str], stdout: int | None = None, environment: Mapping[str, str] = {}
) -> Iterator[subprocess.Popen[bytes]]:
    core = min(os.sched_getaffinity(os.getppid()))
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=stdout,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["src", str(ROOT)]), **environment},
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),  # noqa: PLW1509 - one thread forks
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _wait_for(port: int, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    end = monotonic() + seconds
    while process.poll() is None and monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port}")
