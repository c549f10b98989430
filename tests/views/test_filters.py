"""Conditions in SQL against the same conditions tested node by node in Python.

The graph has branches, a snapshot, subtypes, lists, gaps, references of one and of several hops,
edges, texts that JSON escapes, texts longer than keys and than documents, ids longer than keys.
The limits that choose a way to a page are drawn too, so that a small graph takes every way.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from random import Random
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.worlds.statements import Statements

from trails import App, LangText, Node, Q, Ref, edge_type, node_type, predicate
from trails.errors import LimitError
from trails.model.fairness import reading_within
from trails.model.nodes import Condition, Group, NodeState, Order, Selection
from trails.model.visibility import SchemaFilter, make_schema_filter
from trails.views.nodes import select
from trails.views.nodes.long_texts import LONG_TEXT
from trails.views.nodes.scans import Ranker
from trails.views.nodes.select import Selector

TEXTS = [
    "",
    "a",
    "ab",
    'quo"te',
    "back\\slash",
    "new\nline",
    "\x00nul",
    "a\x00b",
    "é",
    "😀",
    "~",
    " ",
]
TEXTS += ['"n":-9,', '{"born":"2020-01-01"}']
TEXTS += ["k" * 70 + end for end in ("", "1", "2")]
MOMENTS = [datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=n / 4) for n in range(9)]
FLOATS = [0.0, -1.5, 0.1, 0.1 + 1e-17, 1e300, 5e-324, 2.5, 1e22]


@node_type
class City(Node):
    """Where somebody lives."""

    name: str = predicate(key=True)
    size: int | None = predicate()
    note: str | None = predicate()
    en: int | None = predicate()
    called: LangText | None = predicate()
    twin: Ref[City] | None = predicate()


@node_type
class Person(Node):
    """Somebody, with fields of every sort."""

    code: str = predicate(key=True)
    n: int | None = predicate()
    ratio: float | None = predicate()
    born: date | None = predicate()
    seen: datetime | None = predicate()
    text: str | None = predicate()
    tags: list[str] = predicate()
    marks: list[int] = predicate()
    home: Ref[City] | None = predicate()
    places: list[Ref[City]] = predicate()
    boss: Ref[Person] | None = predicate()


@node_type
class Worker(Person):
    """A subtype with a field of its own."""

    wage: int | None = predicate()


@node_type
class Spy(Person):
    """A subtype that some actors can't see."""


@edge_type(source=Person, target=City)
class Visit:
    """An edge with a field."""

    days: int | None = predicate()


def _city(number: int) -> str:
    """An id; that of every fourth is longer than a key."""
    return f"c{number}" + ("x" * 80 if number % 4 == 0 else "")


def _values(random: Random, cls: type[Node]) -> dict[str, object]:
    def some(values: list[object]) -> object:
        return random.choice([None, *values])

    found: dict[str, object] = {
        "n": some([-3, 0, 1, 2, 7, 2**62]),
        "ratio": some([*FLOATS]),
        "born": some([date(2020, 1, day) for day in range(1, 6)]),
        "seen": some([*MOMENTS]),
        "text": some([*TEXTS]) if random.random() < 0.97 else random.choice("kz") * (LONG_TEXT + 1),
        "tags": random.sample(["a", "b", "c", "k" * 70], random.randrange(3)),
        "marks": random.sample([1, 2, 3, 4], random.randrange(3)),
        "home": some([_city(n) for n in range(9)]),
        "places": [_city(n) for n in random.sample(range(9), random.randrange(3))],
    }
    if cls is Worker:
        found["wage"] = some([1, 2, 3])
    return {name: value for name, value in found.items() if value is not None}


def _change(ctx, random: Random, names: str) -> None:
    """Save cities, people and visits anew."""
    notes = [None, "ab", "k" * 70, "k" * (LONG_TEXT + 1)]
    for number in range(9):
        if random.random() < 0.6:
            note, twin = random.choice(notes), random.choice([None, _city(random.randrange(9))])
            City(
                name=_city(number),
                size=random.choice([None, 1, 2, 3]),
                en=random.choice([None, 1, 2]),
                called={"en": "5", "de": "x"},
                note=note,
                twin=twin,
            ).save(ctx, upsert=True)
    people = []
    for name in names:
        cls = (Person, Worker, Spy)[ord(name) % 3]
        people.append(cls(code=name, **_values(random, cls)))
        people[-1].save(ctx, upsert=True)
    for person in people:
        if random.random() < 0.6:
            person.boss = random.choice(people)
            person.save(ctx, upsert=True)
        if random.random() < 0.4:
            city = City.get(ctx, _city(random.randrange(9)))
            Visit(source=person, target=city, days=random.choice([None, 1, 2])).save(
                ctx, upsert=True
            )


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    """One graph at several places: main, a branch, a branch of it, and a commit of the past."""
    random = Random(7)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    with App(City, Person, Worker, Spy, Visit, folder=tmp_path_factory.mktemp("graph")) as app:
        main = app.context()
        for number in range(9):
            City(name=_city(number)).save(main)
        _change(main, random, letters)
        past = app.versions().branches()[0].head
        app.versions().create_branch("one")
        _change(app.context(branch="one"), random, "ABCDEFGH")
        app.versions().create_branch("two", source="one")
        _change(app.context(branch="two"), random, "EFGHIJKL")
        _change(main, random, "GHIJabc")
        yield [
            main,
            app.context(branch="one"),
            app.context(branch="two"),
            app.context(snapshot=past),
        ]


HIDDEN: list[tuple[set[str], dict[str, frozenset[str]]]] = [
    (set(), {}),
    ({"Spy"}, {}),
    (set(), {"Worker": frozenset({"n", "home", "text"})}),
    ({"Worker"}, {"Spy": frozenset({"boss", "born"}), "City": frozenset({"size"})}),
]


def _leaves() -> st.SearchStrategy[Condition]:
    def compared(path: str, values: list[object]) -> st.SearchStrategy[Condition]:
        lookups = st.sampled_from(["exact", "gt", "gte", "lt", "lte"])
        return st.builds(
            Condition, st.just(tuple(path.split("."))), lookups, st.sampled_from(values)
        )

    def listed(path: str, values: list[object]) -> st.SearchStrategy[Condition]:
        some = st.lists(st.sampled_from(values), max_size=4)
        return st.builds(Condition, st.just(tuple(path.split("."))), st.just("in"), some)

    fields: dict[str, list[object]] = {
        "n": [-4, -3, 0, 1, 2, 3, 2**62],
        "ratio": [*FLOATS, 0.3],
        "born": [date(2020, 1, day) for day in range(1, 7)],
        "seen": [*MOMENTS, datetime(1, 1, 1, tzinfo=UTC)],
        "text": [*TEXTS, "k" * 80, "kk"],
        "tags": ["a", "b", "k" * 70, "zz"],
        "marks": [0, 1, 2, 3, 4],
        "home.size": [0, 1, 2, 3],
        "home.en": [0, 1, 2, 6],
        "home.note": ["ab", "k" * 70, "l"],
        "home.twin.size": [1, 2],
        "places.size": [1, 2, 3],
        "boss.n": [0, 1, 2],
        "boss.home.size": [1, 2, 3],
        "boss.boss.text": ["a", "k"],
    }
    texts = ["text", "tags", "home.note", "boss.text"]
    starts = [*TEXTS, "k", "k" * 63, "k" * 66, "\ud800"]
    nulls = [*fields, "home", "places", "boss", "boss.home"]
    return st.one_of(
        *(compared(path, values) for path, values in fields.items()),
        *(listed(path, values) for path, values in fields.items()),
        st.builds(
            Condition,
            st.sampled_from([tuple(each.split(".")) for each in texts]),
            st.sampled_from(["startswith", "icontains"]),
            st.sampled_from(starts),
        ),
        st.builds(
            Condition,
            st.sampled_from([tuple(each.split(".")) for each in nulls]),
            st.just("isnull"),
            st.booleans(),
        ),
        st.builds(
            Condition,
            st.sampled_from([("home",), ("places",)]),
            st.just("exact"),
            st.sampled_from([f"City/{_city(n)}" for n in range(9)]),
        ),
    )


TREES = st.recursive(
    _leaves(),
    lambda inner: st.one_of(
        st.builds(Group, st.just("not"), st.tuples(inner)),
        st.builds(
            Group,
            st.sampled_from(["and", "or", "and"]),
            st.lists(inner, min_size=1, max_size=4).map(tuple),
        ),
    ),
    max_leaves=6,
)
ORDERS = st.sampled_from(
    ["", "n", "-n", "text", "-text", "born", "-seen", "ratio", "code", "-home"]
)


def _expected(selector: Selector, selection: Selection) -> list[str]:
    """The matching handles in order, from every node there is, each tested by itself."""
    family = selector._schema.family(selection.type)
    tree = selector._compiler.compile(selection.type, selection.where)
    hidden = selector._schema_filter
    rank = Ranker(selector._descriptor(selection), selection.order)
    found: list[tuple[object, str]] = []
    for stored in selector.index.stored(selector.db, family):
        state: NodeState | None = stored.state
        if hidden is not None and state is not None:
            state = hidden.apply(state)
        if state is not None and (tree is None or tree.test(state.values)):
            found.append((rank.place(rank.key(state.values), stored.nid), state.handle))
    found.sort(key=lambda each: each[0])  # type: ignore[arg-type,return-value]
    return [handle for _, handle in found]


def _pages(selector: Selector, selection: Selection) -> Iterator[str]:
    while True:
        found = selector.select(selection)
        yield from (each.handle for each in found.rows)
        if found.next is None:
            return
        selection = msgspec.structs.replace(selection, after=found.next)


def _known(schema, path: tuple[str, ...], type_name: str) -> bool:
    for name in path:
        field = schema.by_name[type_name].by_name.get(name)
        if field is None:
            return False
        type_name = field.target or ""
    return True


def _paths(tree: Condition | Group) -> Iterator[tuple[str, ...]]:
    if isinstance(tree, Condition):
        yield tree.path
    else:
        for part in tree.parts:
            yield from _paths(part)


LIMITS = st.fixed_dictionaries(
    {
        "_FEW": st.sampled_from([0, 2, 256]),
        "_FETCH": st.sampled_from([2, 16]),
        "_STEPS": st.sampled_from([0, 1, 16]),
        "_SLOW_STEPS": st.sampled_from([0, 1, 6]),
    }
)


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    place=st.integers(0, 3),
    hidden=st.integers(0, len(HIDDEN) - 1),
    where=TREES,
    order=ORDERS,
    size=st.sampled_from([7, 30, 100]),
    limits=LIMITS,
)
@example(
    place=2,
    hidden=0,
    where=Group("not", (Condition(("boss", "home", "size"), "lt", 3),)),
    order="-n",
    size=3,
    limits={"_FEW": 0, "_FETCH": 2, "_STEPS": 1, "_SLOW_STEPS": 1},
)
@example(
    place=0,
    hidden=2,
    where=Group(
        "not", (Group("or", (Condition(("n",), "exact", 1), Condition(("ratio",), "exact", 0.0))),)
    ),
    order="",
    size=7,
    limits={"_FEW": 0, "_FETCH": 16, "_STEPS": 16, "_SLOW_STEPS": 6},
)
@example(
    place=1,
    hidden=0,
    where=Group(
        "not",
        (Group("or", (Condition(("n",), "exact", 1), Condition(("text",), "icontains", "A"))),),
    ),
    order="n",
    size=7,
    limits={"_FEW": 0, "_FETCH": 16, "_STEPS": 16, "_SLOW_STEPS": 6},
)
def test_sql_selects_what_the_tests_in_python_accept(
    contexts, place, hidden, where, order, size, limits
):
    """Pages hold the same nodes in the same order, and counts agree, wherever and for whomever."""
    ctx = contexts[place]
    fields = tuple(Order(each.removeprefix("-"), each.startswith("-")) for each in (order,) if each)
    selection = Selection("Person", where, fields, size)

    def check(outer: Selector) -> None:
        schema = outer._schema
        schema_filter: SchemaFilter | None = None
        if hidden:
            schema_filter = make_schema_filter(schema, *HIDDEN[hidden])
            schema = schema_filter.schema
        if not all(_known(schema, path, "Person") for path in _paths(where)):
            return
        special = outer._compiler._special
        selector = Selector(outer.index, outer.db, schema, dict(special), schema_filter)
        expected = _expected(selector, selection)
        assert list(_pages(selector, selection)) == expected
        assert selector.count(selection) == len(expected)
        whole = msgspec.structs.replace(selection, limit=None)
        assert list(_pages(selector, whole)) == expected
        later = msgspec.structs.replace(selection, limit=size, offset=2)
        assert list(_pages_of_one(selector, later)) == expected[2 : 2 + size]

    with patch.multiple(select, **limits):
        ctx.kg._select(check)


def _pages_of_one(selector: Selector, selection: Selection) -> Iterator[str]:
    yield from (each.handle for each in selector.select(selection).rows)


@pytest.mark.parametrize("hidden", range(len(HIDDEN)))
@pytest.mark.parametrize("place", range(4))
def test_edges_are_counted_and_listed_as_they_are_seen(contexts, place, hidden):
    """An edge of a hidden node is hidden: from lists, from counts, and with conditions."""
    for where in (None, Condition(("days",), "gt", 0), Condition(("days",), "exact", 1)):
        selection = Selection("Visit", where, (), 3)

        def check(outer: Selector, selection: Selection = selection) -> None:
            schema_filter = make_schema_filter(outer._schema, *HIDDEN[hidden])
            selector = Selector(
                outer.index, outer.db, schema_filter.schema, {}, schema_filter if hidden else None
            )
            expected = _expected(selector, selection)
            assert list(_pages(selector, selection)) == expected
            assert selector.count(selection) == len(expected)

        contexts[place].kg._select(check)


class Traced:
    """A connection that remembers its statements."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.statements: list[str] = []

    def execute(self, query: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        """Remember it and run it."""
        self.statements.append(query)
        return self.db.execute(query, values)


CONDITIONS: list[Condition | Group] = [
    Condition(("n",), "exact", 1),
    Condition(("n",), "lt", 2),
    Condition(("n",), "in", [0, 1, 7]),
    Condition(("text",), "startswith", "k"),
    Condition(("text",), "isnull", value=False),
    Condition(("home", "size"), "exact", 1),
    Condition(("home", "size"), "lt", 3),
    Condition(("home", "en"), "gt", 1),
    Condition(("places", "size"), "exact", 2),
    Condition(("boss", "home", "size"), "gt", 1),
    Group("not", (Condition(("home", "size"), "exact", 1),)),
    Group("or", (Condition(("n",), "lt", 1), Condition(("home", "size"), "gte", 2))),
    Group("and", (Condition(("n",), "gt", -4), Condition(("home", "size"), "lte", 3))),
]


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("order", ["", "n", "-text"])
@pytest.mark.parametrize("few", [0, 256])
def test_no_statement_walks_a_table(contexts, place, order, few):
    """Every table is searched by an index; only what a statement has made itself is scanned."""
    fields = tuple(Order(each.removeprefix("-"), each.startswith("-")) for each in (order,) if each)

    def check(selector: Selector) -> None:
        traced = Traced(selector.db)
        selector._db = traced  # type: ignore[assignment]
        for where in CONDITIONS:
            selector.select(Selection("Person", where, fields, 3))
            selector.count(Selection("Person", where))
        assert len(traced.statements) > len(CONDITIONS)
        explained = Statements()
        for query in traced.statements:
            explained.note(traced.db, query)
        for each in explained:
            assert not each.walks, each

    with patch.multiple(select, _FEW=few):
        contexts[place].kg._select(check)


def _steps(ctx, run) -> int:
    """How many instructions SQLite needs for something."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    def counted(selector: Selector) -> None:
        selector.db.set_progress_handler(step, 1)
        try:
            run(selector)
        finally:
            selector.db.set_progress_handler(None, 0)

    ctx.kg._select(counted)
    return count


@pytest.mark.parametrize(
    ("where", "grows"),
    [
        (Condition(("n",), "exact", 1), 1),
        (Condition(("n",), "lt", 1), 1),
        (Group("and", (Condition(("n",), "lt", 2), Condition(("text",), "lt", "b"))), 1),
        (Condition(("home", "size"), "exact", 1), 1),
        (Condition(("home", "size"), "lt", 2), 1),
        (Condition(("home", "size"), "exact", 7), 1),
    ],
)
def test_a_page_costs_as_much_in_a_larger_graph(where, grows):
    """What a page of frequent matches costs depends on the page, not on the number of nodes."""
    found = {}
    for size in (1_500, 6_000):
        with App(City, Person, Worker, Spy, Visit) as app:
            ctx = app.context()
            ctx.kg.save_all(City(name=f"c{n}", size=n % 5 if n else 7) for n in range(100))
            ctx.kg.save_all(
                Person(
                    code=f"p{n}",
                    n=n % 5,
                    text="ab"[n // 5 % 2],
                    born=date(2020, 1, 1) + timedelta(n * 7919 % 6_000),
                    home=f"c{n * 31 % 99 + 1}",
                )
                for n in range(size)
            )
            page = Selection("Person", where, (Order("born"),), 10)
            found[size] = _steps(ctx, lambda selector, page=page: selector.select(page))
    assert found[6_000] < found[1_500] * 1.6 * grows


def test_a_count_over_references_costs_what_matches(contexts):
    """It looks at the matching targets and at the keys of those that refer to them."""
    del contexts
    found = {}
    for size in (1_500, 6_000):
        with App(City, Person, Worker, Spy, Visit) as app:
            ctx = app.context()
            ctx.kg.save_all(City(name=f"c{n}", size=n) for n in range(100))
            ctx.kg.save_all(Person(code=f"p{n}", home=f"c{min(n // 5, 99)}") for n in range(size))
            few = Selection("Person", Condition(("home", "size"), "lt", 5))
            found[size] = _steps(ctx, lambda selector, few=few: selector.count(few))
            assert ctx.kg.count(few) == 25
    assert found[6_000] == found[1_500]


def test_a_statement_ends_at_the_deadline(contexts):
    """A statement that SQLite runs by itself is stopped too, and the connection can be used."""
    ctx = contexts[0]
    slow = Person.objects(ctx).where(~Q(n=1))
    everything = slow.count()
    with patch.object(select, "_INSTRUCTIONS", 50):
        with reading_within(0), pytest.raises(LimitError, match="stopped after 0 s"):
            slow.count()
        with reading_within(60):
            assert slow.count() == everything
    with reading_within(0):
        assert slow.count() == everything  # few instructions are not worth a look at the clock
    assert slow.count() == everything
