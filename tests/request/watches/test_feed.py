"""The feed: what is told of each kind of write, and when."""

from __future__ import annotations

import pytest
from tests.request.watches.shelf import Book, Shelf, Thing, branch, make_app, merge_into, save

from trails import App
from trails.engine.graph import feed as feed_module
from trails.engine.graph.feed import BranchChange, ChangeIndex
from trails.errors import StorageError, ValidationError
from trails.model.writes import LoadRequest


@pytest.fixture
def app():
    """A graph with one book on one shelf."""
    with make_app() as app:
        ctx = app.context()
        save(ctx, Shelf, "s")
        save(ctx, Book, "b", shelf="trails://kg/Shelf/s")
        yield app


@pytest.fixture
def heard(app):
    """Every change that is told."""
    changes: list[BranchChange] = []
    app.graph().feed.listen(changes.append)
    return changes


def exact(branch: str, handles: set[str], types: set[str]) -> BranchChange:
    """A change of a few nodes."""
    return BranchChange(branch, frozenset(handles), frozenset(types))


def test_a_commit_tells_its_nodes_and_their_types(app, heard):
    """An instance of a subtype counts as one of its ancestors' too."""
    save(app.context(), Book, "c", pages=3)
    assert heard == [exact("main", {"Book/c"}, {"Book", "Thing"})]


def test_only_what_differs_afterwards_is_told(app, heard):
    """A node that ends as it began is not told, and a write without effect tells nothing."""
    ctx = app.context()
    with ctx.kg.transaction():
        save(ctx, Book, "b", pages=3)
        save(ctx, Book, "b", pages=None)
        save(ctx, Shelf, "s", room="hall")
    save(ctx, Shelf, "s", room="hall")
    assert heard == [exact("main", {"Shelf/s"}, {"Shelf"})]


def test_a_deletion_tells_every_node_that_it_changes(app, heard):
    """Deleting with cascade tells the holders of references as well."""
    ctx = app.context()
    Shelf.get(ctx, "s").delete(ctx, cascade=True)
    assert heard == [exact("main", {"Shelf/s", "Book/b"}, {"Shelf", "Book", "Thing"})]


def test_a_refused_write_tells_nothing(app, heard):
    """What is not committed did not happen."""
    ctx = app.context()
    with pytest.raises(ValidationError):
        save(ctx, Book, "b", shelf="trails://kg/Shelf/nowhere")
    assert heard == []


def test_a_change_is_told_when_it_can_be_read(app):
    """A listener that reads sees the new state, and the new head."""
    seen = []
    ctx = app.context()
    before = app.graph().main.head

    def look(change: BranchChange) -> None:
        seen.append((ctx.kg.find("Book", "b").values.get("pages"), ctx.kg.head))

    app.graph().feed.listen(look)
    save(ctx, Book, "b", pages=9)
    assert seen == [(9, app.graph().main.head)]
    assert seen[0][1] != before


def test_a_listener_that_fails_harms_nobody(app, heard, caplog):
    """The write succeeds and the next listener is told; the failure is in the server's log."""

    def fail(change: BranchChange) -> None:
        raise RuntimeError("mine")

    stop = app.graph().feed.listen(fail)
    later: list[BranchChange] = []
    app.graph().feed.listen(later.append)
    save(app.context(), Shelf, "t")
    assert len(heard) == len(later) == 1
    assert "a listener of the feed failed" in caplog.text
    stop()
    caplog.clear()
    save(app.context(), Shelf, "u")
    assert len(later) == 2
    assert caplog.text == ""


def test_many_nodes_are_told_by_type(app, heard, monkeypatch):
    """Above the limit only types are named; below it every node is, also when streamed."""
    monkeypatch.setattr(feed_module, "MANY", 5)
    ctx = app.context()
    ctx.kg.save_all(Thing(code=f"t{n}", name="x") for n in range(5))
    ctx.kg.save_all(Book(code=f"b{n}", name="x") for n in range(6))
    assert heard == [
        exact("main", {f"Thing/t{n}" for n in range(5)}, {"Thing"}),
        BranchChange("main", None, frozenset({"Book", "Thing"})),
    ]


def test_a_load_tells_what_it_wrote_and_what_it_deleted(app, heard, tmp_path):
    """Overwriting a type tells the nodes that the file left out."""
    file = tmp_path / "x.ndjson"
    file.write_text('{"type": "Book", "data": {"code": "n", "name": "new"}}\n')
    app.load(LoadRequest(files=(file,), mode="overwrite"))
    assert heard == [exact("main", {"Book/n", "Book/b"}, {"Book", "Thing"})]


def test_statements_that_skip_validation_tell_everything(heard, app):
    """Nobody knows what they lead to, so everybody on the branch is told."""
    app.graph().allow_bypass = True
    iri = app.graph().names.node("Shelf", "s")
    field = app.graph().names.term("room")
    app.context().kg.raw_sparql(
        f'INSERT DATA {{ <{iri}> <{field}> "attic" }}', skip_validation=True
    )
    assert heard == [BranchChange("main")]


def test_branches_tell_their_own(app, heard):
    """Making and deleting a branch tells all of it; a write there tells nobody on main."""
    branch(app, "draft")
    save(app.context(branch="draft"), Book, "b", pages=1)
    app.versions().delete_branch("draft", force=True)
    types = app.graph().main.schema.digest
    assert heard == [
        BranchChange("draft", index=ChangeIndex(), schema_change=(None, types)),
        exact("draft", {"Book/b"}, {"Book", "Thing"}),
        BranchChange("draft", index=ChangeIndex(), schema_change=(types, None)),
    ]


def test_a_fast_forward_tells_the_net_change(app, heard):
    """What the other branch did and undid is not told."""
    branch(app, "draft")
    draft = app.context(branch="draft")
    save(draft, Book, "b", pages=1)
    save(draft, Shelf, "t")
    save(draft, Book, "b", pages=None)
    heard.clear()
    assert merge_into(app, "draft").outcome == "fast_forward"
    assert heard == [exact("main", {"Shelf/t"}, {"Shelf"})]


def test_a_long_fast_forward_tells_everything(app, heard, monkeypatch):
    """Where finding out would cost much, everybody on the branch is told."""
    branch(app, "draft")
    save(app.context(branch="draft"), Shelf, "t")
    heard.clear()
    monkeypatch.setattr("trails.engine.history.merge._STATEMENTS", 0)
    merge_into(app, "draft")
    assert heard == [BranchChange("main")]


def test_a_merge_tells_what_it_brings(app, heard):
    """A merge commit tells the nodes that differ on the target, and only there."""
    branch(app, "draft")
    save(app.context(branch="draft"), Shelf, "t")
    save(app.context(), Shelf, "u")
    heard.clear()
    assert merge_into(app, "draft").outcome == "merged"
    assert heard == [exact("main", {"Shelf/t"}, {"Shelf"})]


def test_a_new_schema_tells_everything(heard, app):
    """Nodes are then seen through other types."""
    from trails import Node, node_type, predicate

    @node_type
    class Lamp(Node):
        """It gives light."""

        code: str = predicate(key=True)

    app.register(Lamp)
    assert heard == [BranchChange("main")]


def test_a_listener_that_comes_during_a_write_is_told(app):
    """Nothing was collected for it, so it is told everything."""
    heard: list[BranchChange] = []
    ctx = app.context()
    with ctx.kg.transaction():
        save(ctx, Shelf, "t")
        app.graph().feed.listen(heard.append)
    assert heard == [BranchChange("main")]


def test_a_commit_that_a_view_could_not_follow_is_told_when_it_does(tmp_path):
    """The head becomes visible later, and only then is it told."""

    def fail(step: str) -> None:
        if step == "mid_apply" and failing:
            raise StorageError("the disk said no")

    failing: list[bool] = []
    with App(Shelf, name="shelf", folder=tmp_path) as app:
        graph, heard = app.graph(), []
        graph.on_step = fail
        graph.feed.listen(heard.append)
        ctx = app.context()
        failing.append(True)
        monkey, graph.catch_up = graph.catch_up, _refuse
        with pytest.raises(StorageError):
            save(ctx, Shelf, "t")
        graph.catch_up = monkey
        failing.clear()
        assert heard == []
        assert ctx.kg.find("Shelf", "t") is not None
        assert heard == [BranchChange("main")]


def _refuse() -> None:
    raise StorageError("still no")
