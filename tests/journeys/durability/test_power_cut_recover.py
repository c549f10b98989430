"""Power cuts of ``trails recover``: the damaged graph as it was, or the recovered one, whole."""

import random
import shutil

import pytest
from tests.campaigns import sized
from tests.journeys.durability.campaign import (
    assert_sound,
    fresh_seed,
    graph_folder,
    items_of,
)
from tests.journeys.durability.damage import crash, delete, files_of, flip
from tests.journeys.durability.power import lose, run_command_until
from tests.worlds.processes import run_command

from trails import App
from trails.app.ownership import prepare_data
from trails.errors import StorageError


def without_wal(project):
    """A flipped byte in the middle of the WAL: later commits come back from the tail."""
    size = (graph_folder(project) / "log.db-wal").stat().st_size
    flip("log.db-wal", size // 2).apply(project)


def without_log(project):
    """No log and no tail: the data comes back from the views."""
    for each in ("log.db", "log.db-wal", "log.db-shm", "tail"):
        delete(each).apply(project)


DAMAGES = [without_wal, without_log]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """A project whose writer was killed."""
    return crash(tmp_path_factory.mktemp("crashed") / "project", commits=20)


@pytest.fixture(params=DAMAGES, ids=[each.__name__ for each in DAMAGES])
def damaged(crashed, request, tmp_path):
    """The project after one of the damages."""
    project = crashed.copy(tmp_path / "damaged")
    request.param(project)
    return project


def data_of(folder):
    """The files with data; SQLite makes the others when it opens a database to read it."""
    return {
        name: content
        for name, content in files_of(folder).items()
        if not name.endswith(("-shm", "-wal")) or content
    }


def cut_recover(crashed, damaged, step, rng, *, syncs=True):
    """One power cut: how many steps were done, and whether those were all.

    Afterwards the graph is recovered, or as damaged as before; then it can be recovered again.
    """
    project = shutil.copytree(damaged, damaged.with_name("project"))
    before = data_of(graph_folder(project))
    roots = [project / ".trails"]
    command = ("recover", "-p", str(project))
    record, finished = run_command_until(step, roots, command, syncs=syncs)
    lose(record, roots, rng)
    prepare_data(project / ".trails", lambda text: None)
    kept = [*graph_folder(project).parent.glob("*.damaged-*")]
    if kept:
        assert data_of(kept[0]) == before
    else:
        assert not finished
        assert data_of(graph_folder(project)) == before
    done = run_command(("recover", "--json"), project)
    assert done.returncode == 0, done.stderr
    assert ('"sound"' if kept else '"recovered"') in done.stdout
    with App.open(project) as app:
        assert app.graph().status == "ok"
        assert items_of(app) in crashed.states
        assert_sound(app)
    assert not (project / ".trails/prepared").exists()
    shutil.rmtree(project)
    return record["count"], finished


def test_a_power_cut_leaves_the_damaged_or_the_recovered_graph(crashed, damaged):
    """Not cut; while the graph is built; while it is put in place, which is the last third."""
    rng = random.Random(fresh_seed())
    steps, finished = cut_recover(crashed, damaged, None, rng)
    assert finished
    for step in (rng.randrange(2 * steps // 3), rng.randrange(2 * steps // 3, steps)):
        assert cut_recover(crashed, damaged, step, rng) == (step, False)


def test_without_syncs_a_power_cut_does_harm(crashed, damaged):
    """The simulation bites: what is reported and not synced is lost."""

    def lose_often():
        for at in range(9):
            shutil.rmtree(damaged.with_name("project"), ignore_errors=True)
            cut_recover(crashed, damaged, None, random.Random(at), syncs=False)

    with pytest.raises((AssertionError, StorageError)):
        lose_often()


@pytest.mark.long
def test_many_power_cuts_of_recover(crashed, damaged, record_property):
    """The campaign: every step."""
    rng = random.Random(fresh_seed())
    steps, _ = cut_recover(crashed, damaged, None, rng)
    stride = sized(1, nightly=8)
    cuts = [*range(rng.randrange(stride), steps, stride)]
    for step in cuts:
        assert cut_recover(crashed, damaged, step, rng) == (step, False)
    record_property("cases", len(cuts))
