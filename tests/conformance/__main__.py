"""``python -m tests.conformance``: the official suite against both doors, the card and OpenAPI.

Ends with 1 on any scenario that fails and is not foreseen in expected.toml, on one that is
foreseen and passes, and when the suite can't be run at all. Extensions are left out; what
the suite runs and does not score yet counts here too, because it holds.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
from tests.conformance.cards import official_problems
from tests.conformance.generated_client import examine_client
from tests.conformance.suite import (
    FOLDER,
    HERE,
    Report,
    UnavailableError,
    examine,
    install,
    judge,
    read_expected,
    requirements,
)

from trails import App
from trails.app.kernels import kernel_of
from trails.model.actors import LOCAL
from trails.model.texts import count
from trails.projections.thing_description import Security, project_card, project_directory

NORTHLINE: Final = HERE.parents[1] / "examples" / "northline"
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
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            judged = list(pool.map(lambda run: examine_and_judge(node, *run), RUNS))
        judged += [examine_card(), examine_client()]
    except UnavailableError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1
    for line, findings in judged:
        print(line, *(f"  {finding}" for finding in findings), sep="\n")
    return 1 if any(findings for _line, findings in judged) else 0


def examine_and_judge(node: Path, server: str, revision: str) -> tuple[str, list[str]]:
    """Run one revision against one server: a line that sums it up, and what is wrong."""
    scored, unscored = requirements(revision)
    out = FOLDER / f"{server}-{revision}"
    with serving(server, out.with_suffix(".log")) as url:
        report = examine(node, url, revision, out)
    expected = read_expected(HERE / "expected.toml")
    findings = judge(server, report, scored | unscored, expected)
    summary = f"{summarise(report, scored)} scored, {summarise(report, unscored)} not scored"
    return f"{server:5} {revision}  {summary}", list(findings)


def examine_card() -> tuple[str, list[str]]:
    """Compare the card of an example, and its directory, with the official schema of W3C."""
    with TemporaryDirectory() as folder:
        unwanted = shutil.ignore_patterns(".trails", "__pycache__")
        shutil.copytree(NORTHLINE, folder, ignore=unwanted, dirs_exist_ok=True)
        with App.open(Path(folder)) as app:
            shown = kernel_of(app).card(LOCAL)
    card = project_card(shown, "http://localhost/graphs/main/", Security())
    directory = project_directory(["main"], "http://localhost/", Security("bearer"))
    found = [each for thing in (card, directory) for each in official_problems(_plain(thing))]
    return f"card  TD 1.1      {count(len(found), 'problem')}", found


def _plain(document: object) -> Any:
    return json.loads(msgspec.json.encode(document))


def summarise(report: Report, scenarios: frozenset[str]) -> str:
    """How many scenarios pass."""
    passed = sum(not report.failed.get(name, ("absent",)) for name in scenarios)
    return f"{passed} of {len(scenarios)}"


@contextmanager
def serving(server: str, log: Path) -> Iterator[str]:
    """A server of the fixture, while the block runs; gives its URL."""
    with log.open("wb") as said:
        # It is given the port, not its number: what is free now may not be so later.
        with socket.create_server(("127.0.0.1", 0)) as door:
            port, number = door.getsockname()[1], door.fileno()
            command = [sys.executable, "-m", "tests.conformance.app", server, str(number)]
            process = subprocess.Popen(command, stderr=said, pass_fds=[number])
        try:
            wait_for(port)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()
            process.wait()


def wait_for(port: int) -> None:
    """Until a server answers."""
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    except OSError:
        message = f"the fixture does not answer on port {port}; see {FOLDER}/*.log"
        raise UnavailableError(message) from None
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
