"""What a restricted actor finds is what it would find had the rest never been written.

A graph with hidden types and fields is compared with its twin, in which they were never declared:
matches, scores, order, windows, notices and errors of a search are the same, byte for byte.
"""

from collections.abc import Iterator
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

from trails import Ref
from trails.engine.evidence.records import make_place
from trails.engine.evidence.search import SearchRequest, search
from trails.engine.session.context import GraphContext
from trails.engine.session.service import GraphService
from trails.errors import TrailsError

SEARCHED = {"search": True}
TYPES = {
    "Thing": Type(
        {
            "code": Field(str, said={"key": True}),
            "name": Field(str, said={"label": True}),
            "text": Field(str | None, said=SEARCHED),
            "more": Field(str | None, said=SEARCHED),
            "tags": Field(list[str], many=True, said=SEARCHED),
        }
    ),
    "Part": Type(
        {"extra": Field(str | None, said=SEARCHED), "of": Field(Ref["Thing"], target="Thing")},
        parent="Thing",
    ),
    "Memo": Type(
        {"number": Field(int, said={"key": True}), "text": Field(str | None, said=SEARCHED)}
    ),
    "Joins": Type({"why": Field(str | None, said=SEARCHED)}, ends=("Thing", "Thing")),
}
FIELDS = sorted((name, each) for name, said in TYPES.items() for each in said.fields)
WORDS = ("alpha", "beta", "gamma", "delta", "Épsilon", "zeta-1", "eta", "theta", "東京", "iota")
QUERIES = (
    *("alpha", "beta gamma", '"alpha beta"', "alp*", "gamna~", "-beta alpha", "alpha OR theta"),
    *("text:alpha", "more:alpha", "why:alpha", "extra:beta", "epsilon", "京", "zeta", "nothing"),
    *("alpha beta gamma delta theta", "iota eta theta zeta beta", "name:alpha", "tags:eta"),
)
CASES = len(QUERIES)
WORLDS = 300
"""Each with more than twice as many searches as there are queries, so 10,000 and more."""


def rows_of(seed: int) -> list[Row]:
    """Records whose texts have few words in all, so that each one moves the statistics."""
    random = Random(seed)

    def text() -> str:
        return " ".join(random.choices(WORDS, k=random.randint(1, 9)))

    made: list[Row] = []
    things: list[tuple[str, str]] = []
    for number in range(random.randint(5, 40)):
        kind = random.choice(("Thing", "Thing", "Part")) if things else "Thing"
        values: dict[str, object] = {
            "code": f"t{number}",
            "name": text(),
            "text": random.choice((None, text())),
            "more": random.choice((None, text())),
            "tags": sorted({text() for _ in range(random.randint(0, 2))}),
        }
        if kind == "Part":
            values |= {"extra": text(), "of": random.choice(things)}
        things.append((kind, f"t{number}"))
        made.append((*things[-1], values))
        if random.random() < 0.3:
            made.append(("Memo", str(number), {"number": number, "text": text()}))
        if random.random() < 0.4:
            ends = {"source": random.choice(things), "target": things[-1]}
            made.append(("Joins", f"j{number}", {**ends, "why": text()}))
    return made


hidden_sets = st.builds(
    Hidden,
    st.frozensets(st.sampled_from(["Part", "Memo", "Joins"]), max_size=2),
    st.frozensets(st.sampled_from(FIELDS), max_size=4),
)


def requests() -> Iterator[SearchRequest]:
    """Every query, over everything and over parts."""
    for at, query in enumerate(QUERIES):
        yield SearchRequest(query=query, limit=20)
        if at % 4 == 0:
            yield SearchRequest(query=query, types=("Thing",), limit=3)
            yield SearchRequest(query=query, types=("Joins",))
            yield SearchRequest(query=query, fields=("text",))
            yield SearchRequest(query=query, fields=("extra",))


def said(service: GraphService, ctx: GraphContext, request: SearchRequest) -> object:
    """The answer without commits, which differ, and cursors, which are signed with them."""
    place = make_place(ctx.branch, None)
    try:
        page = search(service, ctx, msgspec.structs.replace(request, place=place))
    except TrailsError as error:
        return type(error).__name__, error.message, error.data
    hits = msgspec.to_builtins(page.hits)
    for hit in hits:
        for evidence in hit["evidence"]:
            del evidence["read"]["arguments"]["cursor"]
    return hits, page.more, page.searched, page.notices


def compare(seed: int, hidden: Hidden, *, fork: bool) -> None:
    """Ask the restricted actor and the twin the same."""
    rows = rows_of(seed)
    world = World(TYPES, rows, fork=fork)
    twin = World(twin_types(TYPES, hidden), twin_rows(TYPES, hidden, rows), fork=fork)
    try:
        for request in requests():
            ours = said(world.app.service(), world.restricted(hidden.sight(TYPES)), request)
            theirs = said(twin.app.service(), twin.full, request)
            assert ours == theirs, (request.query, request.types, request.fields)
    finally:
        world.app.close()
        twin.app.close()


@pytest.mark.req("E11b")
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32), hidden_sets)
def test_hidden_texts_change_nothing(seed, hidden):
    """Not a match, not a score, not a word of the answer."""
    compare(seed, hidden, fork=False)


@pytest.mark.req("E11b")
@pytest.mark.long(cases=2 * CASES * sized(WORLDS, nightly=40))
def test_hidden_texts_change_nothing_in_many_worlds():
    """The same, in as many worlds as make ten thousand searches."""

    @settings(max_examples=sized(WORLDS, nightly=40), deadline=None)
    @given(st.integers(0, 2**32), hidden_sets, st.booleans())
    def run(seed: int, hidden: Hidden, fork: bool) -> None:
        compare(seed, hidden, fork=fork)

    run()
