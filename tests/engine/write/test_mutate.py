"""Mutate: one call, one commit; nothing that breaks a rule lands, and all of it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

import msgspec
import pytest

from trails import App, Edge, LoadRequest, Node, Ref, edge_type, node_type, predicate
from trails.engine.graph.graph import Graph
from trails.engine.session.context import GraphContext
from trails.engine.write.mutate import (
    MAX_OPERATIONS,
    Effect,
    local_effect,
    mutate_sparql,
    mutate_typed,
)
from trails.errors import (
    ConflictError,
    FieldError,
    QueryError,
    TransactionError,
    ValidationError,
)
from trails.model.constraints import FIELD_CODES
from trails.model.writes import Mutation

# ruff: noqa: E501 - an operation reads best on one line
NODES = "trails://app/main/"


@node_type
class Person(Node):
    """Someone who owns things."""

    email: str = predicate(key=True, pattern=r"^[^@ ]+@[^@ ]+$")
    name: str = predicate(min_length=1, max_length=20)
    badge: str | None = predicate(unique=True)


@node_type
class Manager(Person):
    """A person with a level."""

    level: int | None = predicate()


@node_type
class Task(Node):
    """Something to do."""

    title: str = predicate(min_length=3)
    state: str = predicate(one_of=["open", "done"], default="open")
    owner: Ref[Person] | None = predicate()
    tags: list[str] = predicate(max_count=3)


@node_type
class Note(Node):
    """Text about a task that can't stand without it."""

    about: Ref[Task] = predicate()


@edge_type(source=Person, target=Task, per_target=(0, 2))
class Watches(Edge):
    """Who watches a task."""

    since: int | None = predicate()


@node_type
class Club(Node):
    """Needs a member at all times."""

    name: str = predicate(key=True)


@edge_type(source=Club, target=Person, per_source=(1, None))
class Member(Edge):
    """Who is in a club."""


TYPES = (Person, Manager, Task, Note, Watches, Club, Member)


@pytest.fixture
def app() -> Iterator[App]:
    """An app in memory."""
    with App(*TYPES) as made:
        yield made


@pytest.fixture
def ctx(app: App) -> GraphContext:
    """Someone at work in it, with two people and a task in use."""
    context = app.context(actor="tester")
    ann = Person(email="ann@x", name="Ann", badge="1")
    bob = Manager(email="bob@x", name="Bob", badge="2")
    task = Task(title="Task one", owner=ann, tags=["x"])
    context.kg.save_all([ann, bob, task, Note(about=task)])
    return context


def sparql(
    app: App, ctx: GraphContext, text: str, effect: Effect | None = None, **control: str
) -> Mutation:
    """Mutate by an update text."""
    graph = app.graph()
    opening = partial(ctx.kg.transaction, **control)
    return mutate_sparql(
        graph, graph.main, opening, text, effect or local_effect(graph, graph.main)
    )


def typed(app: App, ctx: GraphContext, *operations: object, **control: str) -> Mutation:
    """Mutate by typed operations."""
    opening = partial(ctx.kg.transaction, **control)
    return mutate_typed(opening, ctx.kg, operations)


def snapshot(graph: Graph) -> tuple[object, ...]:
    """Everything a write could change: head, both views."""
    quads = sorted(str(quad) for quad in graph.stores.main().data())
    return graph.main.head, list(graph.main.nodes.dump()), quads


def refused(app: App, write: Callable[[], object]) -> list[tuple[str, str]]:
    """(path, code) of every violation of a write, which has left nothing behind."""
    before = snapshot(app.graph())
    with pytest.raises(ValidationError) as caught:
        write()
    assert snapshot(app.graph()) == before
    fields: tuple[FieldError, ...] = caught.value.fields
    assert all(each.code in FIELD_CODES and each.message for each in fields)
    return [(each.field, each.code) for each in fields]


def create(type_name: str, **data: object) -> dict[str, object]:
    """An operation that creates a node."""
    return {"op": "create", "type": type_name, "data": data}


def commits(app: App) -> int:
    """How many commits the log has."""
    return len(list(app.graph().log.commits()))


TASK = f"<{NODES}Task/%s>"
EVE = {"email": "eve@x", "name": "Eve"}


def task_id(ctx: GraphContext) -> str:
    """The id of the one task."""
    return str(Task.objects(ctx).get().id)


# --- typed operations -------------------------------------------------------------------------


def test_a_list_is_one_commit_and_later_operations_see_earlier_ones(
    app: App, ctx: GraphContext
) -> None:
    """Create, refer, change, relate and delete in one commit; each result names its node."""
    before = commits(app)
    old = task_id(ctx)
    done = typed(
        app,
        ctx,
        create("Person", **EVE),
        {"op": "create", "type": "Task", "id": "t2", "data": {"title": "Two", "owner": "Person/eve@x"}},
        {"op": "update", "type": "Task", "id": "t2", "data": {"state": "done", "tags": ["a", "b"]}},
        create("Watches", source=f"{NODES}Person/eve%40x", target="Task/t2", since=5),
        {"op": "update", "type": "Person", "iri": f"{NODES}Manager/bob%40x", "data": {"level": 3, "badge": None}},
        {"op": "delete", "type": "Task", "id": old, "cascade": True},
        message="all at once",
    )  # fmt: skip
    assert commits(app) == before + 1
    commit = app.graph().log.commit(done.commit)
    assert (commit.message, commit.actor) == ("all at once", "tester")
    assert [(each.op, each.type, each.id) for each in done.applied[:3]] == [
        ("create", "Person", "eve@x"),
        ("create", "Task", "t2"),
        ("update", "Task", "t2"),
    ]
    assert [each.handle for each in done.applied[4:]] == ["Manager/bob%40x", f"Task/{old}"]
    two = Task.objects(ctx).get()
    assert (two.id, two.state, two.tags, two.owner.name) == ("t2", "done", ["a", "b"], "Eve")
    assert Watches.objects(ctx).get().since == 5
    bob = Manager.get(ctx, "bob@x")
    assert (bob.level, bob.badge, bob.name) == (3, None, "Bob")
    assert Note.objects(ctx).count() == 0


def test_what_changes_nothing_makes_no_commit(app: App, ctx: GraphContext) -> None:
    """Writing what is there, or making and deleting a node, is no commit."""
    before = snapshot(app.graph())
    same = {"op": "update", "type": "Person", "id": "ann@x", "data": {"name": "Ann"}}
    gone = {"op": "delete", "type": "Person", "id": "eve@x"}
    for operations in ((same,), (create("Person", **EVE), gone)):
        done = typed(app, ctx, *operations)
        assert done.commit is None
        assert len(done.applied) == len(operations)
    assert snapshot(app.graph()) == before


def test_upsert_makes_or_replaces(app: App, ctx: GraphContext) -> None:
    """An upsert by key, id or IRI makes the node, or gives it these fields and no others."""
    upsert = {"op": "upsert", "type": "Person", "data": {**EVE, "badge": "9"}}
    assert typed(app, ctx, upsert).commit
    assert typed(app, ctx, upsert).commit is None
    typed(app, ctx, {"op": "upsert", "type": "Person", "id": "eve@x", "data": EVE})
    assert Person.get(ctx, "eve@x").badge is None
    keyless = {"op": "upsert", "type": "Task", "iri": f"{NODES}Task/t9", "data": {"title": "Nine"}}
    assert typed(app, ctx, keyless).applied[0].id == "t9"
    assert typed(app, ctx, keyless).commit is None
    assert Task.get(ctx, "t9").state == "open"


def test_two_unique_values_can_be_swapped(app: App, ctx: GraphContext) -> None:
    """A list is judged by its end."""
    done = typed(
        app,
        ctx,
        {"op": "update", "type": "Person", "id": "ann@x", "data": {"badge": "2"}},
        {"op": "update", "type": "Person", "id": "bob@x", "data": {"badge": "1"}},
    )
    assert done.commit
    assert Person.get(ctx, "ann@x").badge == "2"


@pytest.mark.req("T21b")
def test_every_violation_of_every_operation_is_told_at_once(app: App, ctx: GraphContext) -> None:
    """Form, fields, references, uniqueness, deletes: all in one error, each with its path."""
    one = task_id(ctx)
    assert refused(
        app,
        lambda: typed(
            app,
            ctx,
            create("Person", email="no", name="", nam="x"),
            {"op": "creat", "type": "Person", "data": {}},
            {"op": "create", "type": "Persn", "data": {}},
            {"op": "update", "type": "Person", "id": "ann@x", "data": {"email": "new@x"}},
            {"op": "update", "type": "Person", "id": "none@x", "data": {}},
            {"op": "delete", "type": "Task", "id": one},
            create("Person", email="eve@x", name="Eve", badge="1"),
            {"op": "create", "type": "Task", "id": "t", "data": {"title": "Two", "owner": "Person/none"}},
            create("Task", title="x", state="maybe", tags=["1", "2", "3", "4"]),
            create("Club", name="lonely"),
            {"op": "delete", "type": "Person", "id": "none@x"},
            create("Person", email="ann@x", name="Again"),
            create("Watches", source="Person/ann%40x"),
            "nonsense",
        ),
    ) == [
        ("operations[0].email", "pattern"),
        ("operations[0].name", "min_length"),
        ("operations[0].nam", "unknown_field"),
        ("operations[1].op", "one_of"),
        ("operations[2].type", "one_of"),
        ("operations[3].email", "immutable_key"),
        ("operations[4].id", "reference"),
        ("operations[8].title", "min_length"),
        ("operations[8].state", "one_of"),
        ("operations[8].tags", "max_count"),
        ("operations[10].id", "reference"),
        ("operations[11].email", "unique"),
        ("operations[12].target", "required"),
        ("operations[13]", "datatype"),
        ("operations[6].badge", "unique"),
        ("operations[7].owner", "reference"),
        ("operations[5].about", "in_use"),
        ("operations[9].source", "min_count"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({}, [("op", "one_of")]),
        ({"op": None}, [("op", "one_of")]),
        ({"op": ["create"]}, [("op", "one_of")]),
        ({"op": "create"}, [("type", "one_of"), ("data", "required")]),
        ({"op": "create", "type": {}, "data": []}, [("type", "one_of"), ("data", "datatype")]),
        ({"op": "create", "type": "Person", "data": {1: 2}}, [("data", "datatype")]),
        ({"op": "create", "type": "Person", "dat": {}}, [("dat", "unknown_field"), ("data", "required")]),
        ({"op": "create", "type": "Person", "data": EVE, "id": "x@y"}, [("id", "immutable_key")]),
        ({"op": "create", "type": "Task", "data": {"title": "abc"}, "id": ".."}, [("id", "datatype")]),
        ({"op": "create", "type": "Task", "data": {"title": "abc"}, "id": 5}, [("id", "datatype")]),
        ({"op": "create", "type": "Task", "data": {"title": "abc"}, "id": "\ud800"}, [("id", "datatype")]),
        ({"op": "create", "type": "Task", "data": {"title": "abc"}, "iri": "x"}, [("iri", "unknown_field")]),
        ({"op": "update", "type": "Person", "data": {}}, [("id", "required")]),
        ({"op": "update", "type": "Person", "id": "ann@x"}, [("data", "required")]),
        ({"op": "update", "type": "Person", "id": "a", "iri": "b", "data": {}}, [("iri", "max_count")]),
        ({"op": "update", "type": "Person", "id": "ann@x", "data": {"name": None}}, [("name", "required")]),
        ({"op": "update", "type": "Task", "id": "ann@x", "data": {}}, [("id", "reference")]),
        ({"op": "delete", "type": "Person", "id": "bob@x", "cascade": "yes"}, [("cascade", "datatype")]),
        ({"op": "delete", "type": "Person", "id": "bob@x", "data": {}}, [("data", "unknown_field")]),
        ({"op": "delete", "type": "Person", "id": "ann@x"}, [("owner", "in_use")]),
        ({"op": "upsert", "type": "Task", "iri": f"{NODES}Person/x", "data": {"title": "abc"}}, [("iri", "datatype")]),
        ({"op": "upsert", "type": "Person", "id": "x@y", "data": EVE}, [("id", "immutable_key")]),
    ],
    ids=lambda value: ascii(value)[:60],
)  # fmt: skip
def test_a_wrong_operation_is_told_by_name(
    app: App, ctx: GraphContext, operation: dict, expected: list[tuple[str, str]]
) -> None:
    """Each wrong part of an operation is one violation with its path."""
    sound = create("Person", email="z@z", name="Z")
    found = refused(app, lambda: typed(app, ctx, sound, operation))
    assert found == [(f"operations[1].{name}", code) for name, code in expected]


def test_a_rule_at_the_end_of_an_edge_names_the_operation_on_the_edge(
    app: App, ctx: GraphContext
) -> None:
    """Deleting a club's last membership breaks the club's rule, by this operation."""
    made = typed(
        app, ctx, create("Club", name="c"), create("Member", source="Club/c", target="Person/ann@x")
    )
    last = {"op": "delete", "type": "Member", "id": made.applied[1].id}
    operations = [create("Person", **EVE), last]
    assert refused(app, lambda: typed(app, ctx, *operations)) == [
        ("operations[1].source", "min_count")
    ]


def test_the_nearest_name_is_suggested(app: App, ctx: GraphContext) -> None:
    """A misspelled op, type, key or field is answered with what was meant."""
    with pytest.raises(ValidationError) as caught:
        typed(
            app,
            ctx,
            {"op": "updat", "type": "Person", "data": {}},
            {"op": "create", "type": "Tsk", "data": {}},
            {"op": "delete", "type": "Task", "id": "x", "cascad": True},
            create("Task", titel="x"),
        )
    for meant in ("'update'", "'Task'", "'cascade'", "'title'"):
        assert f"did you mean {meant}?" in str(caught.value)


def test_the_number_of_operations_is_limited(app: App, ctx: GraphContext) -> None:
    """None, or more than the limit, is refused before anything is looked at."""
    assert refused(app, lambda: typed(app, ctx)) == [("operations", "min_count")]
    many = [create("Person", **EVE)] * (MAX_OPERATIONS + 1)
    assert refused(app, lambda: typed(app, ctx, *many)) == [("operations", "max_count")]


def test_a_later_reference_to_a_refused_node_is_no_second_violation(
    app: App, ctx: GraphContext
) -> None:
    """A node whose fields are wrong still counts as there for those that refer to it."""
    operations = [
        create("Person", email="eve@x", name=""),
        create("Task", title="Two", owner="Person/eve@x"),
    ]
    assert refused(app, lambda: typed(app, ctx, *operations)) == [
        ("operations[0].name", "min_length")
    ]


# --- update texts ------------------------------------------------------------------------------


def test_an_update_is_one_commit(app: App, ctx: GraphContext) -> None:
    """Several operations, WHERE parts and all: one commit with the net difference."""
    before = commits(app)
    done = sparql(
        app,
        ctx,
        f'INSERT DATA {{ <{NODES}Person/eve%40x> a :Person ; :email "eve@x" ; :name "Eve" }} ; '
        "DELETE { ?p :name ?n } INSERT { ?p :name ?m } "
        "WHERE { ?p a :Person ; :name ?n BIND (UCASE(?n) AS ?m) } ; "
        'DELETE { ?p :badge ?b } WHERE { ?p :name "ANN" ; :badge ?b }',
        message="shout",
    )
    assert commits(app) == before + 1
    commit = app.graph().log.commit(done.commit)
    assert (commit.message, commit.removed, commit.added) == ("shout", 3, 5)
    assert [each.name for each in Person.objects(ctx).order_by("email")] == ["ANN", "BOB", "EVE"]
    assert Person.get(ctx, "ann@x").badge is None
    live = snapshot(app.graph())
    app.graph().rebuild()
    assert snapshot(app.graph()) == live


def test_an_update_without_effect_makes_no_commit(app: App, ctx: GraphContext) -> None:
    """What is there already, what matches nothing and what is undone changes nothing."""
    before = snapshot(app.graph())
    for text in (
        f'INSERT DATA {{ <{NODES}Person/ann%40x> :name "Ann" }}',
        "DELETE { ?s ?p ?o } WHERE { ?s :nope ?x ; ?p ?o }",
        "DELETE { ?s ?p ?o } INSERT { ?s ?p ?o } WHERE { ?s ?p ?o }",
        'DELETE WHERE { ?s :name "Ann" } ; INSERT { ?s :name "Ann" } WHERE { ?s :email "ann@x" }',
    ):
        assert sparql(app, ctx, text).commit is None
    assert snapshot(app.graph()) == before


def test_deleting_the_class_deletes_the_node(app: App, ctx: GraphContext) -> None:
    """What is left of a node that has no class any more goes with it."""
    assert sparql(app, ctx, "DELETE { ?s a ?c } WHERE { ?s a :Manager ; a ?c }").commit
    assert Manager.objects(ctx).count() == 0
    assert not ctx.kg.sparql("ASK { ?s :email 'bob@x' }")


WRONG_UPDATES = [
    ("DELETE WHERE { ?s :name ?n }", {"required"}),
    ('INSERT { ?s :name "Two" } WHERE { ?s a :Person }', {"max_count"}),
    ('DELETE { ?s :name ?n } INSERT { ?s :name "" } WHERE { ?s :name ?n }', {"min_length"}),
    ('DELETE { ?s :badge ?b } INSERT { ?s :badge "7" } WHERE { ?s :badge ?b }', {"unique"}),
    ('DELETE { ?s :state ?b } INSERT { ?s :state "no" } WHERE { ?s :state ?b }', {"one_of"}),
    (f"DELETE {{ ?s :owner ?o }} INSERT {{ ?s :owner <{NODES}Person/no> }} WHERE {{ ?s :owner ?o }}", {"reference"}),
    ("DELETE { ?s :owner ?o } INSERT { ?s :owner ?n } WHERE { ?s :owner ?o . ?n a :Note }", {"reference"}),
    ('DELETE { ?s :email ?e } INSERT { ?s :email "q@x" } WHERE { ?s :email ?e }', {"immutable_key"}),
    (f"DELETE WHERE {{ <{NODES}Person/ann%40x> ?p ?o }}", {"in_use"}),
    (f'INSERT DATA {{ <{NODES}Club/c> a :Club ; :name "c" }}', {"min_count"}),
    ('INSERT { ?s :tags "1", "2", "3", "4" } WHERE { ?s a :Task }', {"max_count"}),
]  # fmt: skip


@pytest.mark.req("T21b")
@pytest.mark.parametrize(("text", "codes"), WRONG_UPDATES)
def test_an_update_that_breaks_a_rule_is_refused(
    app: App, ctx: GraphContext, text: str, codes: set[str]
) -> None:
    """Constraints, counts, uniqueness, references, keys and deletes in use hold for updates."""
    assert {code for _, code in refused(app, lambda: sparql(app, ctx, text))} >= codes


@pytest.mark.parametrize(
    "text",
    [
        "INSERT { ?s :nope 1 } WHERE { ?s a :Person }",
        "INSERT DATA { <x:a> <x:b> 1 }",
        f"INSERT DATA {{ <{NODES}Nope/a> a :Nope }}",
        f'INSERT DATA {{ <{NODES}Person/none> :name "None" }}',
        "INSERT { [] a :Person ; :name ?n } WHERE { ?s :name ?n }",
        "INSERT { ?s :name ?n } WHERE { GRAPH ?g { ?s ?p ?n } }",
        "DELETE { ?s a :Person } WHERE { ?s a :Manager }",
        "CLEAR ALL",
        "LOAD <http://127.0.0.1:9/>",
        "SELECT * { ?s ?p ?o }",
        "INSERT DATA {",
        "",
    ],
)  # fmt: skip
def test_an_update_is_about_declared_types(app: App, ctx: GraphContext, text: str) -> None:
    """Unknown types and fields, blank nodes, named graphs and other texts are refused."""
    before = snapshot(app.graph())
    with pytest.raises(QueryError):
        sparql(app, ctx, text)
    assert snapshot(app.graph()) == before


@pytest.mark.req("T21b")
def test_a_value_of_another_kind_is_an_error_of_its_field(app: App, ctx: GraphContext) -> None:
    """Statements about declared fields are refused field by field, each with what it takes."""
    text = "INSERT { ?s :name 5 } WHERE { ?s a :Person }"
    found = refused(app, lambda: sparql(app, ctx, text))
    assert {code for _, code in found} == {"datatype"}
    assert all(path.endswith(".name") for path, _ in found)


# --- both ---------------------------------------------------------------------------------------

RENAME = 'DELETE { ?s :name ?n } INSERT { ?s :name "A" } WHERE { ?s :email "ann@x" ; :name ?n }'
BOTH = {
    "sparql": lambda app, ctx, **control: sparql(app, ctx, RENAME, **control),
    "typed": lambda app, ctx, **control: typed(
        app,
        ctx,
        {"op": "update", "type": "Person", "id": "ann@x", "data": {"name": "A"}},
        **control,
    ),
}


@pytest.mark.parametrize("form", BOTH)
def test_an_expected_head_is_checked(app: App, ctx: GraphContext, form: str) -> None:
    """A call for another head is a conflict; for this head it is done."""
    before = snapshot(app.graph())
    with pytest.raises(ConflictError):
        BOTH[form](app, ctx, expected_head="0" * 32)
    assert snapshot(app.graph()) == before
    assert BOTH[form](app, ctx, expected_head=ctx.kg.head.commit).commit


@pytest.mark.parametrize("form", BOTH)
def test_a_retry_with_the_same_key_is_done_once(app: App, ctx: GraphContext, form: str) -> None:
    """The second call gives the first commit and says that it is a replay."""
    first = BOTH[form](app, ctx, idempotency_key="k")
    Person.get(ctx, "ann@x").delete(ctx, cascade=True)
    second = BOTH[form](app, ctx, idempotency_key="k")
    assert (first.replayed, second.replayed) == (False, True)
    assert second.commit == first.commit
    assert Person.objects(ctx).where(email="ann@x").count() == 0


@pytest.mark.parametrize("form", BOTH)
def test_a_mutation_can_be_part_of_a_transaction(app: App, ctx: GraphContext, form: str) -> None:
    """It joins the open transaction, whose end makes the commit."""
    with ctx.kg.transaction() as outcome:
        assert BOTH[form](app, ctx).commit is None
        Person(**EVE).save(ctx)
    assert outcome.commit is not None
    assert Person.get(ctx, "ann@x").name == "A"


def test_an_update_after_a_change_in_a_transaction_is_refused(app: App, ctx: GraphContext) -> None:
    """It would not see that change."""

    def both() -> None:
        with ctx.kg.transaction():
            Person(**EVE).save(ctx)
            sparql(app, ctx, RENAME)

    with pytest.raises(QueryError, match="transaction"):
        both()


def swallow(write: Callable[[], object]) -> None:
    """Go on after a refusal."""
    with pytest.raises(ValidationError):
        write()


def test_a_refusal_that_is_caught_in_a_transaction_does_not_land(
    app: App, ctx: GraphContext
) -> None:
    """Whoever goes on after a refused mutation can't commit what it left."""
    wrong = 'DELETE { ?s :name ?n } INSERT { ?s :name "" } WHERE { ?s :name ?n }'
    raw = f'DELETE DATA {{ <{NODES}Person/ann%40x> :name "Ann" }}'
    for write in (
        lambda: sparql(app, ctx, wrong),
        lambda: typed(app, ctx, create("Person", email="eve@x", name="")),
        lambda: ctx.kg.raw_sparql(raw),
    ):
        before = snapshot(app.graph())

        def go_on(write: Callable[[], object] = write) -> None:
            with ctx.kg.transaction():
                swallow(write)

        with pytest.raises(TransactionError):
            go_on()
        assert snapshot(app.graph()) == before


# --- the race -----------------------------------------------------------------------------------

COUNT = (
    "DELETE { ?t :title ?old } INSERT { ?t :title ?new } WHERE { ?t a :Task ; :title ?old "
    'BIND (CONCAT(?old, "+") AS ?new) }'
)


@pytest.mark.parametrize("moves", [1, 2, 5])
def test_an_effect_of_an_older_state_is_computed_again(
    app: App, ctx: GraphContext, moves: int
) -> None:
    """Writes between computing and writing are seen: nothing is lost, however many.

    A round that comes to nothing does not use up the idempotency key.
    """
    graph, left, computed = app.graph(), [moves], [0]

    def effect(text: str) -> tuple[bytes, bytes]:
        found = local_effect(graph, graph.main)(text)
        computed[0] += 1
        if left[0] and graph._owner is None:
            left[0] -= 1
            other = app.context(actor="other")
            task = Task.objects(other).get()
            task.title += "o"
            task.save(other)
        return found

    assert sparql(app, ctx, COUNT, effect, idempotency_key="once").commit
    done = min(moves, 3)
    assert Task.objects(ctx).get().title == "Task one" + "o" * done + "+"
    assert computed[0] == done + 1


def test_no_update_is_lost_among_writers(app: App, ctx: GraphContext) -> None:
    """Four threads that each append ten marks leave forty."""

    def work() -> None:
        mine = app.context()
        for _ in range(10):
            sparql(app, mine, COUNT)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert Task.objects(ctx).get().title == "Task one" + "+" * 40


@node_type
class Reading(Node):
    """Values that can be written in several ways."""

    code: str = predicate(key=True)
    at: datetime | None = predicate()
    level: float | None = predicate()
    times: list[datetime] = predicate()


OTHER = "2026-03-01T14:00:00+02:00"
TURTLE = f"""
<{NODES}Reading/a> <{NODES}schema#at> "{OTHER}"^^<http://www.w3.org/2001/XMLSchema#dateTime> ;
    <{NODES}schema#level> "-0.0"^^<http://www.w3.org/2001/XMLSchema#double> ;
    <{NODES}schema#times> "{OTHER}"^^<http://www.w3.org/2001/XMLSchema#dateTime> .
"""
SAME: dict[str, Callable[[App, GraphContext], object]] = {
    "orm": lambda _, ctx: _save(ctx),
    "operations": lambda app, ctx: app.mutate(
        ctx, [{"op": "update", "type": "Reading", "id": "a", "data": _data()}]
    ),
    "sparql": lambda app, ctx: app.mutate(
        ctx,
        "DELETE WHERE { <Reading/a> :at ?x ; :level ?y ; :times ?z } ; INSERT DATA { <Reading/a> "
        f":at '{OTHER}'^^xsd:dateTime ; :level '-0.0'^^xsd:double ; :times '{OTHER}'^^xsd:dateTime }}",
    ),
    "ndjson": lambda app, _: app.load(
        LoadRequest(
            files=([msgspec.json.encode({"type": "Reading", "data": {"code": "a", **_data()}})],),
            format="ndjson",
        )
    ),
    "turtle": lambda app, _: app.load(LoadRequest(files=([TURTLE.encode()],), format="turtle")),
}


def _data() -> dict[str, object]:
    return {"at": OTHER, "level": -0.0, "times": [OTHER]}


def _save(ctx: GraphContext) -> None:
    node = Reading.get(ctx, "a")
    node.at, node.level = datetime.fromisoformat(OTHER), -0.0
    node.times = [datetime.fromisoformat(OTHER)]
    node.save(ctx)


@pytest.mark.parametrize("way", SAME)
@pytest.mark.parametrize("stored", [True, False])
def test_an_equal_value_is_the_same_value_on_every_way_in(way: str, *, stored: bool) -> None:
    """An instant with another offset and a negative zero are stored in one form, and no change."""
    with App(Reading) as app:
        ctx = app.context()
        node = Reading(code="a")
        if stored:
            node.at, node.level = datetime(2026, 3, 1, 12, tzinfo=UTC), 0.0
            node.times = [datetime(2026, 3, 1, 12, tzinfo=UTC)]
        node.save(ctx)
        before = ctx.kg.head.commit
        SAME[way](app, ctx)
        assert (ctx.kg.head.commit == before) is stored
        text = app.graph().reading_quads(app.graph().main, lambda quads: str(list(quads.data())))
        assert text.count("2026-03-01T12:00:00Z") == 2
        assert "+02:00" not in text
        assert "-0" not in text.replace("-03-01", "")
