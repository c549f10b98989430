"""Export: what is written can be loaded again, to the same content, in every format."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pyoxigraph as ox
import pytest
import rdflib
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.worlds.graphs import writing

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
from trails.engine.graph.graph import Graph
from trails.engine.transfer.files import FORMATS, LOADABLE, export
from trails.engine.transfer.load import load_lines
from trails.engine.transfer.rdf import load_rdf
from trails.engine.upkeep.verify import content_digest
from trails.errors import QueryError, ValidationError
from trails.model.nodes import NodeState


@node_type
class Thing(Node):
    """One field of every kind, one by one and as sets."""

    key: str = predicate(key=True, iri="https://example.org/ns/key")
    flag: bool | None = predicate()
    count: int | None = predicate()
    huge: BigInt | None = predicate()
    share: float | None = predicate()
    price: Decimal | None = predicate(iri="https://example.org/ns/price-tag")
    day: date | None = predicate()
    moment: datetime | None = predicate()
    page: Iri | None = predicate()
    picture: Blob | None = predicate()
    spot: Vector(2) | None = predicate()
    data: Json | None = predicate()
    titles: LangText | None = predicate(iri="https://example.org/ns/title")
    note: str | None = predicate(default="none")
    words: list[str] = predicate()
    flags: list[bool] = predicate()
    counts: list[int] = predicate()
    shares: list[float] = predicate()
    prices: list[Decimal] = predicate()
    days: list[date] = predicate()
    moments: list[datetime] = predicate()
    pages: list[Iri] = predicate()
    other: Ref[Thing] | None = predicate()
    others: list[Ref[Thing]] = predicate()
    steps: list[str] = predicate(ordered=True)
    sums: list[Decimal] = predicate(ordered=True, iri="https://example.org/ns/sums")
    times: list[datetime] = predicate(ordered=True)
    line: list[Ref[Thing]] = predicate(ordered=True)


@node_type
class Special(Thing):
    """It inherits all of that."""

    extra: str | None = predicate()


@node_type(iri="https://example.org/ns/Loose")
class Loose(Node):
    """It has no key."""

    text: str | None = predicate(default="text")
    about: Ref[Thing] | None = predicate()


@edge_type(source=Thing, target=Loose)
class Link(Edge):
    """It has values of its own."""

    weight: float | None = predicate(default=1.0)
    labels: list[str] = predicate()


TYPES = (Thing, Special, Loose, Link)

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
keys = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8).filter(
    lambda text: text not in {".", ".."}
)
floats = st.floats(allow_nan=False, allow_infinity=False)
decimals = st.decimals(-(10**15), 10**15, allow_nan=False, allow_infinity=False, places=6)
moments = st.datetimes(
    timezones=st.integers(-840, 840).map(lambda minutes: timezone(timedelta(minutes=minutes)))
)
json_values = st.recursive(
    texts | floats | st.integers() | st.booleans(),
    lambda inner: (
        st.lists(st.none() | inner, max_size=3)
        | st.dictionaries(texts, st.none() | inner, max_size=3)
    ),
    max_leaves=5,
).map(Json)
lang_texts = st.dictionaries(
    st.sampled_from(["en", "de-ch", "zh-hant-tw", "sl-rozaj"]), texts, min_size=1
)
iris = st.sampled_from(["https://example.org/ä?q=1#x", "urn:a:b", "mailto:a@b"]).map(Iri)


def maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """A value or none."""
    return st.none() | strategy


def several(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[list[object]]:
    """A few values."""
    return st.lists(strategy, max_size=3)


THING = st.fixed_dictionaries(
    {},
    optional={
        "flag": maybe(st.booleans()),
        "count": maybe(st.integers(-(2**63), 2**63 - 1)),
        "huge": maybe(st.integers(-(10**50), 10**50).map(BigInt)),
        "share": maybe(floats),
        "price": maybe(decimals),
        "day": maybe(st.dates()),
        "moment": maybe(moments),
        "page": maybe(iris),
        "picture": maybe(st.sampled_from(["https://example.org/a.png", "data:,x"]).map(Blob)),
        "spot": maybe(st.lists(floats, min_size=2, max_size=2)),
        "data": maybe(json_values),
        "titles": maybe(lang_texts),
        "note": maybe(texts),
        "words": several(texts),
        "flags": several(st.booleans()),
        "counts": several(st.integers(-(2**63), 2**63 - 1)),
        "shares": several(floats),
        "prices": several(decimals),
        "days": several(st.dates()),
        "moments": several(moments),
        "pages": several(iris),
        "steps": several(texts),
        "sums": several(decimals),
        "times": several(moments),
    },
)


def states(graph: Graph) -> list[NodeState]:
    """Everything that a graph holds."""
    with graph.file.reader() as db:
        return list(graph.main.nodes.states(db, graph.main.schema.by_name))


def digest(graph: Graph) -> str:
    """What a graph holds, as a number."""
    return content_digest(graph.main.terms, states(graph))


def load(graph: Graph, blocks: list[bytes], format: str) -> None:
    """Load a file in one write."""
    with writing(graph) as write:
        if format == "ndjson":
            load_lines(write, graph.main.schema, graph.names, blocks, mode="append")
        else:
            load_rdf(write, graph.main.schema, graph.names, blocks, format=format, mode="append")


@st.composite
def graphs(draw: st.DrawFn) -> list[Node]:
    """Nodes of all types that refer to each other."""
    things: list[Node] = []
    named = draw(st.lists(keys, unique_by=_normal, max_size=4))
    for key in named:
        kind = draw(st.sampled_from([Thing, Special]))
        things.append(kind(key=key, **draw(THING)))
    if things:
        one = st.sampled_from(things)
        for thing in things:
            thing.other = draw(maybe(one))
            thing.others = draw(st.lists(one, max_size=2))
            thing.line = draw(st.lists(one, max_size=3))
    loose = [
        Loose(
            text=draw(maybe(texts)), about=draw(maybe(st.sampled_from(things))) if things else None
        )
        for _ in range(draw(st.integers(0, 2)))
    ]
    pairs = [(thing, each) for thing in things for each in loose]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=3)) if pairs else []
    links = [
        Link(source=thing, target=each, weight=draw(maybe(floats)), labels=draw(several(texts)))
        for thing, each in chosen
    ]
    for node in (*loose, *links):
        if draw(st.booleans()):  # a default that was taken away again
            setattr(node, "text" if isinstance(node, Loose) else "weight", None)
    return [*things, *loose, *links]


def _normal(key: str) -> str:
    return unicodedata.normalize("NFC", key)


@pytest.mark.parametrize("format", LOADABLE)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(nodes=graphs())
def test_a_graph_survives_its_export(format: str, nodes: list[Node]) -> None:
    """Loaded into an empty graph it has the same content, and is written the same way."""
    with App(*TYPES) as first, App(*TYPES) as second:
        first.context(actor="test").kg.save_all(nodes)
        blocks = list(export(first.graph().main.terms, states(first.graph()), format))
        load(second.graph(), blocks, format)
        assert digest(second.graph()) == digest(first.graph())
        assert sorted(map(repr, states(second.graph()))) == sorted(map(repr, states(first.graph())))
        assert sorted(
            b"".join(export(second.graph().main.terms, states(second.graph()), format))
        ) == (sorted(b"".join(blocks)))


SAMPLE: list[Callable[[], Node]] = [
    lambda: Thing(
        key='a "quoted"\\ key/ß\n',
        count=-5,
        huge=BigInt(10**30),
        share=1e300,
        price=Decimal("12.50"),
        day=date(2026, 3, 1),
        moment=datetime(2026, 3, 1, 9, 30, tzinfo=UTC),
        page=Iri("https://example.org/ü"),
        picture=Blob("https://example.org/a.png"),
        spot=[0.5, -0.0],
        flag=False,
        words=["b", "a", "^^<http://www.w3.org/2001/XMLSchema#integer>"],
        note="line\nline\ttab 🜚",
    ),
    lambda: Special(key="s", extra="x", other="Thing/t", others=["Thing/t", "Special/s"]),
    lambda: Thing(key="t"),
]


@pytest.fixture
def graph() -> Iterator[Graph]:
    """A small graph with everything that is hard to write."""
    with App(*TYPES) as app:
        ctx = app.context(actor="test")
        loose = Loose(text="loose")
        nodes = [make() for make in SAMPLE]
        ctx.kg.save_all([*nodes, loose])
        link = Link(source="Thing/t", target=loose)
        link.weight = None
        link.save(ctx)
        yield app.graph()


def statements(graph: Graph) -> set[tuple[str, str, str]]:
    """All statements, as the library reads them."""
    lines = "".join(line for state in states(graph) for line in graph.main.terms.statements(state))
    return {
        (str(quad.subject), str(quad.predicate), str(quad.object))
        for quad in ox.parse(lines.encode(), format=ox.RdfFormat.N_QUADS)
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning:rdflib")
@pytest.mark.parametrize(
    ("format", "name"), [("turtle", "turtle"), ("nquads", "nquads"), ("jsonld", "json-ld")]
)
def test_another_library_reads_the_same_statements(graph: Graph, format: str, name: str) -> None:
    """It finds every statement of the graph, and no other."""
    text = b"".join(export(graph.main.terms, states(graph), format)).decode()
    found = rdflib.Dataset()
    found.parse(data=text, format=name)
    read = {tuple(term.n3() for term in (s, p, o)) for s, p, o, _ in found.quads()}
    plain = rdflib.Graph().parse(
        data="".join(
            line for state in states(graph) for line in graph.main.terms.statements(state)
        ),
        format="nt",
    )
    assert read == {tuple(term.n3() for term in triple) for triple in plain}
    assert len(read) == len(statements(graph))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:rdflib")
@pytest.mark.parametrize(
    ("format", "name"), [("turtle", "turtle"), ("nquads", "nquads"), ("jsonld", "json-ld")]
)
def test_another_library_reads_the_same_lists(format: str, name: str) -> None:
    """An ordered list is a standard rdf:List in every format."""
    steps = ["b", "a", 'c "\n', "a", "a"]
    with App(*TYPES) as app:
        ctx = app.context()
        Thing(key="t", steps=steps, line=["Thing/t", "Thing/t"]).save(ctx)
        graph = app.graph()
        text = b"".join(export(graph.main.terms, states(graph), format)).decode()
        found = rdflib.Dataset()
        found.parse(data=text, format=name)
        whole = rdflib.Graph()
        whole += [(s, p, o) for s, p, o, _ in found.quads()]
        node = rdflib.URIRef(graph.names.nodes + "Thing/t")
        for field, items in (("steps", steps), ("line", [str(node)] * 2)):
            head = whole.value(node, rdflib.URIRef(graph.names.term(field)))
            assert [str(each) for each in whole.items(head)] == items


LIST_FILES = {
    "a collection": (":steps ( 'b' 'a' 'b' )", ["b", "a", "b"]),
    "no items": (":steps ()", []),
    "blank cells": (
        ":steps _:x . _:x rdf:first 'b' ; rdf:rest [ rdf:first 'b' ; rdf:rest () ]",
        ["b", "b"],
    ),
    "with classes": (
        ":steps _:x . _:x a rdf:List ; rdf:first 'b' ; rdf:rest rdf:nil",
        ["b"],
    ),
    "named cells": (
        ":steps <urn:c> . <urn:c> rdf:first 'b' ; rdf:rest rdf:nil",
        ["b"],
    ),
}


@pytest.mark.parametrize("given", LIST_FILES)
def test_lists_of_others_are_read(given: str) -> None:
    """Whatever the cells are called."""
    text, steps = LIST_FILES[given]
    assert _loaded(text) == steps


def _loaded(text: str) -> list[str]:
    with App(*TYPES, name="app") as app:
        prefixes = (
            "@prefix : <schema#> . @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> ."
        )
        file = f"{prefixes} <Thing/t> a :Thing ; <https://example.org/ns/key> 't' ; {text} ."
        load(app.graph(), [file.encode()], "turtle")
        return Thing.get(app.context(), "t").steps


BROKEN_LISTS = {
    ":steps 'b'": "steps is an ordered list, which is written as a collection",
    ":steps ('a'), ('b')": "steps may have at most 1 value",
    ":steps _:x . _:x rdf:first 'b'": "has 1 rdf:first and 0 rdf:rest",
    ":steps _:x . _:x rdf:first 'b', 'c' ; rdf:rest ()": "has 2 rdf:first and 1 rdf:rest",
    ":steps _:x . _:x rdf:first 'b' ; rdf:rest _:x": "is in it twice",
    ":steps _:x": "is not a list",
    ":steps (1)": "must be a literal of",
    ":words ('b')": "must be a literal",
    "a :Thing . _:x rdf:first 'b' ; rdf:rest ()": "no field with ordered=True has",
}


@pytest.mark.parametrize("text", BROKEN_LISTS)
def test_a_broken_list_is_refused(text: str) -> None:
    """With the reason, and nothing is loaded."""
    with pytest.raises(ValidationError) as caught:
        _loaded(text)
    assert BROKEN_LISTS[text] in str(caught.value)


def test_turtle_reads_well(graph: Graph) -> None:
    """A paragraph a node, with prefixes."""
    text = b"".join(export(graph.main.terms, states(graph), "turtle")).decode()
    assert "a :Special ;\n  a :Thing ;" in text
    assert ':extra "x" ;' in text
    assert '"-5"^^xsd:integer' in text


def test_ndjson_lines_are_what_load_takes(graph: Graph) -> None:
    """Nodes with their data, ids where there is no key, edges with their ends."""
    rows = [
        json.loads(line)
        for block in export(graph.main.terms, states(graph), "ndjson")
        for line in block.splitlines()
    ]
    assert {"type": "Thing", "data": {"key": "t", "note": "none"}} in rows
    (loose,) = [row for row in rows if row.get("type") == "Loose"]
    assert loose == {"type": "Loose", "id": loose["id"], "data": {"text": "loose"}}
    (link,) = [row for row in rows if "edge" in row]
    assert link == {
        "edge": "Link",
        "from": "Thing/t",
        "to": f"Loose/{loose['id']}",
        "data": {"weight": None},
    }


def test_the_digest_tells_contents_apart(graph: Graph) -> None:
    """It does not depend on order, and changes with every value."""
    everything = states(graph)
    assert content_digest(graph.main.terms, reversed(everything)) == digest(graph)
    changed = {digest(graph)}
    for at in range(len(everything)):
        changed.add(content_digest(graph.main.terms, everything[:at] + everything[at + 1 :]))
    assert len(changed) == len(everything) + 1
    assert content_digest(graph.main.terms, []) == "0" * 64


def test_an_unknown_format_is_told(graph: Graph) -> None:
    """With the nearest that there is."""
    with pytest.raises(QueryError, match="did you mean 'turtle'"):
        export(graph.main.terms, [], "turtel")


def test_an_export_streams(graph: Graph) -> None:
    """Nodes are asked for as blocks are taken."""
    (one, *_) = states(graph)
    asked = 0

    def endless() -> Iterator[NodeState]:
        nonlocal asked
        while True:
            asked += 1
            yield one

    for format in FORMATS:
        asked = 0
        blocks = export(graph.main.terms, endless(), format)
        assert len(next(blocks)) + len(next(blocks)) > 2**17
        assert asked < 10_000
