"""The short way of a load accepts nothing that the validator refuses, and gives its values."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from itertools import product

import pytest

from trails import App, BigInt, Blob, Iri, Node, Ref, Shape, Vector, node_type, predicate, shape
from trails.engine.transfer.ndjson import FastLines
from trails.engine.write.puts import Put, check_put


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


SCALARS = [
    *(None, True, False, 0, 1, -1, 3, 4, -4, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1),
    *(10**30, 0.0, -0.0, 0.5, 1.0, 1.5, 2.5, 1e300, "", "a", "b", "é", "aa", "éé", "abc", "abcd"),
    *("2026-01-01", "2026-01-02", "2026-02-30", "2026-1-1", "0000-01-01", "A", "a b", "x" * 600),
    *("2026-01-01T00:00:00Z", "2026-01-01t00:00:00z", "2026-01-01 00:00:00Z", "2026-01-01T00:00"),
    *("12.50", "-1", "1e5", "007", "urn:a", "https://example.org/ü", "no iri", ".", "..", "a/b"),
    *("Plain/a", "trails://app/main/Plain/a", "Rich/a", "Nothing/a", "e\u0301", ":", '":', '":":'),
]
RAW = [*SCALARS, *([each] for each in SCALARS), *([each, "aa"] for each in SCALARS), [], [1, 2]]
RAW += [["aa", "bb", "aa"], ["Plain/c", "Plain/b", "Plain/a"], [[1, 2]], {}, {"a": 1}, {"key": "a"}]
IDS = [None, "a", "b", "..", "a/b", "é", "1"]


RIGHT: dict[type[Node], dict[str, object]] = {
    Plain: {"key": "a"},
    Rich: {"words": ["bb", "aa", "bb"], "state": "x"},
    Shaped: {"key": 1},
}


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
@pytest.mark.parametrize("identifier", IDS)
def test_what_the_short_way_accepts_is_valid(graph, fast, kind, identifier):
    """Whatever one field holds, the long way finds the same node, the same values, no error."""
    accepted = 0
    for name, value in product([*kind.__trails__.by_name, "unknown"], RAW):
        values = RIGHT[kind] | {name: value}
        line = {"type": kind.__trails__.name, "data": values} | (
            {"id": identifier} if identifier else {}
        )
        item = fast.read(7, json.dumps(line).encode())
        if item is None:
            continue
        accepted += 1
        put = Put(item.type, values, identifier or item.id)
        wanted = check_put(graph.main.schema, graph.main.validator, put, "", list)
        assert not wanted.errors
        assert (wanted.id, wanted.handle) == (item.id, item.handle)
        assert typed(wanted.values) == typed(item.values)
        assert identifier in {None, item.id}
    assert accepted > (20 if identifier in {None, "a"} and kind is not Shaped else -1)


def typed(values):
    """Values that differ when their types or signs do."""
    return {name: (type(value), repr(value)) for name, value in values.items()}


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
