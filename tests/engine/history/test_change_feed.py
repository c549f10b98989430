"""The change feed: from any commit, its events lead to the head, once each and in order."""

from __future__ import annotations

import random

import pytest
from tests.journeys.access.hidden_parts import TYPES, Hidden, Restricted, World, twin_types
from tests.request.watches.shelf import Book, Shelf, branch, make_app, merge_into, save

from trails.engine.history import change_feed
from trails.engine.history.change_feed import ChangeQuery
from trails.engine.visibility.access import OPEN
from trails.errors import NotFoundError, StaleError

KINDS = {"created": 1, "updated": 0, "deleted": -1}


@pytest.fixture
def app():
    """A graph with one shelf."""
    with make_app() as app:
        save(app.context(), Shelf, "s")
        yield app


def read_all(app, since, **more):
    """All events after a commit, in pages of two."""
    events, complete = [], False
    while not complete:
        page = app.versions().changes(ChangeQuery(since=since, limit=2, **more))
        events += page.events
        since, complete = page.since, page.complete
    return events, since


def nodes_at(app, commit):
    """The handles of all nodes at a commit."""
    ctx = app.context(snapshot=commit)
    return {f"{kind.__name__}/{each.id}" for kind in (Book, Shelf) for each in kind.objects(ctx)}


def grow(app, chance):
    """A random history: commits on two branches, merges and fast-forwards both ways."""
    other = "side"
    branch(app, other)
    for number in range(25):
        name = chance.choice(["main", other])
        ctx = app.context(branch=name)
        match chance.randrange(4):
            case 0:
                save(ctx, Book, f"{name}-{number}")
            case 1:
                found = list(Book.objects(ctx))
                if found:
                    chance.choice(found).delete(ctx)
            case 2:
                save(ctx, Shelf, f"{name}-{number}", room="hall")
            case 3:
                merge_into(app, *([other, "main"] if name == "main" else ["main", other]))


@pytest.mark.parametrize("seed", range(6))
def test_events_lead_from_every_commit_to_the_head(seed):
    """Merges and fast-forwards included; what each event lists is what the commit changed."""
    with make_app() as app:
        save(app.context(), Shelf, "s")
        grow(app, random.Random(seed))
        versions = app.versions()
        head = app.graph().main.head.commit
        for commit in versions.commits("main", limit=1000).commits:
            known = nodes_at(app, commit.id)
            events, reached = read_all(app, commit.id)
            assert reached == head
            assert len({each.commit for each in events}) == len(events)
            for event in events:
                for each in event.changes:
                    change = KINDS[each.change]
                    assert (each.handle in known) == (change < 1), (event, each)
                    known = known | {each.handle} if change == 1 else known
                    known = known - {each.handle} if change == -1 else known
            assert known == nodes_at(app, head)
        every = read_all(app, "0")[0]
        assert [each.position for each in every] == sorted(each.position for each in every)
        for event in every:
            shown = versions.commit(event.commit).difference
            assert {(each.handle, each.change) for each in event.changes} == {
                (each.handle, each.change) for each in shown.changes
            }


def test_types_select_their_own_changes_and_those_of_subtypes(app):
    """A change of the declarations counts too; an unknown type is refused."""
    ctx = app.context()
    start = app.graph().main.head.commit
    save(ctx, Book, "b")
    save(ctx, Shelf, "t")
    for name, wanted in (("Thing", ["Book/b"]), ("Shelf", ["Shelf/t"])):
        events, _ = read_all(app, start, types=(name,))
        assert [each.handle for event in events for each in event.changes] == wanted
    assert read_all(app, "0", types=("Book",))[0][0].schema_changed
    with pytest.raises(NotFoundError, match="did you mean 'Book'"):
        read_all(app, start, types=("Bok",))


def test_a_commit_of_another_history_is_stale(app):
    """A branch that was deleted and created again does not go on from its former commits."""
    branch(app, "side")
    save(app.context(branch="side"), Book, "b")
    gone = app.versions().commit("side").commit.id
    app.versions().delete_branch("side", force=True)
    branch(app, "side")
    with pytest.raises(StaleError, match="not in the history of branch 'side'"):
        app.versions().changes(ChangeQuery("side", gone))
    with pytest.raises(NotFoundError):
        app.versions().changes(ChangeQuery("side", "f" * 32))
    with pytest.raises(NotFoundError):
        app.versions().changes(ChangeQuery("nowhere", "0"))


def test_an_event_has_bounds_and_the_call_that_continues(app, monkeypatch):
    """The other nodes are after the last one that is listed; a huge commit lists none."""
    monkeypatch.setattr(change_feed, "_HANDLES", 3)
    ctx = app.context()
    with ctx.kg.transaction():
        for number in range(7):
            save(ctx, Book, f"b{number}")
    head = app.graph().main.head.commit
    start = app.versions().commit(head).commit.first_parent
    (event,) = read_all(app, start)[0]
    assert (event.created, len(event.changes)) == (7, 3)
    assert event.next.tool == "commit_get"
    rest = app.versions().commit(
        event.next.arguments["commit"], after=event.next.arguments["after"]
    )
    assert [each.handle for each in rest.difference.changes] == [f"Book/b{n}" for n in range(3, 7)]
    monkeypatch.setattr(change_feed, "_LARGE", 3)
    (event,) = read_all(app, start)[0]
    assert (event.created, event.changes, event.next.arguments) == (None, (), {"commit": head})


def test_a_page_ends_where_reading_takes_long(app, monkeypatch):
    """The next page goes on there, even if nothing was found."""
    ctx = app.context()
    start = app.graph().main.head.commit
    for number in range(4):
        save(ctx, Shelf, f"s{number}")
    save(ctx, Book, "b")
    monkeypatch.setattr(change_feed, "_SCANNED", 5)
    page = app.versions().changes(ChangeQuery(since=start, types=("Book",)))
    assert (page.events, page.complete) == ((), False)
    assert page.since not in {start, app.graph().main.head.commit}
    events, _ = read_all(app, start, types=("Book",))
    assert [each.handle for event in events for each in event.changes] == ["Book/b"]


def people(world, hidden_age):
    """Two people who are seen, and between them many changes of a field that may be hidden."""
    ctx = world.app.context(actor="author")
    person = world.classes["Person"]
    first = person(code="ann", name="Ann")
    first.save(ctx)
    if hidden_age:
        for age in range(10):
            first.age = age
            first.save(ctx)
    person(code="bob", name="Bob").save(ctx)


@pytest.mark.req("E11a")
@pytest.mark.parametrize("scanned", [0, 3, 8, 30])
def test_hidden_commits_decide_nothing_about_pages(monkeypatch, scanned):
    """Each page ends where it ends in a twin without them, and names no hidden commit."""
    monkeypatch.setattr(change_feed, "_SCANNED", scanned)
    hidden = Hidden(frozenset(), frozenset({("Person", "age")}))
    world, twin = World(TYPES, []), World(twin_types(TYPES, hidden), [])
    found = []
    for each, access in ((world, Restricted(hidden.sight(TYPES))), (twin, OPEN)):
        with each.app as app:
            people(each, hidden_age=each is world)
            versions = app.service().versions("reader", None, access)
            shown = {commit.id: at for at, commit in enumerate(versions.commits().commits)}
            since, complete, pages = "0", False, []
            while not complete:
                page = versions.changes(ChangeQuery(since=since))
                since, complete = page.since, page.complete
                handles = [one.handle for event in page.events for one in event.changes]
                pages.append((handles, shown[since], complete))
            found.append(pages)
    assert found[0] == found[1]
    assert [handle for page in found[0] for handle in page[0]] == ["Person/ann", "Person/bob"]
