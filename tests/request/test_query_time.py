"""Query time: the seconds that an actor's SPARQL runs are counted, and limited by the minute."""

import asyncio
import json

import pytest
from tests.worlds.surfaces import WIRES, Wires

from trails import App
from trails.app.kernels import kernel_of
from trails.errors import BudgetError
from trails.model.actors import Actor
from trails.model.fairness import Meter
from trails.model.results import Failure, Success

ANN, BOB = Actor("ann", credential="t1"), Actor("bob", credential="t2")
SLOW = "SELECT (COUNT(*) AS ?n) WHERE { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }"
QUICK = "ASK { ?s ?p ?o }"
APP = '''
from trails import Node, node_type, predicate


@node_type
class Note(Node):
    """A note."""

    key: str = predicate(key=True)
    text: str = predicate()
'''


@pytest.fixture
def app(tmp_path):
    """A graph on which a query can take some time, and of which a minute has little."""
    (tmp_path / "trails.toml").write_text(
        '[project]\nname = "notes"\n[graphs.main.budgets]\nquery_seconds_per_minute = 0.05\n'
        "[sandbox]\nseconds = 60\n"
    )
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "slow.rq").write_text(f"#+ description: Slow.\n{SLOW}\n")
    with App.open(tmp_path, strict=True) as app:
        app.mutate(
            app.context(),
            [
                {"op": "create", "type": "Note", "data": {"key": f"n{number}", "text": "x"}}
                for number in range(30)
            ],
        )
        yield app


def asked(app, *calls):
    """What comes of some calls, one after the other."""
    kernel = kernel_of(app)

    async def main():
        return [await kernel.execute(*call) for call in calls]

    try:
        return asyncio.run(main())
    finally:
        kernel.close()


@pytest.mark.parametrize(
    "call", [("graph_query", {"query": SLOW}), ("slow", {}), ("graph_mutate", {"update": None})]
)
def test_a_query_that_took_too_long_is_the_last_of_the_minute(app, call):
    """Ad-hoc, stored or an update: what it took is counted; others and other tools go on."""
    name, arguments = call
    if "update" in arguments:
        arguments = {"update": f"DELETE {{ ?s :gone ?n }} WHERE {{ {{ {SLOW} }} ?s a :Note }}"}
    outcomes = asked(
        app,
        (ANN, name, arguments),
        (ANN, "graph_query", {"query": QUICK}),
        (ANN, "slow", {}),
        (ANN, "graph_mutate", {"update": "DELETE DATA { <a:b> <a:c> 1 }"}),
        (ANN, "graph_snapshot", {}),
        (BOB, "graph_query", {"query": QUICK}),
    )
    first, *refused, other, bob = outcomes
    assert not isinstance(first, Failure) or first.kind == "semantic"
    for each in refused:
        assert (each.kind, each.code) == ("budget", "budget")
        assert each.data["limit"] == "query_seconds_per_minute"
        assert each.data["allowed"] == 0.05
        assert each.data["used"] > 0.05
        assert 1 <= each.data["retry_after"] <= 61
    assert isinstance(other, Success)
    assert isinstance(bob, Success)
    found = [each.outcome for _, each in app.graph().activities.read()][-6:]
    assert found[1:4] == ["budget"] * 3


def test_selections_of_programs_are_counted(app, monkeypatch):
    """Their conditions may look at every record, like those of a query."""
    charged = []
    meter = app.untrusted().sandbox._spent
    add = meter.add
    monkeypatch.setattr(meter, "add", lambda *spent: charged.append(spent))
    kernel = kernel_of(app)
    wanted = {"type": "Note", "where": {"field": "text", "lookup": "icontains", "value": "x"}}

    def select():
        return asyncio.run(kernel.transfers.record(ANN, "node_select", wanted))

    assert isinstance(select(), Success)
    ((caller, seconds),) = charged
    assert caller == "ann"
    assert seconds > 0
    add("ann", 1)
    refused = select()
    assert (refused.kind, refused.data["limit"]) == ("budget", "query_seconds_per_minute")
    kernel.close()


def test_the_program_itself_is_counted_under_its_name(app):
    """``App.ask`` takes the same road."""
    app.ask(app.context(actor="ann"), SLOW)
    with pytest.raises(BudgetError, match=r"queries of ann have run for .* s within a minute"):
        app.ask(app.context(actor="ann"), QUICK)
    assert app.ask(app.context(actor="bob"), QUICK)


def test_who_has_no_time_left_is_told_so_at_once(app):
    """Before it waits for its turn, or a worker is started for it."""
    sandbox = app.untrusted().sandbox
    app.ask(app.context(actor="ann"), SLOW)
    sandbox._take_turn("ann", sandbox.limits)
    with pytest.raises(BudgetError):
        app.ask(app.context(actor="ann"), QUICK)
    sandbox._turns.release("ann")


def test_every_wire_tells_it_the_same_way(app):
    """−32003 with when there is more; over REST 429 with Retry-After."""
    with Wires(app) as wires:
        app.ask(app.context(actor="ann"), SLOW)
        params = {"name": "graph_query", "arguments": {"query": QUICK}}
        answers = list(wires.everywhere("tools/call", params, ANN))
        rest = wires.rest("POST", "/query", {"query": QUICK}, ANN)
        assert wires.rest("POST", "/query", {"query": QUICK}, BOB).status == 200
    assert len(answers) == WIRES
    for _, message in answers:
        assert message["error"]["code"] == -32003
        assert message["error"]["data"]["limit"] == "query_seconds_per_minute"
        assert message["error"]["data"]["retry_after"] >= 1
    assert rest.status == 429
    assert int(dict(rest.headers)[b"retry-after"]) == rest.message["data"]["retry_after"]


# --- meters ------------------------------------------------------------------------


def test_a_meter_keeps_little_of_a_name():
    """However much it does: one number a second of the last minute."""
    now = [0.0]
    meter = Meter(1e9, lambda: now[0])
    for step in range(200_000):
        now[0] = step / 1000
        meter.add("ann", 0.001)
    assert len(meter._minutes["ann"]._parts) <= 62
    now[0] += 62
    assert meter.excess("ann") is None
    assert meter._minutes["ann"].total == 0


@pytest.mark.parametrize("seed", range(20))
def test_a_meter_agrees_with_a_list_of_everything(seed):
    """What it counts is what happened in the last 60 to 61 seconds."""
    from random import Random

    random = Random(seed)
    now, happened, limit = 50.0, [], random.uniform(1, 20)
    meter = Meter(limit, lambda: now)
    for _ in range(500):
        now += random.choice([0, 0.01, 0.3, 1, 5, 30])
        amount = random.uniform(0, 3)
        surely = sum(each for at, each in happened if at >= now - 60)
        perhaps = sum(each for at, each in happened if at > now - 62)
        over = meter.excess("ann")
        if over is None:
            assert surely < limit + 1e-6
        else:
            assert perhaps >= limit - 1e-6
            assert surely - 1e-6 <= over.used <= perhaps + 1e-6
            left = [each for at, each in happened if at > now + over.retry_after - 60]
            assert sum(left) < limit + 1e-6
        meter.add("ann", amount)
        happened.append((now, amount))


def test_without_a_limit_nothing_is_kept():
    """And nothing is too much."""
    meter = Meter(0)
    meter.add("ann", 1e9)
    assert meter.take("ann") is None
    assert len(meter) == 0


def test_the_figures_of_an_excess_are_json():
    """They go to the caller as they are."""
    meter = Meter(1, lambda: 5.25)
    meter.add("ann", 2)
    over = meter.excess("ann")
    assert json.dumps([over.used, over.retry_after]) == "[2.0, 61]"
