"""Commits that a damaged log has lost are noticed, whatever part of it was damaged."""

import random
import shutil

import pytest
from tests.campaigns import sized
from tests.journeys.durability.campaign import fresh_seed, graph_folder, items_of
from tests.journeys.durability.damage import (
    crash,
    cut,
    delete,
    files_of,
    flip,
    judge,
    log_damages,
    wal_damages,
)

from trails import App


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """A project whose writer was killed after sixty acknowledged commits."""
    return crash(tmp_path_factory.mktemp("crashed") / "project")


def wal_of(crashed):
    """The WAL of its log."""
    return graph_folder(crashed.project) / "log.db-wal"


def test_a_flipped_byte_in_the_wal_is_noticed(crashed, tmp_path):
    """SQLite drops what comes after it; the graph is read from its views and refuses writes."""
    size = wal_of(crashed).stat().st_size
    project = crashed.copy(tmp_path / "project")
    flip("log.db-wal", size // 2).apply(project)
    graph = graph_folder(project)
    before = files_of(graph)
    with App.open(project) as app:
        loss = app.graph().loss
        assert loss.missing[-1].commit in crashed.commits or crashed.under_way
        assert loss.last_seq < len(crashed.commits)
        assert items_of(app) in crashed.states
    assert judge(project, crashed) == "behind"
    after = files_of(graph)
    assert {name: after[name] for name in before} == before, "a file was changed"


def test_whatever_is_damaged_no_commit_is_lost_without_a_word(crashed, tmp_path):
    """A few damages of each kind; the long run does hundreds."""
    rng = random.Random(7)
    damages = [
        *wal_damages(wal_of(crashed), rng, 13),
        *log_damages(graph_folder(crashed.project) / "log.db", rng, 6),
        delete("log.db-shm"),
        delete("tail"),
        cut("tail", 100),
        flip("tail", 5),
    ]
    found = {}
    for damage in damages:
        project = crashed.copy(tmp_path / "project")
        damage.apply(project)
        found.setdefault(judge(project, crashed), []).append(str(damage))
    assert found["behind"]
    assert {"delete log.db-shm", "delete tail", "cut at byte 100 of tail"} <= {*found["whole"]}
    assert "delete log.db-wal" in found["behind"]


@pytest.mark.long(cases=3 * sized(140, nightly=14))
def test_hundreds_of_damages(tmp_path):
    """Logs of several sizes, damaged in every part of their files."""
    rng = random.Random(fresh_seed())
    for number, commits in enumerate((5, 60, 400)):
        crashed = crash(tmp_path / f"crashed-{number}", commits=commits, seed=rng.randrange(2**32))
        log = graph_folder(crashed.project) / "log.db"
        wal = wal_damages(wal_of(crashed), rng, sized(100, nightly=10))
        for damage in (*wal, *log_damages(log, rng, sized(40, nightly=4))):
            project = crashed.copy(tmp_path / "project")
            damage.apply(project)
            try:
                judge(project, crashed)
            except AssertionError as error:
                raise AssertionError(f"{damage}: {error}") from error


def test_a_view_proves_a_loss_without_the_tail(crashed, tmp_path):
    """The node index and the quads view each show what the log had."""
    size = wal_of(crashed).stat().st_size
    for kept in ("nodes", "quads"):
        project = crashed.copy(tmp_path / kept)
        graph = graph_folder(project)
        cut("log.db-wal", size // 2).apply(project)
        delete("tail").apply(project)
        if kept == "quads":
            for path in graph.glob("nodes.db*"):
                path.unlink()
        else:
            shutil.rmtree(graph / "branches")
        assert judge(project, crashed) == "behind"
