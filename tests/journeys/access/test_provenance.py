"""Provenance and blame show what an actor may see, and nothing depends on what it may not."""

import asyncio
import json
import re

import pytest
import rdflib
from tests.journeys.access.shop import APP, POLICIES, QUERIES, actor
from tests.worlds.surfaces import ask_app

from trails import App
from trails.app.kernels import kernel_of
from trails.model.actors import ACTOR_KEY
from trails.model.results import Failure
from trails.surfaces.rest.routes import build_app

ADMIN, CLERK = actor("admin"), actor("clerk")
HEX = re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b[0-9a-f]{32}\b")
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
PROV = "http://www.w3.org/ns/prov#"


class Shop:
    """The project, and calls by its actors."""

    def __init__(self, folder):
        (folder / "policies").mkdir(parents=True)
        (folder / "queries").mkdir()
        (folder / "trails.toml").write_text('[project]\nname = "shop"\n')
        (folder / "app.py").write_text(APP)
        (folder / "policies" / "main.cedar").write_text(POLICIES)
        for name, text in QUERIES.items():
            (folder / "queries" / f"{name}.rq").write_text(text)
        self.app = App.open(folder)
        self.kernel = kernel_of(self.app, "main")

    def call(self, who, name, /, **arguments):
        """The result of a call, or its failure."""
        found = asyncio.run(self.kernel.invoke(who, name, arguments))
        return found if isinstance(found, Failure) else json.loads(found.body)

    def record(self, who, name, /, **arguments):
        """The record of a built-in."""
        found = asyncio.run(self.kernel.transfers.record(who, name, arguments))
        return found if isinstance(found, Failure) else json.loads(found.body)

    def change(self, who, branch="main", *operations):
        """Change some nodes."""
        done = self.call(who, "graph_mutate", operations=list(operations), branch=branch)
        assert not isinstance(done, Failure), done

    def close(self):
        """End."""
        self.kernel.close()
        self.app.close()


def put(type_name, key, **data):
    """An operation that creates a node or changes it."""
    names = {"Person": "slug"}
    return {
        "op": "upsert",
        "type": type_name,
        "data": {names.get(type_name, "code"): key, **data},
    }


def tell(shop, *, hidden):
    """What happens in both projects, and what happens in one of them only."""
    shop.change(ADMIN, "main", put("Task", "t1", title="One"), put("Person", "p", name="Pat"))
    if hidden:
        shop.change(ADMIN, "main", put("CanaryVault", "v", content="canary"))
        shop.change(ADMIN, "main", put("Person", "p", name="Pat", canary_salary=7))
        shop.call(ADMIN, "branch_create", name="canary-branch")
        shop.change(ADMIN, "canary-branch", put("Task", "canary-task", title="canary"))
    shop.call(CLERK, "node_get", record="Person/p")
    shop.call(CLERK, "tasks.add", code="t2", title="Two")
    shop.call(CLERK, "canary.open", vault="v")
    shop.call(CLERK, "no.such.tool")
    shop.change(ADMIN, "main", put("Task", "t1", title="Three"))


def normal(value):
    """Without ids and times, which differ by chance."""
    names = {}
    text = TIME.sub("", json.dumps(value))
    return HEX.sub(lambda found: names.setdefault(found[0], f"#{len(names)}"), text)


QUESTIONS = (
    {},
    {"node": "Task/t1"},
    {"node": "Person/p"},
    {"node": "CanaryVault/v"},
    {"node": "Task/canary-task"},
    {"actor": "admin"},
    {"actor": "clerk"},
    {"outcome": "masked"},
    {"outcome": "unknown"},
    {"capability": "canary.open"},
    {"capability": "graph_mutate"},
    {"commit": "canary-branch"},
)


@pytest.mark.req("E11a")
@pytest.mark.req("T24")
def test_hidden_data_decides_nothing(tmp_path):
    """A project that never had it gives the same provenance and the same blame."""
    told = []
    for hidden in (True, False):
        shop = Shop(tmp_path / str(hidden))
        tell(shop, hidden=hidden)
        found = [
            *(shop.record(CLERK, "prov_list", **each) for each in QUESTIONS),
            *(
                shop.call(CLERK, "node_blame", record=each)
                for each in ("Task/t1", "Task/t2", "Person/p", "CanaryVault/v")
            ),
            shop.call(CLERK, "node_blame", record="Person/p", field="canary_salary"),
            shop.call(CLERK, "node_blame", record="Task/canary-task", branch="canary-branch"),
        ]
        told.append(
            [
                normal([each.code, each.message] if isinstance(each, Failure) else each)
                for each in found
            ]
        )
        shop.close()
    for one, other in zip(*told, strict=True):
        assert one == other
        assert "canary-branch" not in one or "canary-branch" in other


@pytest.mark.req("T24")
def test_an_administrator_sees_every_call(tmp_path):
    """Failures and denials too; what a call used and made leads to and from its commits."""
    shop = Shop(tmp_path)
    tell(shop, hidden=True)
    found = shop.record(ADMIN, "prov_list", actor="clerk")["activities"]
    outcomes = {(each["name"], each["outcome"]) for each in found}
    assert {("node_get", "ok"), ("tasks.add", "ok")} <= outcomes
    assert ("canary.open", "masked") in outcomes
    assert ("no.such.tool", "unknown") in outcomes
    (added,) = (each for each in found if each["name"] == "tasks.add")
    (commit,) = added["generated"]
    assert shop.record(ADMIN, "prov_list", commit=commit)["activities"] == [added]
    assert added in shop.record(ADMIN, "prov_list", node="Task/t2")["activities"]
    (shown,) = (each for each in found if each["name"] == "node_get")
    assert "Person/p" in shown["used"]
    blamed = shop.record(ADMIN, "node_blame", record="Task/t2")["values"]
    assert {(each["commit"], each["activity"], each["call"]) for each in blamed} == {
        (commit, added["id"], "tasks.add")
    }
    shop.close()


def get(app, media):
    """The list of activities in some form."""
    headers = [(b"accept", media.encode()), (b"host", b"x")]
    asked = ask_app(app, headers, [], "GET", path="/graphs/main/prov", **{ACTOR_KEY: ADMIN})
    return asyncio.run(asked)


@pytest.mark.req("T24")
@pytest.mark.filterwarnings("ignore:ConjunctiveGraph:DeprecationWarning")  # rdflib's own use
def test_provenance_is_prov_o(tmp_path):
    """Turtle and JSON-LD say the same, with hostile names in them."""
    shop = Shop(tmp_path)
    tell(shop, hidden=False)
    shop.call(CLERK, 'odd"name\\ <x>\n\u202e')
    app = build_app({"main": shop.kernel})
    graphs = []
    for media, form in (("text/turtle", "turtle"), ("application/ld+json", "json-ld")):
        reply = get(app, media)
        assert reply.status == 200
        graphs.append(rdflib.Graph().parse(data=reply.body, format=form))
    both = [{each for each in graph if "prov_list" not in str(each[2])} for graph in graphs]
    made = rdflib.URIRef(PROV + "generated")
    assert {each for each in both[0] if each[1] == made} == {
        each for each in both[1] if each[1] == made
    }
    for graph in graphs:
        rows = list(
            graph.query(
                "PREFIX prov: <http://www.w3.org/ns/prov#> SELECT ?a ?c WHERE { "
                "?a a prov:Activity ; prov:wasAssociatedWith ?who ; prov:startedAtTime ?s ; "
                "prov:endedAtTime ?e ; prov:generated ?c . ?who a prov:Agent . "
                "?c a prov:Entity ; prov:wasGeneratedBy ?a FILTER (?s <= ?e) }"
            )
        )
        assert len(rows) == 3
    refused = get(app, "image/png")
    assert refused.status == 406
    shop.close()
