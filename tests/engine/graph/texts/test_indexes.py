"""Text indexes: what a search of any branch or snapshot is given is the texts that are there."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from trails import App, Node, node_type, predicate
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import Graph
from trails.engine.graph.open import find_loss, open_graph
from trails.engine.graph.texts import field_index
from trails.engine.graph.texts import indexes as text_indexes
from trails.engine.graph.texts import overlays as text_overlays
from trails.engine.graph.texts.field_index import FieldIndex
from trails.engine.graph.texts.fields import Text, TextField
from trails.engine.graph.texts.source import TextSource
from trails.engine.history.branches import create_branch, delete_branch
from trails.engine.history.merge import merge
from trails.engine.session.context import GraphContext
from trails.engine.upkeep.doctor import examine
from trails.engine.upkeep.maintenance import cleanup, measure, optimize
from trails.engine.upkeep.verify import verify, verify_and_repair
from trails.errors import NotFoundError, StorageError
from trails.model.history import MergeRequest
from trails.model.results import ReadOnly
from trails.views.nodes.index import NodeIndex
from trails.views.text.index import IndexedText, TextIndex, digest, items
from trails.views.text.manifest import MANIFEST, read_manifest

FIELDS = ("title", "body", "lines")


@node_type
class Memo(Node):
    """A label, a text that may be missing, and a list of texts; one field is not searched."""

    code: str = predicate(key=True)
    title: str = predicate()
    body: str | None = predicate(search=True)
    lines: list[str] = predicate(search=True)
    hidden: str | None = predicate()


@node_type
class Letter(Memo):
    """Another type with the same fields."""


def silent(text: str) -> None:
    """Ignore progress."""
    del text


def open_app(folder: Path | None, *types: type[Node]) -> App:
    """A graph of memos."""
    return App(*(types or (Memo, Letter)), name="memos", folder=folder)


def found(graph: Graph, checkout: Checkout, kind: str, field: str) -> Counter[IndexedText]:
    """What a search is given: the index without the nodes of the overlay, and the overlay."""
    index, overlay = graph.texts.of(checkout, kind, field)
    return Counter(each for each in index.entries() if each.handle not in overlay) + Counter(
        IndexedText(handle, item, digest(text))
        for handle, value in overlay.items()
        for item, text in enumerate(items(value))
    )


def expected(ctx: GraphContext, kind: type[Node], field: str) -> Counter[IndexedText]:
    """The texts that are there."""
    return Counter(
        IndexedText(node.handle, item, digest(text))
        for node in kind.objects(ctx)
        if type(node).__name__ == kind.__name__
        for item, text in enumerate(_items(getattr(node, field)))
    )


def _items(value: object) -> tuple[str, ...]:
    return tuple(sorted(value)) if isinstance(value, list) else items(value)


def assert_right(app: App, *, branch: str = "main", snapshot: str | None = None) -> None:
    """All searched fields of all types, on a branch or at a commit."""
    ctx = app.context(snapshot=snapshot) if snapshot else app.context(branch=branch)
    checkout = app.graph().checkouts[f"@{snapshot}"] if snapshot else app.graph().checkout(branch)
    for kind in (Memo, Letter):
        for field in FIELDS:
            wanted = expected(ctx, kind, field)
            assert found(app.graph(), checkout, kind.__name__, field) == wanted, (kind, field)


def save(app: App, *codes: str, branch: str = "main", text: str = "first words") -> str:
    """Create or change memos in one commit; the commit."""
    ctx = app.context(branch=branch)
    ctx.kg.save_all(
        (
            Memo(code=code, title=f"memo {code}", body=f"{text} of {code}", lines=[text, code])
            for code in codes
        ),
        upsert=True,
    )
    return app.graph().log_head(branch).commit


def indexes_of(app: App) -> dict[str, FieldIndex]:
    """Main's indexes of memos, by field."""
    return {key[1]: each for key, each in app.graph().texts._indexes.items() if key[0] == "Memo"}


def wait_for_thread() -> None:
    """Nothing is indexed any more."""
    for thread in threading.enumerate():
        if thread.name == "trails-text":
            thread.join()


def copy_running(source: Path, target: Path) -> None:
    """The files as they are, those of text indexes in any state: a thread may be writing them."""

    def copy(one: str, other: str) -> None:
        try:
            shutil.copy2(one, other)
        except FileNotFoundError:
            if "/text/" not in one:
                raise

    with suppress(shutil.Error):  # a folder that was removed meanwhile
        shutil.copytree(source, target, copy_function=copy)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few texts are many."""
    monkeypatch.setattr(field_index, "LARGE_TAIL", 5)
    monkeypatch.setattr(field_index, "SCANNED", 12)
    monkeypatch.setattr(text_overlays, "FAR", 12)
    monkeypatch.setattr(text_indexes, "_DELAY", 0.0)


@pytest.fixture(params=["folder", "memory"])
def app(request: pytest.FixtureRequest, tmp_path: Path, small: None) -> Iterator[App]:
    """A graph whose text indexes have to be sound at the end."""
    made = open_app(tmp_path / "p" if request.param == "folder" else None)
    yield made
    assert all(each.severity == "ok" for each in verify(made.graph(), silent))
    made.close()


def codes(count: int, start: int = 0) -> list[str]:
    """Some names."""
    return [f"c{number}" for number in range(start, start + count)]


# --- following ------------------------------------------------------------------------------


def test_a_write_is_found_when_it_is_acknowledged(app: App) -> None:
    """New, changed, without a text, deleted: each at once, whatever is indexed."""
    for number in range(20):
        save(app, f"c{number}")
        assert_right(app)
    ctx = app.context()
    memo = Memo.get(ctx, "c3")
    memo.body, memo.lines = None, []
    memo.save(ctx)
    assert_right(app)
    Memo.get(ctx, "c4").delete(ctx)
    Letter(code="c4", title="another type", body="same id").save(ctx)
    assert_right(app)


def test_a_field_that_is_not_searched_has_no_index(app: App) -> None:
    """Neither has a key that is no label."""
    assert set(indexes_of(app)) == set(FIELDS)
    for field in ("hidden", "code", "nothing"):
        with pytest.raises(NotFoundError, match="search=True"):
            app.graph().texts.of(app.graph().main, "Memo", field)


def test_branches_and_snapshots_have_their_own_texts(app: App) -> None:
    """Near ones by an overlay, far ones by an index of their own."""
    start = save(app, *codes(10))
    create_branch(app.graph(), "side", actor="a")
    save(app, "c1", "new", branch="side", text="other words")
    save(app, "c2", text="main words")
    for where in ("main", "side"):
        assert_right(app, branch=where)
    assert_right(app, snapshot=start)
    save(app, *codes(30, 100), branch="side")
    far = save(app, *codes(30, 200))
    assert_right(app, branch="side")
    assert app.graph().texts.is_open(app.graph().checkout("side"))
    save(app, "c5", branch="side", text="after the fork")
    app.context(branch="side").kg.delete(Memo.get(app.context(branch="side"), "c6"))
    for where in ("side", "main"):
        assert_right(app, branch=where)
    assert_right(app, snapshot=start)
    merge(app.graph(), MergeRequest("side", "main", resolve_all="theirs"), actor="a")
    for where in ("main", "side"):
        assert_right(app, branch=where)
    assert_right(app, snapshot=far)
    delete_branch(app.graph(), "side", force=True, actor="a")
    create_branch(app.graph(), "side", source=start, actor="a")
    assert_right(app, branch="side")


def test_an_overlay_forgets_texts_that_are_the_same(app: App) -> None:
    """What went forth and back, or was merged, does not make a branch far."""
    save(app, *codes(20))
    create_branch(app.graph(), "side", actor="a")
    assert_right(app, branch="side")
    save(app, *codes(20), text="for a while")
    save(app, *codes(20))
    assert_right(app, branch="side")
    assert not app.graph().texts.is_open(app.graph().checkout("side"))


def test_a_reader_keeps_what_it_was_given(app: App) -> None:
    """Flushes and writes meanwhile change neither the index nor the overlay."""
    first = save(app, *codes(8))
    graph = app.graph()
    app.context(snapshot=first)
    given = graph.texts.of(graph.checkouts[f"@{first}"], "Memo", "body")
    before = sorted(given[0].entries()), dict(given[1])
    for number in range(30):
        save(app, *codes(8), text=f"text {number}")
        graph.texts.of(graph.main, "Memo", "body")
    wait_for_thread()
    assert (sorted(given[0].entries()), dict(given[1])) == before


def test_a_search_inside_a_transaction(app: App) -> None:
    """On disk it sees the commit before, in memory what was done; a rollback leaves nothing."""
    save(app, *codes(8))
    graph, ctx = app.graph(), app.context()
    before = found(graph, graph.main, "Memo", "body")

    def fail() -> None:
        with ctx.kg.transaction():
            Memo(code="lost", title="x", body="never committed").save(ctx)
            seen = found(graph, graph.main, "Memo", "body")
            assert (seen == before) == (graph.folder is not None)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert found(graph, graph.main, "Memo", "body") == before
    assert_right(app)


def test_a_flood_ends_the_scan_of_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every index has to be built anyway, nothing is left to mark."""
    marked: list[str] = []
    mark = FieldIndex.mark

    def count(index: FieldIndex, handle: str, size: int = 0) -> None:
        marked.append(handle)
        mark(index, handle, size)

    monkeypatch.setattr(text_overlays, "FLOOD", 10)
    monkeypatch.setattr(FieldIndex, "mark", count)
    with open_app(None) as app:
        save(app, "first")
        assert not marked, "no index is built before the first search"
        assert_right(app)
        save(app, *map(str, range(100)))
        letters = [each for each in app.graph().texts._indexes.values() if each.follows]
        assert len(letters) == 3, "those of Letter, which the commit does not touch"
        marked.clear()
        for index in letters:
            index.distrust()
        save(app, *map(str, range(200)))
        assert not marked
        assert_right(app)
        for each in (Memo, Letter):
            app.graph().texts.distrust(app.graph().main, each.__name__, "body")
            app.graph().texts.distrust(app.graph().main, each.__name__, "lines")
        app.graph().texts.distrust(app.graph().main, "Letter", "title")
        save(app, *map(str, range(200, 600)))
        assert 0 < len(marked) < 400, "it ends when the last index that follows is flooded"
        assert_right(app)


def test_long_texts_are_not_kept_in_memory(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are indexed before a search, however few they are."""
    monkeypatch.setattr(field_index, "LARGE_BYTES", 10_000)
    monkeypatch.setattr(field_index, "LONG_BYTES", 20_000)
    monkeypatch.setattr(field_index, "LARGE_TAIL", 1_000)
    monkeypatch.setattr(field_index, "SCANNED", 1_000)
    save(app, "built")
    assert_right(app)
    wait_for_thread()  # which may have met an index that was not built yet
    before = len(indexes_of(app)["title"].tail)
    for number in range(8):
        save(app, f"c{number}", text=f"{number} " * 2_000)
        assert_right(app)
        overlay = app.graph().texts.of(app.graph().main, "Memo", "body")[1]
        assert sum(len(each or "") for each in overlay.values()) < 30_000
    assert indexes_of(app)["body"].documents > 0
    assert len(indexes_of(app)["title"].tail) == before + 8


# --- types ----------------------------------------------------------------------------------


def test_a_change_of_types_makes_and_drops_indexes(tmp_path: Path, small: None) -> None:
    """search=True added and removed; a branch with the former types keeps its texts."""
    app = open_app(tmp_path / "p")
    save(app, *codes(20))
    create_branch(app.graph(), "old", actor="a")
    app.close()

    class Changed(Node):
        """More is searched, and less."""

        code: str = predicate(key=True)
        title: str = predicate()
        body: str | None = predicate()
        lines: list[str] = predicate(search=True)
        hidden: str | None = predicate(search=True)

    class Other(Changed):
        """As before."""

    Changed.__name__, Other.__name__ = "Memo", "Letter"
    app = open_app(tmp_path / "p", node_type(Changed), node_type(Other))
    assert set(indexes_of(app)) == {"title", "lines", "hidden"}
    graph, ctx = app.graph(), app.context()
    Changed(code="h", title="t", hidden="found now").save(ctx)
    for field in ("title", "lines", "hidden"):
        assert found(graph, graph.main, "Memo", field) == expected(ctx, Changed, field)
    with pytest.raises(NotFoundError):
        graph.texts.of(graph.main, "Memo", "body")
    old = app.context(branch="old")
    assert len(found(graph, graph.checkout("old"), "Memo", "body")) == 20
    assert old.kg.counts()["Memo"] == 20
    wait_for_thread()
    app.close()
    app = open_app(tmp_path / "p")
    assert_right(app)
    assert all(each.severity == "ok" for each in verify(app.graph(), silent))
    app.close()


def test_another_analysis_makes_an_index_anew(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that another version wrote is not used."""
    app = open_app(tmp_path / "p")
    save(app, *codes(20))
    assert_right(app)
    wait_for_thread()
    before = {each.folder for each in _manifest(app).indexes}
    app.close()
    from trails.engine.graph.texts import fields as text_fields
    from trails.views.text import analysis

    text_fields._known.clear()
    monkeypatch.setattr(analysis.Analyzer, "version", "another")
    app = open_app(tmp_path / "p")
    assert_right(app)
    wait_for_thread()
    assert not before & {each.folder for each in _manifest(app).indexes if each.folder}
    app.close()
    text_fields._known.clear()


# --- files ----------------------------------------------------------------------------------


def _place(app: App) -> Path:
    folder = app.graph().folder
    assert folder is not None
    return folder / field_index.FOLDER


def _manifest(app: App):
    app.graph().texts._save()
    found_one = read_manifest(_place(app))
    assert found_one is not None
    return found_one


def test_files_are_used_again(tmp_path: Path, small: None) -> None:
    """Closed in order, an index is opened as it was, and what it lacks is in the tail."""
    app = open_app(tmp_path / "p")
    save(app, *codes(20))
    assert_right(app)
    wait_for_thread()
    save(app, "c3", text="later")
    folders = {each.field: each.folder for each in _manifest(app).indexes if each.type == "Memo"}
    app.close()
    app = open_app(tmp_path / "p")
    assert_right(app)
    assert [each._folder for each in indexes_of(app).values()] == [
        folders[each] for each in indexes_of(app)
    ]
    assert all(
        0 < len(each.tail) <= 1 for each in indexes_of(app).values() if each.field.field == "body"
    )
    app.close()


def test_an_older_manifest_is_as_good(tmp_path: Path, small: None) -> None:
    """Commits since are looked at again, whatever the files have of them."""
    app = open_app(tmp_path / "p")
    save(app, *codes(20))
    assert_right(app)
    wait_for_thread()
    _manifest(app)
    old = (_place(app) / MANIFEST).read_bytes()
    for number in range(10):
        save(app, *codes(10), text=f"text {number}")
    Memo.get(app.context(), "c1").delete(app.context())
    assert_right(app)
    wait_for_thread()
    place = _place(app)
    app.close()
    (place / MANIFEST).write_bytes(old)
    app = open_app(tmp_path / "p")
    assert_right(app)
    app.close()


DAMAGES = {
    "no manifest": lambda place, rng: (place / MANIFEST).unlink(),
    "short manifest": lambda place, rng: os.truncate(place / MANIFEST, 50),
    "flipped manifest": lambda place, rng: _flip(place / MANIFEST, rng),
    "no folder": lambda place, rng: shutil.rmtree(place),
    "a file": lambda place, rng: (shutil.rmtree(place), place.write_text("a file")),
    "no index": lambda place, rng: shutil.rmtree(rng.choice(_folders(place))),
    "an empty index": lambda place, rng: _empty(rng.choice(_folders(place))),
    "a file less": lambda place, rng: rng.choice(_files(place)).unlink(),
    "a short file": lambda place, rng: os.truncate(
        path := rng.choice(_files(place)), path.stat().st_size // 2
    ),
    "a flipped byte": lambda place, rng: _flip(rng.choice(_files(place)), rng),
    "a text less": lambda place, rng: _count_less(rng.choice(_folders(place))),
    "no list of files": lambda place, rng: rng.choice(_lists(place)).unlink(),
    "a short list of files": lambda place, rng: _cut(rng.choice(_lists(place))),
    "zeros in a list of files": lambda place, rng: _clear(rng.choice(_lists(place))),
    "exchanged": lambda place, rng: _exchange(place),
}


def _folders(place: Path) -> list[Path]:
    return sorted(each for each in place.iterdir() if each.is_dir())


def _files(place: Path) -> list[Path]:
    return sorted(each for each in place.glob("*/*") if not each.name.startswith("."))


def _lists(place: Path) -> list[Path]:
    """What tantivy writes of the files that are its own."""
    return sorted(place.glob("*/.managed.json"))


def _clear(path: Path) -> None:
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size // 2] + bytes(size - size // 2))


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _count_less(folder: Path) -> None:
    """Let an index say that a segment has one text less, which tantivy believes."""
    path = folder / "meta.json"
    meta = json.loads(path.read_bytes())
    meta["segments"][0]["max_doc"] -= 1
    path.write_text(json.dumps(meta))


def _exchange(place: Path) -> None:
    one, other = _folders(place)[:2]
    one.rename(place / "x")
    other.rename(one)
    (place / "x").rename(other)


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_noticed(tmp_path: Path, small: None, name: str) -> None:
    """Whatever is done to the files: a search is right, or an error; repair makes it right."""
    rng = random.Random(name)
    app = open_app(tmp_path / "p")
    save(app, *codes(30))
    assert_right(app)
    wait_for_thread()
    place = _place(app)
    app.close()
    assert len(_folders(place)) == len(FIELDS)
    DAMAGES[name](place, rng)
    app = open_app(tmp_path / "p")
    if name == "exchanged":
        wrong = [each for each in verify(app.graph(), silent) if each.severity == "problem"]
        assert [each.name for each in wrong] == ["text index"]
    else:
        assert_right(app)
    assert all(each.severity == "ok" for each in verify_and_repair(app.graph(), silent))
    assert_right(app)
    app.close()


@pytest.mark.timeout(60)
def test_an_index_that_can_not_be_opened_is_an_error(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each search says so, and none waits for better times; then all is as it was."""
    app = open_app(tmp_path / "p")
    save(app, *codes(30))
    assert_right(app)
    wait_for_thread()
    app.close()

    def refuse(self: FieldIndex) -> TextIndex:
        raise StorageError("too many open files")

    app = open_app(tmp_path / "p")
    with monkeypatch.context() as patched:
        patched.setattr(FieldIndex, "open_anew", refuse)
        for _ in range(2):
            with pytest.raises(StorageError, match="too many open files"):
                app.graph().texts.of(app.graph().main, "Memo", "body")
    assert_right(app)
    app.close()


def test_an_index_that_turns_out_to_be_damaged_is_made_anew(app: App) -> None:
    """A search that can't read it says so."""
    save(app, *codes(30))
    assert_right(app)
    texts, main = app.graph().texts, app.graph().main
    before = texts.of(main, "Memo", "body")[0]
    texts.distrust(main, "Memo", "body")
    assert_right(app)
    assert texts.of(main, "Memo", "body")[0].state is not before.state


def test_verify_finds_a_text_that_is_not_there(app: App) -> None:
    """In the index, too many, too few or another one."""
    save(app, *codes(30))
    assert_right(app)
    wait_for_thread()
    index = indexes_of(app)["body"]
    opened = index.opened()
    opened.put({"Memo/c1": None, "Memo/c2": "another text", "Memo/none": "nobody's"})
    opened.flush()
    problems = [each for each in verify(app.graph(), silent) if each.severity == "problem"]
    assert [each.name for each in problems] == ["text index"]
    assert problems[0].detail == "3 texts of Memo.body of main differ from the log"
    assert all(each.severity == "ok" for each in verify_and_repair(app.graph(), silent))
    assert_right(app)


def test_a_position_that_the_log_does_not_have_is_a_loss(tmp_path: Path, small: None) -> None:
    """It was written after the log had the commit."""
    app = open_app(tmp_path / "p")
    save(app, *codes(8))
    folder, base = app.graph().folder, app.graph().names.base
    assert folder is not None
    app.close()
    kept = shutil.copytree(folder, tmp_path / "kept")
    app = open_app(tmp_path / "p")
    last = save(app, "more")
    app.close()
    assert find_loss(folder) is None
    for path in (*folder.glob("*.db*"), folder / "tail"):
        path.unlink()
    for path in kept.glob("*.db*"):
        shutil.copy(path, folder / path.name)
    shutil.rmtree(folder / "branches")
    loss = find_loss(folder)
    assert loss is not None
    assert [(each.where, each.commit) for each in loss.missing] == [("the text index", last)]
    graph = open_graph(folder, name="main", base_iri=base)
    assert graph.status == "behind"
    assert len(found(graph, graph.main, "Memo", "body")) == 8
    graph.close()
    assert read_manifest(folder / field_index.FOLDER).position.commit == last


def test_closing_waits_for_the_thread_that_indexes(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the node index, of which no connection may be left, nor the file beside it."""
    reading, pages = threading.Event(), TextSource.pages

    def slow(nodes: NodeIndex, field: TextField) -> Iterator[Mapping[str, Text]]:
        reading.set()
        time.sleep(0.2)
        yield from pages(nodes, field)

    monkeypatch.setattr(TextSource, "pages", staticmethod(slow))
    app = open_app(tmp_path / "p")
    save(app, *codes(8))
    folder, file = app.graph().folder, app.graph().main.nodes.file
    assert folder is not None
    assert reading.wait(10)
    app.close()
    assert not [each for each in threading.enumerate() if each.name == "trails-text"]
    with pytest.raises(StorageError, match="the node index is closed"), file.reader():
        pass
    assert not list(folder.glob("*.db-*"))


def test_a_log_that_lost_commits_is_searched_as_its_views_are(tmp_path: Path, small: None) -> None:
    """Which are at a commit that the log does not know."""
    app = open_app(tmp_path / "p")
    save(app, *codes(30))
    assert_right(app)
    folder, base = app.graph().folder, app.graph().names.base
    assert folder is not None
    app.close()
    kept = shutil.copytree(folder, tmp_path / "kept")
    app = open_app(tmp_path / "p")
    save(app, "more")
    app.close()
    for path in folder.glob("log.db*"):
        path.unlink()
    for path in kept.glob("log.db*"):
        shutil.copy(path, folder / path.name)
    graph = open_graph(folder, name="main", base_iri=base)
    assert graph.status == "behind"
    assert len(found(graph, graph.main, "Memo", "body")) == 31
    graph.close()


def test_a_graph_that_is_read_only_changes_no_file(tmp_path: Path, small: None) -> None:
    """An index is used through links; what it lacks is indexed elsewhere."""
    app = open_app(tmp_path / "p")
    save(app, *codes(30))
    assert_right(app)
    wait_for_thread()
    old = (_place(app) / MANIFEST).read_bytes()
    save(app, *codes(30, 50))
    create_branch(app.graph(), "side", actor="a")
    save(app, *codes(30, 100), branch="side")
    wanted = {
        where: expected(ctx, Memo, "body")
        for where, ctx in {
            "main": app.context(),
            "side": app.context(branch="side"),
        }.items()
    }
    folder, place, base = app.graph().folder, _place(app), app.graph().names.base
    assert folder is not None
    app.close()
    (place / MANIFEST).write_bytes(old)  # as of a process that was killed
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    read_only = ReadOnly("requested", "as a test wants")
    graph = open_graph(folder, name="main", base_iri=base, read_only=read_only)
    try:
        assert found(graph, graph.main, "Memo", "body") == wanted["main"]
        assert found(graph, graph.checkout("side"), "Memo", "body") == wanted["side"]
        assert graph.texts.is_open(graph.checkout("side"))
        shadow = graph.texts._place.folder
        assert shadow is not None
        assert any(shadow.iterdir())
    finally:
        graph.close()
    assert not shadow.exists()
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_disk_that_refuses_is_no_reason_to_fail(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The texts stay in the tail."""
    save(app, *codes(20))
    assert_right(app)
    wait_for_thread()

    def refuse(index: TextIndex) -> None:
        raise StorageError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(TextIndex, "flush", refuse)
        for number in range(20):
            save(app, f"n{number}")
            assert_right(app)
    assert_right(app)


def test_upkeep_shows_it(tmp_path: Path, small: None) -> None:
    """Statistics, doctor, cleanup and optimize."""
    app = open_app(tmp_path / "p")
    save(app, *codes(30))
    assert_right(app)
    wait_for_thread()
    sizes = measure(app.graph(), app.context()).bytes
    assert sizes is not None
    assert sizes["text_index"] > 1000
    findings = {each.name: each for each in examine(app.graph(), None)}
    assert findings["text index"].detail == f"at commit {app.graph().main.head.seq}"
    (_place(app) / "leftover").mkdir()
    cleanup(app.graph())
    assert not (_place(app) / "leftover").exists()
    told: list[str] = []
    optimize(app.graph(), told.append)
    assert told[-1] == "compacting the text index"
    assert_right(app)
    assert not app.graph().texts.is_open(app.graph().main)
    app.close()


# --- crashes and threads --------------------------------------------------------------------


def test_a_crash_at_any_step_of_a_flush_loses_no_text(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after whatever changes files: each text is found once when it is opened again."""
    monkeypatch.setattr(text_indexes, "_DELAY", 60.0)
    app = open_app(tmp_path / "p")
    save(app, *codes(6))
    images: list[Path] = []

    def around(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def call(*given: object, **more: object) -> object:
            crash()
            done = real(*given, **more)
            crash()
            return done

        monkeypatch.setattr(owner, name, call)

    def crash() -> None:
        images.append(tmp_path / f"image-{len(images)}")
        copy_running(tmp_path / "p", images[-1])

    for owner, name in (
        (TextIndex, "put"),
        (TextIndex, "fill"),
        (TextIndex, "flush"),
        (text_indexes, "write_manifest"),
        (text_indexes.TextIndexes, "_sweep"),
    ):
        around(owner, name)
    body = indexes_of(app)["body"]
    body.build()
    app.graph().texts._save()
    save(app, *codes(6, 20), text="second")
    body.flush()
    save(app, "c1", "c2", "c30", text="third")
    app.context().kg.delete(Memo.get(app.context(), "c3"))
    body.flush()
    body.distrust()
    body.build()
    app.graph().texts._save()
    monkeypatch.undo()
    app.close()
    assert len(images) > 20
    for image in images[::3]:
        again = open_app(image)
        assert_right(again)
        again.close()


def test_readers_of_a_snapshot_see_nothing_of_writers(tmp_path: Path, small: None) -> None:
    """Nor of what is indexed for them, at any moment."""
    app = open_app(tmp_path / "p")
    graph = app.graph()
    first = save(app, *codes(15))
    create_branch(graph, "side", actor="a")
    app.context(snapshot=first)
    places = [graph.checkouts[f"@{first}"], graph.checkout("side")]
    wanted = expected(app.context(), Memo, "body")
    errors: list[BaseException] = []
    ended = threading.Event()

    def read(checkout: Checkout) -> None:
        try:
            while not ended.is_set():
                assert found(graph, checkout, "Memo", "body") == wanted
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=read, args=(each,)) for each in places]
    for thread in threads:
        thread.start()
    for number in range(60):
        save(app, *codes(4, number % 14), text=f"text {number}")
        if number % 20 == 10:
            graph.texts.distrust(graph.main, "Memo", "body")
    ended.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert_right(app)
    app.close()


# --- indexes of branches --------------------------------------------------------------------


def _far(folder: Path) -> tuple[App, Path]:
    """A graph with a branch that is far from main, and the folder of the branch's indexes."""
    app = open_app(folder)
    save(app, *codes(30))
    create_branch(app.graph(), "side", actor="a")
    save(app, *codes(30, 100), branch="side", text="side words")
    assert_right(app, branch="side")
    checkout = app.graph().checkout("side")
    assert app.graph().texts.is_open(checkout)
    assert checkout.folder is not None
    return app, checkout.folder / field_index.FOLDER


def _own(app: App) -> dict[str, str]:
    """The folders of the branch's own indexes, by field."""
    own = app.graph().texts._overlays.own(app.graph().checkout("side"))
    return {each.field.field: each.files[0] for each in own if each.field.type == "Memo"}


def test_indexes_of_a_branch_are_used_again(tmp_path: Path, small: None) -> None:
    """After a restart, with what was written since; nothing is linked or built again."""
    app, place = _far(tmp_path / "p")
    before = _own(app)
    assert all(before.values())
    save(app, "c1", "last", branch="side", text="after the search")
    app.close()
    (place / "left over").mkdir()
    for number in range(3):
        app = open_app(tmp_path / "p")
        save(app, f"more{number}", "c2", branch="side", text=f"text {number}")
        save(app, *codes(3), text=f"main {number}")
        assert_right(app, branch="side")
        assert _own(app) == before
        assert_right(app)
        assert all(each.severity == "ok" for each in verify(app.graph(), silent))
        app.close()
    assert not (place / "left over").exists()


def test_indexes_of_a_branch_after_a_crash(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was written of files and manifest, each text is found once."""
    images: list[Path] = []

    def crash() -> None:
        images.append(tmp_path / f"image-{len(images)}")
        copy_running(tmp_path / "p", images[-1])

    def around(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def call(*given: object, **more: object) -> object:
            crash()
            done = real(*given, **more)
            crash()
            return done

        monkeypatch.setattr(owner, name, call)

    monkeypatch.setattr(text_indexes, "_DELAY", 60.0)
    for owner, name in ((TextIndex, "flush"), (text_overlays, "write_manifest")):
        around(owner, name)
    app, _ = _far(tmp_path / "p")
    save(app, *codes(20, 5), branch="side", text="flushed")
    assert_right(app, branch="side")
    save(app, *codes(3), branch="side", text="later")
    crash()
    app.close()
    monkeypatch.undo()
    assert len(images) > 8
    for image in images[::2]:
        again = open_app(image)
        if "side" in again.graph().log.branches():
            assert_right(again, branch="side")
        assert all(each.severity == "ok" for each in verify(again.graph(), silent))
        again.close()


@pytest.mark.parametrize("name", ["no manifest", "flipped manifest", "no index", "a flipped byte"])
def test_damaged_indexes_of_a_branch(tmp_path: Path, small: None, name: str) -> None:
    """They are made again."""
    app, place = _far(tmp_path / "p")
    app.close()
    DAMAGES[name](place, random.Random(name))
    app = open_app(tmp_path / "p")
    assert_right(app, branch="side")
    assert all(each.severity == "ok" for each in verify_and_repair(app.graph(), silent))
    assert_right(app, branch="side")
    app.close()


def test_verify_compares_the_stored_indexes_of_a_branch(tmp_path: Path, small: None) -> None:
    """Those that no search has used in this process, too; repair removes them."""
    app, _ = _far(tmp_path / "p")
    app.close()
    app = open_app(tmp_path / "p")
    own = app.graph().texts._overlays.stored(app.graph().checkout("side"))
    (body,) = [each for each in own if each.field.key == ("Memo", "body")]
    opened = body.opened()
    opened.put({"Memo/c1": "another text"})
    opened.flush()
    problems = [each for each in verify(app.graph(), silent) if each.severity == "problem"]
    assert [each.detail for each in problems] == ["1 text of Memo.body of side differ from the log"]
    assert all(each.severity == "ok" for each in verify_and_repair(app.graph(), silent))
    assert_right(app, branch="side")
    app.close()


def test_indexes_go_with_their_branch(tmp_path: Path, small: None) -> None:
    """And another branch of the same name has its own texts."""
    app, place = _far(tmp_path / "p")
    app.close()
    app = open_app(tmp_path / "p")
    delete_branch(app.graph(), "side", force=True, actor="a")
    assert not place.exists()
    create_branch(app.graph(), "side", actor="a")
    assert_right(app, branch="side")
    app.close()
