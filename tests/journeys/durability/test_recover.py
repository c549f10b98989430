"""What a log has lost is put back: exactly from its tail, else from the views."""

import json
import random
import shutil
import sqlite3

import msgspec
import pytest
from tests.campaigns import sized
from tests.journeys.durability.campaign import (
    SEGMENT,
    assert_sound,
    bulk,
    fresh_seed,
    graph_folder,
    items_of,
    make_project,
    perform,
)
from tests.journeys.durability.damage import crash, cut, delete, files_of, flip, wal_damages
from tests.worlds.processes import run_command

from trails import App
from trails.app.local import LocalOperations
from trails.engine.upkeep.verify import verify
from trails.errors import CorruptionError
from trails.log.tail import look_at_tail
from trails.model.history import Activity


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """A project whose writer was killed after forty acknowledged commits."""
    return crash(tmp_path_factory.mktemp("crashed") / "project", commits=40)


def recover(project, *, dry_run=False, accept_loss=False):
    """Run the command's work on a project with one graph."""
    (found,) = LocalOperations().recover(
        project, None, lambda text: None, dry_run=dry_run, accept_loss=accept_loss
    )
    return found


def assert_recovered(project, crashed):
    """Everything acknowledged is there, everything is proven, and writing goes on."""
    with App.open(project) as app:
        assert app.graph().status == "ok"
        assert items_of(app) in crashed.states
        assert_sound(app)
        app.registry().classes["Item"](code="later", value=1).save(app.context())
        return list(app.graph().log.commits())


def assert_history(found, crashed):
    """Acknowledged commits have theirs; of one under way, the kill may have left data alone."""
    first, last = found.without_history or (len(crashed.commits) + 1,) * 2
    assert first == last == len(crashed.commits) + 1


def halve_the_wal(project, crashed):
    """Flip a byte in the middle of the WAL."""
    size = (graph_folder(crashed.project) / "log.db-wal").stat().st_size
    flip("log.db-wal", size // 2).apply(project)


def test_commits_come_back_exactly_from_the_tail(crashed, tmp_path):
    """With the same ids; the damaged files stay under another name."""
    project = crashed.copy(tmp_path / "project")
    halve_the_wal(project, crashed)
    damaged = files_of(graph_folder(project))
    planned = recover(project, dry_run=True)
    assert files_of(graph_folder(project)) == damaged
    found = recover(project)
    assert found.status == "recovered"
    assert found.restored == planned.restored
    assert not found.rebuilt
    assert not found.lost
    kept = graph_folder(project).with_name(found.copy.rpartition("/")[2])
    assert files_of(kept) == damaged
    commits = [commit.id for commit in assert_recovered(project, crashed)]
    assert commits[: len(crashed.commits)] == crashed.commits
    assert recover(project).status == "sound"


@pytest.mark.parametrize("source", ["the node index", "the quads view"])
def test_data_comes_back_from_a_view_without_the_tail(crashed, tmp_path, source):
    """One commit holds it, and says who made it and why."""
    project = crashed.copy(tmp_path / "project")
    graph = graph_folder(project)
    halve_the_wal(project, crashed)
    delete("tail").apply(project)
    if source == "the quads view":
        for path in graph.glob("nodes.db*"):
            path.unlink()
    found = recover(project)
    assert found.status == "recovered"
    assert not found.restored
    commit = assert_recovered(project, crashed)[-2]
    assert found.rebuilt == {"main": commit.id}
    assert commit.actor == "trails-recovery"
    assert source in commit.message


@pytest.mark.parametrize("tail", ["kept", "gone"])
def test_a_lost_log_is_rebuilt(crashed, tmp_path, tail):
    """From the tail with its whole history, or from the views with the present state."""
    project = crashed.copy(tmp_path / "project")
    for each in ("log.db", "log.db-wal", "log.db-shm"):
        delete(each).apply(project)
    if tail == "gone":
        delete("tail").apply(project)
    with pytest.raises(CorruptionError, match="trails recover"):
        App.open(project)
    found = recover(project)
    assert found.status == "recovered"
    commits = assert_recovered(project, crashed)
    if tail == "kept":
        assert [commit.id for commit in commits][: len(crashed.commits)] == crashed.commits
        assert_history(found, crashed)
    else:
        assert found.rebuilt == {"main": commits[0].id}
        assert found.without_history[0] == 1
        assert found.without_history[1] >= len(crashed.commits)
    assert found.log_problem == "is missing"


@pytest.mark.parametrize("damage", [delete("log.db"), cut("log.db", 11_449)], ids=str)
def test_a_lost_log_with_segments_and_archives_is_rebuilt(tmp_path, damage):
    """Large commits come back from their segments; archived activities stay in the stream."""
    project = make_project(tmp_path / "project")
    with (project / "trails.toml").open("a") as file:
        file.write("\n[log]\nactivity_rows = 20\n")
    when = "2020-01-01T00:00:00.000000Z"
    past = [Activity(f"a{each}", "me", "tool", when, when, "ok") for each in range(50)]
    with App.open(project) as app:
        perform(app.context(), app.registry().classes["Item"], bulk(SEGMENT, 1))
        app.graph().log.insert_activities(past)
        (archive,) = app.graph().activities.archive()
        items, commits = items_of(app), [each.id for each in app.graph().log.commits()]
    damage.apply(project)
    found = recover(project)
    assert (found.status, found.lost, found.rebuilt) == ("recovered", (), {})
    with App.open(project) as app:
        assert items_of(app) == items
        assert [each.id for each in app.graph().log.commits()] == commits
        assert_sound(app)
        log = app.graph().log
        assert log.archives() == (archive,)
        before = list(log.activities())
        assert [each for _, each in before][: archive.count] == past[: archive.count]
        assert before[archive.count :][0][1].actor == "trails-recovery"
        log.insert_activities([msgspec.structs.replace(past[0], id="later")])
        places = [seq for seq, _ in log.activities()]
        assert places == [*range(1, len(before) + 2)]


def damage_page(project, commit):
    """Close the project, and zero the page of the log with the record of a commit."""
    with App.open(project):
        pass
    path = graph_folder(project) / "log.db"
    content = path.read_bytes()
    page = content.index(f'"id":"{commit}"'.encode()) // 4096 * 4096
    path.write_bytes(content[:page] + bytes(4096) + content[page + 4096 :])


@pytest.mark.parametrize("tail", ["kept", "gone"])
def test_what_a_damaged_page_leaves_of_the_log_is_kept(crashed, tmp_path, tail):
    """Commits before it come back exactly, later ones from the tail or as data of the views."""
    project = crashed.copy(tmp_path / "project")
    damage_page(project, crashed.commits[30])
    if tail == "gone":
        delete("tail").apply(project)
    (report,) = LocalOperations().verify(project, repair=False, progress=lambda text: None)
    problems = {each.name: each.detail for each in report.findings if each.severity == "problem"}
    assert "commits can't be read" in problems["commit chain"]
    found = recover(project)
    assert found.status == "recovered"
    assert found.log_problem.startswith("is damaged")
    whole = len(found.restored)
    commits = [commit.id for commit in assert_recovered(project, crashed)]
    assert commits[:whole] == list(found.restored)
    assert commits[:20] == crashed.commits[:20]
    if tail == "kept":
        assert_history(found, crashed)
        assert commits[: len(crashed.commits)] == crashed.commits
    else:
        assert 20 <= whole <= 30
        assert found.without_history[0] == whole + 1
        assert found.without_history[1] >= len(crashed.commits)


def spoil_segment(project):
    """A byte of a large commit is another."""
    (segment,) = (graph_folder(project) / "segments").iterdir()
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)


def spoil_statements(project):
    """The log has other statements than were committed."""
    change_log(project, "UPDATE commits SET added = x'00' WHERE seq = 4")


def spoil_record(project):
    """The log names another author."""
    change_log(
        project,
        "UPDATE commits SET record = CAST(replace(record, 'local', 'other') AS BLOB) WHERE seq = 4",
    )


def spoil_kinds(project):
    """The log has numbers where records and statements were."""
    change_log(project, "UPDATE commits SET record = 5, added = 'x', added_sha = 7 WHERE seq = 4")


def change_log(project, statement):
    """Change what never changes."""
    db = sqlite3.connect(graph_folder(project) / "log.db", isolation_level=None)
    db.execute("DROP TRIGGER commits_UPDATE")
    assert db.execute(statement).rowcount == 1
    db.close()


@pytest.mark.parametrize("tail", ["kept", "gone"])
@pytest.mark.parametrize("spoil", [spoil_segment, spoil_statements, spoil_record, spoil_kinds])
def test_a_damaged_commit_comes_back_from_the_tail_or_is_given_up_when_asked(tmp_path, spoil, tail):
    """A segment is nowhere else; without the tail, the history from there on is data only."""
    project = make_project(tmp_path / "project")
    with App.open(project) as app:
        ctx, item_type = app.context(), app.registry().classes["Item"]
        for number in range(3):
            item_type(code=f"item-{number}", value=number).save(ctx)
        perform(ctx, item_type, bulk(SEGMENT, 1))
        item_type(code="last", value=9).save(ctx)
        items, commits = items_of(app), [each.id for each in app.graph().log.commits()]
    spoil(project)
    if tail == "gone":
        delete("tail").apply(project)
    (report,) = LocalOperations().verify(project, repair=False, progress=lambda text: None)
    (problem,) = [each for each in report.findings if each.severity == "problem"]
    assert (problem.name, "trails recover" in problem.fix) == ("commit chain", True)
    before = files_of(graph_folder(project))
    found = recover(project)
    assert "holds commit" in found.log_problem
    if tail == "kept" and spoil is not spoil_segment:
        assert found.status == "recovered"
        with App.open(project) as app:
            assert [each.id for each in app.graph().log.commits()] == commits
    else:
        assert found.status == "lost"
        assert found.without_history[1] == len(commits)
        assert files_of(graph_folder(project)) == before
        assert recover(project, accept_loss=True).copy is not None
    with App.open(project) as app:
        assert items_of(app) == items
        assert_sound(app)


def test_history_that_is_gone_is_named(crashed, tmp_path):
    """For a log that can't be read at all, and a project without its tail."""
    project = crashed.copy(tmp_path / "project")
    with (graph_folder(project) / "log.db").open("r+b") as file:
        file.write(bytes(100))
    for each in ("log.db-wal", "tail"):
        delete(each).apply(project)
    done = run_command(("recover",), project)
    assert done.returncode == 0
    assert "not recovered: the history of commits 1 to" in done.stdout
    assert "log.db can't be read" in done.stdout


def test_what_nothing_is_left_of_is_given_up_only_when_asked(crashed, tmp_path):
    """It is named, nothing changes, and a later command accepts it."""
    project = crashed.copy(tmp_path / "project")
    graph = graph_folder(project)
    halve_the_wal(project, crashed)
    size = (graph / "tail").stat().st_size
    with (graph / "tail").open("r+b") as file:  # frames are named, but what they hold is gone
        for at in range(0, size, 4096):
            file.seek(at + 2000)
            file.write(bytes(500))
    for path in graph.glob("nodes.db*"):
        path.unlink()
    shutil.rmtree(graph / "branches")
    before = files_of(graph)
    found = recover(project)
    assert found.status == "lost"
    assert found.lost
    assert found.copy is None
    assert files_of(graph) == before
    assert recover(project, accept_loss=True).copy is not None
    with App.open(project) as app:
        assert app.graph().status == "ok"
        assert_sound(app)


def test_branches_come_back(tmp_path):
    """Made, written, moved and deleted ones, as they were; from the tail and from the index."""
    for kept in ("tail", "index"):
        project = crash(tmp_path / kept, commits=2).project
        with App.open(project) as app:
            item_type = app.registry().classes["Item"]
            versions = app.versions()
            for name in ("side", "gone"):
                versions.create_branch(name)
                item_type(code=name, value=1).save(app.context(branch=name))
            versions.delete_branch("gone", force=True)
            item_type(code="main", value=1).save(app.context())
            without_stores = shutil.ignore_patterns("quads*")  # whose files come and go
            copy = shutil.copytree(project, tmp_path / f"{kept}-copy", ignore=without_stores)
        delete("log.db-wal").apply(copy)
        if kept == "index":
            delete("tail").apply(copy)
        found = recover(copy)
        assert found.status == "recovered"
        with App.open(copy) as app:
            assert sorted(app.graph().log.branches()) == ["main", "side"]
            side = app.context(branch="side")
            codes = {item.code for item in app.registry().classes["Item"].objects(side)}
            assert "side" in codes
            assert "main" in items_of(app)
            assert all(each.severity == "ok" for each in verify(app.graph(), lambda text: None))


def test_the_command_says_what_it_did(crashed, tmp_path):
    """As text and as JSON; it ends with 1 while something is lost."""
    project = crashed.copy(tmp_path / "project")
    halve_the_wal(project, crashed)
    verified = run_command(("verify",), project)
    assert verified.returncode == 1
    assert "trails recover" in verified.stdout
    planned = run_command(("recover", "--dry-run"), project)
    assert "would be recovered exactly" in planned.stdout
    done = run_command(("recover", "--json"), project)
    assert done.returncode == 0
    assert json.loads(done.stdout)["graphs"]["main"]["status"] == "recovered"
    assert "nothing is missing" in run_command(("recover",), project).stdout
    assert run_command(("verify",), project).returncode == 0


@pytest.mark.long(cases=sized(100, nightly=8))
def test_every_damage_of_a_wal_is_recovered(tmp_path):
    """Whatever was done to the WAL, the tail has it all."""
    rng = random.Random(fresh_seed())
    crashed = crash(tmp_path / "crashed", commits=120, seed=rng.randrange(2**32))
    wal = graph_folder(crashed.project) / "log.db-wal"
    for damage in wal_damages(wal, rng, sized(100, nightly=8)):
        project = crashed.copy(tmp_path / "project")
        damage.apply(project)
        assert not recover(project).lost, str(damage)
        assert_recovered(project, crashed)
        shutil.rmtree(project)


def test_a_view_of_another_graph_is_no_proof_and_no_source(crashed, tmp_path):
    """It is made anew from the log, and recovering takes nothing from it."""
    other = crash(tmp_path / "other", commits=10, seed=2)
    for damage in (None, halve_the_wal):
        project = crashed.copy(tmp_path / "project")
        for path in graph_folder(project).glob("nodes.db*"):
            path.unlink()
        for path in graph_folder(other.project).glob("nodes.db*"):
            shutil.copy(path, graph_folder(project))
        if damage is not None:
            damage(project, crashed)
        found = recover(project)
        assert found.status == ("sound" if damage is None else "recovered")
        assert not found.rebuilt
        assert_recovered(project, crashed)


def test_a_cut_tail_is_no_loss(crashed, tmp_path):
    """It may lag: opening fills it up."""
    project = crashed.copy(tmp_path / "project")
    cut("tail", 1000).apply(project)
    assert_recovered(project, crashed)
    assert was_whole(project)


def was_whole(project):
    """Whether the tail ends where the log does, and says that it was closed."""
    trail = look_at_tail(graph_folder(project))
    with App.open(project) as app:
        return trail.closed and trail.commits[-1][0] == app.graph().log.last_seq()
