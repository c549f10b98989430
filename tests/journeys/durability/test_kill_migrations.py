"""kill -9 while migrations are applied and rolled back: each is there whole, or not at all."""

import random
import shutil
import time
from pathlib import Path

import pytest
from tests.campaigns import sized
from tests.journeys.durability.campaign import STEPS, bulk, fresh_seed, make_project, perform
from tests.journeys.durability.killed_work import MIGRATIONS
from tests.journeys.durability.test_kill_work import debris_of, run

from trails import App
from trails.engine.graph.migrations import applied_migrations
from trails.engine.upkeep.verify import verify
from trails.views.quads.view import sum_of

RENAME = """from trails import AddField, FieldSpec, Migration, RenameField

migration = Migration(
    forward=[
        RenameField("Item", "text", "body"),
        AddField("Item", FieldSpec("rank", type="int", default=1)),
    ]
)
"""
DOUBLE = """from trails import AddField, ChangeField, FieldSpec, Migration, RunPython


def double(ctx):
    for item in ctx.node_type("Item").objects(ctx).fetch():
        item.twice = 2 * item.value
        item.save(ctx)


def forget(ctx):
    for item in ctx.node_type("Item").objects(ctx).fetch():
        item.twice = None
        item.save(ctx)


migration = Migration(
    after="0001_rename",
    forward=[
        AddField("Item", FieldSpec("twice", type="int | None")),
        RunPython(double, forget),
        ChangeField("Item", "twice", FieldSpec("twice", type="int")),
    ],
    reverse=[
        ChangeField("Item", "twice", FieldSpec("twice", type="int | None")),
        RunPython(forget),
    ],
)
"""
NAMES = ("0001_rename", "0002_double")


class World:
    """A project with migrations, before and after them, and what each state holds."""

    def __init__(self, folder: Path) -> None:
        self.folders = {"migrate": make_project(folder / "before")}
        before = self.folders["migrate"]
        with App.open(before) as app:
            perform(app.context(), app.registry().classes["Item"], bulk(120, 1))
            app.versions().create_branch("side")
        (before / "migrations").mkdir()
        (before / "migrations" / "0001_rename.py").write_text(RENAME)
        (before / "migrations" / "0002_double.py").write_text(DOUBLE)
        after = self.folders["roll_back"] = shutil.copytree(before, folder / "after")
        self.changes: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self.states: dict[str, dict[int, object]] = {"migrate": {}, "roll_back": {}}
        """Work → number of migrations that are applied → what main holds then."""
        self._measure("migrate", after)
        back = shutil.copytree(after, folder / "back")
        self._measure("roll_back", back)

    def _measure(self, work: str, project: Path) -> None:
        begun = time.monotonic()
        said = run(work, project)
        self.changes[work], self.seconds[work] = int(said.split()[1]), time.monotonic() - begun
        with App.open(project, declarations=False) as app:
            graph = app.stored_graph("main")
            for commit in graph.log.commits():
                mark, found = commit.migration, applied_migrations(graph, commit.id)
                if mark is None or mark.complete:
                    ctx = app.context(snapshot=commit.id)
                    self.states[work][len(found)] = graph.reading_quads(ctx.checkout, sum_of)[1:]


def look(world, project, work):
    """A project is sound, and holds what one of the states holds; the applied migrations."""
    with App.open(project, declarations=False) as app:
        graph = app.stored_graph("main")
        problems = [each for each in verify(graph, lambda text: None) if each.severity != "ok"]
        assert not problems
        applied = tuple(applied_migrations(graph, graph.log_head("main").commit))
        assert applied == NAMES[: len(applied)]
        held = graph.reading_quads(graph.main, sum_of)[1:]
        known = {**world.states["migrate"], **world.states[work]}
        assert held == known[len(applied)]
        assert app.declares("main", graph.main.schema)  # the files follow main
        side = graph.reading_quads(graph.checkout("side"), sum_of)[1:]
        assert side == world.states["migrate"][0]
        return applied, [name for name in graph.log.branches() if name.startswith("~")]


def kill(world, folder, work, *options, delay=None):
    """Kill a work; what is left is whole, and the next run finishes it. Whether it was cut."""
    project = shutil.copytree(world.folders[work], folder / "project")
    said = run(work, project, *options, delay=delay)
    look(world, project, work)
    assert run(work, project).startswith("done ")
    applied, left = look(world, project, work)
    assert applied == (NAMES if work == "migrate" else ())
    assert not left
    assert not debris_of(project)
    shutil.rmtree(project)
    return not said


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One for all tests."""
    return World(tmp_path_factory.mktemp("migrations"))


@pytest.mark.parametrize("work", MIGRATIONS)
def test_a_kill_leaves_each_migration_whole(world, tmp_path, work):
    """Before one change by chance, and at one named moment."""
    rng = random.Random(fresh_seed())
    assert kill(world, tmp_path, work, "--change", rng.randint(1, world.changes[work]))
    assert kill(world, tmp_path, work, "--step", rng.choice(STEPS))


@pytest.mark.long
@pytest.mark.parametrize("turn", range(6))
@pytest.mark.parametrize("work", MIGRATIONS)
def test_many_kills_leave_each_migration_whole(world, tmp_path, work, turn, record_property):
    """The campaign: before changes all along the work, and at any time."""
    rng = random.Random(fresh_seed() + turn)
    changes, times = sized(14, nightly=1), sized(6, nightly=0)
    stride = world.changes[work] / changes
    for number in range(changes):
        at = 1 + int((number + rng.random()) * stride)
        kill(world, tmp_path, work, "--change", at)
    for _ in range(times):
        kill(world, tmp_path, work, delay=rng.random() * world.seconds[work])
    record_property("cases", changes + times)
