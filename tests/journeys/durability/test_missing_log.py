"""A log that is gone is an error that names what is left, never a new empty graph."""

import os
import shutil
import sqlite3

import pytest
from tests.journeys.durability.campaign import (
    SEGMENT,
    bulk,
    graph_folder,
    items_of,
    make_project,
    perform,
)

from trails import App
from trails.errors import CorruptionError, TrailsError


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A closed project with a segment file."""
    project = make_project(tmp_path_factory.mktemp("original") / "project")
    with App.open(project) as app:
        item_type = app.registry().classes["Item"]
        item_type(code="one", value=1).save(app.context())
        perform(app.context(), item_type, bulk(SEGMENT, 1))
    return project


@pytest.fixture
def project(original, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(original, tmp_path / "project")


def files_of(folder):
    """Every file below a folder, with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def delete(log):
    """No log."""
    log.unlink()


def empty(log):
    """A log of no bytes."""
    os.truncate(log, 0)


def zero_header(log):
    """Zeros where SQLite's header was."""
    with log.open("r+b") as file:
        file.write(bytes(100))


def shorten(log):
    """Only the first bytes of the log."""
    os.truncate(log, 60)


def noise(log):
    """Something that is not a database."""
    log.write_bytes(b"not a log " * 1000)


def other_database(log):
    """A database without a log in it."""
    log.unlink()
    db = sqlite3.connect(log)
    db.execute("CREATE TABLE other (a)")
    db.close()


def folder_for_file(log):
    """A folder of the log's name."""
    log.unlink()
    log.mkdir()


def spoil_schema(log):
    """A byte in the text of a table that no UTF-8 has: SQLite quotes it in its error."""
    content = bytearray(log.read_bytes())
    content[content.index(b"CREATE TABLE heads") + len("CREATE TABL")] ^= 0xFF
    log.write_bytes(content)


DAMAGES = [
    delete,
    empty,
    zero_header,
    shorten,
    noise,
    other_database,
    folder_for_file,
    spoil_schema,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
def test_a_lost_log_is_an_error_and_nothing_is_touched(project, damage):
    """The error names the log, what is there, and the next step; every other file is as it was."""
    graph = graph_folder(project)
    damage(graph / "log.db")
    before = files_of(graph)
    with pytest.raises(CorruptionError) as caught:
        App.open(project)
    for words in ("lost its log", "log.db", "nodes.db", "segments", "branches", "trails restore"):
        assert words in caught.value.message
    assert files_of(graph) == before


@pytest.mark.parametrize("damage", [empty, noise], ids=lambda each: each.__name__)
def test_a_lost_log_without_views_is_an_error_too(project, damage):
    """A file of the log's name is not an empty place."""
    graph = graph_folder(project)
    damage(graph / "log.db")
    shutil.rmtree(graph / "branches")
    shutil.rmtree(graph / "segments")
    for name in graph.glob("nodes.db*"):
        name.unlink()
    with pytest.raises(CorruptionError, match="lost its log"):
        App.open(project)


def test_a_log_that_only_its_wal_is_left_of_is_an_error(project):
    """The frames in it may be all that there is."""
    graph = graph_folder(project)
    for each in graph.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    (graph / "log.db-wal").write_bytes(b"frames")
    with pytest.raises(CorruptionError, match=r"log\.db-wal are still there"):
        App.open(project)
    assert (graph / "log.db-wal").read_bytes() == b"frames"


def test_a_graph_is_created_in_an_empty_place(project):
    """No folder, an empty folder, and one where a creation was interrupted."""
    graph = graph_folder(project)
    shutil.rmtree(project / ".trails")
    for prepare in (lambda: None, graph.mkdir, lambda: (graph.mkdir(), _interrupt(graph))):
        shutil.rmtree(graph, ignore_errors=True)
        prepare()
        with App.open(project) as app:
            assert items_of(app) == {}
        assert not list(graph.glob("log.new*"))


def _interrupt(graph):
    (graph / "log.new").write_bytes(b"half of a log")
    (graph / "log.new-journal").write_bytes(b"half of a journal")


def test_an_interrupted_restore_is_not_an_empty_place(project):
    """The data that was moved aside is named, and an old copy beside a graph is no obstacle."""
    graph = graph_folder(project)
    aside = graph.with_name("main.replaced-20260101T000000Z")
    graph.rename(aside)
    with pytest.raises(TrailsError, match=r"main\.replaced-20260101T000000Z .* did not finish"):
        App.open(project)
    assert not graph.exists()
    shutil.copytree(aside, graph)
    with App.open(project) as app:
        assert "one" in items_of(app)


def test_an_empty_log_beside_its_wal_is_an_error(tmp_path):
    """SQLite deletes the WAL of a database of no bytes; it must not get the chance."""
    project = make_project(tmp_path / "project")
    with App.open(project) as app:
        app.registry().classes["Item"](code="one", value=1).save(app.context())
        copy = shutil.copytree(project, tmp_path / "copy")
    empty(graph_folder(copy) / "log.db")
    before = files_of(graph_folder(copy))
    with pytest.raises(CorruptionError, match="lost its log"):
        App.open(copy)
    assert files_of(graph_folder(copy)) == before
