"""The nearest records of a restricted actor are those of a graph that never had the rest.

As for searches of texts: a graph with hidden types and fields is compared with its twin. Matches,
scores, order, pages and errors of lists, searches and the ORM's reads are the same.
"""

from collections.abc import Callable, Iterator
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaigns import sized
from tests.journeys.access.hidden_parts import (
    Field,
    Hidden,
    Row,
    Type,
    World,
    twin_rows,
    twin_types,
)

from trails import Ref, Vector
from trails.engine.evidence.lists import ListRequest, list_records
from trails.engine.evidence.records import make_place
from trails.engine.evidence.search import SearchRequest, search
from trails.engine.session.context import GraphContext
from trails.engine.session.service import GraphService
from trails.errors import TrailsError
from trails.model.nodes import Condition, Near, Selection

TYPES = {
    "Thing": Type(
        {
            "code": Field(str, said={"key": True}),
            "text": Field(str | None, said={"search": True}),
            "color": Field(str | None),
            "spot": Field(Vector(2) | None),
            "pull": Field(Vector(2) | None, said={"metric": "dot"}),
        }
    ),
    "Part": Type(
        {
            "site": Field(Vector(3) | None, said={"metric": "euclidean"}),
            "of": Field(Ref["Thing"], target="Thing"),
        },
        parent="Thing",
    ),
    "Memo": Type({"number": Field(int, said={"key": True}), "spot": Field(Vector(2) | None)}),
    "Joins": Type({"spot": Field(Vector(2) | None)}, ends=("Thing", "Thing")),
}
FIELDS = sorted((name, each) for name, said in TYPES.items() for each in said.fields)
NUMBERS = (0.0, 1.0, -1.0, 0.5, 1 / 3, 2.0, 1e20, 1e-20)
"""Few, so that many records are equally near."""
Ask = Callable[[GraphService, GraphContext], object]
WORLDS = 250
CASES = 40


def rows_of(seed: int) -> list[Row]:
    """Records with few different vectors."""
    random = Random(seed)

    def vector(size: int) -> list[float] | None:
        if random.random() < 0.2:
            return None
        return [random.choice(NUMBERS) for _ in range(size)]

    made: list[Row] = []
    things: list[tuple[str, str]] = []
    for number in range(random.randint(5, 40)):
        kind = random.choice(("Thing", "Thing", "Part")) if things else "Thing"
        values: dict[str, object] = {
            "code": f"t{number}",
            "text": random.choice((None, "alpha", "alpha beta", "beta gamma")),
            "color": random.choice((None, "red", "blue")),
            "spot": vector(2),
            "pull": vector(2),
        }
        if kind == "Part":
            values |= {"site": vector(3), "of": random.choice(things)}
        things.append((kind, f"t{number}"))
        made.append((*things[-1], values))
        if random.random() < 0.3:
            made.append(("Memo", str(number), {"number": number, "spot": vector(2)}))
        if random.random() < 0.5:
            ends = {"source": random.choice(things), "target": things[-1]}
            made.append(("Joins", f"j{number}", {**ends, "spot": vector(2)}))
    return made


hidden_sets = st.builds(
    Hidden,
    st.frozensets(st.sampled_from(["Part", "Memo", "Joins"]), max_size=2),
    st.frozensets(st.sampled_from(FIELDS), max_size=3),
)


def nearest(type_name: str, near: Near, k: int, *, color: str | None = None) -> Ask:
    """What ``.nearest`` of the ORM reads."""
    where = None if color is None else Condition(("color",), "exact", color)

    def ask(service: GraphService, ctx: GraphContext) -> object:
        del service
        found = ctx.kg.nearest(Selection(type_name, where), near.field, near.vector, k)
        return [(state.handle, state.values, score) for state, score in found]

    return ask


def listed(type_name: str, near: Near, limit: int) -> Ask:
    """All pages of ``node_list``."""

    def ask(service: GraphService, ctx: GraphContext) -> object:
        request = ListRequest(
            tool="node_list",
            place=make_place(ctx.branch, None),
            select=lambda _: Selection(type_name, limit=limit),
            subject=None,
            show=lambda record: {"id": record.uri, "title": record.title},
            room=1_000_000,
            near=near,
        )
        page = list_records(service, ctx, request)
        return page.items, page.more, page.total

    return ask


def searched(type_name: str, near: Near, query: str) -> Ask:
    """Nearest records, alone or together with words."""

    def ask(service: GraphService, ctx: GraphContext) -> object:
        place = make_place(ctx.branch, None)
        page = search(
            service,
            ctx,
            SearchRequest(query=query, near=near, types=(type_name,), limit=20, place=place),
        )
        hits = msgspec.to_builtins(page.hits)
        for hit in hits:
            for evidence in hit["evidence"]:
                del evidence["read"]["arguments"]["cursor"]
        return hits, page.more, page.searched, page.notices

    return ask


def questions(random: Random) -> Iterator[tuple[object, Ask]]:
    """Lists, searches and reads in every vector field, and in one that nobody has."""
    fields = [("Thing", "spot", 2), ("Thing", "pull", 2), ("Part", "site", 3), ("Part", "spot", 2)]
    for type_name, field, size in [
        *fields,
        ("Memo", "spot", 2),
        ("Joins", "spot", 2),
        ("Thing", "site", 3),
        ("Nothing", "spot", 2),
    ]:
        vector = tuple(random.choice(NUMBERS) for _ in range(size))
        near = Near(field, vector)
        key = type_name, field, vector
        yield ("nearest", key), nearest(type_name, near, random.choice((1, 3, 100)))
        yield ("filtered", key), nearest(type_name, near, 3, color="red")
        yield ("list", key), listed(type_name, near, random.choice((2, 50)))
        yield ("search", key), searched(type_name, near, "")
        yield ("hybrid", key), searched(type_name, near, "alpha beta")


def said(ask: Ask, service: GraphService, ctx: GraphContext) -> object:
    """The answer, or the error."""
    try:
        return ask(service, ctx)
    except TrailsError as error:
        return type(error).__name__, error.message, error.data


def compare(seed: int, hidden: Hidden, *, fork: bool) -> None:
    """Ask the restricted actor and the twin the same."""
    rows = rows_of(seed)
    world = World(TYPES, rows, fork=fork)
    twin = World(twin_types(TYPES, hidden), twin_rows(TYPES, hidden, rows), fork=fork)
    try:
        for what, ask in questions(Random(seed)):
            # Somebody who sees everything asks first: tables in memory are shared.
            said(ask, world.app.service(), world.full)
            ours = said(ask, world.app.service(), world.restricted(hidden.sight(TYPES)))
            theirs = said(ask, twin.app.service(), twin.full)
            assert ours == theirs, what
    finally:
        world.app.close()
        twin.app.close()


@pytest.mark.req("E11b")
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), hidden_sets)
def test_hidden_vectors_change_nothing(seed, hidden):
    """Not a match, not a score, not the order."""
    compare(seed, hidden, fork=False)


@pytest.mark.req("E11b")
@pytest.mark.long(cases=CASES * sized(WORLDS, nightly=30))
def test_hidden_vectors_change_nothing_in_many_worlds():
    """The same, in many worlds, on branches too."""

    @settings(max_examples=sized(WORLDS, nightly=30), deadline=None)
    @given(st.integers(0, 2**32), hidden_sets, st.booleans())
    def run(seed: int, hidden: Hidden, fork: bool) -> None:
        compare(seed, hidden, fork=fork)

    run()
