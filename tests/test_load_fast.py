"""The short way of a load accepts nothing that the validator refuses, and gives its values."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trails import (
    App,
    BigInt,
    Blob,
    Iri,
    Node,
    Ref,
    Shape,
    Vector,
    node_type,
    predicate,
    shape,
)
from trails.engine.load.fast import FastLines
from trails.engine.puts import Put, check_put
from trails.errors import FieldError


@node_type
class Plain(Node):
    """Rules that the decoder knows."""

    key: str = predicate(key=True, pattern=r"^[a-z.é]+$")
    flag: bool | None = predicate()
    count: int | None = predicate()
    ranged: int | None = predicate(min_value=-3, max_value=3)
    share: float | None = predicate()
    part: float | None = predicate(min_value=0, max_value=1)
    wide: float | None = predicate(max_value=2**53)
    day: date | None = predicate()
    short: str | None = predicate(min_length=2, max_length=3)
    choice: str | None = predicate(one_of=["a", "b", "é"])


@node_type
class Rich(Node):
    """Rules that it does not know."""

    huge: BigInt | None = predicate()
    price: Decimal | None = predicate(min_value=Decimal(0))
    moment: datetime | None = predicate()
    page: Iri | None = predicate()
    picture: Blob | None = predicate()
    spot: Vector(2) | None = predicate()
    other: Ref[Plain] | None = predicate()
    others: list[Ref[Plain]] = predicate(max_count=2)
    words: list[str] = predicate(min_count=1, min_length=2)
    early: date | None = predicate(max_value=date(2026, 1, 1))
    few: int | None = predicate(one_of=[1, 2])
    odd: str | None = predicate(one_of=["aa", "b"], min_length=2)
    state: str | None = predicate(default="open")


@node_type
class Shaped(Node):
    """A type with more rules than its own."""

    key: int = predicate(key=True)


@shape(target=Shaped)
class Small(Shape):
    """One of them."""

    key: int = predicate(max_value=10)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.sampled_from([2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30]),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.sampled_from([0.0, -0.0, 1.0, 2.5, 1e300]),
    st.text("abé.", max_size=4),
    st.sampled_from(
        [
            "2026-01-01",
            "2026-02-30",
            "2026-1-1",
            "2026-01-01T00:00:00Z",
            "2026-01-01t00:00:00z",
            "0000-01-01",
            "12.50",
            "-1",
            "1e5",
            "urn:a",
            "https://example.org/ü",
            "Plain/a",
            "trails://app/main/Plain/a",
            "Rich/a",
            "e\u0301",
            "x" * 600,
            ":",
            '":',
            ".",
        ]
    ),
)
raw = st.one_of(scalars, st.lists(scalars, max_size=3), st.dictionaries(st.text("ab"), scalars))


def rows(kind: type[Node]) -> st.SearchStrategy[dict[str, object]]:
    """Values for the fields of a type, right and wrong, and fields that it does not have."""
    names = st.sampled_from([*kind.__trails__.by_name, "unknown", "type"])
    return st.dictionaries(names, raw, max_size=6)


@pytest.fixture(scope="module")
def graph():
    """The types, once."""
    with App(Plain, Rich, Shaped, Small) as app:
        yield app.graph()


@pytest.fixture(scope="module")
def fast(graph):
    """The short way."""
    return FastLines(graph.main.schema, graph.names)


@pytest.mark.parametrize("kind", [Plain, Rich, Shaped])
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_what_the_short_way_accepts_is_valid(graph, fast, kind, data):
    """The long way finds no error and the same node with the same values."""
    values = data.draw(rows(kind))
    if kind is Plain and data.draw(st.booleans()):
        values["key"] = "a"
    if kind is Rich:
        values |= {"words": ["bb", "aa", "bb"], "state": "x"}
    identifier = data.draw(st.none() | st.sampled_from(["a", "b", "..", "a/b", "é"]))
    line = {"type": kind.__trails__.name, "data": values}
    if identifier is not None:
        line["id"] = identifier
    item = fast.read(7, json.dumps(line).encode())
    if item is None:
        return
    given_values = dict(values)
    wanted = check_put(
        graph.main.schema,
        graph.main.validator,
        Put(item.type, given_values, identifier or item.id),
        "",
    )
    assert wanted.errors == list[FieldError]()
    assert (wanted.id, wanted.handle) == (item.id, item.handle)
    assert wanted.values == item.values
    assert {name: type(value) for name, value in wanted.values.items()} == {
        name: type(value) for name, value in item.values.items()
    }
    assert identifier in {None, item.id}


ACCEPTED = {
    "plain": {"key": "a", "flag": True, "count": 1, "ranged": 3, "share": 1, "day": "2026-01-01"},
    "lengths": {"key": "a", "short": "éé", "choice": "é", "part": 0.5},
    "colons": {"key": "a", "short": "a:b"},
    "lists": {"words": ["bb", "aa"], "state": "x", "others": ["Plain/a"], "spot": [1, 2]},
    "decimals": {"words": ["bb"], "state": "x", "price": "1.50", "huge": "7", "page": "urn:a"},
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_right_lines_go_the_short_way(fast, case):
    """Else it would be of no use."""
    values = ACCEPTED[case]
    line = json.dumps({"type": "Plain" if "key" in values else "Rich", "data": values}).encode()
    item = fast.read(1, line)
    assert item is not None
    assert item.checked


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"Plain","data":{"key":"a","key":"b"}}',
        b'{"type":"Plain","data":{"key":"a"},"data":{"key":"a"}}',
        b'{"type":"Plain","data":{"key" :"a","short":"\\":", "short" :"xx"}}',
        b'{"type":"Plain","data":{"key":"a","unknown":1}}',
        b'{"type":"Plain","id":null,"data":{"key":"a"}}',
        b'{"type":"Plain","data":{"key":"a"},"edge":"x"}',
        b'{"type":"Rich","data":{"words":["aa"]}}',
        b'{"type":"Shaped","data":{"key":1}}',
    ],
)
def test_what_needs_a_second_look_goes_the_long_way(fast, line):
    """Keys twice, unknown fields, defaults to fill, rules of shapes."""
    assert fast.read(1, line) is None
