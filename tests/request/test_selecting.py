"""``node_select``: conditions of every shape over REST, and what is hidden from an actor."""

import json

import pytest
from tests.worlds.clients import RestClient
from tests.worlds.processes import Web
from tests.worlds.projects import give_token, make_project

from trails import App, Node, node_type, predicate
from trails.errors import LimitError
from trails.model.fairness import reading_within

APP = '''
from trails import Node, Ref, node_type, predicate


@node_type
class Person(Node):
    """Someone."""

    name: str = predicate(key=True)
    salary: int | None = predicate()


@node_type
class Task(Node):
    """Something to do."""

    title: str = predicate(key=True)
    rank: int = predicate(default=0)
    owner: Ref[Person] | None = predicate()
'''
POLICIES = """
permit(principal, action, resource);
@id("salaries")
forbid(principal == Actor::"ann", action, resource == Field::"Person.salary");
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A server with a few tasks."""
    folder = make_project(tmp_path_factory.mktemp("selecting") / "acme", APP)
    with Web(folder) as web:
        rest = RestClient(int(web.url.rsplit(":", 1)[1]))
        operations = [
            {"op": "create", "type": "Person", "data": {"name": "Ann", "salary": 5}},
            *(
                {"op": "create", "type": "Task", "data": {"title": f"t{n}", "rank": n}}
                for n in range(5)
            ),
        ]
        rest.post("mutate", {"operations": operations})
        yield rest


def test_a_page_and_its_cursor(client):
    """All pages are of one commit, and a cursor is for its own selection."""
    asked = {"type": "Task", "order": ["-rank"], "limit": 2}
    first = client.post("select", asked)
    assert [each["id"] for each in first["records"]] == ["t4", "t3"]
    assert first["records"][0] == {"type": "Task", "id": "t4", "values": {"title": "t4", "rank": 4}}
    change = {"operations": [{"op": "update", "type": "Task", "id": "t2", "data": {"rank": 99}}]}
    client.post("mutate", change)
    second = client.post("select", {**asked, "cursor": first["cursor"]})
    assert [each["id"] for each in second["records"]] == ["t2", "t1"]
    assert second["commit"] == first["commit"]
    other = {**asked, "where": {"field": "rank", "value": 1}, "cursor": first["cursor"]}
    assert client.post("select", other, status=400)["code"] == "cursor"


def test_many_values_at_once(client):
    """As many as are allowed, in as many conditions."""
    many = {"field": "rank", "lookup": "in", "value": list(range(1_000))}
    found = client.post("select", {"type": "Task", "where": {"or": [many] * 20}, "count": True})
    assert found["count"] == 5


def nested(depth):
    """Conditions in each other."""
    tree = {"field": "rank", "value": 1}
    for _ in range(depth):
        tree = {"not": tree}
    return tree


WRONG = [
    {},
    {"field": ""},
    {"field": 5},
    {"field": "rank", "lookup": "like", "value": 1},
    {"field": "rank", "lookup": ["exact"]},
    {"field": "rank", "value": 1, "more": 2},
    {"field": "rank", "value": {"a": 1}},
    {"field": "rank", "lookup": "in", "value": 5},
    {"field": "rank__", "value": 1},
    {"field": "__rank", "value": 1},
    {"field": "owner__owner__owner", "value": 1},
    {"field": "colour\u0000\ud800", "value": 1},
    {"and": 5},
    {"and": "rank"},
    {"and": [5]},
    {"or": [{"field": "rank", "value": 1}], "and": []},
    {"not": []},
    {"xor": []},
    {"or": [{"field": "rank", "value": 1}] * 101},
    {"field": "rank", "lookup": "in", "value": list(range(1_001))},
    {"field": "rank", "lookup": "in", "value": [None, {}, "x"]},
    nested(90),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_conditions(client, number):
    """Each is refused with a reason, or taken for what it says; none is a server's error."""
    body = json.dumps({"type": "Task", "where": WRONG[number]}).encode()
    got = client.send("POST", "/graphs/main/select", body, content_type="application/json")
    assert got.status in {200, 400, 422}, got.body[:500]
    if got.status != 200:
        assert json.loads(got.body)["detail"]


@pytest.mark.parametrize(
    "more",
    [
        {"type": "Tsk"},
        {"order": ["colour"]},
        {"limit": 0},
        {"limit": 1001},
        {"offset": -1},
        {"cursor": "x"},
        {"near": {"field": "rank", "vector": [1]}},
        {"near": {}},
        {"branch": "nope"},
        {"snapshot": "nope"},
        {"count": "yes"},
    ],
)
def test_wrong_arguments(client, more):
    """They are refused with a reason."""
    body = json.dumps({"type": "Task", **more}).encode()
    got = client.send("POST", "/graphs/main/select", body, content_type="application/json")
    assert 400 <= got.status < 500, got.body[:500]


def test_hidden_fields_decide_nothing(tmp_path):
    """A field that an actor may not see is as unknown as one that does not exist."""
    folder = make_project(tmp_path / "acme", APP, policies={"all.cedar": POLICIES})
    tokens = {name: give_token(folder, name) for name in ("ann", "bob")}
    with Web(folder) as web:
        rest = RestClient(int(web.url.rsplit(":", 1)[1]))

        def ask(actor, path, document):
            got = rest.send(
                "POST",
                f"/graphs/main/{path}",
                json.dumps(document).encode(),
                content_type="application/json",
                authorization=f"Bearer {tokens[actor]}",
            )
            return got.status, json.loads(got.body)

        made = [
            {"op": "create", "type": "Person", "data": {"name": "Cy", "salary": 5}},
            {"op": "create", "type": "Task", "data": {"title": "t", "owner": "Cy"}},
        ]
        assert ask("bob", "mutate", {"operations": made})[0] == 200
        person = {"type": "Person"}
        assert ask("bob", "select", person)[1]["records"][0]["values"]["salary"] == 5
        assert ask("ann", "select", person)[1]["records"][0]["values"] == {"name": "Cy"}
        assert ask("ann", "select", {**person, "record": "Cy"})[1]["records"][0]["values"] == {
            "name": "Cy"
        }
        for asked in (
            {**person, "where": {"field": "{}", "value": 5}},
            {**person, "where": {"field": "{}", "value": 5}, "count": True},
            {**person, "order": ["{}"]},
            {"type": "Task", "where": {"field": "owner__{}", "value": 5}},
        ):
            text = json.dumps(asked)
            hidden = ask("ann", "select", json.loads(text.replace("{}", "salary")))
            unknown = ask("ann", "select", json.loads(text.replace("{}", "height")))
            assert hidden[0] == unknown[0] == 400
            assert json.dumps(hidden).replace("salary", "height") == json.dumps(unknown)


@node_type
class Leaf(Node):
    """One of many."""

    code: str = predicate(key=True)
    text: str = predicate()


def test_a_long_selection_is_stopped():
    """A condition that no index answers looks at every record, but not for ever."""
    with App(Leaf) as app:
        ctx = app.context()
        ctx.kg.save_all(Leaf(code=f"c{n}", text=f"text {n}") for n in range(600))
        slow = Leaf.where(text__icontains="nothing")
        with reading_within(60):
            assert slow.fetch(ctx) == []
        with reading_within(0):
            assert Leaf.where(code="c5").count(ctx) == 1
            with pytest.raises(LimitError, match="stopped after 0 s"):
                slow.fetch(ctx)
        assert slow.count(ctx) == 0
