"""Edges with a key: several of one type between a pair of nodes, one for each value of the key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worlds.graphs import Calls, Reading
from tests.worlds.surfaces import Wires

from trails import App, Edge, LoadRequest, MergeRequest, Node, Ref, edge_type, node_type, predicate
from trails.engine.schema.evolution import apply_schema
from trails.engine.session.context import GraphContext
from trails.engine.upkeep.verify import verify
from trails.errors import SchemaMismatchError, ValidationError
from trails.model.iris import edge_id
from trails.model.types import EdgeEnds, Schema
from trails.model.visibility import Visibility


@node_type
class Person(Node):
    """Someone who works."""

    name: str = predicate(key=True)


@node_type
class Company(Node):
    """Where people work."""

    name: str = predicate(key=True)


@edge_type(source=Person, target=Company, per_source=(0, 3), per_target=(0, 4))
class Job(Edge):
    """Who worked where, since when."""

    since: date = predicate(key=True)
    role: str | None = predicate()


@edge_type(source=Person, target=Company)
class Visit(Edge):
    """Who was where, for what."""

    reason: str = predicate(key=True)
    count: int | None = predicate()


@edge_type(source=Person, target=Company)
class Knows(Edge):
    """One for each pair."""

    note: str | None = predicate()


@node_type
class Note(Node):
    """About an edge."""

    text: str = predicate(key=True)
    about: Ref[Job] | None = predicate()


TYPES = (Person, Company, Job, Visit, Knows, Note)
FIRST, LATER = date(2020, 1, 1), date(2024, 5, 1)


@pytest.fixture
def app() -> Iterator[App]:
    """Two people and two companies."""
    with App(*TYPES, name="app") as app:
        people = [Person(name=each) for each in ("ann", "bob")]
        app.context().kg.save_all([*people, Company(name="acme"), Company(name="zinc")])
        yield app


def job(since: date = FIRST, **more: object) -> Job:
    """Ann at acme."""
    return Job(**{"source": "Person/ann", "target": "Company/acme", "since": since, **more})


def test_there_are_several_between_a_pair(app: App) -> None:
    """Each is a node of its own: read, changed, referred to and deleted by its id."""
    ctx = app.context()
    first, later = job(role="clerk"), job(LATER)
    ctx.kg.save_all([first, later])
    assert first.id == edge_id("Person/ann", "Company/acme", "2020-01-01")
    assert later.id == edge_id("Person/ann", "Company/acme", "2024-05-01")
    assert Job.where(source="Person/ann").count(ctx) == 2
    assert Job.where(since=LATER).get(ctx) == later
    found = Job.get(ctx, first.handle)
    assert (found.role, found.since) == ("clerk", FIRST)
    assert Job.get(ctx, first.id) == found
    found.role = "head"
    found.save(ctx)
    Note(text="n", about=later.handle).save(ctx)
    assert Note.get(ctx, "n").about.since == LATER
    found.delete(ctx)
    assert [each.since for each in Job.objects(ctx)] == [LATER]
    with pytest.raises(ValidationError, match=r"can't be deleted while Note/n\.about refers"):
        later.delete(ctx)


def test_the_key_and_the_ends_identify_it(app: App) -> None:
    """The same three are refused, an upsert changes, and none of the three can be changed."""
    ctx = app.context()
    job(role="clerk").save(ctx)
    with pytest.raises(ValidationError) as refused:
        job().save(ctx)
    [error] = refused.value.fields
    assert (error.field, error.code) == ("since", "unique")
    assert "an edge between these two nodes with since datetime.date(2020, 1, 1) alr" in str(error)
    job(role="head").save(ctx, upsert=True)
    stored = Job.objects(ctx).get()
    assert stored.role == "head"
    for field, value in (("since", LATER), ("target", "Company/zinc"), ("source", "Person/bob")):
        changed = Job.get(ctx, stored.handle)
        setattr(changed, field, value)
        with pytest.raises(ValidationError, match=f"{field} identifies the node and can't change"):
            changed.save(ctx)
    with pytest.raises(ValidationError, match="since is required"):
        Job(source="Person/ann", target="Company/acme").save(ctx)


def test_every_edge_counts_at_its_ends(app: App) -> None:
    """per_source and per_target count edges, not pairs; also under a new limit."""
    ctx = app.context()
    ctx.kg.save_all([job(date(2020, month, 1)) for month in (1, 2, 3)])
    with pytest.raises(ValidationError, match="may have at most 3 Job edges as source, not 4"):
        job(LATER).save(ctx)
    ctx.kg.save_all([Job(source="Person/bob", target="Company/acme", since=LATER)])
    with pytest.raises(ValidationError, match="may have at most 4 Job edges as target, not 5"):
        Job(source="Person/bob", target="Company/acme", since=FIRST).save(ctx)
    stricter = msgspec.structs.replace(
        Job.__trails__, edge=EdgeEnds("Person", "Company", per_source=(0, 2))
    )
    kept = [each.__trails__ for each in TYPES if each is not Job]
    graph = app.graph()
    with pytest.raises(SchemaMismatchError, match="may have at most 2 Job edges as source"):
        apply_schema(graph, graph.main, Schema.of([*kept, stricter]))


def load(app: App, text: str, format: str = "ndjson", mode: str = "merge") -> None:
    """Load one file."""
    app.load(LoadRequest(files=([text.encode()],), format=format, mode=mode))


def test_every_write_path_knows_the_key(app: App) -> None:
    """Operations, SPARQL and files find the same edges; an id that does not fit is refused."""
    ctx = app.context()
    ends = {"source": "ann", "target": "Company/acme"}
    create = {"op": "create", "type": "Job", "data": {**ends, "since": "2020-01-01"}}
    app.mutate(ctx, [create, {**create, "data": {**ends, "since": "2024-05-01"}}])
    assert Job.objects(ctx).count() == 2
    handle = f"Job/{edge_id('Person/ann', 'Company/acme', '2020-01-01')}"
    app.mutate(ctx, [{"op": "update", "type": "Job", "id": handle, "data": {"role": "clerk"}}])
    change = {"op": "update", "type": "Job", "id": handle, "data": {"since": "2021-01-01"}}
    with pytest.raises(ValidationError, match="since identifies the node"):
        app.mutate(ctx, [change])
    load(app, '{"edge":"Job","from":"ann","to":"acme","data":{"since":"2020-01-01","role":"x"}}')
    assert Job.get(ctx, handle).role == "x"
    iri = ctx.kg.iri(handle)
    vocabulary = ctx.names.vocabulary
    app.mutate(ctx, 'DELETE { ?j :role ?r } INSERT { ?j :role "y" } WHERE { ?j :role ?r }')
    assert Job.get(ctx, iri).role == "y"
    since = f'<{vocabulary}since> "2021-01-01"^^<http://www.w3.org/2001/XMLSchema#date>'
    gone = since.replace("2021", "2020")
    with pytest.raises(ValidationError, match="an edge's from its ends and key"):
        app.mutate(ctx, f"DELETE DATA {{ <{iri}> {gone} }} ; INSERT DATA {{ <{iri}> {since} }}")
    twice = '{"edge":"Job","from":"ann","to":"zinc","data":{"since":"2020-01-01"}}\n' * 2
    with pytest.raises(ValidationError, match="is given on line 1 already"):
        load(app, twice)
    with pytest.raises(ValidationError, match='an edge has no "id" of its own'):
        load(app, '{"edge":"Job","from":"ann","to":"acme","id":"x","data":{"since":"2020-01-01"}}')
    app.load(
        LoadRequest(
            files=([b"source,target,since,role\nPerson/bob,Company/acme,2020-01-01,cook\n"],),
            format="csv",
            type_name="Job",
        )
    )
    assert Job.where(role="cook").get(ctx).source.name == "bob"


def identity(edge: tuple[str, str, str, object]) -> str:
    """What makes an edge unique."""
    return edge_id(*edge[:3])


EDGES = st.lists(
    st.tuples(
        st.sampled_from(["ann", "bob"]),
        st.sampled_from(["acme", "zinc"]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
        | st.sampled_from(["a\nb", "", "Å", "A\u030a", "Company/acme", "x" * 600]),
        st.none() | st.integers(0, 5),
    ),
    max_size=6,
    unique_by=identity,
)
FORMATS = ("ndjson", "nquads", "turtle", "jsonld")


def test_keys_are_compared_in_normal_form(app: App) -> None:
    """As those of nodes are: two spellings of one text are one edge."""
    ctx = app.context()
    ends = {"source": "Person/ann", "target": "Company/acme"}
    Visit(**ends, reason="\u00c5").save(ctx)
    with pytest.raises(ValidationError, match="already exists"):
        Visit(**ends, reason="A\u030a").save(ctx)


def visits(ctx: GraphContext) -> dict[str, tuple[object, ...]]:
    """The visits by handle."""
    return {
        each.handle: (each.source.name, each.target.name, each.reason, each.count)
        for each in Visit.objects(ctx)
    }


@settings(max_examples=8, deadline=None)
@given(edges=EDGES, format=st.sampled_from(FORMATS))
def test_an_export_loads_again(edges, format) -> None:
    """In every format, with any key: the same edges with the same ids, and again is no change."""
    with App(*TYPES, name="app") as app, App(*TYPES, name="app") as other:
        ctx = app.context()
        people = [Person(name=each) for each in ("ann", "bob")]
        ctx.kg.save_all([*people, Company(name="acme"), Company(name="zinc")])
        ctx.kg.save_all(
            Visit(source=f"Person/{a}", target=f"Company/{b}", reason=key, count=count)
            for a, b, key, count in edges
        )
        assert sorted(visits(ctx).values(), key=repr) == sorted(edges, key=repr)
        text = b"".join(app.export(ctx, format))
        for mode in ("append", "merge", "overwrite"):
            other.load(LoadRequest(files=([text],), format=format, mode=mode))
            assert visits(other.context()) == visits(ctx)
        assert all(each.severity == "ok" for each in verify(other.graph(), lambda _: None))


def test_branches_merge_edges_with_different_keys(app: App) -> None:
    """Two between one pair are no conflict; the same one with two roles is."""
    ctx, versions = app.context(), app.versions()
    versions.create_branch("work")
    work = app.context(branch="work")
    job(role="clerk").save(ctx)
    job(LATER, role="head").save(work)
    assert versions.merge(MergeRequest("work", "main")).outcome == "merged"
    assert {each.role for each in Job.objects(ctx)} == {"clerk", "head"}
    versions.create_branch("more")
    Job.where(since=FIRST).get(app.context(branch="more")).delete(app.context(branch="more"))
    assert versions.merge(MergeRequest("more", "main")).outcome in {"merged", "fast_forward"}
    assert Job.objects(ctx).get().since == LATER
    versions.create_branch("left")
    left = app.context(branch="left")
    job(FIRST, role="a").save(ctx)
    job(FIRST, role="b").save(left)
    result = versions.merge(MergeRequest("left", "main"))
    assert [each.field for each in result.conflicts] == ["role"]


def other_key(**fields: tuple[object, object]) -> type:
    """Visit with other fields."""
    body = {name: value for name, (_, value) in fields.items()}
    body["__annotations__"] = {name: kind for name, (kind, _) in fields.items()}
    made = type("Visit", (Edge,), {**body, "__doc__": Visit.__doc__})
    return edge_type(source=Person, target=Company)(made)


@pytest.mark.parametrize(
    "change",
    [
        {"reason": (str, predicate())},
        {"reason": (str, predicate()), "other": (str | None, predicate())},
    ],
)
def test_a_key_cannot_come_or_go_while_there_are_edges(app: App, change) -> None:
    """Ids are derived from it; without edges it can."""
    fields = {**change, "count": (int | None, predicate())}
    keyless = other_key(**fields)
    ctx, graph = app.context(), app.graph()
    others = [each.__trails__ for each in TYPES if each is not Visit]
    Visit(source="Person/ann", target="Company/acme", reason="x").save(ctx)
    with pytest.raises(SchemaMismatchError, match="the key of Visit changed, and ids are derived"):
        apply_schema(graph, graph.main, Schema.of([*others, keyless.__trails__]))
    Visit.objects(ctx).get().delete(ctx)
    apply_schema(graph, graph.main, Schema.of([*others, keyless.__trails__]))
    keyless(source="Person/ann", target="Company/acme", reason="x").save(ctx)
    with pytest.raises(SchemaMismatchError, match="the key of Visit changed"):
        apply_schema(graph, graph.main, Schema.of([*others, Visit.__trails__]))


def test_an_edge_without_a_key_keeps_its_id(app: App) -> None:
    """One for each pair, with the id that it always had."""
    ctx = app.context()
    Knows(source="Person/ann", target="Company/acme").save(ctx)
    [found] = Knows.objects(ctx)
    assert found.id == edge_id("Person/ann", "Company/acme") == "c5581c6a23150f43070617a3cccf00f2"
    with pytest.raises(ValidationError, match="an edge between these two nodes already exists"):
        Knows(source="Person/ann", target="Company/acme").save(ctx)


def test_who_may_not_see_the_key_sees_no_edges() -> None:
    """As with any key: the id would reveal it."""
    schema = Schema.of([each.__trails__ for each in TYPES])
    hidden = Visibility(hidden_fields={"Visit": frozenset({"reason"})}).restrict(schema)
    assert {"Visit"} == schema.by_name.keys() - hidden.by_name.keys()
    partly = Visibility(hidden_fields={"Visit": frozenset({"count"})}).restrict(schema)
    assert list(partly.by_name["Visit"].by_name) == ["source", "target", "reason"]


def test_readers_can_tell_them_apart(app: App) -> None:
    """By title, over MCP and REST; the schema says what makes an edge unique."""
    ctx, calls = app.context(), Calls(app)
    ctx.kg.save_all([job(), job(LATER)])
    listed = Reading(app).body("trails://kg/Job")
    assert sorted(each["label"] for each in listed) == [
        "Person/ann → Company/acme (2020-01-01)",
        "Person/ann → Company/acme (2024-05-01)",
    ]
    [described] = calls.result("schema_get", {"types": ["Job"]})["types"]
    assert described["key"] == "since"
    assert "One for each source, target and since." in described["schema"]["description"]
    since = described["schema"]["properties"]["since"]["description"]
    assert since.startswith("The key: the id is derived from it and both ends")
    with Wires(app) as wires:
        for each in listed:
            identifier = each["iri"].rpartition("/")[2]
            reply = wires.rest("GET", f"/kg/Job/{identifier}")
            assert reply.status == 200, reply.body
            for _, message in wires.everywhere(
                "tools/call",
                {"name": "node_get", "arguments": {"record": f"Job/{identifier}"}},
            ):
                assert "error" not in message, message
                assert identifier in json.dumps(message)
