"""Power cuts of backups and restores: the old state or the new one, whole, at every step."""

import random
import shutil

import pytest
from tests.campaigns import sized
from tests.journeys.durability.campaign import APP, bulk, fresh_seed, next_operation, perform
from tests.journeys.durability.power import lose, run_until

from trails import App
from trails.app.ownership import prepare_data
from trails.app.upkeep import find_sets, put_back
from trails.engine.upkeep.backups import back_up, check_digests
from trails.errors import StorageError
from trails.log.sqlite import SqliteLog
from trails.model.upkeep import RestoreRequest

GRAPHS = ("one", "two")


def silent(text):
    """Tell nobody."""


def make(folder):
    """A project with two graphs."""
    folder.mkdir(parents=True)
    lines = "".join(f'[graphs.{name}]\napp = "app.py"\n' for name in GRAPHS)
    (folder / "trails.toml").write_text(f'[project]\nname = "durable"\n{lines}')
    (folder / "app.py").write_text(APP)
    return folder


def write(project, rng, count):
    """Some commits in each graph, one of them with a segment."""
    with App.open(project) as app:
        for name in GRAPHS:
            item_type = app.registry(name).classes["Item"]
            ctx = app.context(name)
            known = {item.code for item in item_type.objects(ctx)}
            for number in range(count):
                operation = next_operation(rng, sorted(known), rng.randrange(2**40))
                if "bulk" in operation:
                    continue
                perform(ctx, item_type, operation)
                known = known.difference(operation["deletes"]).union(operation["puts"])
                if not number:
                    perform(ctx, item_type, bulk(300, rng.randrange(2**40)))


def logged(project):
    """Commits and statements of every graph, read from its log; nothing may be missing."""
    found = {}
    for name in GRAPHS:
        log = SqliteLog(project / ".trails/graphs" / name, name, "", "")
        try:
            assert not log.check()
            digests = []
            for commit in log.commits():
                with log.open_removed(commit) as removed, log.open_added(commit) as added:
                    digests.append((commit.id, len(removed.read()), len(added.read())))
            heads = {branch: head.commit for branch, head in log.branches().items()}
            found[name] = digests, heads
        finally:
            log.close()
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A project, a backup of an earlier state, and one of it as it is; all as files."""
    folder = tmp_path_factory.mktemp("power")
    rng = random.Random(fresh_seed())
    project = make(folder / "project")
    write(project, rng, 4)
    with App.open(project) as app:
        for name in GRAPHS:
            back_up(app.graph(name).log, folder / "set" / name, silent)
    earlier = logged(project)
    write(project, rng, 4)
    return folder, earlier, logged(project)


def fresh(world, tmp_path):
    """A copy of the world that can be destroyed."""
    folder, earlier, now = world
    project = shutil.copytree(folder / "project", tmp_path / "project")
    saved = shutil.copytree(folder / "set", tmp_path / "set")
    return project, saved, earlier, now


def restore(project, saved):
    """Restore by force; views are made later."""
    with App.open(project, declarations=False) as app:
        put_back(app, saved, silent, RestoreRequest(force=True))


def back_up_both(project, saved):
    """Add a backup of each graph."""
    for name in GRAPHS:
        log = SqliteLog(project / ".trails/graphs" / name, name, "", "")
        try:
            back_up(log, saved / name, silent)
        finally:
            log.close()


def cut_restore(world, tmp_path, step, rng, *, syncs=True):
    """One power cut of a restore; None when it was finished before."""
    project, saved, earlier, now = fresh(world, tmp_path)
    roots = [project / ".trails"]
    record, finished = run_until(step, roots, lambda: restore(project, saved), syncs=syncs)
    lose(record, roots, rng)
    prepare_data(project / ".trails", silent)
    found = logged(project)
    assert found == earlier if finished else found in (earlier, now)
    assert not (project / ".trails/prepared").exists()
    shutil.rmtree(project)
    shutil.rmtree(saved)
    return finished


def cut_backup(world, tmp_path, step, rng, *, syncs=True):
    """One power cut of a backup; what is there then is whole, and can be added to."""
    project, saved, _, now = fresh(world, tmp_path)
    before = {name: len(parts) for name, parts in find_sets(saved).items()}
    record, finished = run_until(step, [saved], lambda: back_up_both(project, saved), syncs=syncs)
    lose(record, [saved], rng)
    sets = find_sets(saved)
    counts = {name: len(parts) for name, parts in sets.items()}
    for parts in sets.values():
        check_digests(parts, silent)
    wanted = {name: number + 1 for name, number in before.items()}
    assert counts == wanted if finished else all(counts[name] >= before[name] for name in GRAPHS)
    back_up_both(project, saved)
    restore(project, saved)
    assert logged(project) == now
    shutil.rmtree(project)
    shutil.rmtree(saved)
    return finished


@pytest.mark.parametrize("cut", [cut_restore, cut_backup])
def test_a_power_cut_at_any_step_leaves_the_old_or_the_new(world, tmp_path, cut):
    """Cut at every few steps; after the last one all that was reported is there."""
    rng = random.Random(fresh_seed())
    step = rng.randrange(3)
    while not cut(world, tmp_path, step, rng):
        step += rng.randint(2, 8)
    assert step > 10


class Worst(random.Random):
    """Names are kept, and of what was not synced no byte is."""

    def choice(self, seq):
        """The first choice: an empty file."""
        return seq[0]

    def randint(self, a, b):
        """All changes of names are kept."""
        del a
        return b

    def random(self):
        """No file is gone."""
        return 1.0


def test_a_restore_never_follows_a_plan_that_is_half_there(world, tmp_path):
    """At every step, files that were not synced are empty under their names."""
    step = 0
    while not cut_restore(world, tmp_path, step, Worst()):
        step += 1


def test_a_first_backup_is_there_whole_or_not_at_all(world, tmp_path):
    """A cut leaves no folder that could be taken for a backup."""
    rng = random.Random(fresh_seed())
    project, *_ = fresh(world, tmp_path)
    for step in (2, 5, 8):
        new = tmp_path / f"new-{step}"
        new.mkdir()
        record, finished = run_until(step, [new], lambda to=new: back_up_both(project, to))
        assert not finished
        lose(record, [new], rng)
        with pytest.raises(StorageError):
            find_sets(new)


@pytest.mark.parametrize("cut", [cut_restore, cut_backup])
def test_without_syncs_a_power_cut_does_harm(world, tmp_path, cut):
    """The simulation bites: what is reported and not synced is lost."""

    def lose_often():
        for at in range(20):
            cut(world, tmp_path / str(at), None, random.Random(at), syncs=False)

    with pytest.raises((AssertionError, StorageError)):
        lose_often()


@pytest.mark.long
@pytest.mark.parametrize("cut", [cut_restore, cut_backup])
def test_many_power_cuts_of_backup_and_restore(world, tmp_path, cut, record_property):
    """The campaign: every step, ten times."""
    rng = random.Random(fresh_seed())
    cuts = 0
    for _ in range(sized(10, nightly=1)):
        step = 0
        while not cut(world, tmp_path, step, rng):
            step += 1
        cuts += step + 1
    record_property("cases", cuts)
