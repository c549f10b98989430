"""A fast-forward moves a name: what it brings is read later, and nobody sees a state between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trails import App, Node, node_type, predicate
from trails.engine.graph import backlog
from trails.engine.graph.backlog import Backlog
from trails.engine.graph.folding import Folding
from trails.engine.graph.texts.indexes import TextIndexes
from trails.engine.history.branches import create_branch, delete_branch
from trails.engine.history.merge import merge
from trails.engine.upkeep.verify import verify
from trails.errors import StorageFullError
from trails.model.history import MergeRequest, MergeResult
from trails.views.quads.view import QuadsView
from trails.views.text.index import digest


@node_type
class Note(Node):
    """A note with a text that is searched."""

    code: str = predicate(key=True)
    text: str = predicate(search=True)
    number: int | None = predicate()


def notes(count: int, text: str) -> Iterator[Note]:
    """So many notes with a text."""
    return (Note(code=f"n{number}", text=text) for number in range(count))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Keeps the threads of backlogs from beginning, until it is set or the graph is closed."""
    going = threading.Event()
    run = Backlog._run

    def wait(self: Backlog) -> None:
        while not going.wait(0.005) and not self._ended.is_set():
            pass
        run(self)

    monkeypatch.setattr(backlog, "_DELAY", 0)
    monkeypatch.setattr(Backlog, "_run", wait)
    return going


@pytest.fixture(params=["file", "memory"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """A graph with ten notes, and a branch that has changed some and made others."""
    with App(Note, name="notes", folder=tmp_path if request.param == "file" else None) as made:
        fill(made)
        yield made


def fill(app: App, count: int = 15) -> None:
    """Ten notes on main, and more of them on a branch, with another text."""
    app.context().kg.save_all(notes(10, "alpha"))
    assert texts(app) == {f"n{number}": "alpha" for number in range(10)}
    assert found(app, "alpha") == 10
    create_branch(app.graph(), "side", actor="me")
    change(app, "side", count, "beta")


def change(app: App, branch: str, count: int, text: str) -> None:
    """Give so many notes of a branch a text, in one commit."""
    app.context(branch=branch).kg.save_all(notes(count, text), upsert=True)


def forward(app: App, source: str = "side", target: str = "main") -> MergeResult:
    """Move a branch to another one."""
    done = merge(app.graph(), MergeRequest(source, target), actor="me")
    assert done.outcome == "fast_forward"
    return done


def texts(app: App, branch: str = "main") -> dict[str, str]:
    """The texts of a branch, by SPARQL."""
    rows = app.context(branch=branch).kg.sparql("SELECT ?c ?t { ?n :code ?c ; :text ?t }")
    return {str(row["c"]): str(row["t"]) for row in rows}


def stored(app: App, branch: str = "main") -> dict[str, str]:
    """The same from the node index."""
    return {each.code: each.text for each in Note.objects(app.context(branch=branch))}


def found(app: App, word: str, branch: str = "main") -> int:
    """How many notes of a branch have a text that begins with a word, as a search finds them."""
    graph = app.graph()
    index, tail = graph.texts.of(graph.checkout(branch), "Note", "text")
    known = stored(app, branch)
    texts = [text for each in tail.values() if (text := str(each))]
    for entry in index.entries():
        if entry.handle not in tail:
            text = known[entry.handle.partition("/")[2]]
            assert digest(text) == entry.digest
            texts.append(text)
    return sum(text.startswith(word) for text in texts)


def check(app: App) -> None:
    """Every view agrees with the log."""
    assert not [each for each in verify(app.graph(), lambda _: None) if each.severity != "ok"]


@pytest.mark.usefixtures("held")
def test_readers_see_what_was_moved_before_the_views_have_followed(app: App) -> None:
    """SPARQL and searches follow in the reader's thread."""
    forward(app)
    assert not app.graph().stores._backlog.is_empty
    assert app.graph().caught_up()
    expected = {f"n{number}": "beta" for number in range(15)}
    assert stored(app) == expected
    assert texts(app) == expected
    assert (found(app, "alpha"), found(app, "beta")) == (0, 15)
    assert app.graph().stores._backlog.is_empty
    check(app)


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("asked", ["each time", "in the end"])
def test_writes_and_moves_that_follow_each_other(app: App, asked: str) -> None:
    """Commits reach the views in their order, whoever follows, and whatever came in between."""
    expected = {f"n{number}": "alpha" for number in range(10)}
    for turn in range(4):
        name = f"turn-{turn}"
        create_branch(app.graph(), name, actor="me")
        change(app, name, 12, name)
        forward(app, name)
        Note(code=f"n{turn}", text=f"own {turn}").save(app.context(), upsert=True)
        Note(code=f"m{turn}", text="mine").save(app.context())
        expected |= {f"n{number}": name for number in range(12)}
        expected |= {f"n{turn}": f"own {turn}", f"m{turn}": "mine"}
        delete_branch(app.graph(), name, actor="me")
        if asked == "each time":
            assert texts(app) == expected
            assert found(app, "mine") == turn + 1
            assert found(app, name) == 11
    assert texts(app) == stored(app) == expected
    assert (found(app, "mine"), found(app, "own"), found(app, "alpha")) == (4, 1, 0)
    assert texts(app, "side")["n0"] == "beta"
    assert (found(app, "beta", "side"), found(app, "alpha", "side")) == (15, 0)
    check(app)


@pytest.mark.usefixtures("held")
def test_branches_and_snapshots_made_meanwhile(app: App) -> None:
    """Their stores begin as copies of one that is behind."""
    before = app.context().kg.head.commit
    forward(app)
    create_branch(app.graph(), "after", actor="me")
    change(app, "after", 1, "gamma")
    assert texts(app, "after") == {f"n{n}": "beta" for n in range(15)} | {"n0": "gamma"}
    rows = app.context(snapshot=before).kg.sparql("SELECT ?t { ?n :text ?t }")
    assert {str(row["t"]) for row in rows} == {"alpha"}
    assert found(app, "gamma", "after") == 1
    assert texts(app)["n0"] == "beta"
    check(app)


@pytest.mark.usefixtures("held")
def test_a_large_write_after_a_move_follows_it(app: App) -> None:
    """It is not loaded beside a store that is behind."""
    forward(app)
    app.context().kg.save_all(Note(code=f"x{n}", text="more") for n in range(8_000))
    assert len(texts(app)) == 8_015
    assert found(app, "beta") == 15
    check(app)


def test_threads_follow_without_any_reader(app: App, held: threading.Event) -> None:
    """And the next commit is applied at once again."""
    forward(app)
    held.set()
    for thread in threading.enumerate():
        if thread.name == "trails-follow":
            thread.join()
    stores = app.graph().stores
    assert stores._backlog.is_empty
    assert stores.main().position == app.graph().main.nodes.position
    Note(code="next", text="more").save(app.context())
    assert stores._backlog.is_empty
    assert texts(app)["next"] == "more"
    check(app)


@pytest.mark.parametrize("died", [True, False])
@pytest.mark.usefixtures("held")
def test_views_that_did_not_follow_do_so_when_the_graph_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, died: bool
) -> None:
    """After a crash, and after closing in order."""
    app = App(Note, name="notes", folder=tmp_path)
    fill(app)
    forward(app)
    Note(code="next", text="more").save(app.context())
    if died:
        monkeypatch.setattr(Backlog, "_try", lambda self: False)
        monkeypatch.setattr(TextIndexes, "_save", lambda self: None)
    app.close()
    monkeypatch.undo()
    with App(Note, name="notes", folder=tmp_path) as again:
        assert texts(again) == {f"n{n}": "beta" for n in range(15)} | {"next": "more"}
        assert (found(again, "beta"), found(again, "more"), found(again, "alpha")) == (15, 1, 0)
        check(again)


def test_a_full_disk_delays_the_store_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: threading.Event
) -> None:
    """The move is made, nodes are read, SPARQL says why it can't answer and can do so later."""
    with App(Note, name="notes", folder=tmp_path) as app:
        fill(app)
        apply = QuadsView.apply_stream

        def refuse(*_: object) -> None:
            raise StorageFullError("no space left")

        monkeypatch.setattr(QuadsView, "apply_stream", refuse)
        forward(app)
        held.set()
        for thread in threading.enumerate():
            if thread.name == "trails-follow":
                thread.join()
        assert not app.graph().caught_up()
        assert stored(app)["n0"] == "beta"
        with pytest.raises(StorageFullError):
            texts(app)
        monkeypatch.setattr(QuadsView, "apply_stream", apply)
        Note(code="next", text="more").save(app.context())
        assert texts(app)["n0"] == "beta"
        assert app.graph().caught_up()
        check(app)


@pytest.mark.usefixtures("held")
def test_a_store_that_is_found_damaged_while_it_follows_is_made_anew(tmp_path: Path) -> None:
    """By the next reader."""
    with App(Note, name="notes", folder=tmp_path) as app:
        fill(app)
        forward(app)
        app.graph().stores.main().damaged = True
        assert texts(app) == {f"n{number}": "beta" for number in range(15)}
        check(app)


@pytest.mark.usefixtures("held")
def test_the_files_of_a_store_that_is_there_already_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was loaded for the branch is not loaded again."""
    with App(Note, name="notes", folder=tmp_path) as app:
        fill(app, 8_000)
        assert len(texts(app, "side")) == 8_000
        forward(app)
        applied: list[object] = []
        monkeypatch.setattr(QuadsView, "apply_stream", lambda *given: applied.append(given))
        assert len(texts(app)) == 8_000
        assert not applied
        monkeypatch.undo()
        change(app, "main", 1, "own")
        assert texts(app)["n0"] == "own"
        assert texts(app, "side")["n0"] == "beta"
        check(app)


def test_what_a_move_brings_is_counted_only_if_that_is_quick(app: App) -> None:
    """A dry run always counts, and what it found is known afterwards."""
    done = forward(app)
    assert (done.created, done.updated, done.deleted) == (5, 10, 0)
    create_branch(app.graph(), "large", actor="me")
    change(app, "large", 1_000, "gamma")
    create_branch(app.graph(), "larger", source="large", actor="me")
    change(app, "larger", 600, "delta")
    done = forward(app, "large")
    assert (done.created, done.updated, done.deleted) == (None, None, None)
    tried = merge(app.graph(), MergeRequest("larger", dry_run=True), actor="me")
    assert (tried.created, tried.updated, tried.deleted) == (0, 600, 0)
    done = forward(app, "larger")
    assert (done.created, done.updated, done.deleted) == (0, 600, 0)


@pytest.mark.usefixtures("held")
def test_a_move_reads_no_statement_of_what_it_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do the next write and the next reads of nodes."""
    with App(Note, name="notes", folder=tmp_path) as app:
        fill(app, 1_500)
        read: list[str] = []
        statements = Folding.statements

        def noting(self: Folding, commit: object, payload: object = None) -> object:
            if payload is None and threading.current_thread() is threading.main_thread():
                read.append(str(commit))
            return statements(self, commit, payload)  # type: ignore[arg-type]

        monkeypatch.setattr(Folding, "statements", noting)
        forward(app)
        Note(code="next", text="more").save(app.context())
        assert Note.get(app.context(), "n7").text == "beta"
        assert not read
        texts(app)
        assert read
