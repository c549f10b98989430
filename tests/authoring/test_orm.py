"""Selections against a naive oracle, and views that grow against views that are folded anew."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache, reduce
from itertools import pairwise

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.campaigns import sized

from trails import (
    App,
    BigInt,
    Blob,
    Edge,
    Iri,
    Node,
    Q,
    Ref,
    Vector,
    edge_type,
    node_type,
    predicate,
)
from trails.authoring.queries import Query
from trails.engine.graph.graph import Graph
from trails.engine.session.context import GraphContext
from trails.errors import CursorError, NotFoundError, QueryError, ValidationError
from trails.model.history import Position
from trails.model.nodes import NodeState, Order, Selection
from trails.views.nodes.conditions import CompiledCondition
from trails.views.nodes.file import NodeFile
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.layers import ROOT_NAME
from trails.views.nodes.select import Found, Selector
from trails.views.quads.view import QuadsView


@node_type
class Maker(Node):
    """Who makes things."""

    code: str = predicate(key=True)
    city: str | None = predicate()
    size: int | None = predicate()


@node_type
class Firm(Maker):
    """A maker with staff."""

    staff: int | None = predicate()


@node_type(index=[("kind", "rank"), ("kind", "title"), ("flag", "seen")])
class Thing(Node):
    """One field of every kind."""

    code: str = predicate(key=True)
    kind: str = predicate()
    title: str | None = predicate()
    rank: int | None = predicate()
    big: BigInt | None = predicate()
    ratio: float | None = predicate()
    price: Decimal | None = predicate()
    made: date | None = predicate()
    seen: datetime | None = predicate()
    home: Iri | None = predicate()
    scan: Blob | None = predicate()
    flag: bool | None = predicate()
    spot: Vector(2) | None = predicate()
    tags: list[str] = predicate()
    levels: list[int] = predicate()
    maker: Ref[Maker] | None = predicate()
    makers: list[Ref[Maker]] = predicate()
    parent: Ref[Thing] | None = predicate()


@node_type
class Gadget(Thing):
    """A thing with a plug."""

    volts: int | None = predicate()


TYPES = (Maker, Firm, Thing, Gadget)

# --- values -----------------------------------------------------------------------------

# Long texts share more than the 63 bytes that a key holds as they are; one prefix ends inside
# a character of several bytes.
LONG = "https://example.org/a/very/long/common/prefix/that/goes/on/and/on/"
SPLIT = "é" * 40
TEXTS = [
    *("", "a", "A", "ab", "aB", "b", "ß", "SS", "é", "e\u0301", "z", "\U0001f600", "\x00", "a\x00"),
    *(
        LONG,
        LONG + "a",
        LONG + "b",
        LONG[:63],
        LONG[:62],
        SPLIT,
        SPLIT + "a",
        SPLIT + "b",
        SPLIT[:31],
    ),
]
ZONES = (UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=14)))
POOLS: dict[str, list[object]] = {
    "kind": ["x", "y", "z", LONG + "k"],
    "title": [*TEXTS],
    "rank": [-(2**63), -7, -1, 0, 1, 2, 3, 255, 256, 2**63 - 1],
    "big": [BigInt(n) for n in (-(10**40), -256, -255, -1, 0, 1, 255, 256, 65536, 10**40)],
    "ratio": [-1.7e308, -1.5, -5e-324, -0.0, 0.0, 5e-324, 0.1, 1.0, 1e300],
    "price": [
        Decimal(n) for n in ("-20", "-0.01", "0", "0.010", "1", "1.50", "1.5", "10", "99999")
    ],
    "made": [date(1, 1, 1), date(1999, 12, 31), date(2000, 1, 1), date(9999, 12, 31)],
    "seen": [datetime(2026, 3, day, 12, tzinfo=zone) for day in (1, 2) for zone in ZONES]
    + [
        datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC),
        datetime(2026, 3, 1, 17, 30, tzinfo=ZONES[1]),
    ],
    "home": [
        Iri("https://x/a"),
        Iri("https://x/b"),
        Iri("urn:a"),
        Iri(LONG + "1"),
        Iri(LONG + "2"),
    ],
    "scan": [Blob("s3://x/a"), Blob("s3://x/b")],
    "flag": [True, False],
    "tags": [*TEXTS[:6], LONG, LONG + "a"],
    "levels": [-1, 0, 1, 2, 3],
    "city": ["Oslo", "oslo", "Bergen", "Ås", LONG + "c"],
    "size": [1, 2, 3, 4],
    "staff": [10, 20, 30],
    "volts": [12, 230],
}
MANY = {"tags", "levels", "makers"}
REFERENCES = {"maker": "Maker", "makers": "Maker", "parent": "Thing"}
TEXT_FIELDS = {"code", "kind", "title", "home", "scan", "tags", "city"}
UNORDERED = {"flag", "maker", "makers", "parent"}
OWN = {
    "Maker": ["code", "city", "size"],
    "Thing": [
        *("code", "kind", "title", "rank", "big", "ratio", "price", "made", "seen", "home"),
        *("scan", "flag", "spot", "tags", "levels", "maker", "makers", "parent"),
    ],
}
OWN["Firm"] = [*OWN["Maker"], "staff"]
OWN["Gadget"] = [*OWN["Thing"], "volts"]
FAMILY = {
    "Maker": {"Maker", "Firm"},
    "Firm": {"Firm"},
    "Thing": {"Thing", "Gadget"},
    "Gadget": {"Gadget"},
}
CLASSES = {cls.__name__: cls for cls in TYPES}


class Row(msgspec.Struct, frozen=True):
    """A node as the oracle keeps it; references are handles."""

    type: str
    id: str
    values: dict[str, object]


class World:
    """A graph of random nodes, and the same nodes in a list, in the order of their creation."""

    def __init__(self, seed: int, things: int) -> None:
        self.random = random.Random(seed)
        self.app = App(*TYPES, name="orm")
        self.ctx = self.app.context()
        self.rows: dict[str, Row] = {}
        makers = max(things // 6, 3)
        for at in range(makers):
            name = self.random.choice(("Maker", "Firm"))
            self.add([self._row(name, f"m{at}")])
        names = [f"t{at}" for at in range(things)]
        for start in range(0, things, 50):
            self.add([self._row(self._thing_type(), name) for name in names[start : start + 50]])

    def _thing_type(self) -> str:
        return self.random.choice(("Thing", "Thing", "Gadget"))

    def _row(self, type_name: str, code: str) -> Row:
        values: dict[str, object] = {"code": code}
        for field in OWN[type_name][1:]:
            if field == "kind" or self.random.random() < 0.8:
                value = self._value(field)
                if value not in (None, []):
                    values[field] = value
        return Row(type_name, code, values)

    def _value(self, field: str) -> object:
        if field == "spot":
            return (self.random.random(), 1.0)
        if field in REFERENCES:
            known = [h for h, row in self.rows.items() if row.type in FAMILY[REFERENCES[field]]]
            if not known:
                return None
            if field in MANY:
                return sorted(set(self.random.choices(known, k=self.random.randrange(3))))
            return self.random.choice(known)
        if field in MANY:
            return sorted(set(self.random.choices(POOLS[field], k=self.random.randrange(4))))
        return self.random.choice(POOLS[field])

    def add(self, rows: list[Row]) -> None:
        """Write nodes to the graph and to the list."""
        self.ctx.kg.save_all([CLASSES[row.type](**row.values) for row in rows])
        self.rows.update({f"{row.type}/{row.id}": row for row in rows})

    def add_thing(self, code: str) -> None:
        """Write one more thing."""
        self.add([self._row(self._thing_type(), code)])

    def of(self, type_name: str) -> list[Row]:
        """The instances of a type in creation order, type after type as these were first used."""
        first = {}
        for row in self.rows.values():
            first.setdefault(row.type, len(first))
        wanted = [row for row in self.rows.values() if row.type in FAMILY[type_name]]
        return sorted(wanted, key=lambda row: first[row.type])


@cache
def world(number: int) -> World:
    """Some worlds; in the largest the default strategy walks slots as well as gathering."""
    return World(number, (25, 120, 600)[number % 3])


# --- conditions, and what they mean ------------------------------------------------------------

Leaf = tuple[str, tuple[str, ...], str, object]
Tree = Leaf | tuple[str, "Tree", "Tree"] | tuple[str, "Tree"]

COMPARE: dict[str, Callable[[object, object], bool]] = {
    "exact": operator.eq,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "in": lambda value, wanted: value in wanted,
    "startswith": lambda value, wanted: value.startswith(wanted),
    "icontains": lambda value, wanted: wanted.casefold() in value.casefold(),
}
HOPS = [
    *(("maker", "city"), ("maker", "size"), ("makers", "city"), ("makers", "code")),
    *(("parent", "rank"), ("parent", "title"), ("parent", "tags"), ("parent", "maker", "city")),
    *(("parent", "parent", "kind"), ("parent", "makers", "size"), ("parent", "maker")),
]


def lookups_of(field: str) -> list[str]:
    """What can be asked of a field."""
    if field == "spot":
        return ["isnull"]
    found = ["exact", "in", "isnull"]
    if field not in UNORDERED:
        found += ["gt", "gte", "lt", "lte"]
    if field in TEXT_FIELDS:
        found += ["startswith", "icontains"]
    return found


def value_for(draw: st.DrawFn, field: str, lookup: str) -> object:
    """A value to ask for, often one that is there."""
    if lookup == "isnull":
        return draw(st.booleans())
    if field in REFERENCES:
        kind = "m" if REFERENCES[field] == "Maker" else "t"
        types = sorted(FAMILY[REFERENCES[field]])
        pool = st.builds(
            "{}/{}{}".format, st.sampled_from(types), st.just(kind), st.integers(0, 30)
        )
    elif field == "code":
        pool = st.builds("{}{}".format, st.sampled_from("tm"), st.integers(0, 30))
    else:
        pool = st.sampled_from(POOLS[field])
    if lookup == "in":
        return draw(st.lists(pool, max_size=4))
    value = draw(pool)
    if lookup in {"startswith", "icontains"}:
        text = str(value)
        start = 0 if lookup == "startswith" else draw(st.integers(0, len(text)))
        value = text[start : start + draw(st.integers(0, 70))]
        return value.upper() if lookup == "icontains" and draw(st.booleans()) else value
    return value


@st.composite
def leaves(draw: st.DrawFn, type_name: str) -> Leaf:
    """One condition."""
    if "Thing" in type_name or "Gadget" in type_name:
        path = draw(st.sampled_from([(f,) for f in OWN[type_name]]) | st.sampled_from(HOPS))
    else:
        path = (draw(st.sampled_from(OWN[type_name])),)
    lookup = draw(st.sampled_from(lookups_of(path[-1])))
    return "is", path, lookup, value_for(draw, path[-1], lookup)


def trees(type_name: str) -> st.SearchStrategy[Tree | None]:
    """Conditions joined in every way, or none."""
    joined = st.recursive(
        leaves(type_name),
        lambda inner: (
            st.tuples(st.sampled_from(["and", "and", "or"]), inner, inner)
            | st.tuples(st.just("not"), inner)
        ),
        max_leaves=4,
    )
    return st.none() | joined


def to_q(tree: Tree) -> Q:
    """The tree as a user writes it."""
    if tree[0] == "is":
        _, path, lookup, value = tree
        name = "__".join(path)
        return Q(**{name if lookup == "exact" else f"{name}__{lookup}": value})
    if tree[0] == "not":
        return ~to_q(tree[1])
    left, right = to_q(tree[1]), to_q(tree[2])
    return left & right if tree[0] == "and" else left | right


def holds(tree: Tree | None, row: Row, rows: dict[str, Row]) -> bool:
    """What the tree means."""
    if tree is None:
        return True
    if tree[0] == "is":
        return leaf_holds(tree[1], tree[2], tree[3], row, rows)
    if tree[0] == "not":
        return not holds(tree[1], row, rows)
    both = (holds(part, row, rows) for part in tree[1:])
    return all(both) if tree[0] == "and" else any(both)


def leaf_holds(
    path: Sequence[str], lookup: str, wanted: object, row: Row, rows: dict[str, Row]
) -> bool:
    """What one condition means: of several values or targets, one suffices."""
    value = row.values.get(path[0])
    values = [] if value is None else value if isinstance(value, list) else [value]
    if len(path) > 1:
        return any(leaf_holds(path[1:], lookup, wanted, rows[each], rows) for each in values)
    if lookup == "isnull":
        return (not values) is wanted
    return any(COMPARE[lookup](each, wanted) for each in values)


# --- orders -------------------------------------------------------------------------------------

SORTABLE = {name: [f for f in fields if f not in MANY | {"spot"}] for name, fields in OWN.items()}


@cache
def text_ranks(number: int, type_name: str, field: str) -> dict[object, int]:
    """The order of a field's texts, exact in their first 63 bytes and beyond them only stable.

    So the oracle can't know it; but one and the same order must serve every query.
    """
    where = world(number)
    query = query_of(where, type_name, None, [field])
    found = [row.values.get(field) for row in run(Selector, where, query.selection).rows]
    texts = list(dict.fromkeys(text for text in found if text is not None))
    starts = [text.encode()[:63] for text in texts]
    assert starts == sorted(starts)
    short = [text for text in texts if len(text.encode()) <= 63]
    assert short == sorted(short)
    return {text: rank for rank, text in enumerate(texts)}


def in_order(
    number: int, type_name: str, rows: list[Row], order: Sequence[str]
) -> list[list[tuple[int, object]]]:
    """The sort keys of rows, sorted: missing values last, up or down."""
    keys = [[sort_key(number, type_name, row, name) for name in order] for row in rows]
    # Sorting is stable, so sorting by the last field first sorts by all.
    for at in reversed(range(len(order))):
        if order[at].startswith("-"):
            keys.sort(key=lambda key: (-key[at][0], key[at][1]), reverse=True)
        else:
            keys.sort(key=lambda key: key[at])
    return keys


def sort_key(number: int, type_name: str, row: Row, name: str) -> tuple[int, object]:
    """A value that sorts, or the mark of a missing one."""
    field = name.removeprefix("-")
    value = row.values.get(field)
    if value is None:
        return 1, 0
    return 0, text_ranks(number, type_name, field)[value] if isinstance(value, str) else value


# --- running -----------------------------------------------------------------------------------


class Scanning(Selector):
    """Never gathers: walks a slot, or all nodes, in order."""

    def _gather(self, tree: CompiledCondition, cap: int) -> set[int] | None:
        return None


class Gathering(Selector):
    """Never walks: collects what can match and sorts it."""

    def _scan_for(self, *_: object) -> None:
        return None


class Hurried(Selector):
    """Gathers only the very rare."""

    def _gather(self, tree: CompiledCondition, cap: int) -> set[int] | None:
        return super()._gather(tree, min(cap, 2))


WAYS = (Selector, Scanning, Gathering, Hurried)


def run(way: type[Selector], where: World, selection: Selection) -> Found:
    """Answer a selection in one particular way."""
    return run_on(where.app.graph(), way, selection)


def run_on(graph: Graph, way: type[Selector], selection: Selection) -> Found:
    """The same on any graph."""
    with graph.file.reader() as db:
        selector = way(graph.main.nodes, db, graph.main.schema, graph.main.validator.special)
        return selector.select(selection)


def ids(rows: Sequence[NodeState | Row]) -> list[tuple[str, str]]:
    """Which nodes."""
    return [(row.type, row.id) for row in rows]


def query_of(where: World, type_name: str, tree: Tree | None, order: Sequence[str]) -> Query[Node]:
    """The query as a user writes it."""
    query = CLASSES[type_name].objects(where.ctx).order_by(*order)
    return query if tree is None else query.where(to_q(tree))


def check_selection(
    number: int, type_name: str, tree: Tree | None, order: list[str], data: st.DataObject
) -> None:
    """Every way gives what the oracle gives, whole, in part and page by page."""
    where = world(number)
    expected = [row for row in where.of(type_name) if holds(tree, row, where.rows)]
    query = query_of(where, type_name, tree, order)
    selection = query.selection
    whole = ids(run(Selector, where, selection).rows)
    assert sorted(whole) == sorted(ids(expected))
    assert_ordered(number, type_name, whole, expected, order)
    for way in WAYS:
        assert ids(run(way, where, selection).rows) == whole, way
    check_parts(where, selection, whole, data)
    if names_existing_nodes(query):
        check_answers(query, whole, where)


def names_existing_nodes(query: Query) -> bool:
    """Whether a query may be asked: a reference to a node that does not exist is refused."""
    try:
        query.count()
    except QueryError as error:
        assert error.data["reason"] == "reference"  # noqa: PT017 - both outcomes are right
        return False
    return True


def assert_ordered(
    number: int,
    type_name: str,
    whole: list[tuple[str, str]],
    expected: list[Row],
    order: list[str],
) -> None:
    """The order is the oracle's; equal keys follow creation, or go against it when descending."""
    found = [world(number).rows[f"{name}/{code}"] for name, code in whole]
    if not order:
        assert ids(found) == ids(expected)
        return
    keys = [[sort_key(number, type_name, row, name) for name in order] for row in found]
    assert keys == in_order(number, type_name, expected, order)
    place = {each: at for at, each in enumerate(ids(expected))}
    down = len(order) == 1 and order[0].startswith("-")
    for (left, right), (one, other) in zip(pairwise(keys), pairwise(found), strict=True):
        if left == right:
            first, second = (place[each] for each in ids([one, other]))
            assert (first < second) is not down


def check_parts(
    where: World, selection: Selection, whole: list[tuple[str, str]], data: st.DataObject
) -> None:
    """Limit and offset cut the same list, and cursors walk it, whatever way each page takes."""
    limit, offset = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 12))
    for way in WAYS:
        part = msgspec.structs.replace(selection, limit=limit, offset=offset)
        assert ids(run(way, where, part).rows) == whole[offset : offset + limit]
    walked: list[tuple[str, str]] = []
    after: str | None = None
    size = data.draw(st.integers(1, 40))
    while True:
        way = data.draw(st.sampled_from(WAYS)) if len(walked) < 200 else Selector
        page = run(way, where, msgspec.structs.replace(selection, limit=size, after=after))
        walked += ids(page.rows)
        if page.next is None:
            break
        after = page.next
        size = size * 2
    assert walked == whole


def check_answers(query: Query[Node], whole: list[tuple[str, str]], where: World) -> None:
    """The other questions agree with the list."""
    assert query.count() == len(whole)
    assert query.exists() is bool(whole)
    first = query.first()
    assert (None if first is None else (type(first).__name__, first.id)) == (whole or [None])[0]
    assert [row["id"] for row in query.values("id")] == [code for _, code in whole]
    if len(whole) == 1:
        assert query.get().id == whole[0][1]
    else:
        with pytest.raises(QueryError if whole else NotFoundError):
            query.get()


@st.composite
def questions(draw: st.DrawFn, worlds: int) -> tuple[int, str, Tree | None, list[str]]:
    """A world, a type, conditions and an order."""
    type_name = draw(st.sampled_from(["Thing", "Thing", "Thing", "Gadget", "Maker", "Firm"]))
    names = draw(st.lists(st.sampled_from(SORTABLE[type_name]), max_size=3, unique=True))
    order = [draw(st.sampled_from(["", "-"])) + name for name in names]
    return draw(st.integers(0, worlds - 1)), type_name, draw(trees(type_name)), order


ALL = list(HealthCheck)


@settings(max_examples=60, deadline=None, suppress_health_check=ALL)
@given(question=questions(3), data=st.data())
def test_selections_equal_the_oracle(question: tuple, data: st.DataObject) -> None:
    """Any conditions, order and paging give what filtering and sorting a list gives."""
    check_selection(*question, data)


def every_leaf(type_name: str) -> Iterator[Leaf]:
    """Every lookup of every field, with every value that its pool has."""
    for field in OWN[type_name]:
        for lookup in lookups_of(field):
            if lookup == "isnull":
                wanted: list[object] = [True, False]
            elif field in REFERENCES:
                wanted = ["Maker/m0", "Firm/m1", "Maker/m2", "Thing/t3", "Gadget/t4"]
                fitting = FAMILY[REFERENCES[field]]
                wanted = [each for each in wanted if str(each).partition("/")[0] in fitting]
            else:
                wanted = POOLS.get(field, ["t1", "t12", "m3"])
            for value in wanted:
                yield "is", (field,), lookup, [value] if lookup == "in" else value


def test_every_lookup_of_every_value_equals_the_oracle() -> None:
    """Each single condition, with values right at the ones that are there, is exact."""
    where = world(1)
    for type_name in ("Thing", "Maker"):
        rows = where.of(type_name)
        for leaf in every_leaf(type_name):
            expected = ids([row for row in rows if holds(leaf, row, where.rows)])
            query = query_of(where, type_name, leaf, [])
            assert ids(run(Selector, where, query.selection).rows) == expected, leaf
            assert ids(run(Scanning, where, query.selection).rows) == expected, leaf
            if names_existing_nodes(query):
                assert query.count() == len(expected), leaf


@pytest.mark.long
@settings(max_examples=sized(10_000, nightly=600), deadline=None, suppress_health_check=ALL)
@given(question=questions(12), data=st.data())
def test_many_selections_equal_the_oracle(question: tuple, data: st.DataObject) -> None:
    """The same, in more worlds and for longer."""
    check_selection(*question, data)


COMPOSITE = [
    (("is", ("kind",), "exact", "x"), ["rank"]),
    (("is", ("kind",), "exact", "x"), ["-rank"]),
    (("is", ("kind",), "exact", LONG + "k"), ["-title"]),
    (("is", ("kind",), "exact", "y"), ["title"]),
    (("is", ("flag",), "exact", True), ["-seen"]),
    (("is", ("flag",), "isnull", True), ["seen"]),
    (("is", ("kind",), "exact", "nowhere"), ["rank"]),
    (("and", ("is", ("kind",), "exact", "x"), ("is", ("rank",), "gt", 0)), ["-rank"]),
    (("and", ("is", ("kind",), "exact", "x"), ("is", ("tags",), "exact", "a")), ["rank"]),
    (("and", ("is", ("kind",), "exact", "x"), ("is", ("title",), "startswith", LONG)), ["-title"]),
]


@settings(max_examples=4, deadline=None, suppress_health_check=ALL)
@given(data=st.data(), number=st.integers(0, 2))
@pytest.mark.parametrize("case", range(len(COMPOSITE)))
def test_composite_indexes_equal_the_oracle(case: int, number: int, data: st.DataObject) -> None:
    """A declared pair of fields serves a filter on the first in the order of the second."""
    tree, order = COMPOSITE[case]
    for type_name in ("Thing", "Gadget"):
        check_selection(number, type_name, tree, order, data)


def test_composite_index_is_walked() -> None:
    """The cases above do use the declared index: the walk is over its slot, from one prefix."""
    where = world(0)
    graph = where.app.graph()
    with graph.file.reader() as db:
        selector = Selector(graph.main.nodes, db, graph.main.schema, graph.main.validator.special)
        tree = selector._compiler.compile("Thing", to_q(COMPOSITE[0][0]).tree)
        scan = selector._scan_for(graph.main.schema.by_name["Thing"], tree, (Order("rank"),))
        assert scan is not None
        assert scan.prefix
        assert scan.sid == graph.file.slot_number("Thing(kind,rank)")


# --- paging while others write ---------------------------------------------------------------

ORDERS = [[], ["rank"], ["-rank"], ["title"], ["-seen"], ["kind", "-rank"], ["-price", "title"]]
WHERES: list[Tree | None] = [
    None,
    ("is", ("kind",), "exact", "x"),
    ("or", ("is", ("rank",), "gte", 0), ("is", ("rank",), "isnull", True)),
    ("not", ("is", ("tags",), "exact", "a")),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "+".join(order) or "none")
@pytest.mark.parametrize("tree", WHERES, ids=lambda tree: "all" if tree is None else str(tree[0]))
def test_paging_misses_and_repeats_nothing_while_rows_are_added(
    order: list[str], tree: Tree | None
) -> None:
    """What was there from the start comes once, in order, whatever is inserted meanwhile."""
    where = World(7, 60)
    query = query_of(where, "Thing", tree, order)
    there = ids(run(Selector, where, query.selection).rows)
    walked, after, added = [], None, 0
    while True:
        way = WAYS[added % len(WAYS)]
        selection = msgspec.structs.replace(query.selection, limit=7, after=after)
        page = run(way, where, selection)
        walked += ids(page.rows)
        after = page.next
        if after is None:
            break
        for _ in range(3 if added < 60 else 0):
            where.add_thing(f"n{added}")
            added += 1
    assert added
    assert len(walked) == len(set(walked))
    assert [each for each in walked if each in set(there)] == there
    where.app.close()


def test_a_cursor_outlives_its_row(things: GraphContext) -> None:
    """Deleting the row on which a page ended does not disturb the next page."""
    query = Thing.objects(things).order_by("rank")
    page = query.page(4)
    rest = [each.code for each in query][4:]
    page.items[-1].delete(things)
    assert [each.code for each in query.page(100, after=page.next).items] == rest


def test_pages_of_an_offset_skip_it_once(things: GraphContext) -> None:
    """An offset belongs to the first page; cursors go on from there."""
    query = Thing.objects(things).order_by("rank").offset(3)
    walked, after = [], None
    while True:
        page = query.page(2, after=after)
        walked += [each.code for each in page.items]
        after = page.next
        if after is None:
            break
    assert walked == [each.code for each in query]


# --- what a user may write --------------------------------------------------------------------


@pytest.fixture
def things() -> Iterator[GraphContext]:
    """Ten ranked things and a maker."""
    with App(*TYPES, name="orm") as app:
        ctx = app.context()
        maker = Maker(code="m", city="Oslo")
        ctx.kg.save_all(
            [maker]
            + [
                Thing(code=f"t{n}", kind="x", rank=n, title=f"T{n}", maker=maker, tags=[str(n % 3)])
                for n in range(10)
            ]
        )
        yield ctx


def test_a_plan_runs_later(things: GraphContext) -> None:
    """Without a context a query is a plan; it is refused until it is given one."""
    plan = Thing.where(rank__gte=8).order_by("-rank")
    assert [each.rank for each in plan.fetch(things)] == [9, 8]
    assert plan.count(things) == 2
    assert plan.values("rank", ctx=things) == [{"rank": 9}, {"rank": 8}]
    for unbound in (plan.page, plan.count, plan.fetch, plan.first, lambda: list(plan)):
        with pytest.raises(QueryError, match="fetch"):
            unbound()


def test_queries_do_not_change_each_other(things: GraphContext) -> None:
    """Every method gives a new query."""
    every = Thing.objects(things)
    few = every.where(rank__lt=3)
    assert few.where(rank__gt=0).count() == 2
    assert few.exclude(rank=1).count() == 2
    assert few.limit(1).count() == 3
    assert (few.count(), every.count()) == (3, 10)
    assert every.where() is every


def test_values_are_plain_and_references_are_iris(things: GraphContext) -> None:
    """values() gives native values of the named fields, or of all with the id."""
    query = Thing.objects(things).where(code="t3")
    assert query.values("rank", "maker", "title") == [
        {"rank": 3, "maker": things.kg.iri("Maker/m"), "title": "T3"}
    ]
    [every] = query.values()
    assert set(every) == {"id", *Thing.__trails__.by_name}
    assert (every["id"], every["made"], every["tags"]) == ("t3", None, ("0",))


def test_references_are_asked_for_in_every_spelling(things: GraphContext) -> None:
    """An instance, an IRI, an MCP handle and a handle mean the same node."""
    maker = Maker.get(things, "m")
    for spelling in (maker, maker.iri(things), "trails://kg/Maker/m", "Maker/m"):
        assert Thing.objects(things).where(maker=spelling).count() == 10
        assert Thing.objects(things).where(maker__in=[spelling]).count() == 10
    assert Thing.objects(things).where(maker=None).count() == 0
    assert Thing.objects(things).where(parent=None).count() == 10


def test_an_iterator_of_values_serves_every_page(things: GraphContext) -> None:
    """A generator given to __in is read once and meant for the whole query."""
    query = Thing.objects(things).where(rank__in=(n for n in range(8)))
    assert query.count() == 8
    assert query.count() == 8
    first = query.page(5)
    assert len(query.page(5, after=first.next).items) == 3


def test_many_conditions_are_no_deep_tree(things: GraphContext) -> None:
    """Thousands of alternatives joined one by one, and long lists of values, are answered."""
    either = reduce(operator.or_, [Q(rank=n) for n in range(3000)])
    assert Thing.objects(things).where(either).count() == 10
    both = reduce(operator.and_, [Q(rank__lt=100 + n) for n in range(3000)])
    assert Thing.objects(things).where(both).count() == 10
    points = reduce(operator.and_, [Q(kind="x") for _ in range(3000)])
    plan = Thing.where(points).order_by("rank").limit(100).selection
    assert len(run_on(things._graph, Scanning, plan).rows) == 10
    looped = Thing.objects(things)
    for number in range(3000):
        looped = looped.exclude(rank=number + 5)
    assert looped.count() == 5
    assert Thing.objects(things).where(rank__in=range(50_000)).count() == 10
    assert Thing.objects(things).where(tags__in=map(str, range(50_000))).count() == 10
    assert len(Thing.objects(things).where(tags__in=map(str, range(50_000))).fetch()) == 10


def test_half_a_character_is_in_no_text(things: GraphContext) -> None:
    """No stored text has a lone surrogate, so asking for one finds nothing and breaks nothing."""
    assert Thing.objects(things).where(title__startswith="\ud800").count() == 0
    assert Thing.objects(things).where(title__icontains="\ud800").fetch() == []


def test_huge_limits_are_harmless(things: GraphContext) -> None:
    """A limit beyond anything the store can count is just no limit."""
    query = Thing.objects(things).order_by("rank")
    for huge in (2**62, 2**63, 10**30):
        assert len(query.limit(huge).fetch()) == 10
        assert len(query.where(rank__gte=0).limit(huge).fetch()) == 10
        assert len(query.page(huge).items) == 10
        assert query.offset(huge).limit(3).fetch() == []


def broken_cursors(query: Query[Thing]) -> Iterator[object]:
    """Cursors that no page returned, or that were changed."""
    good = query.page(2).next
    assert good is not None
    yield from ("", "x", "é", "====", "A" * 1000, good[:-3], good[3:], "\x00", "\ud800", 5, b"x")
    yield from (good[:at] + ("A" if good[at] != "A" else "B") + good[at + 1 :] for at in range(60))


def test_broken_cursors_are_refused(things: GraphContext) -> None:
    """A cursor that is not one, or was changed, is a CursorError."""
    for query in (
        Thing.objects(things),
        Thing.objects(things).order_by("rank"),
        Thing.objects(things).order_by("-rank"),
        Thing.objects(things).where(kind="x").order_by("rank"),
        Thing.objects(things).order_by("kind", "-rank"),
    ):
        for broken in broken_cursors(query):
            with pytest.raises(CursorError):
                query.page(2, after=broken)


def test_a_cursor_belongs_to_its_selection(things: GraphContext) -> None:
    """Another type, order or condition is told apart; another page size is fine."""
    query = Thing.objects(things).order_by("rank")
    after = query.page(2).next
    assert [each.rank for each in query.page(3, after=after).items] == [2, 3, 4]
    for other in (
        query.order_by("-rank"),
        query.order_by("rank", "title"),
        query.where(rank__gt=0),
        Gadget.objects(things).order_by("rank"),
    ):
        with pytest.raises(CursorError, match="other arguments"):
            other.page(2, after=after)


def deep(depth: int) -> Q:
    """Conditions that can't be flattened."""
    return reduce(lambda inner, _: ~inner, range(depth), Q(rank=1))


BAD_QUERIES: dict[str, tuple[Callable[[Query[Thing]], object], str]] = {
    "unknown field": (lambda q: q.where(titel="x").fetch(), "did you mean 'title'"),
    "far from any field": (lambda q: q.where(qqq="x").fetch(), "it has code, kind"),
    "unknown field of a hop": (lambda q: q.where(maker__cty="x").fetch(), "did you mean 'city'"),
    "unknown field to sort by": (lambda q: q.order_by("titel").fetch(), "'titel'"),
    "empty field to sort by": (lambda q: q.order_by("-").fetch(), "''"),
    "unknown field of values": (lambda q: q.values("titel"), "'titel'"),
    "unknown lookup": (lambda q: q.where(title__like="x").fetch(), "icontains"),
    "hop over no reference": (lambda q: q.where(title__code="x").fetch(), "not a reference"),
    "lookup in the middle": (lambda q: q.where(rank__gt__lt=1).fetch(), "not a reference"),
    "id": (lambda q: q.where(id="t1").fetch(), "get"),
    "text for a number": (lambda q: q.where(rank="1").fetch(), "rank"),
    "truth for a number": (lambda q: q.where(rank=True).fetch(), "rank"),
    "number for a text": (lambda q: q.where(title=1).fetch(), "title"),
    "too large a number": (lambda q: q.where(rank__gt=2**63).fetch(), "rank"),
    "immense number": (lambda q: q.where(rank=10**5000).fetch(), "rank"),
    "not a number": (lambda q: q.where(ratio=float("nan")).fetch(), "ratio"),
    "no zone": (lambda q: q.where(seen="2026-01-01T00:00:00").fetch(), "seen"),
    "object": (lambda q: q.where(made=object()).fetch(), "made"),
    "half a character": (lambda q: q.where(title="\ud800").fetch(), "title"),
    "no reference": (lambda q: q.where(maker="nobody").fetch(), "maker"),
    "half a character in a reference": (lambda q: q.where(maker="Maker/\ud800").fetch(), "maker"),
    "in a text": (lambda q: q.where(title__in="abc").fetch(), "list"),
    "in a number": (lambda q: q.where(rank__in=5).fetch(), "list"),
    "in with a wrong value": (lambda q: q.where(rank__in=[1, "2"]).fetch(), "rank"),
    "isnull with a number": (lambda q: q.where(rank__isnull=1).fetch(), "True or False"),
    "order of truth": (lambda q: q.where(flag__gt=True).fetch(), "no order"),
    "order of references": (lambda q: q.where(maker__gt="Maker/m").fetch(), "no order"),
    "text lookup of a number": (lambda q: q.where(rank__startswith="1").fetch(), "text"),
    "number in a text lookup": (lambda q: q.where(title__icontains=1).fetch(), "string"),
    "equal vectors": (lambda q: q.where(spot=[1, 2]).fetch(), "spot"),
    "order of vectors": (lambda q: q.where(spot__gt=[1, 2]).fetch(), "spot"),
    "sort by a list": (lambda q: q.order_by("tags").fetch(), "tags"),
    "sort by a vector": (lambda q: q.order_by("spot").fetch(), "spot"),
    "negative limit": (lambda q: q.limit(-1), "limit must be a whole number from 0, not -1"),
    "half a limit": (lambda q: q.limit(1.5), "limit"),
    "true limit": (lambda q: q.limit(True), "limit"),
    "no limit": (lambda q: q.limit(None), "limit"),
    "negative offset": (lambda q: q.offset(-1), "offset"),
    "negative page": (lambda q: q.page(-1), "size"),
    "page of text": (lambda q: q.page("5"), "size"),
    "too deep": (lambda q: q.where(deep(5000)).fetch(), "deep"),
}


@pytest.mark.parametrize("case", BAD_QUERIES)
def test_what_can_not_be_asked_is_a_query_error(things: GraphContext, case: str) -> None:
    """A question that makes no sense is a QueryError that says what would."""
    ask, says = BAD_QUERIES[case]
    with pytest.raises(QueryError) as caught:
        ask(Thing.objects(things))
    assert says in caught.value.message


@settings(max_examples=200, deadline=None, suppress_health_check=ALL)
@given(
    path=st.lists(st.sampled_from([*OWN["Gadget"], "nope", "", "id"]), min_size=1, max_size=3),
    lookup=st.sampled_from(["", "exact", "in", "gt", "lte", "startswith", "icontains", "isnull"]),
    value=st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters()),
        st.dates(),
        st.lists(st.integers() | st.text()),
        st.dictionaries(st.text(), st.text()),
        st.binary(),
    ),
)
def test_any_condition_is_answered_or_refused(path: list[str], lookup: str, value: object) -> None:
    """Whatever is compared with whatever, the outcome is rows or a QueryError."""
    name = "__".join([*path, lookup] if lookup else path)
    query = Gadget.objects(world(0).ctx).where(**{name: value})
    try:
        found = query.fetch()
    except QueryError as error:
        assert error.message  # noqa: PT017 - both outcomes are right
    else:
        assert len(found) == query.count()


# --- grown and folded views ---------------------------------------------------------------------


@node_type(unique=[("left", "right")], index=[("left", "right")])
class Item(Node):
    """What the machine below writes."""

    code: str = predicate(key=True)
    mark: str | None = predicate(unique=True)
    left: int | None = predicate()
    right: Decimal | None = predicate()
    words: list[str] = predicate()
    next: Ref[Item] | None = predicate()
    others: list[Ref[Item]] = predicate()


@node_type
class Part(Item):
    """A subtype, with a reference it can't do without."""

    owner: Ref[Item] = predicate()
    when: datetime | None = predicate()


@node_type
class Loose(Node):
    """A node without a key."""

    text: str | None = predicate()


@edge_type(source=Item, target=Item)
class Link(Edge):
    """An edge between items."""

    weight: float | None = predicate()


CODES = [f"c{n}" for n in range(8)]
ITEM_VALUES = st.fixed_dictionaries(
    {},
    optional={
        "mark": st.sampled_from(["m1", "m2", None, LONG + "1", LONG + "2"]),
        "left": st.integers(0, 2) | st.none(),
        "right": st.sampled_from(["1.50", "2", None]),
        "words": st.lists(st.sampled_from(["a", "b", "\x00", LONG]), max_size=3),
        "next": st.sampled_from([f"Item/{code}" for code in CODES]) | st.none(),
        "others": st.lists(st.sampled_from([f"Part/{code}" for code in CODES]), max_size=2),
    },
)


def folded(graph: Graph) -> tuple[list[tuple[object, ...]], list[str]]:
    """Both views, made from nothing but the log."""
    file = NodeFile(None, lambda digest: graph.compiled(digest).schema)
    nodes, quads = NodeIndex(file, ROOT_NAME), QuadsView(None)
    head = graph.main.head
    path = graph.ancestry.path("", head.commit)
    file.begin()
    graph.folding.walk_nodes(nodes, path)
    nodes.commit(Position(head.seq, head.commit))
    graph.folding.walk_quads(quads, path)
    return list(nodes.dump()), sorted(map(str, quads.data()))


class Writing(RuleBasedStateMachine):
    """Writes at random; most of it is refused now and then, which must leave no trace either."""

    @initialize()
    def begin(self) -> None:
        """A new graph."""
        self.app = App(Item, Part, Loose, Link, name="folding")
        self.ctx = self.app.context()
        self.loose: list[Loose] = []

    def attempt(self, work: Callable[[], object]) -> None:
        """Do something that may be refused, and must then change nothing."""
        head = self.ctx.kg.head
        try:
            work()
        except (ValidationError, NotFoundError, ZeroDivisionError):
            assert self.ctx.kg.head == head

    @rule(code=st.sampled_from(CODES), values=ITEM_VALUES, upsert=st.booleans())
    def save_item(self, code: str, values: dict[str, object], upsert: bool) -> None:
        """Create or replace."""
        self.attempt(lambda: Item(code=code, **values).save(self.ctx, upsert=upsert))

    @rule(code=st.sampled_from(CODES), owner=st.sampled_from(CODES), values=ITEM_VALUES)
    def save_part(self, code: str, owner: str, values: dict[str, object]) -> None:
        """Create or replace a subtype's instance."""
        part = Part(code=code, owner=f"Item/{owner}", when="2026-01-01T00:00:00+02:00", **values)
        self.attempt(lambda: part.save(self.ctx, upsert=True))

    @rule(code=st.sampled_from(CODES), values=ITEM_VALUES)
    def change(self, code: str, values: dict[str, object]) -> None:
        """Load and change."""
        self.attempt(lambda: self._change(code, values))

    def _change(self, code: str, values: dict[str, object]) -> None:
        item = Item.get(self.ctx, code)
        for name, value in values.items():
            setattr(item, name, value)
        item.save(self.ctx)

    @rule(code=st.sampled_from(CODES), cascade=st.booleans())
    def delete(self, code: str, cascade: bool) -> None:
        """Delete, with what depends on it or not."""
        self.attempt(lambda: Item.get(self.ctx, code).delete(self.ctx, cascade=cascade))

    @rule(start=st.sampled_from(CODES), end=st.sampled_from(CODES), weight=st.floats(0, 9))
    def link(self, start: str, end: str, weight: float) -> None:
        """Join two items."""
        link = Link(source=f"Item/{start}", target=f"Item/{end}", weight=weight)
        self.attempt(lambda: link.save(self.ctx, upsert=True))

    @rule(text=st.text(max_size=3), again=st.booleans())
    def save_loose(self, text: str, again: bool) -> None:
        """Create or change a node without a key."""
        if again and self.loose:
            self.loose[-1].text = text
        else:
            self.loose.append(Loose(text=text))
        self.loose[-1].save(self.ctx)

    @rule(batch=st.lists(st.tuples(st.sampled_from(CODES), ITEM_VALUES), max_size=4))
    def save_all(self, batch: list[tuple[str, dict[str, object]]]) -> None:
        """Save a batch."""
        items = [Item(code=code, **values) for code, values in batch]
        self.attempt(lambda: self.ctx.kg.save_all(items, upsert=True))

    @rule(
        steps=st.lists(
            st.tuples(
                st.sampled_from(["save", "change", "delete", "cascade", "same", "back"]),
                st.sampled_from(CODES),
                ITEM_VALUES,
            ),
            max_size=5,
        ),
        fail=st.integers(0, 3).map(lambda n: n == 0),
    )
    def transaction(self, steps: list[tuple[str, str, dict[str, object]]], fail: bool) -> None:
        """Do several things in one commit, or none."""

        def work() -> None:
            with self.ctx.kg.transaction():
                for what, code, values in steps:
                    self._step(what, code, values)
                if fail:
                    raise ZeroDivisionError

        self.attempt(work)

    def _step(self, what: str, code: str, values: dict[str, object]) -> None:
        if what == "save":
            Item(code=code, **values).save(self.ctx, upsert=True)
        elif what == "change":
            self._change(code, values)
        elif what == "same":
            found = Item.get(self.ctx, code)
            left, found.left = found.left, -1
            found.save(self.ctx)
            found.left = left
            found.save(self.ctx)
        elif what == "back":
            found = Item.get(self.ctx, code)
            kept = dict(self.ctx.kg.find("Item", code).values)
            found.delete(self.ctx)
            type(found)(**kept).save(self.ctx)
        else:
            Item.get(self.ctx, code).delete(self.ctx, cascade=what == "cascade")

    def teardown(self) -> None:
        """Compare the views that grew with views of the log."""
        if hasattr(self, "app"):
            graph = self.app.graph()
            nodes, quads = folded(graph)
            assert list(graph.main.nodes.dump()) == nodes
            assert sorted(map(str, graph.stores.main().data())) == quads
            self.app.close()


def test_grown_views_equal_folded_ones() -> None:
    """After any writes, refused ones included, both views are what the log makes of nothing."""
    run_state_machine_as_test(
        Writing,
        settings=settings(
            max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=ALL
        ),
    )


@pytest.mark.long(cases=sized(1000, nightly=30))
def test_grown_views_equal_folded_ones_for_long() -> None:
    """The same with longer histories and more of them."""
    run_state_machine_as_test(
        Writing,
        settings=settings(
            max_examples=sized(1000, nightly=30),
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=ALL,
        ),
    )


def test_an_empty_limit_finds_nothing():
    """In every way to ask; a limit is never widened."""

    @node_type
    class Item(Node):
        code: str = predicate(key=True)

    with App(Item) as app:
        ctx = app.context()
        ctx.kg.save_all([Item(code="a"), Item(code="b")])
        none = Item.objects(ctx).limit(0)
        assert (none.fetch(), none.first(), none.exists()) == ([], None, False)
        with pytest.raises(NotFoundError):
            none.get()
        assert Item.objects(ctx).limit(1).get().code == "a"
        with pytest.raises(QueryError, match="size must be a whole number from 1, not 0"):
            Item.objects(ctx).page(0)
