"""Abstract types: in the schema, in references and in queries, but never the type of a node."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import msgspec
import pyshacl
import pytest
import rdflib
from tests.worlds.graphs import Calls, Reading
from tests.worlds.processes import Shell, run_command
from tests.worlds.projects import make_project
from tests.worlds.surfaces import Wires, ask_app

from trails import (
    App,
    LoadRequest,
    MergeRequest,
    Node,
    Ref,
    Resolution,
    node_type,
    predicate,
)
from trails.engine.schema.evolution import apply_schema
from trails.engine.session.context import GraphContext
from trails.engine.validation.validate import Validator
from trails.errors import SchemaMismatchError, ValidationError
from trails.model.actors import LOCAL
from trails.model.iris import Names
from trails.model.types import Schema
from trails.model.visibility import Visibility
from trails.projections.documents import project_reference, project_schema_definitions
from trails.projections.shacl import project_shacl

MESSAGE = "Party is abstract, so no node can have exactly this type; use Company or Person"
NODES = "trails://app/main/"


@node_type(abstract=True)
class Party(Node):
    """Someone or something that signs."""

    name: str = predicate(key=True)


@node_type
class Person(Party):
    """Someone."""


@node_type(extends=Party)
class Company(Node):
    """Something."""

    number: int | None = predicate()


@node_type
class Contract(Node):
    """What is signed."""

    code: str = predicate(key=True)
    parties: list[Ref[Party]] = predicate()
    owner: Ref[Party] | None = predicate()


@pytest.fixture
def app() -> Iterator[App]:
    """A graph with a person and a company."""
    with App(Party, Person, Company, Contract, name="app") as app:
        app.context().kg.save_all([Person(name="ann"), Company(name="acme")])
        yield app


def load(text: str, format: str, **more: object) -> Callable[[App, GraphContext], object]:
    """A load of one file."""
    return lambda app, _: app.load(LoadRequest(files=([text.encode()],), format=format, **more))


def mutate(change: object) -> Callable[[App, GraphContext], object]:
    """A change in one of its two forms."""
    return lambda app, ctx: app.mutate(ctx, change)


IRI, CLASS = f"<{NODES}Party/eve>", f"<{NODES}schema#Party>"
TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
NAME = f'<{NODES}schema#name> "eve"'
WAYS: dict[str, Callable[[App, GraphContext], object]] = {
    "save": lambda _, ctx: Party(name="eve").save(ctx),
    "upsert": lambda _, ctx: Party(name="eve").save(ctx, upsert=True),
    "save_all": lambda _, ctx: ctx.kg.save_all([Person(name="bob"), Party(name="eve")]),
    "create": mutate([{"op": "create", "type": "Party", "data": {"name": "eve"}}]),
    "upsert op": mutate([{"op": "upsert", "type": "Party", "id": "eve", "data": {"name": "eve"}}]),
    "sparql": mutate(f"INSERT DATA {{ {IRI} a {CLASS} ; {NAME} }}"),
    "ndjson": load('{"type": "Party", "data": {"name": "eve"}}', "ndjson"),
    "ndjson append": load('{"type": "Party", "data": {"name": "eve"}}', "ndjson", mode="append"),
    "ndjson empty": load('{"type": "Party", "data": {}}', "ndjson"),
    "nquads": load(f"{IRI} {TYPE} {CLASS} .\n{IRI} {NAME} .\n", "nquads"),
    "turtle": load(f"{IRI} a {CLASS} ; {NAME} .", "turtle", mode="overwrite"),
    "csv": load("name\neve\n", "csv", type_name="Party"),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_write_path_creates_one(app: App, way: str) -> None:
    """The error names the type and the ones to use; nothing is written."""
    ctx = app.context()
    head = ctx.kg.head.commit
    with pytest.raises(ValidationError) as refused:
        WAYS[way](app, ctx)
    [error] = [each for each in refused.value.fields if each.code == "abstract"]
    assert MESSAGE in error.message
    assert error.field.endswith("type")
    assert error.value == "Party"
    assert ctx.kg.head.commit == head
    assert Party.objects(ctx).count() == 2


def test_references_and_queries_include_the_whole_family(app: App) -> None:
    """By key, by handle and over relations; the instances are of their own types."""
    ctx = app.context()
    Contract(code="c", parties=["ann", "Company/acme"], owner=Party.get(ctx, "acme")).save(ctx)
    contract = Contract.get(ctx, "c")
    assert [type(each) for each in contract.parties] == [Company, Person]
    assert [type(each).__name__ for each in Party.objects(ctx).order_by("name")] == [
        "Company",
        "Person",
    ]
    assert Contract.where(owner__name="acme").count(ctx) == 1
    assert Party.where(name__startswith="a").count(ctx) == 2
    with pytest.raises(ValidationError, match=r"name must be unique: 'ann' is shared by"):
        Company(name="ann").save(ctx)
    app.load(
        LoadRequest(files=([b'{"edge": "owner", "from": "c", "to": "ann"}'],), format="ndjson")
    )
    assert type(contract.refresh(ctx).owner) is Person
    reading = Reading(app)
    listed = reading.body("trails://kg/Party")
    assert sorted(each["label"] for each in listed) == ["acme", "ann"]
    found = ctx.kg.sparql(f"SELECT ?p WHERE {{ ?p a {CLASS} }}")
    assert len(found.rows) == 2


def test_every_projection_says_so(app: App) -> None:
    """What lists types for readers and writers marks the abstract one."""
    calls, reading = Calls(app), Reading(app)
    types = {each["type"]: each for each in calls.result("schema_get")["types"]}
    assert types["Party"]["abstract"] is True
    assert "abstract" not in types["Person"]
    note = "Abstract: no instance has exactly this type; create Company or Person instead."
    assert note in types["Party"]["schema"]["description"]
    outline = {each["type"]: each for each in calls.result("schema_get", {"after": "A"})["types"]}
    assert outline["Party"]["abstract"] is True
    said = "Abstract: its instances are those of the types that extend it."
    resources = {each.name: each for each in reading.reader.resources(LOCAL).resources}
    assert said in resources["Party"].description
    assert said not in resources["Person"].description
    with Wires(app) as wires:
        card = json.loads(wires.rest("GET", "/card").body)
        assert said in card["properties"]["Party"]["description"]
        assert said in card["events"]["Party"]["description"]
        scope = {"path": "/openapi.json", "raw_path": b"/openapi.json", "trails.actor": LOCAL}
        asked = ask_app(wires.rest_app, [], [], "GET", **scope)
        openapi = json.loads(wires.doors.run(asked).body)
        assert said in openapi["paths"]["/graphs/main/kg/Party"]["get"]["description"]
    definitions = project_schema_definitions(app.registry().schema, Names(NODES))
    assert note in definitions["$defs"]["Party"]["description"]
    assert "Abstract: its instances" in project_reference(app.registry(), "Types")


def test_every_wire_refuses_it_alike(app: App) -> None:
    """MCP in every revision and REST name the operation, the type and what to use."""
    operation = {"op": "create", "type": "Party", "data": {"name": "eve"}}
    with Wires(app) as wires:
        arguments = {"operations": [operation]}
        for _, message in wires.everywhere(
            "tools/call", {"name": "graph_mutate", "arguments": arguments}
        ):
            assert MESSAGE in json.dumps(message)
        reply = wires.rest("POST", "/mutate", arguments)
        assert reply.status == 422
        assert f"operations[0].type: {MESSAGE}" in reply.body.decode()


def test_shacl_and_our_validator_agree(app: App) -> None:
    """A node with the class of the abstract type alone is refused by both."""
    del app
    schema = Schema.of([each.__trails__ for each in (Party, Person, Company, Contract)])
    shapes = rdflib.Graph().parse(data=project_shacl(schema, Names(NODES)), format="turtle")
    person = f"<{NODES}Person/eve> a <{NODES}schema#Person>, {CLASS} ; {NAME} ."
    for data, conforms in ((person, True), (f"{IRI} a {CLASS} ; {NAME} .", False)):
        graph = rdflib.Graph().parse(data=data, format="turtle")
        assert pyshacl.validate(graph, shacl_graph=shapes)[0] is conforms
    alone = Schema.of([Party.__trails__])
    shapes = rdflib.Graph().parse(data=project_shacl(alone, Names(NODES)), format="turtle")
    graph = rdflib.Graph().parse(data=f"{IRI} a {CLASS} ; {NAME} .", format="turtle")
    assert not pyshacl.validate(graph, shacl_graph=shapes)[0]
    errors: list = []
    Validator(alone, Names(NODES)).check("Party", {"name": "eve"}, "", errors)
    assert [each.message for each in errors] == [
        f"type: {MESSAGE.partition(';')[0]}; declare a type that extends it first"
    ]


def concrete() -> type[Node]:
    """Party as it was before."""

    @node_type
    class Party(Node):
        """Someone or something that signs."""

        name: str = predicate(key=True)

    return Party


def schema_of(*classes: type) -> Schema:
    """The schema of some types."""
    return Schema.of([each.__trails__ for each in classes])


def test_a_type_with_instances_cannot_become_abstract() -> None:
    """The nodes are listed; without instances it can, and back."""
    former = concrete()
    with App(former, Person, Company, name="app") as app:
        ctx = app.context()
        ctx.kg.save_all([former(name="eve"), Person(name="ann")])
        graph = app.graph()
        with pytest.raises(SchemaMismatchError, match=r"Party\.type \[abstract\]: Party/eve\.type"):
            apply_schema(graph, graph.main, schema_of(Party, Person, Company))
        former.get(ctx, "eve").delete(ctx)
        apply_schema(graph, graph.main, schema_of(Party, Person, Company))
        assert "abstract changed" in app.versions().commits().commits[0].message
        apply_schema(graph, graph.main, schema_of(former, Person, Company))
        former(name="eve").save(ctx)


def test_a_merge_brings_no_instance_of_a_type_that_became_abstract() -> None:
    """It is a conflict that either side settles, whichever side changed the type."""
    former = concrete()
    for changed in ("main", "work"):
        with App(former, Person, name="app") as app:
            versions, graph = app.versions(), app.graph()
            Person(name="ann").save(app.context())
            versions.create_branch("work")
            other = "work" if changed == "main" else "main"
            former(name="eve").save(app.context(branch=other))
            apply_schema(graph, graph.checkout(changed), schema_of(Party, Person))
            result = versions.merge(MergeRequest("work", "main"))
            assert (result.outcome, result.commit) == ("conflicts", graph.main.head.commit)
            [conflict] = result.conflicts
            assert conflict.id == "constraint:Party/eve.type:abstract"
            assert "is abstract" in msgspec.json.encode(conflict).decode()
            assert conflict.id in result.suggested
            chosen = {each: Resolution(side) for each, side in result.suggested.items()}
            settled = MergeRequest("work", "main", resolutions=chosen)
            assert versions.merge(settled).outcome == "merged"
            assert not app.context().kg.find("Party", "Party/eve")


PROJECT = '''
"""Parties."""

from trails import Node, node_type, predicate


@node_type(abstract=True)
class Party(Node):
    """Someone or something that signs."""

    name: str = predicate(key=True)


@node_type
class Person(Party):
    """Someone."""
'''


def test_the_command_line_says_so(tmp_path) -> None:
    """``trails schema`` marks it, and a load is refused with the line."""
    settings = '[project]\nname = "acme"\n[graphs.main]\napp = "app.py"\n'
    folder = make_project(tmp_path, PROJECT, settings=settings)
    shell = Shell(folder)
    shell.run("load", shell.write("p.ndjson", '{"type": "Person", "data": {"name": "ann"}}\n'))
    assert "Party  abstract" in shell.out("schema")
    shell.write("a.ndjson", '{"type": "Party", "data": {"name": "eve"}}\n')
    refused = run_command(["load", "a.ndjson"], folder)
    assert refused.returncode != 0
    assert "line 1: type: Party is abstract" in refused.stderr
    assert "use Person" in refused.stderr


def test_a_hidden_subtype_is_not_named() -> None:
    """The error offers what the actor may use; hidden types decide nothing."""
    schema = schema_of(Party, Person, Company)
    seen = Visibility(hidden=frozenset({"Company"})).restrict(schema)
    errors: list = []
    Validator(seen, Names(NODES)).check("Party", {"name": "eve"}, "", errors)
    assert errors[0].message.endswith("; use Person")
