"""Kill backups and restores, as real processes, at any moment."""

import random
import shutil
import time

import pytest
from tests.campaigns import sized
from tests.journeys.durability.campaign import (
    bulk,
    fresh_seed,
    items_of,
    make_project,
    next_operation,
    perform,
)
from tests.worlds.processes import Process, Web, run_command

from trails import App
from trails.app.upkeep import list_backups
from trails.engine.upkeep.verify import verify


def silent(text):
    """Tell nobody."""


def write(project, rng, count):
    """Some commits; the items after them."""
    with App.open(project) as app:
        item_type = app.registry().classes["Item"]
        for number in range(count):
            known = sorted(items_of(app))
            operation = next_operation(rng, known, rng.randrange(2**40))
            perform(app.context(), item_type, operation if number else bulk(300, number))
        return items_of(app)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A project with a backup of an earlier state; the items then and now."""
    folder = tmp_path_factory.mktemp("kills")
    rng = random.Random(fresh_seed())
    project = make_project(folder / "project")
    earlier = write(project, rng, 5)
    assert run_command(("backup", "../set"), project).returncode == 0
    return folder, earlier, write(project, rng, 5)


def kill_restore(world, folder, delay):
    """One restore by force that is killed: the old data or the restored data is there."""
    source, earlier, now = world
    project = shutil.copytree(source / "project", folder / "project")
    with Process("restore", source / "set", "--force", "-p", project) as process:
        time.sleep(delay)
        process.kill()
    with App.open(project) as app:
        assert items_of(app) in (earlier, now)
        assert not [each for each in verify(app.graph(), silent) if each.severity != "ok"]
    assert not (project / ".trails/prepared").exists()
    shutil.rmtree(folder)


def kill_backup(world, folder, delay):
    """One backup whose server is killed: what is there is whole, and the next one goes on."""
    source, _, now = world
    project = shutil.copytree(source / "project", folder / "project")
    saved = shutil.copytree(source / "set", folder / "set")
    with Web(project) as server, Process("backup", saved, "-p", project) as process:
        time.sleep(delay)
        server.kill()
        process.kill()
    found = list_backups(saved, silent, check=True)["main"]
    assert len(found) in (1, 2)
    assert run_command(("backup", saved), project).returncode == 0
    restored = make_project(folder / "restored")
    assert run_command(("restore", saved), restored).returncode == 0
    with App.open(restored) as app:
        assert items_of(app) == now
    shutil.rmtree(folder)


@pytest.mark.parametrize("kill", [kill_restore, kill_backup])
def test_a_kill_does_no_harm(world, tmp_path, kill):
    """At one random moment."""
    kill(world, tmp_path / "one", random.Random(fresh_seed()).random())


@pytest.mark.long(cases=sized(60, nightly=6))
@pytest.mark.parametrize("kill", [kill_restore, kill_backup])
def test_many_kills_do_no_harm(world, tmp_path, kill):
    """The campaign."""
    rng = random.Random(fresh_seed())
    for number in range(sized(60, nightly=6)):
        kill(world, tmp_path / str(number), rng.random() * 1.5)
