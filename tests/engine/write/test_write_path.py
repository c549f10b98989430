"""The one write path: every violation at once, or one commit; and what hostile input can't do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from textwrap import dedent
from typing import TypeVar

import pytest

from trails import (
    App,
    Context,
    Edge,
    Iri,
    Node,
    Ref,
    Shape,
    Vector,
    capability,
    edge_type,
    node_type,
    predicate,
    shape,
)
from trails.app.settings import GraphSettings, Project, Settings, Validation
from trails.engine.graph.graph import Graph
from trails.engine.session.context import GraphContext
from trails.errors import (
    ConflictError,
    FieldError,
    NotFoundError,
    QueryError,
    TransactionError,
    ValidationError,
)
from trails.model.constraints import FIELD_CODES

N = TypeVar("N", bound=Node)
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


@node_type(unique=[("code", "version")])
class Task(Node):
    """One field for every kind of rule."""

    code: str = predicate(min_length=2, max_length=5, pattern=r"^[a-z]+$")
    version: int = predicate(min_value=1, max_value=9)
    state: str = predicate(one_of=["open", "done"], default="open")
    due: date | None = predicate()
    owner: Ref[Person] | None = predicate()
    author: Ref[Person] | None = predicate()
    tags: list[str] = predicate(min_count=2, max_count=3)
    helpers: list[Ref[Person]] = predicate()
    spot: Vector(2) | None = predicate()


@node_type
class Note(Node):
    """Text about a task that can't stand without it."""

    about: Ref[Task] = predicate()
    also: list[Ref[Task]] = predicate()
    crew: list[Ref[Person]] = predicate(min_count=1)
    text: str | None = predicate()


@node_type
class Word(Node):
    """A text, named by a text."""

    key: str = predicate(key=True)
    text: str | None = predicate()


@edge_type(source=Person, target=Word, per_source=(0, 2), per_target=(0, 1))
class Likes(Edge):
    """Who likes a word."""

    much: int | None = predicate()


@node_type
class Club(Node):
    """Needs a member at all times."""

    name: str = predicate(key=True)


@edge_type(source=Club, target=Person, per_source=(1, None))
class Member(Edge):
    """Who is in a club."""


@shape(target=Task)
class Calm(Shape):
    """Tasks have calm tags."""

    tags: list[str] = predicate(pattern="^[^!]*$")


@capability("tasks.make")
def make_task(
    ctx: Context, *, code: str, version: int, state: str, tags: list[str], owner: str | None = None
) -> Task:
    """Make a task from whatever is given."""
    task = Task(code=code, version=version, state=state, tags=tags, owner=owner)
    task.save(ctx)
    return task


TYPES = (Person, Manager, Task, Note, Word, Likes, Club, Member, Calm)


@pytest.fixture
def app() -> Iterator[App]:
    """An app in memory."""
    with App(*TYPES, make_task) as made:
        yield made


@pytest.fixture
def ctx(app: App) -> GraphContext:
    """Someone at work in it."""
    return app.context(actor="tester")


@pytest.fixture
def ann(ctx: GraphContext) -> Person:
    """A stored person."""
    return saved(ctx, Person(email="ann@x", name="Ann"))


def saved(ctx: GraphContext, node: N) -> N:
    """The node, saved."""
    node.save(ctx)
    return node


def task(**values: object) -> Task:
    """A valid task, but for what is said."""
    return Task(**{"code": "abc", "version": 1, "tags": ["x", "y"], **values})


def snapshot(graph: Graph) -> tuple[object, ...]:
    """Everything a write could change: head, both views."""
    return (
        graph.main.head,
        list(graph.main.nodes.dump()),
        sorted(str(quad) for quad in graph.stores.main().data()),
    )


def refused(app: App, write: Callable[[], object]) -> tuple[FieldError, ...]:
    """The violations of a write, which has left nothing behind."""
    before = snapshot(app.graph())
    with pytest.raises(ValidationError) as caught:
        write()
    assert snapshot(app.graph()) == before
    for error in caught.value.fields:
        assert error.code in FIELD_CODES
        assert error.field
        assert error.field.rpartition(".")[2].split(", ")[0] in error.message
        assert error.message in str(caught.value) or len(caught.value.fields) > 20
    return caught.value.fields


def roll_back(ctx: GraphContext, *steps: Callable[[], object], **control: str) -> None:
    """Take steps in a transaction that then fails."""

    def fail() -> None:
        with ctx.kg.transaction(**control):
            for step in steps:
                step()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def codes(errors: tuple[FieldError, ...]) -> list[tuple[str, str]]:
    """Field and code of each."""
    return [(error.field, error.code) for error in errors]


# --- violations -------------------------------------------------------------------------

OWN_RULES: dict[str, tuple[dict[str, object], str, str, object, object]] = {
    # Each rule: the values that break it; then the field, code, value and constraint to tell.
    "required": ({"code": None}, "code", "required", None, True),
    "empty list": ({"tags": []}, "tags", "min_count", [], 2),
    "datatype": ({"version": "1"}, "version", "datatype", "1", "Int"),
    "datatype of bool": ({"version": True}, "version", "datatype", True, "Int"),
    "datatype of date": ({"due": "2026-02-30"}, "due", "datatype", "2026-02-30", "Date"),
    "datatype of item": ({"tags": ["x", 5]}, "tags[1]", "datatype", 5, "String"),
    "datatype of list": ({"tags": "xy"}, "tags", "datatype", ["x", "y"], None),
    "datatype of reference": ({"owner": 5}, "owner", "datatype", 5, "Ref[Person]"),
    "datatype of vector": ({"spot": [1.0]}, "spot", "datatype", [1.0], "Vector[2]"),
    "datatype of text": ({"code": "\ud800"}, "code", "datatype", "\ud800", "String"),
    "min_length": ({"code": "a"}, "code", "min_length", "a", 2),
    "max_length": ({"code": "abcdef"}, "code", "max_length", "abcdef", 5),
    "pattern": ({"code": "aB"}, "code", "pattern", "aB", "^[a-z]+$"),
    "pattern of an attached shape": ({"tags": ["x", "y!"]}, "tags[1]", "pattern", "y!", "^[^!]*$"),
    "one_of": ({"state": "shut"}, "state", "one_of", "shut", ("open", "done")),
    "min_value": ({"version": 0}, "version", "min_value", 0, 1),
    "max_value": ({"version": 10}, "version", "max_value", 10, 9),
    "min_count": ({"tags": ["x", "x"]}, "tags", "min_count", ["x", "x"], 2),
    "max_count": ({"tags": [*"wxyz"]}, "tags", "max_count", [*"wxyz"], 3),
}


@pytest.mark.parametrize("rule", sorted(set(OWN_RULES) - {"datatype of list"}))
def test_each_rule_of_a_value_has_its_code(app: App, ctx: GraphContext, rule: str) -> None:
    """A violation names its field, code, value and constraint, and nothing is written."""
    values, field, code, value, constraint = OWN_RULES[rule]
    [error] = refused(app, lambda: task(**values).save(ctx))
    assert (error.field, error.code) == (field, code)
    assert error.value == value
    assert error.constraint == constraint
    assert error.message.startswith(field)


def test_all_violations_come_at_once(app: App, ctx: GraphContext) -> None:
    """One refusal lists every rule that every field breaks, also several of one field."""
    wrong = Task(code="ABCDEF", version=99, state="x", due=5, tags=["!", 5], spot=[1])
    assert codes(refused(app, lambda: wrong.save(ctx))) == [
        ("code", "max_length"),
        ("code", "pattern"),
        ("version", "max_value"),
        ("state", "one_of"),
        ("due", "datatype"),
        ("tags[1]", "datatype"),
        ("spot", "datatype"),
        ("tags[0]", "pattern"),
    ]


def test_rules_between_nodes_are_told_along_with_the_others(app: App, ctx: GraphContext) -> None:
    """What a node's own values break does not hide what other nodes say about it."""
    saved(ctx, task())
    wrong = {"code": "abc", "version": 1, "tags": ["x"], "owner": "Person/none"}
    expected = [("tags", "min_count"), ("code, version", "unique"), ("owner", "reference")]
    assert codes(refused(app, lambda: Task(**wrong).save(ctx))) == expected
    late = Person(email="late@x", name="")
    batch = [Task(**wrong), task(version=2, owner=late), late]
    errors = refused(app, lambda: ctx.kg.save_all(batch))
    found = [(error.field.rpartition(".")[2], error.code) for error in errors]
    assert found == [expected[0], ("name", "min_length"), *expected[1:]]


def test_a_field_that_is_none_is_refused_with_a_hint(app: App, ctx: GraphContext) -> None:
    """An unknown field is refused when given and when set, and the nearest one is named."""
    [error] = refused(app, lambda: Task(cod="abc"))
    assert (error.field, error.code, error.value) == ("cod", "unknown_field", "'abc'")
    assert "did you mean 'code'" in error.message
    with pytest.raises(AttributeError, match="did you mean 'code'"):
        task().cod = "abc"
    arguments = {"code": "abc", "version": 1, "state": "open", "tags": ["x", "y"], "cod": 1}
    [error] = refused(app, lambda: app.call(ctx, "tasks.make", arguments))
    assert (error.field, error.code, error.value) == ("cod", "unknown_field", 1)


def test_a_value_is_unique(app: App, ctx: GraphContext, ann: Person) -> None:
    """A second holder of a unique value is refused, subtypes included; gaps are no duplicates."""
    saved(ctx, Person(email="bob@x", name="Bob", badge="b"))
    for second in (
        Person(email="cy@x", name="Cy", badge="b"),
        Manager(email="cy@x", name="Cy", badge="b"),
    ):
        [error] = refused(app, lambda second=second: second.save(ctx))
        assert (error.field, error.code, error.value) == ("badge", "unique", "b")
        assert error.constraint == ["badge"]
        assert "bob%40x" in error.message
    ann.badge = "b"
    assert codes(refused(app, lambda: ann.save(ctx))) == [("badge", "unique")]
    saved(ctx, Person(email="cy@x", name="Cy"))


def test_long_unique_values_are_told_apart_and_found(app: App, ctx: GraphContext) -> None:
    """Values that agree in their first kilobyte are different; equal ones are refused."""
    saved(ctx, Person(email="a@x", name="A", badge="x" * 1000 + "a"))
    saved(ctx, Person(email="b@x", name="B", badge="x" * 1000 + "b"))
    same = Person(email="c@x", name="C", badge="x" * 1000 + "b")
    assert codes(refused(app, lambda: same.save(ctx))) == [("badge", "unique")]


def test_a_group_is_unique(app: App, ctx: GraphContext) -> None:
    """Fields that must differ together may agree one by one."""
    saved(ctx, task())
    saved(ctx, task(version=2))
    saved(ctx, task(code="abd"))
    [error] = refused(app, lambda: task().save(ctx))
    assert (error.field, error.code) == ("code, version", "unique")
    assert error.value == ["abc", "1"]
    assert error.constraint == ["code", "version"]


def test_a_key_is_unique_and_immutable(app: App, ctx: GraphContext, ann: Person) -> None:
    """Creating an existing key is refused, changing a key is refused, upserting is asked for."""
    again = Person(email="ann@x", name="Ann Two")
    [error] = refused(app, lambda: again.save(ctx))
    assert (error.field, error.code, error.value) == ("email", "unique", "ann@x")
    ann.email = "other@x"
    [error] = refused(app, lambda: ann.save(ctx))
    assert (error.field, error.code) == ("email", "immutable_key")
    assert (error.value, error.constraint) == ("other@x", "ann@x")
    again.save(ctx, upsert=True)
    assert Person.get(ctx, "ann@x").name == "Ann Two"


def test_an_edge_is_identified_by_its_ends(app: App, ctx: GraphContext, ann: Person) -> None:
    """There is one edge of a type between two nodes, and its ends never change."""
    word, other = saved(ctx, Word(key="w")), saved(ctx, Word(key="v"))
    likes = saved(ctx, Likes(source=ann, target=word, much=1))
    [error] = refused(app, lambda: Likes(source=ann, target=word, much=2).save(ctx))
    assert (error.field, error.code) == ("target", "unique")
    likes.target = other
    [error] = refused(app, lambda: likes.save(ctx))
    assert (error.field, error.code) == ("target", "immutable_key")
    likes.refresh(ctx).much = 5
    likes.save(ctx)
    assert Likes.objects(ctx).get().much == 5


def test_references_must_exist_and_fit(app: App, ctx: GraphContext, ann: Person) -> None:
    """A reference to nothing, or to a node of another type, is refused; a subtype fits."""
    saved(ctx, Word(key="w"))
    for reference in ("Person/none", f"{NODES}Person/none", "trails://kg/Person/none"):
        [error] = refused(app, lambda reference=reference: task(owner=reference).save(ctx))
        assert (error.field, error.code) == ("owner", "reference")
        assert (error.value, error.constraint) == ("Person/none", "Person")
        assert "does not exist" in error.message
    [error] = refused(app, lambda: task(owner="Word/w").save(ctx))
    assert (error.field, error.code, error.value) == ("owner", "reference", "Word/w")
    assert "is not a Person" in error.message
    both = refused(app, lambda: task(helpers=[ann, "Word/w", "Person/none"]).save(ctx))
    assert codes(both) == [("helpers", "reference")] * 2
    boss = saved(ctx, Manager(email="boss@x", name="Boss", level=3))
    saved(ctx, task(owner=boss, helpers=[boss, ann]))


def test_a_node_in_use_is_not_deleted(app: App, ctx: GraphContext, ann: Person) -> None:
    """Deleting what others refer to is refused, naming who does."""
    user = saved(ctx, task(owner=ann))
    [error] = refused(app, lambda: ann.delete(ctx))
    assert (error.field, error.code) == ("owner", "in_use")
    assert (error.value, error.constraint) == (ann.handle, [user.handle])
    assert Person.get(ctx, "ann@x").name == "Ann"
    user.owner = None
    user.save(ctx)
    ann.delete(ctx)
    with pytest.raises(NotFoundError):
        Person.get(ctx, "ann@x")


def test_every_code_is_provoked_here() -> None:
    """The closed list of codes and the tests of this file agree."""
    elsewhere = {"unique", "reference", "unknown_field", "immutable_key", "in_use", "max_size"}
    elsewhere |= {"abstract", "languages"}  # test_abstract_types.py, test_lang_texts.py
    assert {code for _, _, code, _, _ in OWN_RULES.values()} | elsewhere == FIELD_CODES


def test_a_batch_reports_every_node(app: App, ctx: GraphContext) -> None:
    """Each violation of a batch says which node it is about, and nothing of the batch lands."""
    batch = [
        Person(email="good@x", name="Good"),
        Person(email="bad", name=""),
        Person(email="long@x", name="x" * 21),
        Person(email="good@x", name="Twice"),
    ]
    assert codes(refused(app, lambda: ctx.kg.save_all(batch))) == [
        ("Person/bad.email", "pattern"),
        ("Person/bad.name", "min_length"),
        ("Person/long@x.name", "max_length"),
        ("Person/good%40x", "unique"),
    ]


# --- the same through every door -----------------------------------------------------------


def by_save(app: App, ctx: GraphContext, values: dict[str, object]) -> None:
    """Save one instance."""
    Task(**values).save(ctx)


def by_bulk(app: App, ctx: GraphContext, values: dict[str, object]) -> None:
    """Save a batch of one."""
    ctx.kg.save_all([Task(**values)])


def by_transaction(app: App, ctx: GraphContext, values: dict[str, object]) -> None:
    """Save inside a transaction."""
    with ctx.kg.transaction():
        Task(**values).save(ctx)


def by_capability(app: App, ctx: GraphContext, values: dict[str, object]) -> None:
    """Call a capability that saves."""
    app.call(ctx, "tasks.make", values)


def by_raw_sparql(app: App, ctx: GraphContext, values: dict[str, object]) -> None:
    """Insert the statements themselves."""
    node = f"<{NODES}Task/t1>"
    lines = [f"{node} a :Task ."]
    for name, value in values.items():
        for item in value if isinstance(value, list) else [value]:
            if name == "owner":
                term = f"<{NODES}{item}>"
            else:
                term = str(item) if isinstance(item, int) else f'"{item}"'
            lines.append(f"{node} :{name} {term} .")
    ctx.kg.raw_sparql(f"INSERT DATA {{ {' '.join(lines)} }}")


DOORS = (by_save, by_bulk, by_transaction, by_capability, by_raw_sparql)
SOUND = {"code": "abc", "version": 1, "state": "open", "tags": ["x", "y"]}


@pytest.mark.req("T21a")
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"code": "A"}, [("code", "min_length"), ("code", "pattern")]),
        ({"version": 99, "state": "x"}, [("version", "max_value"), ("state", "one_of")]),
        ({"tags": ["x"]}, [("tags", "min_count")]),
        ({"tags": [*"wxyz"]}, [("tags", "max_count")]),
        ({"owner": "Person/none"}, [("owner", "reference")]),
        ({"owner": "Word/w"}, [("owner", "reference")]),
        ({"version": 2}, [("code, version", "unique")]),
    ],
    ids=str,
)
def test_a_violation_is_the_same_through_every_door(
    app: App,
    ctx: GraphContext,
    door: Callable[[App, GraphContext, dict[str, object]], None],
    change: dict[str, object],
    expected: list[tuple[str, str]],
) -> None:
    """ORM, bulk, transaction, capability and raw SPARQL refuse alike, with the same errors."""
    saved(ctx, task(version=2))
    saved(ctx, Word(key="w"))
    errors = refused(app, lambda: door(app, ctx, {**SOUND, **change}))
    # Where many nodes can be written the field is named with its node in front.
    found = [(error.field.rpartition(".")[2], error.code) for error in errors]
    assert found == expected
    door(app, ctx, SOUND)
    assert Task.objects(ctx).where(version=1).get().tags == ["x", "y"]


@pytest.mark.req("T21a")
def test_skipping_validation_needs_a_setting(app: App, ctx: GraphContext, ann: Person) -> None:
    """Without [validation] allow_bypass the flag is refused, and says where to allow it."""
    before = snapshot(app.graph())
    wrong = f'DELETE DATA {{ <{ann.iri(ctx)}> :name "Ann" }}'
    with pytest.raises(TransactionError, match="allow_bypass"):
        ctx.kg.raw_sparql(wrong, skip_validation=True)
    assert snapshot(app.graph()) == before
    assert codes(refused(app, lambda: ctx.kg.raw_sparql(wrong))) == [
        ("Person/ann%40x.name", "required")
    ]


@pytest.mark.req("T21a")
def test_skipping_validation_works_where_the_project_allows_it(tmp_path: Path) -> None:
    """With allow_bypass = true in trails.toml statements land unvalidated and stay so."""
    (tmp_path / "trails.toml").write_text(
        '[project]\nname = "app"\n[validation]\nallow_bypass = true\n', encoding="utf-8"
    )
    (tmp_path / "app.py").write_text(
        dedent(
            '''
            from trails import Node, node_type, predicate

            @node_type
            class Person(Node):
                """Someone."""
                email: str = predicate(key=True)
                name: str = predicate(max_length=3)
            '''
        ),
        encoding="utf-8",
    )
    insert = (
        f'INSERT DATA {{ <{NODES}Person/a> a :Person ; :email "a" ; :name "far too long" . '
        "<x:anything> <x:at> 'all' }"
    )
    with App.open(tmp_path) as app:
        ctx = app.context()
        with pytest.raises(QueryError):
            ctx.kg.raw_sparql(insert)
        commit = ctx.kg.raw_sparql(insert, skip_validation=True)
        assert commit is not None
        assert commit.added == 4
        assert ctx.kg.sparql("ASK { <x:anything> <x:at> 'all' }")
        assert ctx.kg.find("Person", "a").values["name"] == "far too long"
        live = snapshot(app.graph())
        app.graph().rebuild()
        assert snapshot(app.graph()) == live
    with App.open(tmp_path) as app:
        assert snapshot(app.graph()) == live


@pytest.mark.req("T21a")
def test_bypass_is_a_setting_of_the_app(ann: Person) -> None:
    """An app in memory takes the same setting."""
    settings = Settings(
        Project("app"), {"main": GraphSettings()}, validation=Validation(allow_bypass=True)
    )
    with App(*TYPES, settings=settings) as app:
        ctx = app.context()
        ctx.kg.raw_sparql(f"INSERT DATA {{ <{NODES}Person/a> a :Person }}", skip_validation=True)
        assert Person.objects(ctx).get().id == "a"


@pytest.mark.parametrize(
    "text",
    [
        "INSERT DATA { <x:a> <x:b> 1 }",
        "INSERT DATA { <trails://app/main/Person/a> :nope 1 }",
        "INSERT DATA { <trails://app/main/Nope/a> a :Nope }",
        "INSERT DATA { GRAPH <x:g> { <trails://app/main/Person/a> a :Person } }",
        "INSERT DATA { _:b a :Person }",
        "DELETE WHERE { ?s ?p ?o }",
        "INSERT { ?s :name 'x' } WHERE { ?s ?p ?o }",
        "LOAD <file:///etc/passwd>",
        "CLEAR ALL",
        "INSERT DATA { <trails://app/main/Person/a> a :Person } ; DROP ALL",
        "SELECT ?s { ?s ?p ?o }",
        "INSERT DATA {",
        "",
    ],
)
def test_raw_statements_are_data_about_declared_types(
    app: App, ctx: GraphContext, ann: Person, text: str
) -> None:
    """Anything but data about declared types is refused, and nothing is written."""
    before = snapshot(app.graph())
    with pytest.raises(QueryError):
        ctx.kg.raw_sparql(text)
    assert snapshot(app.graph()) == before


def test_raw_statements_obey_counts_and_need_a_node(
    app: App, ctx: GraphContext, ann: Person
) -> None:
    """A second value of a single field, and fields of no node, are refused, not dropped."""
    second = f'INSERT DATA {{ <{ann.iri(ctx)}> :name "Two" }}'
    assert codes(refused(app, lambda: ctx.kg.raw_sparql(second))) == [
        ("Person/ann%40x.name", "max_count")
    ]
    twice = f'INSERT DATA {{ <{NODES}Person/b%40x> a :Person ; :email "b@x" ; :name "B", "C" }}'
    assert codes(refused(app, lambda: ctx.kg.raw_sparql(twice))) == [
        ("Person/b%40x.name", "max_count")
    ]
    before = snapshot(app.graph())
    with pytest.raises((QueryError, ValidationError)):
        ctx.kg.raw_sparql(f'INSERT DATA {{ <{NODES}Person/none> :name "None" }}')
    assert snapshot(app.graph()) == before


def test_raw_statements_keep_ids_and_keys_together(app: App, ctx: GraphContext) -> None:
    """A node whose key and IRI disagree, or an edge not named by its ends, is refused."""
    before = snapshot(app.graph())
    other = f'INSERT DATA {{ <{NODES}Person/a%40x> a :Person ; :email "b@x" ; :name "B" }}'
    with pytest.raises((QueryError, ValidationError)):
        ctx.kg.raw_sparql(other)
    assert snapshot(app.graph()) == before


def test_raw_statements_replace_and_delete(app: App, ctx: GraphContext, ann: Person) -> None:
    """Delete and insert in one update replace a value; deleting the class deletes the node."""
    iri = ann.iri(ctx)
    commit = ctx.kg.raw_sparql(
        f'DELETE DATA {{ <{iri}> :name "Ann" }} ; INSERT DATA {{ <{iri}> :name "Anna" }}'
    )
    assert (commit.removed, commit.added) == (1, 1)
    assert Person.get(ctx, "ann@x").name == "Anna"
    ctx.kg.raw_sparql(f'DELETE DATA {{ <{iri}> a :Person ; :email "ann@x" ; :name "Anna" }}')
    assert Person.objects(ctx).count() == 0
    assert not list(app.graph().stores.main().data())


# --- one commit, or none ----------------------------------------------------------------------


def test_two_unique_values_can_be_swapped(app: App, ctx: GraphContext) -> None:
    """A transaction is judged by its end, so two holders may exchange their values."""
    one = saved(ctx, Person(email="1@x", name="One", badge="1"))
    two = saved(ctx, Person(email="2@x", name="Two", badge="2"))
    with ctx.kg.transaction() as outcome:
        one.badge = "2"
        one.save(ctx)
        two.badge = "1"
        two.save(ctx)
    assert (outcome.commit.removed, outcome.commit.added) == (2, 2)
    assert [each.badge for each in Person.objects(ctx).order_by("email")] == ["2", "1"]
    one.badge, two.badge = "1", "2"
    ctx.kg.save_all([one, two])
    assert [each.badge for each in Person.objects(ctx).order_by("email")] == ["1", "2"]

    def half() -> None:
        with ctx.kg.transaction():
            one.badge = "2"
            one.save(ctx)

    assert codes(refused(app, half)) == [("badge", "unique")]


def test_references_may_point_forward(app: App, ctx: GraphContext) -> None:
    """In a batch and in a transaction a node may refer to one that comes later."""
    late = Person(email="late@x", name="Late")
    ctx.kg.save_all([task(owner=late), late])
    other = Person(email="other@x", name="Other")
    with ctx.kg.transaction():
        task(version=2, owner=other).save(ctx)
        other.save(ctx)
    assert {each.owner for each in Task.objects(ctx)} == {late, other}

    def never() -> None:
        with ctx.kg.transaction():
            task(version=3, owner="Person/never").save(ctx)

    assert codes(refused(app, never)) == [("owner", "reference")]


def test_forward_references_do_not_hide_the_real_violation(app: App, ctx: GraphContext) -> None:
    """Of a batch of many chunks only what is wrong is reported, not what waits for it."""
    people = [Person(email=f"{n}@x", name="P") for n in range(2500)]
    tasks = [task(code="ab", version=1, owner=people[-1])]
    bad = Person(email="bad@x", name="")
    assert codes(refused(app, lambda: ctx.kg.save_all([*tasks, *people, bad]))) == [
        ("Person/bad@x.name", "min_length")
    ]


def test_a_deleted_node_may_come_back_in_the_same_transaction(
    app: App, ctx: GraphContext, ann: Person
) -> None:
    """Delete and create of one id in one transaction is a change of that node."""
    user = saved(ctx, task(owner=ann))
    with ctx.kg.transaction() as outcome:
        ann.delete(ctx)
        Person(email="ann@x", name="New").save(ctx)
    assert (outcome.commit.removed, outcome.commit.added) == (1, 1)
    assert user.refresh(ctx).owner.name == "New"


def test_cascading_empties_shortens_and_deletes(app: App, ctx: GraphContext, ann: Person) -> None:
    """Cascade empties optional references, shortens lists and deletes what can't stand alone."""
    bob = saved(ctx, Person(email="bob@x", name="Bob"))
    word = saved(ctx, Word(key="w"))
    saved(ctx, Likes(source=ann, target=word))
    first = saved(ctx, task(owner=ann, author=bob, helpers=[ann, bob]))
    kept = saved(ctx, Note(about=first, crew=[ann, bob], text="kept"))
    lost = saved(ctx, Note(about=first, crew=[ann], text="lost"))
    commit = ann.delete(ctx, cascade=True)
    assert commit is not None
    assert Likes.objects(ctx).count() == 0
    assert Word.get(ctx, "w") == word
    first.refresh(ctx)
    assert (first.owner, first.author, first.helpers) == (None, bob, [bob])
    assert [each.text for each in Note.objects(ctx)] == ["kept"]
    assert kept.refresh(ctx).crew == [bob]
    with pytest.raises(NotFoundError):
        lost.refresh(ctx)
    # Required references take their holders along, and theirs in turn.
    second = saved(ctx, task(version=2))
    saved(ctx, Note(about=second, crew=[bob], also=[first], text="second"))
    first.delete(ctx, cascade=True)
    assert [each.text for each in Note.objects(ctx)] == ["second"]
    assert Note.objects(ctx).get().also == []
    second.delete(ctx, cascade=True)
    assert Note.objects(ctx).count() == 0
    assert Person.objects(ctx).count() == 1


def test_cascading_ends_in_a_circle(ctx: GraphContext) -> None:
    """Nodes that need each other are deleted together, once."""

    @node_type
    class Ring(Node):
        name: str = predicate(key=True)
        next: Ref[Ring] = predicate()

    with App(Ring) as app:
        ring = app.context()
        nodes = [Ring(name=str(n), next=f"Ring/{(n + 1) % 5}") for n in range(5)]
        ring.kg.save_all(nodes)
        nodes[2].delete(ring, cascade=True)
        assert Ring.objects(ring).count() == 0
        assert not list(app.graph().stores.main().data())


def test_edges_are_counted_at_both_ends(app: App, ctx: GraphContext, ann: Person) -> None:
    """At most two words for a person and one admirer for a word, judged at the end."""
    words = [saved(ctx, Word(key=key)) for key in "abc"]
    first = saved(ctx, Likes(source=ann, target=words[0]))
    saved(ctx, Likes(source=ann, target=words[1]))
    [error] = refused(app, lambda: Likes(source=ann, target=words[2]).save(ctx))
    assert (error.field, error.code, error.value) == ("source", "max_count", ann.handle)
    assert error.constraint == 2
    bob = saved(ctx, Person(email="bob@x", name="Bob"))
    [error] = refused(app, lambda: Likes(source=bob, target=words[0]).save(ctx))
    assert (error.field, error.code, error.constraint) == ("target", "max_count", 1)
    with ctx.kg.transaction():
        Likes(source=ann, target=words[2]).save(ctx)
        first.delete(ctx)
    assert {each.target.key for each in Likes.objects(ctx)} == {"b", "c"}


def test_edges_that_must_exist(app: App, ctx: GraphContext, ann: Person) -> None:
    """A club needs a member when it is made, and when a membership or member goes."""
    [error] = refused(app, lambda: Club(name="empty").save(ctx))
    assert (error.field, error.code, error.constraint) == ("source", "min_count", 1)
    club = Club(name="chess")
    member = Member(source=club, target=ann)
    ctx.kg.save_all([member, club])
    [error] = refused(app, lambda: member.delete(ctx))
    assert (error.field, error.code) == ("source", "min_count")
    assert codes(refused(app, lambda: ann.delete(ctx, cascade=True))) == [("source", "min_count")]
    bob = Person(email="bob@x", name="Bob")
    with ctx.kg.transaction():
        member.delete(ctx)
        bob.save(ctx)
        Member(source=club, target=bob).save(ctx)
    club.delete(ctx, cascade=True)
    assert (Club.objects(ctx).count(), Member.objects(ctx).count()) == (0, 0)


# --- heads, keys, retries -----------------------------------------------------------------------


def test_a_moved_head_is_a_conflict(app: App, ctx: GraphContext) -> None:
    """With expected_head a write lands only on the commit that its writer has seen."""
    head = ctx.kg.head.commit
    saved(ctx, Word(key="first"))
    before = snapshot(app.graph())
    for write in (
        lambda: Word(key="second").save(ctx, expected_head=head),
        lambda: ctx.kg.save_all([Word(key="second")], expected_head=head),
        lambda: Word.get(ctx, "first").delete(ctx, expected_head=head),
        lambda: ctx.kg.transaction(expected_head=head).__enter__(),
        lambda: Word(key="second").save(ctx, expected_head="nonsense"),
    ):
        with pytest.raises(ConflictError) as caught:
            write()
        assert caught.value.data["head"] == ctx.kg.head.commit
        assert snapshot(app.graph()) == before
    word = Word(key="second")
    word.save(ctx, expected_head=ctx.kg.head.commit)
    assert Word.objects(ctx).count() == 2


def test_an_idempotency_key_makes_a_retry_harmless(app: App, ctx: GraphContext) -> None:
    """Retrying with the same key gives the first commit and writes nothing."""
    first = Word(key="a", text="1").save(ctx, idempotency_key="k1")
    before = snapshot(app.graph())
    assert Word(key="a", text="1").save(ctx, idempotency_key="k1") == first
    assert snapshot(app.graph()) == before
    with ctx.kg.transaction(idempotency_key="k2") as outcome:
        Word(key="c").save(ctx)
    before = snapshot(app.graph())
    with ctx.kg.transaction(idempotency_key="k2", expected_head="long gone") as again:
        Word(key="c").save(ctx)
        ctx.kg.save_all([Word(key="d")])
        Word.get(ctx, "a").delete(ctx)
    assert again.commit == outcome.commit != first
    assert snapshot(app.graph()) == before


def test_a_failed_attempt_does_not_use_up_its_key(app: App, ctx: GraphContext) -> None:
    """The key of a refused or broken write is free for the corrected one."""
    refused(app, lambda: Person(email="bad", name="x").save(ctx, idempotency_key="k"))
    roll_back(ctx, lambda: Word(key="a").save(ctx), idempotency_key="k")
    commit = Word(key="b").save(ctx, idempotency_key="k")
    assert commit is not None
    assert [each.key for each in Word.objects(ctx)] == ["b"]


def test_what_changes_nothing_makes_no_commit(app: App, ctx: GraphContext, ann: Person) -> None:
    """Saving unchanged instances, empty batches and empty transactions leaves the head alone."""
    before = snapshot(app.graph())
    assert ann.save(ctx) is None
    assert Person.get(ctx, "ann@x").save(ctx) is None
    assert Person(email="ann@x", name="Ann").save(ctx, upsert=True) is None
    assert ctx.kg.save_all([]) is None
    assert ctx.kg.save_all([ann, Person.get(ctx, "ann@x")][:1]) is None
    with ctx.kg.transaction() as outcome:
        pass
    assert outcome.commit is None
    with ctx.kg.transaction() as outcome:
        ann.name = "Else"
        ann.save(ctx)
        ann.name = "Ann"
        ann.save(ctx)
        Word(key="brief").save(ctx)
        Word.get(ctx, "brief").delete(ctx)
    assert outcome.commit is None
    assert snapshot(app.graph()) == before


def test_changes_of_different_fields_both_survive(ctx: GraphContext, ann: Person) -> None:
    """Two stale instances that change different fields do not undo each other."""
    one, two = Person.get(ctx, "ann@x"), Person.get(ctx, "ann@x")
    one.name = "Anna"
    two.badge = "7"
    one.save(ctx)
    commit = two.save(ctx)
    assert (commit.removed, commit.added) == (0, 1)
    found = Person.get(ctx, "ann@x")
    assert (found.name, found.badge) == ("Anna", "7")
    one.badge = "8"
    one.save(ctx)
    two.badge = None
    two.save(ctx)
    assert Person.get(ctx, "ann@x").badge is None


def test_a_stale_instance_of_a_deleted_node_can_not_be_saved(
    app: App, ctx: GraphContext, ann: Person
) -> None:
    """Saving what someone else deleted is an error and does not bring it back."""
    stale = Person.get(ctx, "ann@x")
    ann.delete(ctx)
    before = snapshot(app.graph())
    stale.name = "Zombie"
    with pytest.raises(NotFoundError):
        stale.save(ctx)
    with pytest.raises(NotFoundError):
        stale.delete(ctx)
    assert snapshot(app.graph()) == before


# --- transactions -------------------------------------------------------------------------------


def test_a_failed_transaction_leaves_instances_usable(
    app: App, ctx: GraphContext, ann: Person
) -> None:
    """After a rollback a new instance can be created, a changed one saved, a deleted one too."""
    new, gone = Word(key="new"), saved(ctx, Word(key="gone"))
    before = snapshot(app.graph())

    def work() -> None:
        new.save(ctx)
        new.text = "changed at once"
        new.save(ctx)
        ann.name = "Changed"
        ann.save(ctx)
        gone.delete(ctx)

    roll_back(ctx, work)
    assert snapshot(app.graph()) == before
    assert new.save(ctx) is not None
    assert ann.save(ctx) is not None
    gone.text = "still here"
    assert gone.save(ctx) is not None
    assert gone.delete(ctx) is not None
    assert Word.objects(ctx).get().text == "changed at once"
    assert Person.get(ctx, "ann@x").name == "Changed"


def test_a_refused_end_leaves_instances_usable(app: App, ctx: GraphContext) -> None:
    """Also when only the end of the transaction is refused."""
    item = task(owner="Person/late@x".replace("@", "%40"))

    def without_owner() -> None:
        with ctx.kg.transaction():
            item.save(ctx)

    assert codes(refused(app, without_owner)) == [("owner", "reference")]
    saved(ctx, Person(email="late@x", name="Late"))
    assert item.save(ctx) is not None
    assert Task.objects(ctx).get().owner.name == "Late"


def test_a_refused_save_inside_a_transaction_can_be_corrected(app: App, ctx: GraphContext) -> None:
    """A save that is refused at once leaves the transaction open and the instance correctable."""
    person = Person(email="ann@x", name="")
    with ctx.kg.transaction() as outcome:
        Word(key="a").save(ctx)
        with pytest.raises(ValidationError):
            person.save(ctx)
        person.name = "Ann"
        person.save(ctx)
    assert outcome.commit is not None
    assert (Word.objects(ctx).count(), Person.objects(ctx).count()) == (1, 1)


def test_reads_in_a_transaction_see_its_changes(ctx: GraphContext, ann: Person) -> None:
    """The ORM reads what the transaction has written; SPARQL, which can't, is refused."""
    with ctx.kg.transaction():
        assert ctx.kg.sparql("ASK { ?p :name 'Ann' }")
        ann.name = "Anna"
        ann.save(ctx)
        assert Person.get(ctx, "ann@x").name == "Anna"
        assert Person.objects(ctx).where(name="Anna").count() == 1
        with pytest.raises(TransactionError, match="committed"):
            ctx.kg.sparql("ASK { ?p :name 'Anna' }")
    assert ctx.kg.sparql("ASK { ?p :name 'Anna' }")


def test_nested_transactions_join(app: App, ctx: GraphContext) -> None:
    """A transaction inside a transaction is part of it: one commit, or none."""
    start = ctx.kg.head.seq
    with ctx.kg.transaction(message="outer") as outer:
        Word(key="a").save(ctx)
        with ctx.kg.transaction(message="inner") as inner:
            Word(key="b").save(ctx)
            ctx.kg.save_all([Word(key="c")])
        assert inner.commit is None
    assert ctx.kg.head.seq == start + 1
    assert outer.commit.message == "outer"
    before = snapshot(app.graph())

    def inner_work() -> None:
        with ctx.kg.transaction():
            Word(key="d").save(ctx)

    roll_back(ctx, inner_work)
    assert snapshot(app.graph()) == before
    for control in ({"expected_head": "x"}, {"idempotency_key": "x"}):
        with (
            ctx.kg.transaction(),
            pytest.raises(TransactionError, match="whole transaction"),
        ):
            Word(key="d").save(ctx, **control)


def test_a_second_context_can_not_write_into_an_open_transaction(
    app: App, ctx: GraphContext
) -> None:
    """On the same thread a second context is told so, instead of waiting for ever."""
    other = app.context(actor="other")
    with ctx.kg.transaction():
        Word(key="a").save(ctx)
        with pytest.raises(TransactionError, match="another transaction is open"):
            Word(key="b").save(other)
        with pytest.raises(TransactionError, match="another transaction is open"):
            other.kg.transaction().__enter__()
    Word(key="b").save(other)
    assert Word.objects(ctx).count() == 2


# --- hostile input ------------------------------------------------------------------------------

TEXTS = {
    "empty": "",
    "space": " ",
    "combining": "e\u0301\u0327 n\u0303",
    "right to left": "\u202e\u05e9\u05dc\u05d5\u05dd\u202c \u0627",
    "emoji": "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f3f3\ufe0f",
    "nul": "a\x00b",
    "controls": "".join(map(chr, range(32))) + "\x7f\x80\x85\x9f",
    "line ends": "a\nb\rc\r\nd\u2028e\u2029f",
    "quotes": "\"'`\"\"\"'''",
    "backslashes": '\\ \\\\ \\n \\" \\u0022 \\U00000022 \\x',
    "noncharacters": "\ufffe\uffff\U0010ffff\ufeff",
    "markup": "<script>&amp;</script> <x:y> {{}} %s ${x} $x ?x",
    "sparql": '" } ; DROP ALL ; INSERT DATA { <x:a> <x:b> "',
    "sql": "'; DROP TABLE nodes; --",
    "a megabyte": 'é"\\\n' * 250_000,
}


@pytest.mark.parametrize("kind", TEXTS)
def test_any_text_is_kept_as_it_is(app: App, ctx: GraphContext, kind: str) -> None:
    """A text comes back the same from both views, before and after a rebuild."""
    text = TEXTS[kind]
    word = saved(ctx, Word(key="k", text=text))
    for _ in range(2):
        assert Word.get(ctx, "k").text == text
        assert [each.id for each in Word.objects(ctx).where(text=text)] == ["k"]
        [row] = ctx.kg.sparql("SELECT ?t { $w :text ?t }", w=word)
        assert row["t"] == text
        assert ctx.kg.sparql("ASK { $w :text $t }", w=word, t=text)
        live = snapshot(app.graph())
        app.graph().rebuild()
        assert snapshot(app.graph()) == live
    word.text = text + "!"
    word.save(ctx)
    assert Word.get(ctx, "k").text == text + "!"
    word.delete(ctx)
    assert not list(app.graph().stores.main().data())


KEYS = [
    "a/b",
    "a?b",
    "a#b",
    "a%b",
    "%2F",
    "a%2Fb",
    "...",
    "../../etc/passwd",
    "a b",
    " ",
    "+",
    "a\nb",
    "a\x00b",
    "Word/x",
    "trails://app/main/Word/x",
    "https://example.org/",
    "<x>",
    '"',
    "\\",
    "\\u0022",
    "é",
    "\U0001f600",
    "\u202e",
    "'; DROP TABLE nodes; --",
    "x" * 512,
]


@pytest.mark.parametrize("key", KEYS, ids=ascii)
def test_any_key_names_one_node(app: App, ctx: GraphContext, key: str) -> None:
    """Whatever a key holds, its node is found by key, IRI, handle and reference."""
    word = saved(ctx, Word(key=key, text="found"))
    assert word.id == key
    for reference in (key, word.iri(ctx), word.handle, f"trails://kg/{word.handle}"):
        assert Word.get(ctx, reference).text == "found"
    assert Word.objects(ctx).where(key=key).get() == word
    assert word.iri(ctx).count("/") == 5
    liker = saved(ctx, Person(email="a@x", name="A"))
    saved(ctx, Likes(source=liker, target=word.iri(ctx)))
    assert Likes.objects(ctx).where(target__key=key).get().target.text == "found"
    assert ctx.kg.sparql("ASK { $w :key $k }", w=word, k=key)
    live = snapshot(app.graph())
    app.graph().rebuild()
    assert snapshot(app.graph()) == live


@pytest.mark.parametrize("key", ["", ".", "..", "x" * 513, "é" * 257, "\ud800"], ids=ascii)
def test_what_can_not_be_an_id_is_refused(app: App, ctx: GraphContext, key: str) -> None:
    """Empty keys, path steps and keys beyond 512 bytes are refused, with the reason."""
    [error] = refused(app, lambda: Word(key=key).save(ctx))
    assert (error.field, error.code) == ("key", "datatype")


def test_keys_are_compared_in_normal_form(app: App, ctx: GraphContext) -> None:
    """Composed and decomposed spellings name one node."""
    saved(ctx, Word(key="caf\u00e9", text="composed"))
    assert codes(refused(app, lambda: Word(key="cafe\u0301").save(ctx))) == [("key", "unique")]
    assert Word.get(ctx, "cafe\u0301").text == "composed"


@pytest.mark.parametrize(
    "reference",
    [
        *("", "/", "Word/", "Word/%FF", "Word/%", "Word/a/b", "Nope/a", "\x00"),
        *("\ud800", "Word/\ud800", "trails://kg/Word/\ud800"),
        *("trails://kg/Word/%FF", "trails://kg/Word/", f"{NODES}Word/%zz"),
    ],
    ids=ascii,
)
def test_a_reference_to_nothing_is_not_found(app: App, ctx: GraphContext, reference: str) -> None:
    """A malformed reference is not found, not fatal; as a field's value it is refused."""
    saved(ctx, Word(key="a"))
    with pytest.raises(NotFoundError):
        Word.get(ctx, reference)
    errors = refused(app, lambda: Likes(source=reference, target="Word/a").save(ctx))
    assert {error.code for error in errors} <= {"datatype", "reference"}


def test_hostile_values_of_other_kinds(app: App, ctx: GraphContext) -> None:
    """Numbers, dates and IRIs of odd make are refused as datatypes, never crash."""

    @node_type
    class Odd(Node):
        n: int | None = predicate()
        f: float | None = predicate()
        d: Decimal | None = predicate()
        t: datetime | None = predicate()
        i: Iri | None = predicate()

    with App(Odd) as odd_app:
        odd = odd_app.context()
        for values in (
            {"n": 10**5000},
            {"n": float("inf")},
            {"n": float("nan")},
            {"f": float("nan")},
            {"f": 10**400},
            {"d": Decimal("NaN")},
            {"d": Decimal("1E+999999")},
            {"d": Decimal("1E-999999")},
            {"d": "1e5"},
            {"d": "\u0661"},
            {"t": datetime(2026, 1, 1)},  # noqa: DTZ001 - the missing zone is the point
            {"t": "2026-01-01T00:00:00"},
            {"t": "2026-01-01T24:00:00Z"},
            {"i": "relative/path"},
            {"i": "https://x/ y"},
            {"i": 'https://x/"><x:y'},
            {"i": "https://x/\ud800"},
        ):
            [error] = refused(odd_app, lambda values=values: Odd(**values).save(odd))
            assert error.code == "datatype"


def test_a_batch_that_fails_inside_a_transaction_spoils_it(app: App, ctx: GraphContext) -> None:
    """Catching its error does not let the valid part of the batch land."""
    head = ctx.kg.head
    with (
        pytest.raises(TransactionError, match="nothing was written"),
        ctx.kg.transaction(),
        pytest.raises(ValidationError),
    ):
        ctx.kg.save_all([Person(email="new@x", name="New"), Person(email="bad@x")])
    assert ctx.kg.head == head


def test_a_key_is_unique_over_all_types_that_inherit_it() -> None:
    """Two subtypes can't have one key, so the parent's ``get`` is never ambiguous."""

    @node_type
    class Party(Node):
        """Someone."""

        slug: str = predicate(key=True)

    @node_type
    class Human(Party):
        """A person."""

    @node_type
    class Firm(Party):
        """A company."""

    with App(Party, Human, Firm) as app:
        ctx = app.context()
        Human(slug="a").save(ctx)
        with pytest.raises(ValidationError) as caught:
            Firm(slug="a").save(ctx)
        assert [(error.field, error.code) for error in caught.value.fields] == [("slug", "unique")]
        assert type(Party.get(ctx, "a")) is Human


def test_an_instance_that_was_only_read_can_be_deleted_and_saved_again(
    app: App, ctx: GraphContext
) -> None:
    """Its fields survive its deletion, though none of them was looked at before."""
    Person(email="zoe@x", name="Zoe").save(ctx)
    (zoe,) = Person.objects(ctx).where(email="zoe@x").fetch()
    assert zoe.save(ctx) is None
    zoe.delete(ctx)
    assert zoe.name == "Zoe"
    assert zoe.save(ctx) is not None
    assert Person.get(ctx, "zoe@x").name == "Zoe"
