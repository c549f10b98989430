"""Start a worker, end it, and judge what it left behind.

The judge keeps its own account of the graph as a dictionary of items. After a crash the
graph must equal the account of all acknowledged commits, or that plus the one commit that
was under way, whole.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.journeys.durability import worker
from tests.journeys.durability.operations import fold, graph_folder, make_project

from trails import App
from trails.engine.upkeep.verify import verify

STEPS = ("before_append", "after_append", "mid_apply", "after_apply", "before_acknowledge")
LANDED = {"after_append", "mid_apply", "after_apply", "before_acknowledge"}
"""The steps after which the commit is in the log."""


def fresh_seed() -> int:
    """A seed, said so that a failed round can be replayed: TRAILS_SEED=… pytest …."""
    seed = int(os.environ.get("TRAILS_SEED") or random.SystemRandom().randrange(2**32))
    sys.stdout.write(f"TRAILS_SEED={seed}\n")
    return seed


def environment() -> dict[str, str]:
    """The environment in which a script finds what this process finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


class Victim:
    """A worker process, and what it said until it died."""

    def __init__(self, project: Path, *options: object, under: tuple[str, ...] = ()) -> None:
        command = [*under, sys.executable, worker.__file__, project, *options]
        self._process = subprocess.Popen(
            [str(each) for each in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self.acknowledged: list[tuple[str | None, dict]] = []
        self.under_way: dict | None = None
        self.opened: str | None = None
        self.wal: list | None = None

    def listen(self) -> bool:
        """Take the next line; False when there is none any more."""
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            return False
        said = json.loads(line)
        self.wal = said.get("wal", self.wal)
        if "opened" in said:
            self.opened = said["opened"]
        elif "intent" in said:
            self.under_way = said["intent"]
        else:
            self.acknowledged.append((said["ack"], self.under_way))
            self.under_way = None
        return True

    def listen_until(self, commits: int) -> None:
        """Wait for a number of acknowledged commits."""
        while len(self.acknowledged) < commits and self.listen():
            pass

    def listen_until_bulk(self) -> None:
        """Wait until a bulk is about to be saved."""
        while not (self.under_way and "bulk" in self.under_way) and self.listen():
            pass

    def kill(self) -> None:
        """End it without warning, and hear what it still said."""
        self._process.kill()
        self.outlive()

    def outlive(self) -> None:
        """Wait for its end, and hear what it still said."""
        while self.listen():
            pass
        errors = self._process.stderr.read()
        code = self._process.wait()
        self._process.stdout.close()
        self._process.stderr.close()
        assert code in {0, -signal.SIGKILL}, errors


class Account:
    """A project folder, and what must be in it."""

    def __init__(self, project: Path) -> None:
        self.project = make_project(project)
        self.items: dict[str, list] = {}
        self.commits: list[str] = []

    def settle(self, victim: Victim) -> bool:
        """Compare the graph with the account; whether the commit under way had landed."""
        if not self.commits:
            self.commits = [victim.opened]  # the schema's commit, made by opening
        for commit, operation in victim.acknowledged:
            self.items = fold(self.items, operation)
            if commit is not None:
                self.commits.append(commit)
        with App.open(self.project) as app:
            found = items_of(app)
            logged = [commit.id for commit in app.graph().log.commits()]
            lost = [each for each in self.commits if each not in logged]
            assert not lost, f"{len(lost)} acknowledged commits lost"
            extra = logged[len(self.commits) :]
            assert logged[: len(self.commits)] == self.commits
            assert len(extra) <= 1, "more than one commit without acknowledgement"
            if extra:
                assert victim.under_way is not None
                self.items = fold(self.items, victim.under_way)
            self.commits = logged
            assert found == self.items, "the graph is not the fold of its commits"
            assert_sound(app)
        return bool(extra)


def items_of(app: App) -> dict[str, list]:
    """Every item, by id, as the node index has it."""
    item_type = app.registry().classes["Item"]
    return {
        item.code: [item.value, item.text, sorted(item.tags)]
        for item in item_type.objects(app.context())
    }


def values_of(app: App) -> dict[str, int]:
    """Every item's value, by id, as the quads view has it."""
    rows = app.context().kg.sparql("SELECT ?code ?value WHERE { ?i :code ?code ; :value ?value }")
    return {row["code"]: row["value"] for row in rows}


def assert_sound(app: App) -> None:
    """The log's digests add up, and both views are at its head and equal a fold of it."""
    graph = app.graph()
    main, head = graph.main, graph.log_head("main")
    assert main.nodes.position.seq == graph.stores.main().position.seq == head.seq
    assert main.head == head
    problems = [each for each in verify(graph, lambda text: None) if each.status != "ok"]
    assert not problems
    assert {f"{quad} .\n".encode() for quad in graph.stores.main().data()} == fold_statements(
        graph.log
    )
    segments = graph_folder(app.folder) / "segments"
    assert not [*segments.glob("*.tmp")]


def fold_statements(log) -> set[bytes]:
    """The statements of a graph, from its log alone."""
    statements: set[bytes] = set()
    for commit in log.commits():
        with log.open_removed(commit) as removed, log.open_added(commit) as added:
            statements = statements.difference(removed).union(added)
    return statements


def kill_at_random(account: Account, rng: random.Random, *, bulk: bool = False) -> bool:
    """One round: let a worker write, kill it at a random moment, settle."""
    seed, commits, delay = rng.randrange(2**32), rng.randint(1, 30), rng.random()
    options = ["--seed", seed]
    if bulk:
        victim = Victim(account.project, *options, "--bulk-at", rng.randint(0, 3))
        victim.listen_until_bulk()
        time.sleep(delay * 1.2)
    else:
        victim = Victim(account.project, *options)
        victim.listen_until(commits)
        time.sleep(delay * 0.03)
    victim.kill()
    return account.settle(victim)


def kill_at_step(account: Account, rng: random.Random, step: str, *, bulk: bool = False) -> bool:
    """One round: a worker kills itself at a named moment of a random commit, settle."""
    count = rng.randint(1, 12)
    options = ["--seed", rng.randrange(2**32), "--die", f"{step}:{count}"]
    if bulk:
        options += ["--bulk-at", count - 1]
    victim = Victim(account.project, *options)
    victim.outlive()
    return account.settle(victim)
