"""Loads into branches, through the Python interface."""

from pathlib import Path

import pytest

from trails import App, Node, node_type, predicate
from trails.errors import NotFoundError, TrailsError, ValidationError
from trails.model.writes import LoadRequest


@node_type
class Note(Node):
    """A line of text."""

    name: str = predicate(key=True)
    text: str = predicate(min_length=3)


GOOD = b'{"type": "Note", "data": {"name": "a", "text": "long enough"}}\n'
BAD = b'{"type": "Note", "data": {"name": "b", "text": "x"}}\n'


@pytest.fixture
def app():
    """A graph in memory."""
    with App(Note) as opened:
        yield opened


def asked(*blocks, **more):
    """A request to load some lines."""
    return LoadRequest(files=(list(blocks),), format="ndjson", **more)


def names(app):
    """All branches."""
    return [each.name for each in app.versions().branches()]


@pytest.mark.req("G17")
def test_a_branch_is_forked_only_when_it_is_said_from_where(app):
    """Without ``source`` a missing branch is an error; with it, the load is its one commit."""
    with pytest.raises(NotFoundError, match="no branch 'import'"):
        app.load(asked(GOOD, branch="import"))
    assert names(app) == ["main"]
    head = app.context().kg.head.commit
    done = app.load(asked(GOOD, branch="import", source="main", message="In"), actor="ann")
    assert (done.forked, done.nodes, done.branch) == (True, 1, "import")
    newest = app.versions().commits("import").commits[0]
    assert (newest.id, newest.parents, newest.message) == (done.commit, (head,), "In")
    assert newest.actor == "ann"
    assert app.context().kg.head.commit == head
    assert Note.objects(app.context(branch="import")).count() == 1
    again = app.load(asked(GOOD, branch="import", source="main"))
    assert (again.forked, again.commit) == (False, None)


@pytest.mark.req("G17", "T21b")
def test_a_load_that_fails_leaves_no_branch(app):
    """Whatever it fails of: the values, the format, or an interrupt."""

    def interrupted():
        yield GOOD
        raise KeyboardInterrupt

    for request, error in (
        (asked(GOOD, BAD, branch="b", source="main"), ValidationError),
        (asked(GOOD, branch="b", source="main", mode="replace"), TrailsError),
        (asked(GOOD, branch="b", source="main", expected_head="0" * 32), TrailsError),
        (asked(GOOD, branch="b", source="nowhere"), NotFoundError),
        (
            LoadRequest(files=(interrupted(),), format="ndjson", branch="b", source="main"),
            KeyboardInterrupt,
        ),
    ):
        with pytest.raises(error):
            app.load(request)
        assert names(app) == ["main"]
    assert app.load(asked(GOOD, branch="b", source="main")).forked


@pytest.mark.req("T21b")
@pytest.mark.parametrize("mode", ["merge", "append", "overwrite"])
def test_a_load_is_refused_with_what_the_write_path_says(app, mode):
    """The same violation as through the ORM, and no commit."""
    ctx = app.context()
    with pytest.raises(ValidationError) as direct:
        Note(name="b", text="x").save(ctx)
    head = ctx.kg.head
    with pytest.raises(ValidationError) as loaded:
        app.load(asked(GOOD, BAD, mode=mode))
    assert [each.code for each in loaded.value.fields] == [
        each.code for each in direct.value.fields
    ]
    assert loaded.value.fields[0].message == f"line 2: {direct.value.fields[0].message}"
    assert ctx.kg.head == head


@pytest.mark.req("G17")
def test_a_key_makes_a_load_repeatable(app):
    """The second time nothing is done, and the outcome is the first one."""
    first = app.load(asked(GOOD, idempotency_key="k"))
    again = app.load(asked(GOOD, idempotency_key="k"))
    assert (again.replayed, again.commit, again.nodes) == (True, first.commit, 1)


def test_files_are_joined_only_where_that_is_exact(app, tmp_path):
    """Problems are placed in their files; formats that can't be joined are refused."""
    one, two = tmp_path / "one.ndjson", tmp_path / "two.ndjson"
    one.write_bytes(GOOD.rstrip())
    two.write_bytes(b"\n" + BAD)
    with pytest.raises(ValidationError) as caught:
        app.load(LoadRequest(files=(one, two)))
    assert caught.value.fields[0].message.startswith("two.ndjson line 2: text must have")
    for files, problem in (
        ((), "nothing to load"),
        ((one, Path("a.ttl")), "others are ndjson"),
        ((Path("a.ttl"), Path("b.ttl")), "one by one"),
    ):
        with pytest.raises(TrailsError, match=problem):
            app.load(LoadRequest(files=files))
