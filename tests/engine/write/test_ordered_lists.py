"""Ordered lists: order and duplicates are kept, and a list changes as a whole.

The other tests of their parts: merges, blame and time travel against a model in
``tests/engine/history/test_model.py``, files in ``tests/engine/transfer/test_export.py``, hidden
items in ``tests/journeys/access``, every kind over every surface in ``test_kinds_history.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyoxigraph as ox
import pyshacl
import pytest
import rdflib
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trails import App, Node, Ref, Shape, node_type, predicate, shape
from trails.engine.graph.changes import net_between, show_changes
from trails.engine.session.context import GraphContext
from trails.engine.transfer.files import export
from trails.engine.upkeep.verify import verify
from trails.engine.write.lists import whole_lists
from trails.engine.write.mutate import local_effect, mutate_sparql
from trails.errors import (
    DeclarationError,
    QueryError,
    SchemaMismatchError,
    TrailsError,
    ValidationError,
)
from trails.projections.json_schema import project_type
from trails.projections.shacl import project_shacl
from trails.views.quads.view import BULK

# ruff: noqa: E501 - an update reads best on one line


@node_type
class Person(Node):
    """Someone who cooks."""

    name: str = predicate(key=True)


@node_type
class Recipe(Node):
    """Steps in order, some of them twice."""

    code: str = predicate(key=True)
    steps: list[str] = predicate(ordered=True, min_length=1, max_count=5)
    weights: list[int] = predicate(ordered=True, default=[2, 1, 2])
    cooks: list[Ref[Person]] = predicate(ordered=True, iri="https://schema.org/author")
    tags: list[str] = predicate()


TYPES = (Person, Recipe)


@pytest.fixture
def app() -> Iterator[App]:
    """A graph in memory with two people and a recipe."""
    with App(*TYPES, name="app") as made:
        ctx = made.context()
        bread = Recipe(code="bread", steps=["mix", "wait", "mix"], cooks=["bob", "ann", "bob"])
        ctx.kg.save_all([Person(name="ann"), Person(name="bob"), bread])
        yield made


@pytest.fixture
def ctx(app: App) -> GraphContext:
    """Someone at work in it."""
    return app.context()


def update(app: App, text: str) -> None:
    """Run a SPARQL Update."""
    graph = app.graph()
    effect = local_effect(graph, graph.main)
    mutate_sparql(graph, graph.main, app.context().kg.transaction, text, effect)


def bread(ctx: GraphContext) -> Recipe:
    """The recipe as it is now."""
    return Recipe.get(ctx, "bread")


# --- declared ---------------------------------------------------------------------------------


def test_only_lists_are_ordered() -> None:
    """A field of one value has no order."""
    with pytest.raises(DeclarationError, match=r"Wrong\.title: ordered=True belongs to lists"):

        @node_type
        class Wrong(Node):
            """Not a list."""

            title: str = predicate(ordered=True)


def test_json_schema_and_instructions_name_it() -> None:
    """Duplicates are allowed, and the description explains the order."""
    fields = project_type(Recipe.__trails__)["properties"]
    assert "uniqueItems" not in fields["steps"]
    assert "An ordered list: order and duplicates are kept" in fields["steps"]["description"]
    assert fields["weights"]["default"] == [2, 1, 2]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("steps", "conforms"),
    [(["a"], True), (["a", "a", "a", "a", "a"], True), (["a"] * 6, False), (["a", ""], False)],
)
def test_shacl_counts_cells_and_judges_items(steps: list[str], conforms: bool) -> None:
    """The independent validator agrees, duplicates included."""
    with App(*TYPES, name="app") as app:
        graph = app.graph()
        shapes = project_shacl(graph.main.schema, graph.names)
        cells = " ".join(f"'{each}'" for each in steps)
        data = f"<{graph.names.nodes}Recipe/r> a :Recipe ; :code 'r' ; :steps ( {cells} ) ."
        text = f"@prefix : <{graph.names.vocabulary}> . {data}"
        found = rdflib.Graph().parse(data=text, format="turtle")
        assert pyshacl.validate(found, shacl_graph=shapes, advanced=True)[0] is conforms
        try:
            Recipe(code="r", steps=steps).save(app.context())
        except ValidationError:
            assert not conforms
        else:
            assert conforms


def test_a_shape_need_not_repeat_that_a_list_is_ordered() -> None:
    """Its rules count duplicates, as the type's do."""

    @shape(target=Recipe)
    class Long(Shape):
        """At least three steps."""

        steps: list[str] = predicate(min_count=3)

    with App(*TYPES, Long) as app:
        Recipe(code="a", steps=["x", "x", "x"]).save(app.context())
        with pytest.raises(ValidationError, match="steps needs at least 3 values, not 2"):
            Recipe(code="b", steps=["x", "y"]).save(app.context())


# --- saved ------------------------------------------------------------------------------------


def test_order_and_duplicates_come_back(ctx: GraphContext) -> None:
    """As Python lists; defaults too."""
    found = bread(ctx)
    assert found.steps == ["mix", "wait", "mix"]
    assert found.weights == [2, 1, 2]
    assert [each.name for each in found.cooks] == ["bob", "ann", "bob"]


def test_changes_in_place_are_noticed(app: App, ctx: GraphContext) -> None:
    """A list that ends as it began is no change; a new order is one."""
    found = bread(ctx)
    found.steps.append("bake")
    del found.steps[-1]
    assert found.save(ctx) is None
    start = ctx.kg.head.commit
    found.steps.reverse()
    found.steps[0] = "stir"
    assert found.save(ctx) is not None
    assert bread(ctx).steps == ["stir", "wait", "mix"]
    found.steps.insert(0, found.steps.pop())
    commit = found.save(ctx)
    assert commit is not None
    assert (commit.removed, commit.added) == (1, 1)
    net = net_between(app.graph(), start, commit.id)
    ((field,),) = [each.fields for each in show_changes(app.graph(), net, app.graph().main.schema)]
    assert (field.before, field.after) == (["mix", "wait", "mix"], ["mix", "stir", "wait"])
    found.steps = []
    found.save(ctx)
    assert bread(ctx).steps == []


WRONG = {
    "too many": (["a"] * 6, "steps may have at most 5 values, not 6"),
    "an item": (["a", ""], r"steps\[1\] must have at least 1 character"),
    "a kind": ([1], r"steps\[0\] must be a string, not 1"),
    "a set": ({"a"}, "steps must be a list in order, not {'a'}"),
    "a text": ("abc", "steps must be a list in order, not 'abc'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_lists_are_refused(ctx: GraphContext, case: str) -> None:
    """With the position of a wrong item; a Python set has no order to keep."""
    steps, message = WRONG[case]
    with pytest.raises(ValidationError, match=message):
        Recipe(code="x", steps=steps).save(ctx)


def test_references_are_held(ctx: GraphContext) -> None:
    """None dangles, and what a list refers to is in use until it is taken out."""
    with pytest.raises(ValidationError, match="refers to Person/nobody, which does not exist"):
        Recipe(code="x", cooks=["ann", "Person/nobody"]).save(ctx)
    with pytest.raises(ValidationError, match=r"while Recipe/bread\.cooks refers to it"):
        Person.get(ctx, "bob").delete(ctx)
    Person.get(ctx, "bob").delete(ctx, cascade=True)
    assert [each.name for each in bread(ctx).cooks] == ["ann"]


def test_filters_look_at_the_items(ctx: GraphContext) -> None:
    """As for sets; a list can't be sorted by."""
    for where, found in (
        ({"steps": "mix"}, 1),
        ({"steps": "bake"}, 0),
        ({"steps__startswith": "wa"}, 1),
        ({"steps__in": ["x", "wait"]}, 1),
        ({"cooks": "bob"}, 1),
        ({"cooks__name": "ann"}, 1),
        ({"weights__gt": 1}, 1),
        ({"weights__gt": 2}, 0),
        ({"steps__isnull": True}, 0),
    ):
        assert Recipe.objects(ctx).where(**where).count() == found, where
    with pytest.raises(QueryError):
        list(Recipe.objects(ctx).order_by("steps"))


def test_the_same_list_has_the_same_statements() -> None:
    """Whatever came before: content, stores and exports are equal byte by byte."""
    found = []
    for earlier in ((), ("a", "b", "c", "d"), ("z",)):
        with App(*TYPES, name="app") as app:
            ctx = app.context()
            node = Recipe(code="r", steps=list(earlier))
            node.save(ctx)
            node.steps = ["b", "a", "b"]
            node.save(ctx)
            graph = app.graph()
            stored = sorted(map(str, graph.stores.main().data()))
            states = list(graph.main.nodes.states(graph.file.db, ("Recipe",)))
            found.append((stored, b"".join(export(graph.main.terms, states, "nquads"))))
    assert found[0] == found[1] == found[2]
    assert sorted(found[0][1].decode().replace(" .\n", "\n").splitlines()) == found[0][0]


def test_long_lists_are_loaded_in_bulk(tmp_path: Path) -> None:
    """More cells than one update takes, on disk, and back again."""
    with App(*TYPES, name="app", folder=tmp_path) as app:
        ctx, many = app.context(), [each % 7 for each in range(BULK)]
        node = Recipe(code="r", weights=many)
        node.save(ctx)
        asked = "SELECT (COUNT(*) AS ?n) WHERE { ?c rdf:first ?v }"
        assert ctx.kg.sparql(asked).rows[0]["n"] == BULK
        node.weights = many[::-1]
        node.save(ctx)
        assert Recipe.get(ctx, "r").weights == many[::-1]
        node.weights = [1]
        node.save(ctx)
        assert ctx.kg.sparql(asked).rows[0]["n"] == 1
        assert all(each.severity == "ok" for each in verify(app.graph(), lambda _: None))


def test_a_store_gives_its_lists_back(app: App) -> None:
    """From the cells alone, as a lost log is recovered from a view."""
    graph = app.graph()
    terms = graph.main.terms
    _, whole = whole_lists(terms, [], list(graph.stores.main().data()), lambda _: None)
    states = {
        handle: terms.state_after(handle, None, change)
        for handle, change in terms.changes((), whole).items()
    }
    with graph.file.reader() as db:
        stored = graph.main.nodes.states(db, graph.main.schema.by_name)
        assert states == {each.handle: each for each in stored}


# --- SPARQL -------------------------------------------------------------------------------------


def test_queries_follow_the_standard(ctx: GraphContext) -> None:
    """The items by a path, in order by their cells, one by its position."""
    for text, rows in (
        (
            "SELECT ?v { <Recipe/bread> :steps/rdf:rest* ?c . ?c rdf:first ?v } ORDER BY ?c",
            ["mix", "wait", "mix"],
        ),
        ("SELECT ?v { <Recipe/bread> :steps/rdf:rest/rdf:first ?v }", ["wait"]),
        (
            (
                "SELECT ?v { <Recipe/bread> <https://schema.org/author>/rdf:rest* ?c . "
                "?c rdf:first/:name ?v } ORDER BY ?c"
            ),
            ["bob", "ann", "bob"],
        ),
        (
            (
                "SELECT (COUNT(?m) - 1 AS ?v) { <Recipe/bread> :steps/rdf:rest* ?m . "
                "?m rdf:rest* ?c . ?c rdf:first 'wait' }"
            ),
            [1],
        ),
    ):
        assert [row["v"] for row in ctx.kg.sparql(text).rows] == rows, text


STEP = "<Recipe/bread> :steps"
UPDATES = {
    "replaced as a whole": (
        f"DELETE {{ {STEP} ?o }} INSERT {{ {STEP} ('a' 'b' 'a') }} WHERE {{ {STEP} ?o }}",
        ["a", "b", "a"],
    ),
    "an item": (
        (
            "DELETE { ?c rdf:first 'wait' } INSERT { ?c rdf:first 'rest' } "
            f"WHERE {{ {STEP}/rdf:rest* ?c . ?c rdf:first 'wait' }}"
        ),
        ["mix", "rest", "mix"],
    ),
    "cut": (
        (
            "DELETE { ?c rdf:rest ?d } INSERT { ?c rdf:rest () } "
            f"WHERE {{ {STEP} ?c . ?c rdf:rest ?d }}"
        ),
        ["mix"],
    ),
    "put before": (
        (
            f"DELETE {{ {STEP} ?c }} INSERT {{ {STEP} [ rdf:first 'wash' ; rdf:rest ?c ] }} "
            f"WHERE {{ {STEP} ?c }}"
        ),
        ["wash", "mix", "wait", "mix"],
    ),
    "without the first": (
        f"DELETE {{ {STEP} ?c }} INSERT {{ {STEP} ?d }} WHERE {{ {STEP} ?c . ?c rdf:rest ?d }}",
        ["wait", "mix"],
    ),
    "emptied": (f"DELETE WHERE {{ {STEP} ?o }}", []),
    "emptied with cells": (f"DELETE WHERE {{ {STEP} ?o . ?o ?p ?v }}", []),
    "an empty collection": (
        f"DELETE {{ {STEP} ?o }} INSERT {{ {STEP} () }} WHERE {{ {STEP} ?o }}",
        [],
    ),
    "nothing": ("DELETE DATA { <Recipe/bread#steps/0000001> rdf:first 'no' }", None),
}


@pytest.mark.parametrize("case", UPDATES)
def test_updates_are_understood(app: App, ctx: GraphContext, case: str) -> None:
    """What counts is the list that is left; stored it is in its usual form."""
    text, steps = UPDATES[case]
    before = ctx.kg.head.commit
    update(app, text)
    assert bread(ctx).steps == (["mix", "wait", "mix"] if steps is None else steps)
    assert (ctx.kg.head.commit == before) is (steps is None)
    assert bread(ctx).weights == [2, 1, 2]
    assert all(each.severity == "ok" for each in verify(app.graph(), lambda _: None))


def test_an_update_can_create_and_delete(app: App, ctx: GraphContext) -> None:
    """Nodes with their lists."""
    update(app, "INSERT DATA { <Recipe/x> a :Recipe ; :code 'x' ; :weights (3 3 1) }")
    assert Recipe.get(ctx, "x").weights == [3, 3, 1]
    update(app, "DELETE WHERE { <Recipe/x> ?p ?o }")
    assert not Recipe.objects(ctx).where(code="x").exists()
    assert ctx.kg.sparql("ASK { <Recipe/x#weights/0000000> ?p ?o }").truth is False


REFUSED = {
    f"INSERT DATA {{ {STEP} ('x') }}": "steps may have one list, not 2; delete the other one",
    f"INSERT DATA {{ {STEP} 'x' }}": r'steps is an ordered list; write \( "x" \) in place of "x"',
    "DELETE DATA { <Recipe/bread#steps/0000001> rdf:first 'wait' }": "0 rdf:first and 1 rdf:rest",
    "INSERT DATA { <Recipe/bread#steps/0000001> rdf:first 'x' }": "has 2 rdf:first and 1 rdf:rest",
    "DELETE DATA { <Recipe/bread#steps/0000002> rdf:rest rdf:nil }": "1 rdf:first and 0 rdf:rest",
    "DELETE { ?c rdf:rest ?d } INSERT { ?c rdf:rest ?c } WHERE { ?c rdf:rest ?d . ?c rdf:first 'wait' }": "is in it twice, so it has no end",
    f"DELETE {{ {STEP} ?o }} INSERT {{ {STEP} (1) }} WHERE {{ {STEP} ?o }}": r"steps\[0\] takes a literal of type",
    f"DELETE {{ {STEP} ?o }} INSERT {{ {STEP} ('') }} WHERE {{ {STEP} ?o }}": "must have at least 1",
    "INSERT DATA { <Recipe/bread> :tags ('x') }": "is about a cell that no list of a node has",
    "INSERT DATA { <urn:x> rdf:first 1 }": "is about a cell that no list of a node has",
    "INSERT DATA { <Recipe/bread#steps/0000009> rdf:first 'x' ; rdf:rest () }": "no list of a node",
}


@pytest.mark.parametrize("text", REFUSED)
def test_half_a_list_is_refused(app: App, ctx: GraphContext, text: str) -> None:
    """Nothing is written, and the error names the field or the cell."""
    before, steps = ctx.kg.head.commit, bread(ctx).steps
    with pytest.raises(TrailsError, match=REFUSED[text]):
        update(app, text)
    assert (ctx.kg.head.commit, bread(ctx).steps) == (before, steps)


@pytest.mark.parametrize(
    "text",
    [
        "DELETE DATA { <Recipe/bread#steps/0000001> rdf:first 'wait' }",
        "DELETE DATA { <Recipe/bread> :steps <Recipe/bread#steps/0000000> }",
        "INSERT DATA { <Recipe/bread> :steps '{}' }",
    ],
)
def test_lists_are_not_written_raw(app: App, ctx: GraphContext, text: str) -> None:
    """Statements that are not validated could leave half a list."""
    app.graph().allow_bypass = True
    before = ctx.kg.head.commit
    with pytest.raises(QueryError, match="ordered lists can't be written raw"):
        ctx.kg.raw_sparql(text, skip_validation=True)
    assert ctx.kg.head.commit == before


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from("abc"), max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["set", "cut", "drop"])), max_size=3),
)
def test_random_updates_match_a_python_list(steps: list[str], deeds: list[tuple[int, str]]) -> None:
    """Items are replaced, tails cut and cells unlinked by position."""
    with App(*TYPES, name="app") as app:
        ctx = app.context()
        Recipe(code="bread", steps=steps).save(ctx)
        for at, deed in deeds:
            cell = f"{STEP}{'/rdf:rest' * at}"
            if deed == "set":
                update(
                    app,
                    "DELETE { ?c rdf:first ?v } INSERT { ?c rdf:first 'new' } "
                    f"WHERE {{ {cell} ?c . ?c rdf:first ?v }}",
                )
                steps[at : at + 1] = ["new"] if at < len(steps) else []
            elif deed == "cut":
                update(
                    app,
                    "DELETE { ?c rdf:rest ?d } INSERT { ?c rdf:rest rdf:nil } "
                    f"WHERE {{ {cell} ?c . ?c rdf:rest ?d }}",
                )
                del steps[at + 1 :]
            else:
                update(
                    app,
                    "DELETE { ?c rdf:rest ?d } INSERT { ?c rdf:rest ?e } "
                    f"WHERE {{ {cell} ?c . ?c rdf:rest ?d . ?d rdf:rest ?e }}",
                )
                del steps[at + 1 : at + 2]
            found = Recipe.get(ctx, "bread").steps
            assert found == steps
            rows = ctx.kg.sparql(
                f"SELECT ?v {{ {STEP}/rdf:rest* ?c . ?c rdf:first ?v }} ORDER BY ?c"
            ).rows
            assert [row["v"] for row in rows] == steps


# --- types that change ----------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [True, False])
def test_making_a_field_ordered_needs_a_conversion(tmp_path: Path, ordered: bool) -> None:
    """While it has values; without any, the change is applied."""

    def declare(*, ordered: bool) -> type[Node]:
        @node_type
        class Thing(Node):
            """With a list."""

            code: str = predicate(key=True)
            items: list[str] = predicate(ordered=ordered)

        return Thing

    before, after = declare(ordered=not ordered), declare(ordered=ordered)
    with App(before, folder=tmp_path) as app:
        before(code="a").save(app.context())
    with App(after, folder=tmp_path) as app:
        after(code="b", items=["x", "x"]).save(app.context())
        assert after.get(app.context(), "b").items == (["x", "x"] if ordered else ["x"])
    with pytest.raises(SchemaMismatchError, match=r"Thing/b\.items would be lost: List\[String\]"):
        App(before, folder=tmp_path).context()


def test_an_old_schema_keeps_its_digest() -> None:
    """A field that is not ordered is described as it always was."""
    with App(Person) as app:
        (code,) = app.graph().main.schema.by_name["Person"].fields
        assert not code.ordered
        assert b"ordered" not in msgspec.json.encode(code)


def test_cells_are_no_nodes(app: App) -> None:
    """Their IRIs name nothing that can be read or referred to."""
    terms = app.graph().main.terms
    assert terms.handle_of(ox.NamedNode("trails://app/main/Recipe/bread")) == "Recipe/bread"
    assert terms.handle_of(ox.NamedNode("trails://app/main/Recipe/bread#steps/0000000")) is None
