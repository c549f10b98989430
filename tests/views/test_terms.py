"""Statements are written in the very form in which the RDF library would write them."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trails import BigInt, Blob, Iri, Json, Node, Ref, Vector, node_type, predicate
from trails.model.iris import Names
from trails.model.nodes import NodeState, make_handle
from trails.model.types import Schema
from trails.views.terms import Terms


@node_type
class Thing(Node):
    """One field of every kind."""

    text: str | None = predicate()
    flag: bool | None = predicate()
    whole: int | None = predicate()
    big: BigInt | None = predicate()
    real: float | None = predicate()
    exact: Decimal | None = predicate()
    day: date | None = predicate()
    moment: datetime | None = predicate()
    link: Iri | None = predicate()
    blob: Blob | None = predicate()
    place: Vector = predicate(dimension=2)
    data: Json | None = predicate()
    other: Ref["Thing"] | None = predicate()
    texts: list[str] = predicate()


TERMS = Terms(Schema.of([Thing.__trails__]), Names("https://example.org/graph"))
VALUES = {
    "text": 'quotes " and \\ and é and \x7f and\nlines\t',
    "flag": True,
    "whole": -5,
    "big": BigInt(10**40),
    "real": 1.5e-7,
    "exact": Decimal("12.50"),
    "day": date(2026, 3, 1),
    "moment": datetime(2026, 3, 1, 9, 30, 0, 250_000, tzinfo=UTC),
    "link": Iri("https://example.org/é?q=1"),
    "blob": Blob("urn:x:1"),
    "place": (1.0, -2.5),
    "data": Json({'quotes " and \\': ["é", "\x7f\n", None]}),
    "other": make_handle("Thing", 'a b/"é>'),
    "texts": ("one", 'two "2"'),
}


def rewritten(line: str) -> str:
    """A statement, read and written by the library."""
    quads = ox.parse(line.encode(), format=ox.RdfFormat.N_QUADS)
    return ox.serialize(quads, format=ox.RdfFormat.N_QUADS).decode()


@pytest.mark.parametrize("name", VALUES)
def test_every_kind_is_written_as_the_library_writes_it(name):
    """Reading a statement and writing it again changes nothing, for each kind of value."""
    lines = TERMS.statements(NodeState("Thing", 'id "1"', {name: VALUES[name]}))
    assert len(lines) == (3 if name == "texts" else 2)
    assert [rewritten(line) for line in lines] == lines


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_and_any_id_survive(text):
    """Whatever a text or an id holds, its statement is one line in the library's own form."""
    lines = TERMS.statements(NodeState("Thing", text or "x", {"text": text}))
    assert [rewritten(line) for line in lines] == lines
    (quad,) = ox.parse(lines[1].encode(), format=ox.RdfFormat.N_QUADS)
    assert quad.object.value == text
    assert TERMS.handle_of(quad.subject) == make_handle("Thing", text or "x")


@pytest.mark.parametrize(
    "number", [2.0**49 + 0.25, -(2.0**49) - 0.25, 2.0**49 + 0.75, 2.0**60, 5e-324]
)
def test_a_float_halfway_between_two_texts_is_written_as_the_store_does(number):
    """Where two shortest texts are equally near, the larger is taken, as by the store."""
    store = ox.Store()
    line = TERMS.statements(NodeState("Thing", "x", {"real": number}))[-1]
    store.load(line.encode(), format=ox.RdfFormat.N_QUADS)
    assert [f"{quad.triple} .\n" for quad in store] == [line]
