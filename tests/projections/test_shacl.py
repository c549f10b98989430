"""The SHACL projection, judged by pySHACL: it accepts exactly what our validator accepts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyoxigraph as ox
import pyshacl
import pytest
import rdflib
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.campaigns import sized

from trails import (
    App,
    BigInt,
    Blob,
    Edge,
    Iri,
    Json,
    Node,
    Ref,
    Shape,
    Vector,
    edge_type,
    node_type,
    predicate,
    shape,
)
from trails.app.modules import load_module
from trails.app.settings import GraphSettings, Project, Settings
from trails.engine.sparql.queries import write_term
from trails.errors import ValidationError
from trails.model.constraints import coercer_of
from trails.model.iris import RDF_TYPE, Names
from trails.model.kinds import KindError
from trails.model.types import PredicateDescriptor, Schema
from trails.projections.shacl import project_shacl
from trails.registry.registry import discover

GOLDEN = Path(__file__).parents[1] / "golden" / "northline.shacl.ttl"
NORTHLINE = Path(__file__).parents[2] / "examples" / "northline"
BASE = "https://example.org/g"
SH = rdflib.Namespace("http://www.w3.org/ns/shacl#")

pytestmark = pytest.mark.filterwarnings(
    # rdflib and pySHACL still use spellings that rdflib itself deprecates.
    "ignore::DeprecationWarning:rdflib.*",
    "ignore::DeprecationWarning:pyshacl.*",
)


@node_type
class Maker(Node):
    """Someone who makes items."""

    code: str = predicate(key=True)


@node_type
class Firm(Maker):
    """A maker that is a firm."""

    city: str | None = predicate(min_length=1)


@node_type(unique=[("batch", "place")])
class Item(Node):
    """One field for every constraint."""

    sku: str = predicate(key=True, pattern=r"^[A-Z]{2}-\d+$")
    title: str = predicate(min_length=2, max_length=8)
    grade: str | None = predicate(one_of=["a", 'b"', "c\\d"])
    note: str | None = predicate(pattern=r"^(?:x|\w\s.)[^\d]*$")
    count: int | None = predicate(min_value=-2, max_value=10)
    free: int | None = predicate()
    level: int | None = predicate(one_of=[1, 2, 3])
    big: BigInt | None = predicate(min_value=BigInt(-5))
    ratio: float | None = predicate(min_value=-0.5, max_value=1e6)
    price: Decimal | None = predicate(min_value=Decimal("0.10"), max_value=Decimal("99.95"))
    made: date | None = predicate(min_value=date(2020, 1, 1), max_value=date(2030, 12, 31))
    seen: datetime | None = predicate(
        min_value=datetime.fromisoformat("2020-01-01T00:00:00+00:00"), unique=True
    )
    home: Iri | None = predicate(max_length=40)
    scan: Blob | None = predicate(pattern=r"^s3:")
    spot: Vector(2) | None = predicate()
    data: Json | None = predicate()
    works: bool | None = predicate(one_of=[True])
    serial: str | None = predicate(unique=True)
    batch: int | None = predicate()
    place: str | None = predicate()
    maker: Ref[Maker] | None = predicate()
    tags: list[str] = predicate(min_count=1, max_count=3, max_length=5)
    peers: list[Ref[Item]] = predicate(max_count=2)


@shape(target=Item)
class Polite(Shape):
    """Titles are polite."""

    title: str = predicate(pattern=r"^[^!]*$")


@edge_type(source=Firm, target=Item, per_source=(1, 2), per_target=(0, 1))
class Sells(Edge):
    """Who sells what."""

    since: date = predicate()


TYPES = (Maker, Firm, Item, Polite, Sells)
SOUND = {"sku": "AB-1", "title": "fine", "tags": ["t"]}

GOOD: Mapping[str, list[object]] = {
    "title": ["ab", "12345678", "é\u0301ß", "\U0001f600\U0001f600", 'a"b\\c'],
    "grade": ["a", 'b"', "c\\d"],
    "note": ["x", "x\u0663", "xyz", "a bc", "_\u00a0\u00e9", "9\t-", 'x\\"u'],
    "count": [-2, 0, 10, 3.0],
    "free": [-(2**63), 2**63 - 1],
    "level": [1, 3],
    "big": [BigInt(-5), "12345678901234567890"],
    "ratio": [-0.5, 0, 1e-7, 1e6],
    "price": [Decimal("0.1"), "99.950", Decimal("1E+1")],
    "made": [date(2020, 1, 1), "2030-12-31"],
    "seen": ["2020-01-01T00:00:00Z", "2019-12-31T23:00:00.5-01:00", "2024-02-29T12:00:00+14:00"],
    "home": ["https://example.org/é", "urn:x"],
    "scan": ["s3://bucket/key"],
    "spot": [[1, 2.5], [-1e300, 0]],
    "data": [{"a": [None, 1.5, 'é"\\']}, "text", 0, False],
    "works": [True],
    "maker": [f"{BASE}/Maker/m1", f"{BASE}/Firm/f1"],
    "tags": [["a"], ["a", "b", "c"], ["a", "a", "b", "c"]],
    "peers": [[], [f"{BASE}/Item/AB-0"]],
}
BAD: Mapping[str, list[object]] = {
    "title": [None, "a", "123456789", "no!", 5, date(2020, 1, 1), True],
    "grade": ["A", "b", "c\\\\d", 1],
    "note": ["y", "é b", "ab", "x1", "x\u0663x7", 7.5],
    "count": [-3, 11, 2**70, "5", 1.5, True],
    "free": [2**63, -(2**63) - 1],
    "level": [0, 4],
    "big": [BigInt(-6)],
    "ratio": [-0.6, 1000000.1, "1", False],
    "price": [Decimal("0.09"), Decimal("99.96"), 5, 0.5],
    "made": [date(2019, 12, 31), date(2031, 1, 1), "yesterday"],
    "seen": ["2019-12-31T23:59:59Z", "2020-01-01T00:00:00+00:01", date(2024, 1, 1)],
    "home": ["not an iri", "https://example.org/" + "x" * 40, 4],
    "scan": ["https://example.org/", "s3:a b"],
    "spot": [[1], [1, 2, 3]],
    "data": [date(2024, 1, 1), Decimal("1.5")],
    "works": [False, 1],
    "maker": [f"{BASE}/Maker/none", f"{BASE}/Item/AB-0"],
    "tags": [[], ["a", "b", "c", "d"], ["123456"], ["a", 1]],
    "peers": [
        [f"{BASE}/Item/none"],
        [f"{BASE}/Item/AB-{n}" for n in (0, 8, 9)],
        [f"{BASE}/Firm/f1"],
    ],
}
PEERS = ("AB-0", "AB-8", "AB-9")


def schema_of(*types: type) -> Schema:
    """The schema of declared classes."""
    with App(name="shacl", types=types) as app:
        return app.registry().schema


SCHEMA = schema_of(*TYPES)
SHAPES = rdflib.Graph().parse(data=project_shacl(SCHEMA, Names(BASE)), format="turtle")


# --- the same nodes, for them and for us ------------------------------------------------


def raw_statements(type_name: str, identifier: str, values: Mapping[str, object]) -> Iterator[str]:
    """A node as RDF, valid or not: each value in its field's form if it has one, else its own."""
    names = Names(BASE)
    subject = ox.NamedNode(names.node(type_name, identifier))
    for each in SCHEMA.lineage(type_name):
        yield f"{subject} {ox.NamedNode(RDF_TYPE)} {ox.NamedNode(names.term(each))} ."
    for field in SCHEMA.by_name[type_name].fields:
        value = values.get(field.name)
        for item in value if field.many and isinstance(value, list) else [value]:
            if item is not None:
                yield f"{subject} {ox.NamedNode(names.term(field.iri))} {term(field, item)} ."


def term(field: PredicateDescriptor, value: object) -> str:
    """A value as a term."""
    if field.target is not None:
        return str(ox.NamedNode(str(value)))
    row = field.type.scalar.row
    assert row is not None
    try:
        coerced = coercer_of(field.type.scalar, {})[0](value)
    except KindError:
        if isinstance(value, list):
            return str(
                ox.Literal(row.lexical(row.coerce(value)), datatype=ox.NamedNode(row.datatype))
            )
        natural = BigInt(value) if type(value) is int else value
        return write_term(field.name, natural)
    return str(ox.Literal(row.lexical(coerced), datatype=ox.NamedNode(row.datatype)))


World = list[tuple[type, str, dict[str, object]]]
"""Nodes to write: class, id, values."""


def focus_nodes(world: World) -> set[str]:
    """The nodes that pySHACL finds at fault."""
    lines = [
        line
        for cls, identifier, values in world
        for line in raw_statements(cls.__name__, identifier, values)
    ]
    data = rdflib.Graph().parse(data="\n".join(lines), format="nt")
    conforms, report, text = pyshacl.validate(data, shacl_graph=SHAPES, advanced=True)
    assert isinstance(report, rdflib.Graph), text
    found = {str(node) for node in report.objects(None, SH.focusNode)}
    assert conforms is not bool(found), text
    return found


def they_accept(world: World) -> bool:
    """PySHACL's verdict."""
    return not focus_nodes(world)


def we_accept(world: World) -> bool:
    """Our validator's verdict, on writing everything in one commit."""
    with app_at_base() as app:
        ctx = app.context()
        try:
            ctx.kg.save_all(cls(**values) for cls, _, values in world)
        except ValidationError:
            return False
        return True


def app_at_base() -> App:
    """An app whose graph has the base IRI of the examples."""
    return App(
        types=TYPES,
        settings=Settings(Project("shacl"), {"main": GraphSettings(base_iri=BASE)}),
    )


def surroundings() -> World:
    """What references in the examples may point at; all of it is valid."""
    return [
        (Maker, "m1", {"code": "m1"}),
        (Firm, "f1", {"code": "f1", "city": "Oslo"}),
        *((Item, sku, {**SOUND, "sku": sku}) for sku in PEERS),
        (Sells, "e", sells("f1", "AB-0")),
    ]


def sells(firm: str, sku: str) -> dict[str, object]:
    """The values of an edge."""
    return {
        "source": f"{BASE}/Firm/{firm}",
        "target": f"{BASE}/Item/{sku}",
        "since": date(2024, 1, 1),
    }


def item(**values: object) -> World:
    """One item in its surroundings."""
    made = {**SOUND, **values}
    return [*surroundings(), (Item, str(made["sku"]), made)]


# --- field by field ---------------------------------------------------------------------


CASES = [
    (field, value, good)
    for good, table in ((True, GOOD), (False, BAD))
    for field, values in table.items()
    for value in values
]


def case_values(number: int) -> dict[str, object]:
    """The values of the item that stands for one case."""
    field, value, _ = CASES[number]
    return {**SOUND, "sku": f"AC-{number}", field: value}


@pytest.fixture(scope="module")
def refused_by_pyshacl() -> set[str]:
    """The cases that pySHACL refuses, all judged in one run, because a run is slow."""
    world = surroundings()
    for number, (field, _, _) in enumerate(CASES):
        # Instants must differ, so each of these would make the others wrong.
        if field != "seen":
            world.append((Item, f"AC-{number}", case_values(number)))
    refused = focus_nodes(world)
    for number, (field, _, _) in enumerate(CASES):
        if field == "seen":
            refused |= focus_nodes([(Item, f"AC-{number}", case_values(number))])
    return refused


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: f"{CASES[n][0]}-{n}")
def test_both_agree_on_each_rule(number: int, refused_by_pyshacl: set[str]) -> None:
    """Values on either side of every limit are judged alike."""
    values = case_values(number)
    good = CASES[number][2]
    assert we_accept([*surroundings(), (Item, str(values["sku"]), values)]) is good, values
    assert (f"{BASE}/Item/AC-{number}" not in refused_by_pyshacl) is good, values


RELATIONS: Mapping[str, tuple[bool, World]] = {
    "another serial": (True, [(Item, "AB-2", {**SOUND, "sku": "AB-2", "serial": "s2"})]),
    "the same serial": (False, [(Item, "AB-2", {**SOUND, "sku": "AB-2", "serial": "s1"})]),
    "the same instant, elsewhere": (
        False,
        [(Item, "AB-2", {**SOUND, "sku": "AB-2", "seen": "2024-01-01T02:00:00+02:00"})],
    ),
    "half of a group": (True, [(Item, "AB-2", {**SOUND, "sku": "AB-2", "batch": 1, "place": "q"})]),
    "a group with a gap": (True, [(Item, "AB-2", {**SOUND, "sku": "AB-2", "batch": 1})]),
    "a whole group": (False, [(Item, "AB-2", {**SOUND, "sku": "AB-2", "batch": 1, "place": "p"})]),
    "a firm without edges": (False, [(Firm, "f2", {"code": "f2"})]),
    "a firm with one edge": (
        True,
        [(Firm, "f2", {"code": "f2"}), (Sells, "e2", sells("f2", "AB-8"))],
    ),
    "a firm with three edges": (
        False,
        [(Sells, f"e{n}", sells("f1", sku)) for n, sku in enumerate(("AB-8", "AB-9"))],
    ),
    "two sellers of one item": (
        False,
        [(Firm, "f2", {"code": "f2"}), (Sells, "e2", sells("f2", "AB-0"))],
    ),
    "an edge from the wrong type": (
        False,
        [(Sells, "e2", {**sells("f1", "AB-8"), "source": f"{BASE}/Maker/m1"})],
    ),
}


@pytest.mark.parametrize("case", RELATIONS)
def test_both_agree_on_rules_between_nodes(case: str) -> None:
    """Uniqueness, compound uniqueness and the number of edges are judged alike."""
    expected, more = RELATIONS[case]
    world = item(serial="s1", seen="2024-01-01T00:00:00Z", batch=1, place="p") + more
    assert we_accept(world) is expected
    assert they_accept(world) is expected


# --- at random ------------------------------------------------------------------------------

# No line ends: to Python's engine, which pySHACL uses, "$" also matches before a last line
# end, to ours and to XPath's only at the end. No lone surrogates: they are not text.
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\n"), max_size=10)
MORE: Mapping[str, st.SearchStrategy[object]] = {
    "title": TEXT,
    "note": TEXT | st.from_regex(r"\A[a-z_0-9]\s.{0,3}\Z").filter(lambda text: "\n" not in text),
    "count": st.integers(-4, 12),
    "free": st.integers(-(2**64), 2**64),
    "ratio": st.floats(allow_nan=False, allow_infinity=False),
    "price": st.decimals(-1, 101, places=3),
    "made": st.dates(),
    "tags": st.lists(TEXT, max_size=5),
}


@st.composite
def values_of_an_item(draw: st.DrawFn, sku: str) -> dict[str, object]:
    """Mostly good values, some bad ones, some from anywhere."""
    values: dict[str, object] = {**SOUND, "sku": sku}
    for field in draw(st.sets(st.sampled_from(sorted(GOOD)), max_size=6)):
        pools = [st.sampled_from(GOOD[field])] * 6 + [st.sampled_from(BAD[field])]
        if field in MORE:
            pools += [MORE[field]] * 2
        values[field] = draw(st.one_of(pools))
    for field, some in (("serial", ["s", "t"]), ("batch", [1, 2]), ("place", ["p", "q"])):
        values[field] = draw(st.none() | st.sampled_from(some))
    return values


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A few items and edges in their surroundings."""
    world = surroundings()
    for number in range(1, draw(st.integers(1, 3)) + 1):
        sku = f"AB-{number}"
        world.append((Item, sku, draw(values_of_an_item(sku))))
        if draw(st.integers(0, 3)) == 0:
            world.append((Sells, f"e{number}", sells("f1", sku)))
    return world


def check_agreement(world: World) -> None:
    """Both give the same verdict."""
    assert we_accept(world) is they_accept(world)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds())
def test_both_agree_on_random_data(world: World) -> None:
    """On random nodes, valid or not, pySHACL agrees with our validator."""
    check_agreement(world)


@pytest.mark.long
@settings(
    max_examples=sized(1500, nightly=80), deadline=None, suppress_health_check=list(HealthCheck)
)
@given(worlds())
def test_both_agree_on_much_random_data(world: World) -> None:
    """On thousands of random worlds pySHACL agrees with our validator."""
    check_agreement(world)


# --- the text -------------------------------------------------------------------------------


def test_stored_statements_conform() -> None:
    """What the graph holds after valid writes conforms as it is stored."""
    with app_at_base() as app:
        ctx = app.context()
        world = item(serial="s1", note="x", price="9.90", seen="2024-01-01T02:00:00+02:00")
        ctx.kg.save_all(cls(**values) for cls, _, values in world)
        text = "\n".join(f"{quad.triple} ." for quad in app.graph().stores.main().data())
    data = rdflib.Graph().parse(data=text, format="nt")
    conforms, _, report = pyshacl.validate(data, shacl_graph=SHAPES, advanced=True)
    assert conforms, report
    assert len(data) == 30


def test_projection_is_deterministic() -> None:
    """Declaration order leaves no trace in the text."""
    assert project_shacl(schema_of(*TYPES), Names(BASE)) == project_shacl(
        schema_of(*reversed(TYPES)), Names(BASE)
    )


def test_projection_escapes_what_turtle_would_misread() -> None:
    """Quotes, backslashes, line ends and controls in declarations come back from Turtle."""
    nasty = 'say "hi" \\ \n\t\r\x00\x7f\u2028 \U0001f600 \\u0041 .'

    @node_type(iri="https://example.org/it's(odd)")
    class Odd(Node):
        name: str | None = predicate(
            description=nasty, one_of=["'", nasty], iri="https://example.org/a;b'é"
        )

    graph = rdflib.Graph().parse(
        data=project_shacl(Schema.of([Odd.__trails__]), Names(BASE)), format="turtle"
    )
    assert [str(each) for each in graph.objects(None, SH.description)] == [nasty]
    assert {str(each) for each in graph.objects(None, SH.path)} == {"https://example.org/a;b'é"}
    choices = rdflib.collection.Collection(graph, next(graph.objects(None, SH["in"])))
    assert [str(each) for each in choices] == ["'", nasty]


def test_pattern_without_xpath_form_becomes_a_comment() -> None:
    """A word boundary, which XPath lacks, is told to readers and not misstated to machines."""

    @node_type
    class Worded(Node):
        name: str = predicate(pattern=r"\bword\b")

    text = project_shacl(Schema.of([Worded.__trails__]), Names(BASE))
    assert "sh:pattern" not in text
    assert r"Must match the ECMA-262 pattern \\bword\\b" in text


def test_northline_golden() -> None:
    """The demo's shapes are exactly the reviewed ones; TRAILS_UPDATE_GOLDEN=1 rewrites them."""
    found = discover(load_module(NORTHLINE, "app.py", "main"))
    with App(*found.types, *found.shapes, name="northline") as app:
        text = project_shacl(app.registry().schema, app.graph().names)
    if os.environ.get("TRAILS_UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
