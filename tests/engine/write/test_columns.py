"""Many nodes, checked and written one field at a time, are what they are one by one."""

from __future__ import annotations

import enum
import gc
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trails import (
    App,
    BigInt,
    Blob,
    Edge,
    Iri,
    Json,
    LangText,
    Node,
    Ref,
    Vector,
    edge_type,
    node_type,
    predicate,
)
from trails.engine.validation.rules import Rules
from trails.engine.write import edits
from trails.engine.write.puts import Put
from trails.engine.write.write import Write
from trails.errors import FieldError, NotFoundError, ValidationError
from trails.model.fairness import without_collections
from trails.model.nodes import NodeState
from trails.views import terms as terms_module
from trails.views.nodes import index as index_module
from trails.views.nodes.rows import all_slots


class Size(enum.Enum):
    """A size."""

    SMALL = "small"


class Said(str):
    """A text that is not exactly a ``str``."""

    __slots__ = ()


@node_type
class Base(Node):
    """What others extend: their values are in its lists too."""

    code: str = predicate(key=True)
    common: int | None = predicate()


@node_type(unique=[("text", "whole")], index=[("day", "flag")])
class Thing(Base):
    """A field of every kind, with every rule."""

    text: str | None = predicate(min_length=2, max_length=80)
    formed: str | None = predicate(pattern="^[a-z]+$")
    chosen: str | None = predicate(one_of=["small", "large"])
    rare: str | None = predicate(unique=True)
    flag: bool | None = predicate()
    whole: int | None = predicate(min_value=-5, max_value=10**6)
    wide: int | None = predicate()
    big: BigInt | None = predicate()
    real: float | None = predicate(min_value=-1, max_value=2**53)
    free: float | None = predicate()
    exact: Decimal | None = predicate(max_value="100")
    day: date | None = predicate(min_value="2000-01-01")
    moment: datetime | None = predicate()
    link: Iri | None = predicate()
    blob: Blob | None = predicate()
    place: Vector | None = predicate(dimension=2)
    data: Json | None = predicate()
    said: LangText | None = predicate()
    short: LangText | None = predicate(max_length=5)
    other: Ref[Base] | None = predicate()
    words: list[str] = predicate(max_count=3, min_length=1)
    numbers: list[float] = predicate()
    steps: list[str] = predicate(ordered=True, max_count=4)
    others: list[Ref[Base]] = predicate()
    route: list[Ref[Base]] = predicate(ordered=True)


@node_type
class Strict(Node):
    """Fields that are required."""

    code: str = predicate(key=True)
    title: str = predicate()
    tags: list[str] = predicate(min_count=1)


@edge_type(source=Base, target=Base, per_source=(0, 1))
class Follows(Edge):
    """An edge, of which a node starts one at most."""

    weight: float | None = predicate()


TYPES = (Base, Thing, Strict, Follows)
TEXT = st.text(max_size=6) | st.sampled_from(["", '"\\\n', "é", "\ud800", "x" * 70, "small", "ab"])
ODD = st.one_of(
    st.none(),
    TEXT,
    st.booleans(),
    st.integers(-10, 10),
    st.floats(),
    st.sampled_from(
        [
            *(Said("ab"), Size.SMALL, b"x", object, (), [], {}, {"en": "x"}, [None], ["a", 1]),
            *(2**63, -(2**63) - 1, 2**53 + 1, 10**400, -0.0, "Thing/1", "Base/a%20b", "Base/a b"),
            *("trails://kg/Base/1", "Nothing/1", "Base/.", "Base/%ff", "1", Thing(code="1")),
            *(Thing(), datetime(2026, 1, 1), date(1999, 1, 1)),  # noqa: DTZ001
            *({"a"}, frozenset({1.0}), ("a", "a")),
        ]
    ),
)
HANDLES = st.sampled_from(["Thing/1", "Base/2", "Base/a%20b", "Strict/1", "Base/~x_.-"])
GOOD: dict[str, st.SearchStrategy[Any]] = {
    "common": st.integers(-(2**63), 2**63 - 1),
    "text": st.text(min_size=2, max_size=80),
    "formed": st.sampled_from(["a", "abc"]),
    "chosen": st.sampled_from(["small", "large"]),
    "rare": TEXT,
    "flag": st.booleans(),
    "whole": st.integers(-5, 10**6),
    "wide": st.integers(-(2**63), 2**63 - 1),
    "big": st.sampled_from([BigInt(10**40), "-7"]),
    "real": st.sampled_from([-0.0, 0.0, 1.5, 1e-7, 2.0**49 + 0.25, 1]),
    "free": st.floats(allow_nan=False, allow_infinity=False),
    "exact": st.sampled_from([Decimal("12.50"), "99.9", Decimal("-0")]),
    "day": st.dates(date(2000, 1, 1)) | st.just("2026-03-01"),
    "moment": st.sampled_from(
        [
            datetime(2026, 3, 1, 9, 30, 0, 250_000, tzinfo=UTC),
            datetime(2026, 3, 1, tzinfo=timezone(timedelta(hours=2))),
            "2026-03-01T09:30:00Z",
        ]
    ),
    "link": st.sampled_from([Iri("https://example.org/é"), "urn:x:y"]),
    "blob": st.just("urn:x:1"),
    "place": st.sampled_from([(1.0, -2.5), [0, 1]]),
    "data": st.sampled_from([Json({"a": ["é"]}), {"b": 1}, [], "x", 0]),
    "said": st.sampled_from([{"en": "x", "de": '"'}, LangText({"en": "Bread"})]),
    "short": st.just({"en": "x"}),
    "other": HANDLES | st.just(Thing(code="1")),
    "words": st.lists(st.sampled_from(["b", "a", "é", '"']), max_size=3),
    "numbers": st.lists(st.floats(-10, 10), max_size=3) | st.just({2.0, 1.0}),
    "steps": st.lists(st.sampled_from(["b", "a", "b"]), max_size=4) | st.just(("x", "x")),
    "others": st.lists(HANDLES, max_size=3),
    "route": st.lists(HANDLES, max_size=3),
}


@st.composite
def batches(draw: st.DrawFn, odd: int) -> list[dict[str, object]]:
    """The values of some nodes, given in any order; ``odd`` of a hundred are of any kind."""
    some = []
    for number in range(draw(st.integers(16, 24))):
        names = draw(st.permutations(sorted(GOOD)))[: draw(st.integers(0, len(GOOD)))]
        values: dict[str, object] = {"code": str(number)}
        for name in names:
            values[name] = draw(ODD if draw(st.integers(1, 100)) <= odd else GOOD[name])
        some.append(values)
    return some


@cache
def app() -> App:
    """A graph with the types, in which nothing is written."""
    return App(*TYPES, name="columns", folder=None)


def spelled(value: object) -> str:
    """A value with its type and that of its parts: equal numbers can be different literals."""
    if isinstance(value, dict):
        return repr({name: spelled(each) for name, each in value.items()})
    if isinstance(value, tuple):
        return f"({', '.join(map(spelled, value))})"
    return f"{type(value).__name__} {value!r}"


def one_by_one(raw: list[dict[str, object]]) -> tuple[list[dict[str, object]], list[FieldError]]:
    """What the general check says."""
    validator, errors = app().graph().main.validator, list[FieldError]()

    def check(values: dict[str, object]) -> dict[str, object]:
        settled = validator.references.settle("Thing", values, lambda handles: ())
        return validator.check("Thing", settled, "", errors)

    return [check(values) for values in raw], errors


def assert_same(raw: list[dict[str, object]]) -> bool:
    """Compare both ways to check, to write and to index nodes; whether the short one was taken."""
    main = app().graph().main
    expected, errors = one_by_one(raw)
    found = main.validator.check_all("Thing", raw)
    if found is not None:
        assert not errors
        assert [*map(spelled, found)] == [*map(spelled, expected)]
    states = {f"Thing/{at}": NodeState("Thing", str(at), one) for at, one in enumerate(expected)}
    lines = [line for state in states.values() for line in main.terms.statements(state)]
    assert main.terms.new_statements(states) == ("".join(lines), len(lines))
    for slot in all_slots(main.schema)["Thing"]:
        if slot.column is not None:
            assert [(key,) for key in slot.column(expected)] == [*map(slot.extract, expected)]
    return found is not None


@given(batches(0))
def test_good_values_are_checked_and_written_alike(raw: list[dict[str, object]]) -> None:
    """Whatever the columns accept, they make the same of it."""
    assert_same(raw)


@given(batches(4))
@example([{"code": "1", "text": "ab", "real": 1}, {"code": "2", "real": 2**53 + 1}])
@example([{"code": "1", "free": -0.0}])
@example([{"code": "1"}, {"code": "2", "nothing": 1}])
@example([{"code": "1", "route": {"Thing/1"}}])
def test_odd_values_are_refused_alike(raw: list[dict[str, object]]) -> None:
    """Nothing that the general check refuses is accepted in a column."""
    assert_same(raw)


@pytest.mark.parametrize("missing", [False, True])
def test_the_usual_values_take_the_short_way(missing: bool) -> None:
    """The columns decide about values of every kind that are as they should be."""
    usual: dict[str, object] = {
        "code": "x",
        "text": "two words",
        "formed": "abc",
        "chosen": "small",
        "whole": 3,
        "real": 0.5,
        "day": date(2026, 3, 1),
        "moment": datetime(2026, 3, 1, tzinfo=UTC),
        "exact": Decimal("1.5"),
        "data": {"a": 1},
        "said": {"en": "x"},
        "other": "Thing/1",
        "words": ["b", "a"],
        "others": ["Base/1", "Base/1"],
        "steps": ["b", "a"],
    }
    raw = [dict(usual) for _ in range(20)]
    if missing:
        for at, name in enumerate(list(usual)[1:]):
            raw[at][name] = None
            del raw[at + 1][name]
    assert assert_same(raw)


def test_handles_are_read_the_same_way_in_short() -> None:
    """A handle with a plain id is what reading it as any other reference gives."""
    references = app().graph().main.validator.references
    for text in (
        "Thing/1",
        "Thing/a~b",
        "Thing/%41",
        "Thing/a b",
        "Nil/1",
        "Thing/",
        "/1",
        "a:b/1",
    ):
        parsed = references._parse(text)
        assert references.exact(text) == (parsed and NodeState(*parsed, {}).handle), text


# --- whole writes -------------------------------------------------------------------------------


def nodes(count: int) -> Iterator[Node]:
    """Nodes of several types that refer to each other, forwards and backwards."""
    for at in range(count):
        yield Thing(
            code=f"t {at}" if at % 7 == 0 else f"t{at}",
            text=f"text {at}" if at % 3 else None,
            rare=f"only {at}",
            real=at / 7,
            day=date(2000, 1, 1) + timedelta(days=at),
            words=["b", "a"][: at % 3],
            other=f"Base/b{(at * 31) % count}",
            steps=["é", "a", "é"][: at % 4],
        )
        yield Base(code=f"b{at}", common=at % 5)
        if at:
            yield Follows(source=f"Base/b{at}", target=f"Base/b{at - 1}", weight=0.5)


def in_general(patch: pytest.MonkeyPatch) -> None:
    """Leave the columns out."""
    patch.setattr(edits, "check_puts", lambda *_: None)
    patch.setattr(index_module, "_PATIENT", 10**9)
    patch.setattr(terms_module, "_COLUMN", 10**9)

    def watch_new(rules: Rules, new: dict[str, NodeState]) -> None:
        for node in new.values():
            rules.watch(None, node)

    patch.setattr(Rules, "watch_new", watch_new)


def outcome(make: Callable[[], Iterator[Node]]) -> tuple[object, ...]:
    """What a write leaves: rows and keys, the text of the commit, or the errors."""
    with App(*TYPES, name="columns", folder=None) as fresh:
        ctx, graph = fresh.context(), fresh.graph()
        ctx.kg.save_all([Thing(code="there", rare="taken"), Base(code="old")])
        try:
            commit = ctx.kg.save_all(make())
        except ValidationError as error:
            return (*error.fields, *graph.main.nodes.dump())
        assert commit is not None
        stored = graph.log.commit(commit.id)
        assert stored is not None
        with graph.log.open_added(stored) as added:
            return (stored.added, added.read(), *graph.main.nodes.dump())


def bad_nodes() -> Iterator[Node]:
    """Nodes that break rules of their own, and rules between nodes, in several chunks."""
    yield from nodes(800)
    yield Thing(code="there", rare="x")
    yield Thing(code="t5", rare="y")
    yield Thing(code="d1", rare="taken")
    yield Thing(code="d2", rare="only 17")
    yield Thing(code="d3", other="Base/none", words=["a"] * 2)
    yield Base(code="old")
    yield Follows(source="Base/b3", target="Base/b1")
    yield from (Base(code=f"c{at}") for at in range(600))


def wrong_nodes() -> Iterator[Node]:
    """Nodes with wrong values among good ones."""
    yield from nodes(300)
    yield Thing(code="v1", text="x", real=float("inf"), day=date(1999, 1, 1))
    yield Strict(code="v2", title="x", tags=[])
    yield Thing(code="", rare="y")
    yield Thing(code="v4", other="1", words=["a", "", "b", "c"])
    yield from nodes(20)


@pytest.mark.parametrize("make", [lambda: nodes(900), bad_nodes, wrong_nodes])
def test_a_large_write_leaves_what_the_general_way_leaves(
    make: Callable[[], Iterator[Node]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, keys, statements and violations are the same, in the same order."""
    found = outcome(make)
    in_general(monkeypatch)
    assert found == outcome(make)


@pytest.mark.parametrize("was_enabled", [True, False])
def test_no_garbage_is_collected_while_a_chunk_is_put(was_enabled: bool) -> None:
    """The collector is off in between only, after an error too, and as it was before."""
    seen = list[bool]()
    write = Write(app().graph(), app().graph().main, actor="x")
    write.begin()
    (gc.enable if was_enabled else gc.disable)()
    try:
        puts = [Put("Base", {"code": f"g{at}"}) for at in range(10)]
        edits.put_all(write.nodes, puts, lambda *_: seen.append(gc.isenabled()))
        assert seen == [False] * 10
        assert gc.isenabled() == was_enabled
        with pytest.raises(NotFoundError):
            edits.put_all(write.nodes, [Put("None", {})], lambda *_: None)
        assert gc.isenabled() == was_enabled
        with without_collections(), without_collections():
            pass
        assert gc.isenabled() == was_enabled
    finally:
        gc.enable()
        write.abandon()


def test_the_rules_of_a_chunk_take_few_queries() -> None:
    """The targets of references, and the keys that must be unique, are looked up together."""
    with App(*TYPES, name="columns", folder=None) as fresh:
        ctx, graph = fresh.context(), fresh.graph()
        count, seen = 1000, list[str]()
        ctx.kg.save_all(Base(code=f"b{at}") for at in range(count))
        connection: sqlite3.Connection = graph.file.db
        connection.set_trace_callback(seen.append)
        ctx.kg.save_all(
            Thing(code=f"t{at}", rare=f"{at}", other=f"Base/b{at}") for at in range(count)
        )
        connection.set_trace_callback(None)
        assert sum(each.startswith("SELECT") for each in seen) < count // 20
