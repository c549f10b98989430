"""Views that were closed in order are opened when they are first used, and miss nothing."""

from __future__ import annotations

import shutil

import msgspec
import pytest
from tests.engine.history.repo import Repo

from trails import App, Node, node_type, predicate
from trails.engine.graph.texts.field_index import FieldIndex
from trails.engine.upkeep.verify import verify
from trails.errors import StorageFullError
from trails.model.history import Position
from trails.model.iris import RDF_TYPE
from trails.views.quads.marks import closed_at
from trails.views.quads.view import QuadsView
from trails.views.text import analysis


@pytest.fixture
def repo(tmp_path):
    """Two items, closed and opened again."""
    repo = Repo(tmp_path)
    repo.put("main", "Item/1", name="one")
    repo.put("main", "Item/2", name="two")
    repo.reopen()
    yield repo
    repo.app.close()


def count(repo, branch="main"):
    """How many items the store of a branch has."""
    checkout = repo.ctx(branch).checkout
    found = repo.graph.reading_quads(checkout, lambda quads: list(map(str, quads.data())))
    return sum(RDF_TYPE in each for each in found)


def wrong(graph):
    """The codes of what ``verify`` finds."""
    return [each.code for each in verify(graph, lambda _: None) if each.code]


def is_open(repo):
    """Whether the store of ``main`` is open."""
    return repo.graph.stores.is_open(repo.graph.main)


def quads_of(repo):
    """The folder of the store of ``main``."""
    return repo.graph.main.folder / "quads"


def test_a_store_is_opened_when_it_is_first_asked(repo):
    """Reading nodes does not; until then it counts as being where it was closed."""
    assert repo.ctx().kg.find("Item", "1") is not None
    assert not is_open(repo)
    assert repo.graph.caught_up()
    assert count(repo) == 2
    assert is_open(repo)


def test_a_write_lands_in_a_store_that_was_not_opened(repo):
    """Which is then where the log is."""
    repo.put("main", "Item/3", name="three")
    assert is_open(repo)
    assert count(repo) == 3
    assert wrong(repo.graph) == []


def test_a_branch_begins_with_a_store_that_was_not_opened(repo):
    """The store of a branch is a checkpoint of main's."""
    repo.branch("side")
    repo.put("side", "Item/3", name="three")
    assert count(repo, "side") == 3
    assert count(repo) == 2


def test_verify_compares_a_store_that_was_not_opened(repo):
    """And finds what is wrong in it."""
    repo.app.close()
    quads = QuadsView(quads_of(repo))
    quads.apply(quads.position, b"", b'<urn:x> <urn:y> "z" .\n')
    quads.close()
    repo.reopen()
    assert not is_open(repo)
    assert wrong(repo.graph) == ["view_differs"]


@pytest.mark.parametrize("how", ["older", "unknown", "no mark", "shortened", "missing"])
def test_a_store_that_is_not_at_the_head_is_opened_at_once(repo, how):
    """It is caught up or made again before anything is answered, as ever."""
    assert count(repo) == 2
    folder = quads_of(repo)
    mark = folder.with_name("quads.closed")
    repo.app.close()
    assert closed_at(folder) is not None
    left = msgspec.json.decode(mark.read_bytes())
    if how == "older":
        mark.write_bytes(msgspec.json.encode({**left, "position": str(Position(1, "0" * 32))}))
    elif how == "unknown":
        del left["position"]
        mark.write_bytes(msgspec.json.encode(left))
    elif how == "no mark":
        mark.unlink()
    elif how == "shortened":
        manifest = next(folder.glob("MANIFEST-*"))
        manifest.write_bytes(manifest.read_bytes()[:-1])
    else:
        shutil.rmtree(folder)
        mark.unlink()
    repo.reopen()
    assert is_open(repo)
    assert count(repo) == 2
    assert wrong(repo.graph) == []


def test_a_store_is_read_where_the_disk_is_too_full_to_open_it(repo, monkeypatch):
    """RocksDB writes when it is opened; a reader can do without."""
    start = QuadsView._start

    def refuse(self):
        raise StorageFullError("no space left")

    monkeypatch.setattr(QuadsView, "_start", refuse)
    assert count(repo) == 2
    assert not is_open(repo)
    monkeypatch.setattr(QuadsView, "_start", start)
    assert count(repo) == 2
    assert is_open(repo)


# --- texts ---------------------------------------------------------------------------------


@node_type
class Note(Node):
    """A note."""

    code: str = predicate(key=True)
    text: str = predicate(search=True)


@pytest.fixture
def notes(tmp_path):
    """Opens a project with one note that was searched, as often as asked."""

    def open_notes():
        return App(Note, name="notes", folder=tmp_path)

    with open_notes() as app:
        Note(code="a", text="alpha").save(app.context())
        assert found(app, "alpha") == ["Note/a"]
    return open_notes


def found(app, words):
    """The notes that have a word."""
    graph = app.graph()
    index, tail = graph.texts.of(graph.main, "Note", "text")
    with graph.main.nodes.file.reader():
        entries = {each.handle for each in index.entries()} - tail.keys()
    texts = {handle: Note.get(app.context(), handle).text for handle in {*entries, *tail}}
    return sorted(handle for handle, text in texts.items() if words in text.split())


def test_a_text_index_is_looked_at_when_it_is_first_used(notes, monkeypatch):
    """A search finds what was there, a write is found too."""
    asked = []
    monkeypatch.setattr(
        analysis.Analyzer, "version", property(lambda self: asked.append(self) or "v")
    )
    with notes() as app:
        assert Note.get(app.context(), "a").text == "alpha"
        assert app.graph().caught_up()
        assert not asked
    monkeypatch.undo()
    with notes() as app:
        assert found(app, "alpha") == ["Note/a"]
    built, build = [], FieldIndex.build
    monkeypatch.setattr(
        FieldIndex, "build", lambda self: built.append(self.field.field) or build(self)
    )
    with notes() as app:
        Note(code="b", text="alpha beta").save(app.context())
        assert found(app, "alpha") == ["Note/a", "Note/b"]
        assert wrong(app.graph()) == []
    assert "text" not in built  # the note was marked, and the index not made again
    with notes() as app:
        assert wrong(app.graph()) == []
        assert found(app, "alpha") == ["Note/a", "Note/b"]
