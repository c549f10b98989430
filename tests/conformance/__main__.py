"""``python -m tests.conformance``: the official suite against both doors.

Ends with 1 on any scored scenario that fails and is not foreseen in expected.toml, on
one that is foreseen and passes, and when the suite can't be run at all.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from tests.conformance.judge import judge, read_expected
from tests.conformance.suite import (
    FOLDER,
    HERE,
    Report,
    UnavailableError,
    examine,
    install,
    scored,
)

RUNS: Final = (
    ("fast", "2026-07-28"),
    ("sdk", "2026-07-28"),
    ("plain", "2026-07-28"),
    ("fast", "2025-11-25"),
    ("sdk", "2025-11-25"),
    ("plain", "2025-11-25"),
)


def main() -> int:
    """Run everything, tell what was found; the exit code says whether all is as foreseen."""
    try:
        node = install()
        found = [finding for run in RUNS for finding in examine_and_judge(node, *run)]
    except UnavailableError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1
    for finding in found:
        print(f"  {finding}", file=sys.stderr)
    return 1 if found else 0


def examine_and_judge(node: Path, server: str, revision: str) -> Iterator[str]:
    """Run one revision against one server."""
    required = scored(revision)
    with serving(server) as url:
        report = examine(node, url, revision, FOLDER / "results" / f"{server}-{revision}")
    found = list(judge(server, report, required, read_expected(HERE / "expected.toml")))
    print(f"{server:9} {revision}  {summarise(report, required)}")
    return (f"{server}, {revision}: {finding}" for finding in found)


def summarise(report: Report, required: frozenset[str]) -> str:
    """One line: how many scored scenarios pass, and what was only warned of."""
    passed = sum(not report.failed.get(name, ("absent",)) for name in required)
    warned = sorted(name for name in required if report.warned.get(name))
    others = sorted(name for name, failed in report.failed.items() if failed)
    unscored = len([name for name in others if name not in required])
    notes = [f"{unscored} not scored fail"] if unscored else []
    notes += [f"warnings: {', '.join(warned)}"] if warned else []
    return f"{passed} of {len(required)} scored pass" + "".join(f"; {note}" for note in notes)


@contextmanager
def serving(server: str) -> Iterator[str]:
    """A server of the fixture, while the block runs; gives its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tests.conformance.app", server, str(port)]
    with (FOLDER / f"{server}.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
        try:
            wait_for(port, process)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()
            process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes], seconds: float = 30) -> None:
    """Until a server listens."""
    end = monotonic() + seconds
    while monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        sleep(0.05)
    raise UnavailableError(f"the fixture does not listen on port {port}; see {FOLDER}/*.log")


if __name__ == "__main__":
    sys.exit(main())
