"""kill -9 while types change that Python files declare: files and commit together, or neither."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys

import pytest
from tests.campaigns import sized
from tests.journeys.durability import killed_types
from tests.journeys.durability.campaign import environment, fresh_seed
from tests.journeys.durability.killed_types import STEPS, WORKS
from tests.worlds.projects import make_project

from trails import App
from trails.app.staging import JOURNAL
from trails.engine.schema.plan import ChangeRequest, apply_change
from trails.engine.upkeep.verify import verify

TASKS = '''
from __future__ import annotations

from models import Person
from trails import Node, Ref, node_type, predicate


@node_type
class Task(Node):
    """Something to do."""

    key: str = predicate(key=True)
    state: str = predicate(default="open")  # where it is
    owner: Ref[Person] | None = predicate()
'''
MODELS = '''
from trails import Node, node_type, predicate


@node_type
class Person(Node):
    """Somebody."""

    name: str = predicate(key=True)
'''
NAMED = (
    "before_append",
    "after_append",
    "mid_apply",
    "after_apply",
    "mid_declare",
    "after_declare",
    "before_acknowledge",
)


class World:
    """A project with branches whose types changed, and what comes of each work."""

    def __init__(self, folder):
        files = {"app.py": TASKS, "models.py": MODELS}
        self.project = make_project(folder / "project", files)
        with App.open(self.project, strict=True) as app:
            task = app.registry().classes["Task"]
            for key in "abc":
                task(key=key).save(app.context())
            for name in ("ahead", "work"):
                app.versions().create_branch(name)
                checkout = app.graph().checkout(name)
                steps = STEPS if name == "ahead" else STEPS[:1]
                apply_change(app.graph(), checkout, ChangeRequest(steps=steps, actor="ann"))
        self.before = read(self.project)
        self.done = {}
        for work in WORKS:
            project = shutil.copytree(self.project, folder / work)
            if work == "merge":
                diverge(project)
            before, said = read(project), run(work, project)
            self.done[work] = (before, read(project), int(said.split()[1]))
            assert self.done[work][1] != before


def diverge(project):
    """Let main go on, so that a merge is no fast-forward."""
    with App.open(project, strict=True) as app:
        app.registry().classes["Task"](key="d").save(app.context())


def read(project):
    """The types of main, what declares them, and the texts; checks that they agree."""
    with App.open(project, strict=True) as app:
        graph = app.graph()
        assert [each for each in verify(graph, lambda text: None) if each.severity != "ok"] == []
        assert app.registry().schema.digest == graph.main.schema.digest
        assert app.declared().schema.digest == graph.main.schema.digest
        commits = len(list(graph.log.commits()))
        texts = {path.name: path.read_text() for path in project.glob("*.py")}
        digest = graph.main.schema.digest
    assert not (project / ".trails" / JOURNAL).exists()
    assert not list(project.glob(".*.py.*"))
    return digest, commits, texts


def run(work, project, *options):
    """Do a work in a process; the last that it said."""
    command = [sys.executable, killed_types.__file__, work, str(project), *map(str, options)]
    process = subprocess.run(
        command, capture_output=True, text=True, env=environment(), check=False
    )
    assert process.returncode in {0, -9}, process.stderr
    assert process.stdout.startswith("begun\n"), process.stderr
    return process.stdout.removeprefix("begun\n")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One for all tests."""
    return World(tmp_path_factory.mktemp("types"))


def kill(world, folder, work, *options):
    """Kill a work: files and log agree when the project is opened, and the work can be done."""
    before, after, _ = world.done[work]
    project = shutil.copytree(world.project, folder / "killed")
    if work == "merge":
        diverge(project)
    said = run(work, project, *options)
    found = read(project)
    whole = (after[0], after[2])
    assert (found[0], found[2]) in ([whole] if said else [whole, (before[0], before[2])])
    if (found[0], found[2]) != whole:
        assert run(work, project).startswith("done")
        again = read(project)
        assert (again[0], again[2]) == whole
    shutil.rmtree(project)


@pytest.mark.parametrize("work", WORKS)
def test_a_kill_leaves_files_and_commit_together(world, tmp_path, work):
    """At a named moment, and before some change; the campaign tries each one."""
    rng = random.Random(fresh_seed())
    kill(world, tmp_path, work, "--step", rng.choice(["before_append", "after_append"]))
    if work != "forward":
        kill(world, tmp_path, work, "--step", rng.choice(["mid_declare", "after_declare"]))
    kill(world, tmp_path, work, "--change", rng.randint(1, world.done[work][2]))


@pytest.mark.long
@pytest.mark.parametrize("work", WORKS)
def test_every_kill_leaves_files_and_commit_together(world, tmp_path, work, record_property):
    """Each named moment, and before each change of a file or a database."""
    changes = world.done[work][2]
    moments = [("--step", each) for each in NAMED]
    moments += [("--change", each) for each in range(1, changes + 1, sized(1, nightly=6))]
    for each in moments:
        kill(world, tmp_path, work, *each)
    record_property("cases", len(moments))
