"""kill -9 during loads, merges, changes of types and upkeep: all of the work is there, or none."""

import json
import random
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.campaigns import sized
from tests.journeys.durability import killed_work
from tests.journeys.durability.campaign import (
    BULK,
    STEPS,
    bulk,
    bulk_items,
    environment,
    fresh_seed,
    graph_folder,
    make_project,
    perform,
)
from tests.journeys.durability.killed_work import BACKUPS, LOADED, WORKS

from trails import App
from trails.app.upkeep import list_backups
from trails.engine.graph.activities import CallRecord
from trails.engine.upkeep.verify import verify
from trails.views.quads.view import sum_of

WRITES = ("load", "merge", "change_types")
"""The works that make a commit by the write path, and so pass its named moments."""


@dataclass(frozen=True)
class State:
    """What a project holds."""

    commits: tuple[str, ...]
    heads: dict[str, str]
    statements: dict[str, tuple[int, int]]
    """Branch → sum and number of its statements."""
    activities: list[str]


def state_of(project: Path) -> State:
    """Open a project without its code: it is sound, and what it holds."""
    with App.open(project, declarations=False) as app:
        graph = app.stored_graph("main")
        problems = [each for each in verify(graph, lambda text: None) if each.severity != "ok"]
        assert not problems
        branches = graph.log.branches()
        return State(
            tuple(each.id for each in graph.log.commits()),
            {name: head.commit for name, head in branches.items()},
            {name: graph.reading_quads(graph.checkout(name), sum_of)[1:] for name in branches},
            [each.name for _, each in graph.activities.read()],
        )


@dataclass(frozen=True)
class Done:
    """A work that nobody interrupted."""

    state: State
    changes: int
    seconds: float


class World:
    """A project in which there is something to do for every work."""

    def __init__(self, folder: Path) -> None:
        self.project = make_project(folder / "project")
        settings = self.project / "trails.toml"
        settings.write_text(settings.read_text() + "[log]\nactivity_rows = 50\n")
        with (self.project / LOADED).open("w") as file:
            for code, (value, text, tags) in bulk_items(BULK, 3):
                data = {"code": code, "value": value, "text": text, "tags": tags}
                file.write(json.dumps({"type": "Item", "data": data}) + "\n")
        with App.open(self.project) as app:
            self._fill(app)
        killed_work.back_up(self.project)
        with App.open(self.project) as app:
            perform(app.context(branch="side"), app.registry().classes["Item"], bulk(250, 5))
        self.before = state_of(self.project)
        self._done: dict[str, Done] = {}

    @staticmethod
    def _fill(app: App) -> None:
        item_type = app.registry().classes["Item"]
        ctx, versions = app.context(), app.versions()
        perform(ctx, item_type, bulk(300, 1))
        for name in ("side", "gone"):
            versions.create_branch(name)
            perform(app.context(branch=name), item_type, bulk(200, 2))
            app.context(branch=name).kg.sparql("ASK {}")
        versions.delete_branch("gone", force=True)
        for number in range(5):
            item_type(code=f"item-{number}", value=number + 5).save(ctx)
            app.context(snapshot=ctx.kg.head.commit).kg.sparql("ASK {}")
        versions.create_branch("ahead")
        perform(app.context(branch="ahead"), item_type, bulk(250, 4))
        for number in range(400):
            app.graph().activities.end(CallRecord("ann", f"read-{number}", "query"), "ok")

    def done(self, work: str, folder: Path) -> Done:
        """What comes of a work that nobody interrupts."""
        if work not in self._done:
            project = shutil.copytree(self.project, folder / "whole")
            begun = time.monotonic()
            said = run(work, project)
            seconds = time.monotonic() - begun
            assert said.startswith("done ")
            self._done[work] = Done(state_of(project), int(said.split()[1]), seconds)
            shutil.rmtree(project)
        return self._done[work]


def run(work, project, *options, delay=None):
    """Do a work in a process, which may be killed after a while; the last that it said."""
    command = [sys.executable, killed_work.__file__, work, str(project), *map(str, options)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    assert process.stdout.readline() == "begun\n", process.stderr.read()
    if delay is not None:
        time.sleep(delay)
        process.kill()
    said, errors = process.communicate()
    assert process.returncode in {0, -9}, errors
    return said


def kill(world, folder, work, *options, delay=None):
    """Kill a work: all of it or nothing is there, and it can be done again. Whether it was cut."""
    whole = world.done(work, folder)
    project = shutil.copytree(world.project, folder / "project")
    said = run(work, project, *options, delay=delay)
    found = state_of(project)
    before, after = world.before, whole.state
    states = (before.statements, after.statements)
    assert found.commits[: len(before.commits)] == before.commits
    assert found.activities[: len(before.activities)] == before.activities
    assert found.statements == after.statements if said else found.statements in states
    assert len(found.commits) in {len(before.commits), len(after.commits)}
    assert found.heads.keys() == before.heads.keys()
    assert backups_of(project) in ({2} if said and work == "back_up" else {1, 2})
    assert run(work, project).startswith("done ")
    again = state_of(project)
    assert again.statements == after.statements
    assert again.activities[: len(before.activities)] == before.activities
    assert len(again.commits) == len(after.commits)
    assert work != "back_up" or backups_of(project) >= 2
    assert not debris_of(project)
    shutil.rmtree(project)
    return not said


def backups_of(project):
    """How many backups there are, all of them whole."""
    return len(list_backups(project / BACKUPS, lambda text: None, check=True)["main"])


def debris_of(project):
    """Files that only work under way needs."""
    graph = graph_folder(project)
    names = ("*.tmp", "*.staged", "*.rebuilt", "*.kept", "*.building", "tmp/*")
    return [path for name in names for path in graph.rglob(name)]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One for all tests."""
    return World(tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize("turn", range(4))
def test_a_kill_before_a_change_leaves_all_or_nothing(world, tmp_path, turn):
    """One of the changes that some work makes, by chance; the campaign tries all works."""
    rng = random.Random(fresh_seed() + turn)
    work = rng.choice(sorted(WORKS))
    change = rng.randint(1, world.done(work, tmp_path).changes)
    kill(world, tmp_path, work, "--change", change)


def test_a_kill_at_a_named_moment_leaves_all_or_nothing(world, tmp_path):
    """One named moment of one write."""
    rng = random.Random(fresh_seed())
    assert kill(world, tmp_path, rng.choice(WRITES), "--step", rng.choice(STEPS))


def moments(work, whole, rng):
    """When to kill: at named moments, before changes all along the work, and at any time."""
    named = [("--step", step) for step in STEPS] if work in WRITES else []
    yield from ((each, None) for each in rng.sample(named, min(len(named), sized(5, nightly=1))))
    stride = max(1, whole.changes // sized(60, nightly=2))
    for change in range(rng.randint(1, stride), whole.changes + 1, stride):
        yield ("--change", change), None
    for _ in range(sized(12, nightly=1)):
        yield (), rng.random() * whole.seconds


@pytest.mark.long
@pytest.mark.parametrize("work", WORKS)
def test_many_kills_leave_all_or_nothing(world, tmp_path, work, record_property):
    """The campaign; the full one tries every change of a work, up to some sixty."""
    rng = random.Random(fresh_seed())
    whole = world.done(work, tmp_path)
    kills = 0
    for options, delay in moments(work, whole, rng):
        kill(world, tmp_path, work, *options, delay=delay)
        kills += 1
    record_property("cases", kills)
