"""Small calls of one actor, alone and beside others who do harm.

A real server with tokens and policies. The actor reads, writes and queries in turn; what is
compared is what one call in a hundred takes, beside each pattern and alone. A call of this
actor that is refused is an error: quotas are for the others.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Final, NamedTuple

from bench.measure import OUT, Goal, Result, Times
from bench.serving.hostile_clients import PATTERNS
from bench.serving.servers import ROOT
from trails import App
from trails.app.settings import DATA_FOLDER
from trails.identity.tokens import TokenFile
from trails.model.actors import TokenRequest
from trails.model.writes import LoadRequest

SETTINGS: Final = """
[project]
name = "bench"

[graphs.main.budgets]
calls_per_minute = 1_000_000  # the actor that is measured makes more calls than any agent does
"""
APP: Final = '''
from trails import Node, node_type, predicate


@node_type
class Item(Node):
    """Something."""

    code: str = predicate(key=True)
    name: str = predicate()
    rank: int | None = predicate()
'''
POLICIES: Final = """
permit(principal in Group::"agents", action in [Action::"Read", Action::"Export"],
       resource in Graph::"main");
permit(principal in Group::"agents",
       action in [Action::"Change", Action::"BranchCreate", Action::"BranchDelete"],
       resource in Graph::"main")
when { context.branch like "*/*" || context.target like "*/*" };
permit(principal in Group::"agents", action == Action::"BranchMerge", resource in Graph::"main")
when { context.target like "*/*" };
"""
ACTORS: Final = {"loops": ("mal", "eve"), "pings": ("nobody", "nobody")}
"""Who does it, where that is not an actor of its own, whose budgets nothing else has used."""
GROUPS: Final = {
    "ann": "agents",
    "mal": "agents",
    "eve": "agents",
    "nobody": "strangers",
    **{pattern: "agents" for pattern in PATTERNS if pattern not in ACTORS},
}
"""Every actor; no policy names the group of strangers."""
NODES: Final = 300
_WARM: Final = 1.0
"""Seconds that a pattern has before it is measured; fewer in a smoke test."""


def run(*, quick: bool, requests: int = 10_000) -> list[Result]:
    """Every pattern on one server."""
    requests = 10 if quick else requests
    with (
        TemporaryDirectory(dir=OUT) as temporary,
        _served(Path(temporary)) as server,
        closing(Victim(server.port, server.tokens["ann"])) as victim,
    ):
        victim.begin()
        victim.measure(10 if quick else 500)
        return [_compare(server, victim, each, requests) for each in PATTERNS]


def _compare(server: Served, victim: Victim, pattern: str, requests: int) -> Result:
    quiet = victim.measure(requests)
    processes: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        for actor in ACTORS.get(pattern, (pattern,)):
            arguments = [pattern, str(server.port), server.tokens[actor]]
            command = [sys.executable, "-m", _CLIENTS, *arguments]
            processes.append(stack.enter_context(_stopped(command)))
        for each in processes:
            assert each.stdout is not None  # noqa: S101 - it is a pipe
            each.stdout.readline()
        sleep(min(_WARM, requests / 100))
        beside = victim.measure(requests)
        if any(each.poll() is not None for each in processes):
            raise RuntimeError(f"{pattern} ended before it was measured; see its error above")
    return Result(
        f"p99 of small calls beside {pattern}",
        "ms",
        beside.p99 * 1e3,
        quiet.p99 * 1e3,
        quiet.p50 * 1e3,
        Goal("<=", 3),
        "the same calls alone · their median",
        {"median": beside.p50 * 1e3, "requests": requests, "slowest": max(beside.seconds) * 1e3},
    )


_CLIENTS: Final = "bench.serving.hostile_clients"


@contextmanager
def _stopped(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed in the end, because it would go on for ever."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class Served(NamedTuple):
    """A server on a project of its own, and the tokens of its actors."""

    port: int
    tokens: Mapping[str, str]


def _token(folder: Path, actor: str, group: str) -> str:
    wanted = TokenRequest(actor=actor, groups=(group,))
    return TokenFile(folder / DATA_FOLDER).issue(wanted).token.reveal()


@contextmanager
def _served(folder: Path) -> Iterator[Served]:
    (folder / "trails.toml").write_text(SETTINGS, encoding="utf-8")
    (folder / "app.py").write_text(APP, encoding="utf-8")
    (folder / "policies").mkdir()
    (folder / "policies" / "access.cedar").write_text(POLICIES, encoding="utf-8")
    line = '{"type": "Item", "data": {"code": "i%d", "name": "item", "rank": %d}}\n'
    (folder / "items.ndjson").write_text("".join(line % (n, n) for n in range(NODES)))
    with App.open(folder) as app:
        app.load(LoadRequest(files=(folder / "items.ndjson",)))
    tokens = {actor: _token(folder, actor, group) for actor, group in GROUPS.items()}
    serve = ["serve", "--port", "0", "--json", "-p", str(folder)]
    command = [sys.executable, "-m", "trails", *serve]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log)
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            said = json.loads(process.stdout.readline())
            yield Served(int(said["url"].rpartition(":")[2]), tokens)
        finally:
            process.terminate()
            process.communicate()


class Victim:
    """An actor whose calls are small."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._number = 0

    def close(self) -> None:
        """End its connection."""
        self._connection.close()

    def begin(self) -> None:
        """Make the branch that it writes on."""
        self._send("POST", "/branches", {"name": "ann/work", "from": "main"})

    def measure(self, requests: int) -> Times:
        """How long so many calls take: reads, and a write and a query now and then."""
        seconds = []
        for number in range(requests):
            started = perf_counter()
            self._call(number)
            seconds.append(perf_counter() - started)
        return Times(seconds)

    def _call(self, number: int) -> None:
        if number % 10 == 3:
            self._number += 1
            data = {"code": f"a{self._number % 100}", "name": f"n{self._number}"}
            operation = {"op": "upsert", "type": "Item", "data": data}
            self._send("POST", "/mutate", {"operations": [operation], "branch": "ann/work"})
        elif number % 10 == 7:
            self._send("POST", "/query", {"query": "ASK { ?s a :Item }"})
        else:
            self._send("GET", f"/kg/Item/i{number % NODES}")

    def _send(self, method: str, path: str, document: object = None) -> None:
        body = None if document is None else json.dumps(document).encode()
        self._connection.request(method, f"/graphs/main{path}", body, self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status not in {200, 201}:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:500]!r}")
