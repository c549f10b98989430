"""Quotas: what one actor may have of a graph, so that it leaves enough to the others."""

import asyncio
import json

import pytest
from tests.worlds.surfaces import LEGACY, MODERN, WIRES, Wires, ask_app

from trails import App, Node, node_type, predicate
from trails.app.kernels import kernel_of
from trails.app.settings import Budgets, GraphSettings, Project, Settings
from trails.model.actors import LOCAL, OPERATOR, Actor
from trails.model.results import Failure, Success
from trails.request.admission import Admission, Budget
from trails.request.watches import Watcher

ANN = Actor("ann", credential="t1")
BOB = Actor("bob", credential="t2")
LINE = b'{"type": "Note", "data": {"name": "%d"}}\n'


@node_type
class Note(Node):
    """A note."""

    name: str = predicate(key=True)


def opened(**budgets):
    """A graph in memory with these quotas."""
    settings = Settings(Project("app"), {"main": GraphSettings(budgets=Budgets(**budgets))})
    return App(Note, settings=settings)


def called(app, *calls):
    """What comes of some calls, one after the other."""
    kernel = kernel_of(app)

    async def main():
        return [await kernel.execute(*call) for call in calls]

    try:
        return asyncio.run(main())
    finally:
        kernel.close()


def create(actor, name):
    """A call that makes a branch."""
    return actor, "branch_create", {"name": name}


def sent(app, actor, *blocks, **arguments):
    """What comes of a load that is sent in blocks."""
    kernel = kernel_of(app)

    async def body():
        for block in blocks:
            yield block

    async def main():
        return await kernel.transfers.load(actor, body(), arguments)

    try:
        return asyncio.run(main())
    finally:
        kernel.close()


# --- branches ------------------------------------------------------------------------


def test_an_actor_has_so_many_branches():
    """The next is refused with the number and the setting; a deleted one counts no more."""
    with opened(branches=2) as app:
        *made, third, other, operator = called(
            app,
            create(ANN, "a1"),
            create(ANN, "a2"),
            create(ANN, "a3"),
            create(BOB, "b1"),
            create(OPERATOR, "o1"),
        )
        assert all(isinstance(each, Success) for each in (*made, other, operator))
        assert (third.kind, third.code) == ("budget", "budget")
        assert third.data == {"limit": "branches", "allowed": 2, "used": 2}
        assert "branches in [graphs.main.budgets]" in third.message
        gone, again = called(app, (ANN, "branch_delete", {"name": "a1"}), create(ANN, "a3"))
        assert isinstance(gone, Success)
        assert isinstance(again, Success)


def test_a_load_makes_no_branch_beyond_the_number():
    """It is the same quota, whichever way a branch is made."""
    with opened(branches=1) as app:
        assert isinstance(sent(app, ANN, LINE % 1, branch="a1", **{"from": "main"}), Success)
        refused = sent(app, ANN, LINE % 1, branch="a2", **{"from": "main"})
        assert refused.data["limit"] == "branches"


def test_branches_are_counted_after_a_restart(tmp_path):
    """Who made one is in the log."""
    settings = Settings(Project("app"), {"main": GraphSettings(budgets=Budgets(branches=1))})
    for outcome in (Success, Failure):
        with App(Note, folder=tmp_path, settings=settings) as app:
            assert isinstance(called(app, create(ANN, outcome.__name__))[0], outcome)


def test_branches_are_listed_page_by_page():
    """Each once, main first, also over REST; only those that begin as asked."""
    with opened() as app:
        called(app, *(create(LOCAL, f"x/{number:02}") for number in range(7)), create(LOCAL, "y"))
        found, following = [], {"tool": "branch_list", "arguments": {"limit": 3}}
        while following is not None:
            call = (LOCAL, following["tool"], following["arguments"])
            page = json.loads(called(app, call)[0].body)
            found.append([each["name"] for each in page["branches"]])
            following = page.get("next")
        assert found == [["main", "x/00", "x/01"], ["x/02", "x/03", "x/04"], ["x/05", "x/06", "y"]]
        few = json.loads(called(app, (LOCAL, "branch_list", {"prefix": "x/06"}))[0].body)
        assert [each["name"] for each in few["branches"]] == ["x/06"]
        with Wires(app) as wires:
            rest = wires.rest("GET", "/branches", None, ANN, b"limit=2&after=x/05")
        assert [each["name"] for each in rest.message["branches"]] == ["x/06", "y"]
        assert len(app.versions().branches()) == 9


# --- watches ---------------------------------------------------------------------------


def test_an_actor_has_so_many_watches():
    """Closing one makes room; others are not concerned."""
    with opened(watches=2) as app:
        kernel = kernel_of(app)

        async def main():
            uri = ["trails://kg/Note"]
            first, second = kernel.watch(ANN, uri), kernel.watch(ANN, uri)
            refused = kernel.watch(ANN, uri)
            assert refused.kind == "budget"
            assert refused.data == {"limit": "watches", "allowed": 2, "used": 2, "retry_after": 1}
            assert "watches in [graphs.main.budgets]" in refused.message
            more = [kernel.watch(each, uri) for each in (BOB, *[LOCAL] * 5)]
            assert all(isinstance(each, Watcher) for each in more)
            first.close()
            first.close()
            third = kernel.watch(ANN, uri)
            assert isinstance(third, Watcher)
            for each in (second, third, *more):
                each.close()

        asyncio.run(main())
        kernel.close()


# --- calls, queries, files ---------------------------------------------------------------


def test_calls_are_counted_for_those_with_a_credential():
    """All others have one name between them."""
    admission = Admission(Budget(calls_per_minute=1))
    assert not any(isinstance(admission.enter(LOCAL), Failure) for _ in range(9))
    assert not isinstance(admission.enter(ANN), Failure)
    refused = admission.enter(ANN)
    assert "calls_per_minute in [graphs.<id>.budgets]" in refused.message


def test_an_actor_has_so_much_on_its_way_in():
    """What is too much is refused before it is all there; afterwards there is room again."""
    with opened(spool_mb=1) as app:
        refused = sent(app, ANN, *[b" " * (1 << 19)] * 3)
        assert (refused.kind, refused.data["limit"]) == ("budget", "spool_mb")
        assert refused.data["retry_after"] == 10
        assert isinstance(sent(app, ANN, LINE % 1), Success)
        assert isinstance(sent(app, LOCAL, *[b" " * (1 << 19)] * 3, LINE % 2), Success)


@pytest.mark.parametrize(("arguments", "outcome"), [({}, "ok"), ({"x": 1}, "validation")])
def test_what_anybody_may_call_leaves_few_activities(arguments, outcome):
    """Fifty calls of one kind leave two records, which say how many there were."""
    with opened() as app:
        called(app, *[(ANN, "trails_meta_ping", arguments)] * 50)
        found = [each for _, each in app.graph().activities.read()]
    assert [(each.outcome, each.calls) for each in found] == [(outcome, 1), (outcome, 49)]


# --- over the wires ------------------------------------------------------------------------


def assert_refused(message, limit):
    """A message is an error of the code that stands for budgets, and names the limit."""
    assert message["error"]["code"] == -32003
    assert message["error"]["data"]["code"] == "budget"
    assert message["error"]["data"]["limit"] == limit


def assert_429(reply, limit):
    """A response of REST likewise."""
    assert reply.status == 429
    assert reply.message["code"] == "budget"
    assert reply.message["data"]["limit"] == limit


def test_every_wire_refuses_one_branch_too_many():
    """And makes one for somebody else."""
    with opened(branches=1) as app, Wires(app) as wires:
        assert wires.rest("POST", "/branches", {"name": "a1"}, ANN).status == 200
        params = {"name": "branch_create", "arguments": {"name": "a2"}}
        answers = list(wires.everywhere("tools/call", params, ANN))
        assert len(answers) == WIRES
        for _, message in answers:
            assert_refused(message, "branches")
        assert_429(wires.rest("POST", "/branches", {"name": "a2"}, ANN), "branches")
        assert wires.rest("POST", "/branches", {"name": "b1"}, BOB).status == 200
        assert sorted(app.graph().log.branches()) == ["a1", "b1", "main"]


def test_every_wire_refuses_one_watch_too_many():
    """Subscriptions of older revisions and listen streams; somebody else gets one."""
    uri = "trails://kg/Note"
    listen = {"notifications": {"resourceSubscriptions": [uri]}}
    with opened(watches=1) as app, Wires(app) as wires:

        async def watch():
            return wires.kernel.watch(ANN, [uri])

        held = wires.doors.run(watch())
        for revision in LEGACY:
            (refused,) = wires.by_lines(revision, "resources/subscribe", {"uri": uri}, ANN)
            assert_refused(refused, "watches")
            (done,) = wires.by_lines(revision, "resources/subscribe", {"uri": uri}, BOB)
            assert done["result"] == {}
        for reply in wires.by_doors(MODERN, "subscriptions/listen", listen, ANN):
            assert_refused(reply.message, "watches")
        held.close()


def test_an_upload_beyond_the_room_of_an_actor_is_refused():
    """Over REST, which alone has uploads; somebody else's is loaded."""
    with opened(spool_mb=1) as app, Wires(app) as wires:

        def load(actor, *parts):
            path = "/graphs/main/load"
            headers = [(b"content-type", b"application/x-ndjson")]
            scope = {"path": path, "raw_path": path.encode(), "trails.actor": actor}
            return wires.doors.run(ask_app(wires.rest_app, headers, parts, "POST", **scope))

        assert_429(load(ANN, *[b" " * (1 << 19)] * 3), "spool_mb")
        assert load(BOB, LINE % 1).status == 200
        assert load(ANN, LINE % 2).status == 200
        assert Note.objects(app.context()).count() == 2
