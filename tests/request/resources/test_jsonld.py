"""An instance as JSON-LD says exactly what the store holds of it."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pyoxigraph as ox
import pytest
import rdflib
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.worlds.graphs import Reading

from trails import App, BigInt, Blob, Iri, Json, Node, Ref, Vector, node_type, predicate
from trails.app.settings import GraphSettings, Project, Settings

# rdflib's reader still stands on a class of its own that it calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:ConjunctiveGraph:DeprecationWarning")


@node_type(iri="https://schema.org/Thing")
class Base(Node):
    """What a Thing extends."""

    code: str = predicate(key=True)
    text: str | None = predicate(iri="https://schema.org/name")


@node_type
class Thing(Base):
    """One field of every kind."""

    flag: bool | None = predicate()
    whole: int | None = predicate(iri="urn:example:whole")
    big: BigInt | None = predicate()
    real: float | None = predicate()
    exact: Decimal | None = predicate()
    day: date | None = predicate()
    moment: datetime | None = predicate()
    link: Iri | None = predicate()
    blob: Blob | None = predicate()
    place: Vector | None = predicate(dimension=2)
    data: Json | None = predicate()
    other: Ref["Base"] | None = predicate()
    texts: list[str] = predicate()
    numbers: list[int] = predicate()
    others: list[Ref["Base"]] = predicate()


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
THINGS = st.fixed_dictionaries(
    {"code": TEXT.filter(lambda text: text not in {"", ".", ".."})},
    optional={
        "text": TEXT,
        "flag": st.booleans(),
        "whole": st.integers(-(2**63), 2**63 - 1),
        "big": st.integers(-(10**60), 10**60).map(BigInt),
        "real": st.floats(allow_nan=False, allow_infinity=False),
        "exact": st.decimals(-(10**15), 10**15, places=6, allow_nan=False),
        "day": st.dates(),
        "moment": st.datetimes(timezones=ZONES | st.just(UTC)),
        "link": st.sampled_from(["urn:x:y", "https://example.org/é?q=1#f", "mailto:a@b"]).map(Iri),
        "blob": st.just("https://example.org/b").map(Blob),
        "place": st.tuples(*[st.floats(-1e9, 1e9)] * 2),
        "data": st.recursive(
            TEXT | st.booleans(), lambda inner: st.dictionaries(TEXT, inner, max_size=2)
        ),
        "texts": st.lists(TEXT, max_size=3),
        "numbers": st.lists(st.integers(-9, 9), max_size=4),
    },
)


@pytest.fixture(
    scope="module",
    params=["trails://project/graph", "https://example.org/data"],
    ids=["own", "web"],
)
def reading(request):
    """A graph with that base, and something to refer to."""
    given = Settings(Project("p"), {"main": GraphSettings(base_iri=request.param)})
    with App(Base, Thing, settings=given) as app:
        Base(code='a b/"é>', text="target").save(app.context())
        Thing(code="Thing/x", text="target").save(app.context())
        yield Reading(app)


def stored(app: App, iri: str) -> set[str]:
    """The statements that the Oxigraph store holds of a node, as N-Triples."""
    graph = app.graph()
    node = ox.NamedNode(iri)

    def read(quads):
        found = quads.query(f"CONSTRUCT {{ {node} ?p ?o }} WHERE {{ {node} ?p ?o }}", graph.names)
        return {f"{triple} ." for triple in found}

    return graph.reading_quads(graph.main, read)


def assert_reads_back(reading: Reading, uri: str) -> dict:
    """Both JSON-LD processors find in a document what the store holds, and nothing else."""
    (content,) = reading.contents(uri)
    assert content.mime_type == "application/ld+json"
    document = json.loads(content.text)
    held = stored(reading.app, document["@id"])
    assert held
    quads = ox.parse(content.text.encode(), format=ox.RdfFormat.JSON_LD)
    assert {f"{quad.triple} ." for quad in quads} == held
    theirs = rdflib.Graph().parse(data=content.text, format="json-ld")
    ours = rdflib.Graph().parse(data="\n".join(held), format="nt")
    assert set(theirs) == set(ours)
    return document


@pytest.mark.req("T11")
@given(THINGS, st.booleans())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_an_instance_reads_back_to_exactly_the_stored_statements(reading, values, refers):
    """Whatever a node's values, its document round-trips through two JSON-LD processors."""
    ctx = reading.app.context()
    known = [Base.get(ctx, 'a b/"é>'), Thing.get(ctx, "Thing/x")]
    thing = Thing(**values, **({"other": known[0], "others": known} if refers else {}))
    thing.save(ctx, upsert=True)
    own = ctx.kg.iri(thing.handle)
    document = assert_reads_back(reading, own)
    assert document == reading.body("trails://kg/" + thing.handle)
    assert document == reading.body("trails://kg/Base/" + thing.handle.partition("/")[2])


@pytest.mark.req("T11")
def test_a_document_has_every_class_and_every_declared_field(reading):
    """Types are all classes; each field stands under its predicate, sets as arrays."""
    ctx = reading.app.context()
    other = Base.get(ctx, 'a b/"é>')
    Thing(
        code="full", whole=5, exact=Decimal("1.50"), texts=["b", "a"], other=other, others=[other]
    ).save(ctx, upsert=True)
    document = reading.body("trails://kg/Thing/full")
    words = reading.app.graph().names.vocabulary
    xsd = "http://www.w3.org/2001/XMLSchema#"
    link = {"@id": reading.app.graph().names.nodes + "Base/a%20b%2F%22%C3%A9%3E"}
    assert document.pop("@id") == reading.app.graph().names.nodes + "Thing/full"
    assert document.pop("@type") == [words + "Thing", "https://schema.org/Thing"]
    assert document == {
        words + "code": {"@value": "full"},
        "https://schema.org/name": None,
        words + "flag": None,
        "urn:example:whole": {"@value": "5", "@type": xsd + "integer"},
        words + "big": None,
        words + "real": None,
        words + "exact": {"@value": "1.5", "@type": xsd + "decimal"},
        words + "day": None,
        words + "moment": None,
        words + "link": None,
        words + "blob": None,
        words + "place": None,
        words + "data": None,
        words + "other": link,
        words + "texts": [{"@value": "a"}, {"@value": "b"}],
        words + "numbers": [],
        words + "others": [link],
    }


def test_every_instance_of_the_example_reads_back(northline):
    """All that the example application holds round-trips."""
    for each in northline.body("trails://kg/types"):
        if "extends" not in each:
            for item in northline.body(each["uri"])[:8]:
                assert_reads_back(northline, item["iri"])


def test_a_key_that_looks_like_a_handle_is_an_id(reading):
    """An address names exactly one id, whatever that looks like."""
    document = reading.body("trails://kg/Thing/Thing%2Fx")
    assert document["https://schema.org/name"] == {"@value": "target"}
    assert reading.failure("trails://kg/Thing/x").kind == "unknown"
