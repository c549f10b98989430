"""A seed bank, and single faults in calls of its tools, each with what would mend it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from trails import (
    App,
    BigInt,
    Context,
    Edge,
    Iri,
    Node,
    Ref,
    Vector,
    capability,
    edge_type,
    node_type,
    predicate,
)


@node_type
class Species(Node):
    """A plant species."""

    code: str = predicate(key=True, pattern=r"^[A-Z]{3}-\d{2}$")
    name: str = predicate(min_length=3, max_length=20, label=True)
    status: str = predicate(one_of=["common", "rare", "extinct"], default="common")
    tags: list[str] = predicate(max_count=2)


@node_type
class Site(Node):
    """Where seeds are collected."""

    slug: str = predicate(key=True)
    homepage: Iri | None = predicate()


@node_type
class Lot(Node):
    """A lot of seeds."""

    number: str = predicate(key=True, pattern=r"^A\d{4}$")
    species: Ref[Species] = predicate()
    site: Ref[Site] | None = predicate()
    mass: Decimal = predicate(min_value=Decimal("0.001"), max_value=Decimal(5000))
    seeds: BigInt | None = predicate()
    viability: float | None = predicate(min_value=0, max_value=1)
    grade: int | None = predicate(min_value=1, max_value=5)
    collected: date = predicate()
    seen: datetime | None = predicate()
    sealed: bool = predicate(default=False)
    look: Vector(3) | None = predicate()  # type: ignore[valid-type]
    parents: list[Ref[Lot]] = predicate(max_count=2)
    keywords: list[str] = predicate(min_count=1)


@edge_type(source=Lot, target=Site, per_source=(0, 1))
class Storage(Edge):
    """Where a lot is stored."""

    shelf: int = predicate(min_value=1)


GRADE = predicate(min_value=1, max_value=5)
MOOD = predicate(one_of=["dry", "frozen"], default="dry")


@capability("lots.grade", idempotent=True)
def grade_lot(
    ctx: Context,
    lot: Ref[Lot],
    on: date,
    price: Decimal,
    grade: int = GRADE,
    storage: str = MOOD,
    notes: list[str] = (),
) -> Lot:
    """Set the grade of a lot."""
    lot.grade = grade
    lot.save(ctx)
    return lot


DECLARED = (Species, Site, Lot, Storage, grade_lot)
LOT = {
    "number": "A0100",
    "species": "ABC-01",
    "site": "hill",
    "mass": "1.5",
    "seeds": "12",
    "viability": 0.5,
    "grade": 3,
    "collected": "2026-02-01",
    "seen": "2026-02-01T10:00:00Z",
    "sealed": True,
    "look": [1, 2, 3],
    "parents": ["A0001"],
    "keywords": ["dry"],
}
GRADING = {"lot": "A0001", "on": "2026-02-01", "price": "1.5", "grade": 3, "storage": "dry"}


def stocked() -> App:
    """An app with some species, sites and lots."""
    app = App(*DECLARED)
    ctx = app.context(actor="ann")
    oak, elm = Species(code="ABC-01", name="Oak"), Species(code="ABC-02", name="Elm")
    hill, day = Site(slug="hill"), date(2026, 2, 1)
    lots = [
        Lot(number=f"A000{n}", species=oak, mass=Decimal(n), collected=day, keywords=["dry"])
        for n in (1, 2)
    ]
    ctx.kg.save_all([oak, elm, hill, *lots])
    return app


class Fault(NamedTuple):
    """A call that is refused, or that a notice comes with."""

    name: str
    tool: str
    arguments: dict[str, Any]


WRONG: dict[str, list[object]] = {
    "number": ["a0100", "A100", 100, "A01000", ["A0100"], "", " A0100", "B0100"],
    "species": ["ABC-03", "Oak", 5, "Site/hill", "Species/ABC-1", "trails://kg/Species/ABC-11",
                ["ABC-01"], {"@id": "Species/ABC-01"}, " ABC-01", "Specis/ABC-01"],
    "site": ["hil", "Site/hil", "Species/ABC-01", 7, "valley"],
    "mass": [1.5, 3, "0", "9000", "-1", "1,5", "1.5 g", "heavy", ["1.5"], "1.1234567890123456789"],
    "seeds": [12, "1,000", "1.5", "many", True],
    "viability": ["0.5", 50, -1, "50%", "half", [0.5]],
    "grade": ["3", 9, 0, 3.5, "three", True, [3], "9"],
    "collected": ["2026/02/01", "2026-2-1", "2026-02-01T00:00:00Z", "2026-02-30", "01.02.2026",
                  "yesterday", 20260201],
    "seen": ["2026-02-01T10:00:00", "2026-02-01", "2026-02-01 10:00:00", "noon", 1760000000],
    "sealed": ["true", "yes", 1, "TRUE", "no"],
    "look": [[1, 2], "1,2,3", ["1", "2", "3"], "[1, 2, 3]", 1, [1, 2, 3, 4]],
    "parents": ["A0001", ["A0009"], ["A0001", "A0002", "A0003"], [5], "Lot/A0001"],
    "keywords": ["dry", [1], [], None, {"a": 1}],
}  # fmt: skip
MISSPELLED = {"number": "numbr", "species": "specis", "mass": "Mass", "collected": "colected"}
REQUIRED = ("number", "species", "mass", "collected", "keywords")
GRADINGS: dict[str, list[object]] = {
    "lot": ["A0003", "Lot/A003", "Species/ABC-01", 5, ["A0001"], None, "lot/A0001"],
    "on": ["2026/02/01", "today", "2026-02-30", None, ["2026-02-01"]],
    "price": [1.5, "1,5", "free", None],
    "grade": ["3", 9, -2, "three", None, 2.5, [2]],
    "storage": ["Dry", "frozn", "wet", 1],
    "notes": ["one", [1], {"a": 1}],
}


def all_faults() -> list[Fault]:
    """Every fault, with a name of its own."""
    return [*_lots(), *_operations(), *_gradings(), *_lines(), *_queries(), *_controls()]


def _lots() -> Iterator[Fault]:
    for field, values in WRONG.items():
        for value in values:
            data = {**LOT, field: value}
            yield Fault(f"create {field}={value!r}", *_mutate(op="create", type="Lot", data=data))
            if field != "number" and value is not None:
                change = {"op": "update", "type": "Lot", "id": "A0001", "data": {field: value}}
                yield Fault(f"update {field}={value!r}", *_mutate(**change))
    for field in REQUIRED:
        data = {name: value for name, value in LOT.items() if name != field}
        yield Fault(f"no {field}", *_mutate(op="create", type="Lot", data=data))
    for field, wrong in MISSPELLED.items():
        data = {wrong if name == field else name: value for name, value in LOT.items()}
        yield Fault(f"{wrong}", *_mutate(op="create", type="Lot", data=data))
    for extra in ("colour", "weight", "siteid"):
        data = {**LOT, extra: "x"}
        yield Fault(f"also {extra}", *_mutate(op="create", type="Lot", data=data))


def _mutate(**operation: object) -> tuple[str, dict[str, Any]]:
    return "graph_mutate", {"operations": [operation]}


def _operations() -> Iterator[Fault]:
    whole: dict[str, Any] = {"op": "create", "type": "Lot", "data": LOT}
    for key, value in (("op", "creat"), ("op", "insert"), ("type", "Lots"), ("type", "lot"),
                       ("type", "Plant"), ("data", json.dumps(LOT)), ("op", None), ("type", None),
                       ("op", "CREATE"), ("data", [LOT])):  # fmt: skip
        yield Fault(f"{key}={str(value)[:20]!r}", *_mutate(**{**whole, key: value}))
    for key in whole:
        rest = {name: value for name, value in whole.items() if name != key}
        yield Fault(f"without {key}", *_mutate(**rest))
    yield Fault("flat", *_mutate(op="create", type="Lot", **LOT))
    yield Fault("Op", *_mutate(Op="create", type="Lot", data=LOT))
    yield Fault("values", *_mutate(op="create", type="Lot", values=LOT))
    yield Fault("one operation", "graph_mutate", {"operations": whole})
    yield Fault("operations as text", "graph_mutate", {"operations": json.dumps([whole])})
    yield Fault("operation as text", "graph_mutate", {"operations": [json.dumps(whole)]})
    yield Fault("exists", *_mutate(op="create", type="Lot", data={**LOT, "number": "A0001"}))
    for name in ("A0009", "Lot/A0008", "Species/ABC-01", "trails://kg/Lot/A001"):
        change = {"op": "update", "type": "Lot", "id": name, "data": {"grade": 2}}
        yield Fault(f"update {name}", *_mutate(**change))
        yield Fault(f"delete {name}", *_mutate(op="delete", type="Lot", id=name))
    yield Fault("no id", *_mutate(op="update", type="Lot", data={"grade": 2}))
    key = {"op": "update", "type": "Lot", "id": "A0001", "data": {"number": "A0005"}}
    yield Fault("another key", *_mutate(**key))
    null = {"op": "update", "type": "Lot", "id": "A0001", "data": {"mass": None}}
    yield Fault("null", *_mutate(**null))
    yield Fault("in use", *_mutate(op="delete", type="Species", id="ABC-01"))
    yield Fault("cascade", *_mutate(op="delete", type="Lot", id="A0002", cascade="yes"))
    for field, value in (("status", "Rare"), ("status", "lost"), ("name", "Oa"),
                         ("name", "x" * 30), ("tags", ["a", "b", "c"]), ("tags", "a")):  # fmt: skip
        change = {"op": "update", "type": "Species", "id": "ABC-01", "data": {field: value}}
        yield Fault(f"{field}={value!r}", *_mutate(**change))
    ends = {"source": "A0001", "target": "hill", "shelf": 1}
    for field, value in (("shelf", 0), ("shelf", "2"), ("target", "hil"), ("source", "A0007"),
                         ("source", "Site/hill")):  # fmt: skip
        data = {**ends, field: value}
        yield Fault(f"edge {field}={value}", *_mutate(op="create", type="Storage", data=data))
    for field in ends:
        data = {name: value for name, value in ends.items() if name != field}
        yield Fault(f"edge without {field}", *_mutate(op="create", type="Storage", data=data))


def _gradings() -> Iterator[Fault]:
    for field, values in GRADINGS.items():
        for value in values:
            yield Fault(f"{field}={value!r}", "lots.grade", {**GRADING, field: value})
    for field in ("lot", "on", "price", "grade"):
        rest = {name: value for name, value in GRADING.items() if name != field}
        yield Fault(f"call without {field}", "lots.grade", rest)
        yield Fault(f"call with {field}s", "lots.grade", {**rest, f"{field}s": GRADING[field]})
    yield Fault("colour", "lots.grade", {**GRADING, "colour": "red"})


def _lines() -> Iterator[Fault]:
    good: dict[str, Any] = {"type": "Species", "data": {"code": "ABC-05", "name": "Yew"}}
    edge = {"edge": "Storage", "from": "A0001", "to": "hill", "data": {"shelf": 1}}
    lines: list[dict[str, Any]] = [
        {**good, "type": "Specis"},
        {**good, "tpye": "Species"},
        {"data": good["data"]},
        {"tpye": "Species", "data": good["data"]},
        {"type": "Species", **good["data"]},
        {"type": "Species", "data": {"code": "ABC-05"}},
        {"type": "Species", "data": {"code": "ABC-05", "nam": "Yew"}},
        {"type": "Species", "data": {"code": "abc-05", "name": "Yew"}},
        {"type": "Species", "data": {**good["data"], "status": "Rare"}},
        {"type": "Species", "data": {**good["data"], "tags": "a"}},
        {"type": "Lot", "data": {**LOT, "species": "ABC-07"}},
        {"type": "Lot", "data": {**LOT, "mass": 1.5}},
        {"type": "Lot", "data": {**LOT, "collected": "2026/02/01"}},
        {**edge, "edge": "Storge"},
        {**edge, "to": "hil"},
        {**edge, "data": {"shelf": 0}},
        {"edge": "Storage", "from": "A0001", "data": {"shelf": 1}},
        {"type": "Storage", "from": "A0001", "to": "hill", "data": {"shelf": 1}},
        {"edge": "Species", "from": "A0001", "to": "hill"},
    ]
    for line in lines:
        yield Fault(f"line {json.dumps(line)}", "graph_load", {"data": json.dumps(line)})
    for name, value in (("mode", "upsert"), ("mode", "Merge"), ("format", "json")):
        yield Fault(f"{name}={value}", "graph_load", {"data": json.dumps(good), name: value})
    yield Fault("an array", "graph_load", {"data": json.dumps([good])})


def _queries() -> Iterator[Fault]:
    for text in (
        "SELECT ?a { ?a a :Lots }",
        "SELECT ?a { ?a a :species }",
        "SELECT ?a { ?a :nmber ?b }",
        "SELECT ?a { ?a :status 'Rare' }",
        "SELECT ?a { ?a :status ?s FILTER (?s = 'Rare') }",
        "SELECT ?a { VALUES ?s { 'Rare' } ?a :status ?s }",
        "SELECT ?a { ?a :collected ?d FILTER (?d > '2026-01-01') }",
        "SELECT ?a { ?a :collected '2026-02-01' }",
        "SELECT ?a { ?a :grade '3' }",
        "SELECT ?a { ?a :mass 1.5e0 }",
        "SELECT ?a { ?a :sealed 'true' }",
        "SELECT ?a { ?a :species 'ABC-01' }",
        "SELECT ?a { ?a :species <Species/ABC-07> }",
        "SELECT ?a { ?a :species <trails://kg/Species/ABC-01> }",
        "SELECT ?a { ?a :homepage <urn:x:y> }",
        "PREFIX s: <http://example.org/> SELECT ?a { ?a a s:Lot }",
        "SELECT ?a { ?a a <Lot> }",
        "SELECT ?a { ?a a Lot }",
    ):
        yield Fault(text, "graph_query", {"query": text})
    yield Fault("sparql", "graph_query", {"sparql": "SELECT ?a { ?a a :Lot }"})
    id_of_none = {"s": {"@id": "Species/ABC-07"}}
    text = "SELECT ?a { ?a :species $s }"
    yield Fault("@id", "graph_query", {"query": text, "params": id_of_none})
    yield Fault("a date", "graph_query", {
        "query": "SELECT ?a { ?a :collected $d }", "params": {"d": "2026-02-01"},
    })  # fmt: skip


def _controls() -> Iterator[Fault]:
    yield Fault("branch", "lots.grade", {**GRADING, "branch": "mian"})
    yield Fault("snapshot", "graph_snapshot", {"brnch": "main"})
    yield Fault("type", "schema_get", {"types": ["lot"]})
    yield Fault("types", "schema_get", {"types": ["Lots"]})
    yield Fault("commit", "commit_get", {"commit": "mian"})
    yield Fault("limit", "commit_get", {"commit": "main", "limit": 0})
    yield Fault("limits", "commit_list", {"limit": 100_000})
    yield Fault("dry run", "branch_merge", {"source": "main", "dry_run": "true"})
    yield Fault("source", "branch_merge", {"source": "mian", "dry_run": True})
    yield Fault("all", "branch_merge", {"source": "main", "resolve_all": "Ours"})


def copied(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments to change at will."""
    return deepcopy(arguments)
