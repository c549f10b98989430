"""Repair and rebuilding never make things worse: the old views stay until new ones are complete."""

import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.journeys.durability.campaign import graph_folder, items_of, values_of
from tests.journeys.durability.test_views import (
    fill,
    flip_sorted_files,
    spoil_blob,
    spoil_current,
    spoil_pages,
)

from trails import App
from trails.engine.history.branches import create_branch
from trails.engine.upkeep.verify import verify, verify_and_repair
from trails.errors import CorruptionError, StorageError


def silent(text: str) -> None:
    """Nobody wants to know."""


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A project with a branch of its own, closed, and the items of ``main``."""
    project = tmp_path_factory.mktemp("original") / "project"
    items = fill(project, 7, operations=12)
    with App.open(project) as app:
        create_branch(app.graph(), "side", actor="me")
        side = app.context(branch="side")
        app.registry().classes["Item"](code="only-here", value=1).save(side)
        assert len(values_of(app)) == len(items)
    return project, items


@pytest.fixture
def project(original, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(original[0], tmp_path / "project")


def files_of(*places: Path) -> dict[str, bytes]:
    """What is on disk, the marks of a running process left out."""
    return {
        str(path): path.read_bytes()
        for place in places
        for path in sorted([place, *place.rglob("*")])
        if path.is_file() and path.name not in {"LOCK", "LOG"}
    }


def cut_segment(project):
    """Half of the statements of a large commit are gone."""
    segment = max((graph_folder(project) / "segments").iterdir(), key=lambda p: p.stat().st_size)
    segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])


def delete_segment(project):
    """All of them are."""
    max((graph_folder(project) / "segments").iterdir(), key=lambda p: p.stat().st_size).unlink()


def change_record(project):
    """A commit says something else than was committed."""
    db = sqlite3.connect(graph_folder(project) / "log.db")
    db.execute("DROP TRIGGER commits_UPDATE")
    db.execute("""UPDATE commits SET record = replace(record, '"message":"', '"message":"x')""")
    db.commit()
    db.close()


LOG_DAMAGES = [spoil_blob, delete_segment, change_record]


@pytest.mark.parametrize("damage", LOG_DAMAGES, ids=lambda damage: damage.__name__)
def test_repair_leaves_views_alone_when_the_log_is_damaged(project, original, damage):
    """They are all that is left of some commits; everything is answered as before."""
    damage(project)
    with App.open(project, declarations=False) as app:
        found = {each.name: each for each in verify_and_repair(app.graph(), silent)}
        assert found["commit chain"].severity == "problem"
        assert "nothing was changed" in found["repair"].detail
    with App.open(project) as app:
        assert items_of(app) == original[1]
        assert values_of(app) == {code: state[0] for code, state in original[1].items()}


@pytest.mark.parametrize(("damage", "view"), [(spoil_blob, "nodes"), (cut_segment, "quads")])
def test_a_view_that_cannot_be_made_anew_stays(project, original, damage, view):
    """Opening says why, leaves the damaged files, and works once the log is sound again."""
    graph = graph_folder(project)
    place = graph / "nodes.db" if view == "nodes" else graph / "branches/main/quads"
    if view == "nodes":
        spoil_header(place)
    else:
        spoil_current(place.parent, random)
    sound = shutil.copytree(graph, project.parent / "sound")
    damage(project)
    before = files_of(place)
    for _ in range(2):
        with pytest.raises(CorruptionError, match=r"left as they are.*trails verify"):
            App.open(project)
        assert files_of(place) == before
    for part in ("log.db", "segments"):
        source, target = sound / part, graph / part
        shutil.copytree(source, target, dirs_exist_ok=True) if source.is_dir() else shutil.copy(
            source, target
        )
    with App.open(project) as app:
        assert items_of(app) == original[1]
        assert all(each.severity == "ok" for each in verify(app.graph(), silent))


def spoil_header(path):
    """The first bytes say that this is no database."""
    with path.open("r+b") as file:
        file.write(b"no database at all")


def test_what_only_a_branch_lost_keeps_the_index_too(project):
    """The log can still give ``main``; the index is the only place that has the branch."""
    graph = graph_folder(project)
    db = sqlite3.connect(graph / "log.db")
    db.execute("DROP TRIGGER commits_UPDATE")
    db.execute("UPDATE commits SET added = x'00' WHERE branch = 'side'")
    db.commit()
    db.close()
    spoil_header(graph / "nodes.db")
    before = files_of(graph / "nodes.db")
    with pytest.raises(CorruptionError, match="left as they are"):
        App.open(project)
    assert files_of(graph / "nodes.db") == before


def spoil_many_pages(branch, rng):
    """Noise over pages that opening does not read."""
    path = branch.parents[1] / "nodes.db"
    spoil_pages(path, path.stat().st_size // 4096 // 3, rng)


def empty_folder(branch, rng):
    """A folder where the node index should be."""
    path = branch.parents[1] / "nodes.db"
    path.unlink()
    path.mkdir()


def wrong_text(branch, rng):
    """Texts in the node index that are no UTF-8."""
    db = sqlite3.connect(branch.parents[1] / "nodes.db")
    db.execute("UPDATE nodes SET handle = CAST(x'ff' || nid AS TEXT)")
    db.commit()
    db.close()


def wrong_kind(branch, rng):
    """Words where the node index has numbers."""
    db = sqlite3.connect(branch.parents[1] / "nodes.db")
    db.execute("UPDATE layers SET fork = 'soon', seq = 'later'")
    db.commit()
    db.close()


VIEW_DAMAGES = [
    empty_folder,
    spoil_many_pages,
    wrong_text,
    wrong_kind,
    flip_sorted_files,
]


@pytest.mark.parametrize("damage", VIEW_DAMAGES, ids=lambda damage: damage.__name__)
def test_repair_mends_views_that_cannot_be_read(project, original, damage):
    """Whether opening finds the damage or verifying does."""
    damage(graph_folder(project) / "branches" / "main", random.Random(3))
    with App.open(project, declarations=False) as app:
        found = verify_and_repair(app.graph(), silent)
        assert [each.severity for each in found] == ["ok"] * len(found)
    with App.open(project) as app:
        assert items_of(app) == original[1]
        side = app.context(branch="side")
        assert app.registry().classes["Item"].get(side, "only-here").value == 1


def test_a_folder_with_files_in_the_index_place_is_not_removed(project):
    """Somebody put it there; the error names it."""
    nodes = graph_folder(project) / "nodes.db"
    nodes.unlink()
    nodes.mkdir()
    (nodes / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match="move it away"):
        App.open(project)
    assert (nodes / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("content", [b"", b'{"CURR\xffNT":16}'])
def test_a_damaged_mark_of_the_quads_view_is_no_crash(project, original, content):
    """The view is made anew where its mark can't be read."""
    (graph_folder(project) / "branches/main/quads.closed").write_bytes(content)
    with App.open(project) as app:
        assert values_of(app) == {code: state[0] for code, state in original[1].items()}
        assert all(each.severity == "ok" for each in verify(app.graph(), silent))


def test_a_crash_between_two_names_loses_no_view(project, original):
    """The view that was set aside has its name again, without help of the log."""
    branch = graph_folder(project) / "branches" / "main"
    (branch / "quads").rename(branch / "quads.kept")
    spoil_blob(project)
    with App.open(project) as app:
        assert values_of(app) == {code: state[0] for code, state in original[1].items()}


def test_verifying_goes_on_with_the_other_graphs(project):
    """A graph that can't be opened is a finding."""
    from trails.app.local import LocalOperations

    settings = project / "trails.toml"
    settings.write_text(settings.read_text() + "\n[graphs.main]\n[graphs.other]\n")
    spoil_blob(project)
    spoil_header(graph_folder(project) / "nodes.db")
    with App.open(project, declarations=False) as app:
        assert all(each.severity == "ok" for each in verify(app.graph("other"), silent))
    reports = LocalOperations().verify(project, repair=True, progress=silent)
    assert [report.healthy for report in reports] == [False, True]
