"""What a restricted actor reads is what there would be had the rest never been declared."""

from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import given, settings
from tests.campaigns import sized
from tests.journeys.access.hidden_parts import (
    TYPES,
    Hidden,
    Row,
    all_fields,
    hidden_sets,
    row_lists,
    some_of,
    twins,
)

from trails.engine.evidence.export_files import ExportRequest
from trails.engine.evidence.exports import ExportLimits, exports_of
from trails.engine.evidence.records import Titles
from trails.engine.session.context import GraphContext
from trails.engine.transfer.files import FORMATS, export_checkout
from trails.engine.upkeep.maintenance import measure
from trails.errors import TrailsError
from trails.model.nodes import Condition, Group, NodeState, Order, Selection
from trails.projections.documents import JsonLd, project_schema
from trails.projections.resources import project_resources

Question = Callable[[GraphContext], object]
NAMES = [*TYPES, "Nope"]
FIELD_NAMES = sorted({each for name in TYPES for each in all_fields(TYPES, name)})
PEOPLE = ("Chief/p1", "Employee/p2", "Person/p0")
VALUES = {
    **dict.fromkeys(("boss", "about", "readers", "queue", "source"), PEOPLE),
    **dict.fromkeys(("age", "floor", "since", "bonus"), (0, 2)),
    "badge": ("b1", "b2"),
    "tags": ("r",),
}
PATHS = (
    *(
        ("boss", "name"),
        ("boss", "badge"),
        ("about", "age"),
        ("readers", "alias"),
        ("queue", "age"),
    ),
    ("boss", "boss", "name"),
    *(("source", "code"), ("chief", "bonus"), ("office", "room")),
)


def told(ask: Question, ctx: GraphContext) -> object:
    """What comes of a question: the answer, or the error in its words."""
    try:
        return ask(ctx)
    except TrailsError as error:
        return type(error).__name__, error.message, error.data


def shown(state: NodeState | None) -> object:
    """A node as something to compare."""
    return None if state is None else (state.handle, dict(state.values))


def pages(selection: Selection) -> Question:
    """All pages of a selection, each with its size, and how many there are."""

    def ask(ctx: GraphContext) -> object:
        found: list[object] = []
        after: str | None = None
        while True:
            page = ctx.kg.select(Selection(**{**_parts(selection), "after": after}))
            found.append([shown(each) for each in page.rows])
            after = page.next
            if after is None:
                plain = Selection(selection.type, selection.where)
                return found, ctx.kg.count(plain), ctx.kg.page(selection)[1]

    return ask


def _parts(selection: Selection) -> dict[str, object]:
    return {name: getattr(selection, name) for name in selection.__struct_fields__}


def selections() -> Iterator[Selection]:
    """Every type and every field that any world has, asked in every way."""
    for name in NAMES:
        known = [*all_fields(TYPES, name), "nope"] if name in TYPES else ["name"]
        known += ["source", "target"] if name in {"Knows", "Sits"} else []
        yield Selection(name, limit=2)
        yield Selection(name, limit=3, offset=1)
        for field in known:
            yield from _by_field(name, field)
        for path in PATHS:
            if path[0] in known:
                yield Selection(name, Condition(path, "isnull", False), limit=2)
                yield Selection(name, Condition(path, "exact", "x"), limit=2)


def _by_field(name: str, field: str) -> Iterator[Selection]:
    for descending in (False, True):
        yield Selection(name, order=(Order(field, descending=descending),), limit=3)
    yield Selection(name, order=(Order("age"), Order(field)), limit=2)
    for value in VALUES.get(field, ("x",)):
        yield Selection(name, Condition((field,), "exact", value), limit=1)
    for missing in (False, True):
        asked = Condition((field,), "isnull", missing)
        yield Selection(name, asked, limit=2)
        yield Selection(name, asked, order=(Order("age"),), limit=2)
        yield Selection(name, Group("not", (asked,)), limit=2)


SELECTIONS = list(selections())


def questions(rows: list[Row]) -> Iterator[tuple[object, Question]]:
    """Everything that can be read, without those selections."""
    yield "schema", lambda ctx: ctx.kg.schema.digest
    yield "counts", lambda ctx: ctx.kg.counts()
    yield "statistics", measure_parts
    yield "document", lambda ctx: project_schema(ctx.kg.schema, ctx.names)
    yield "resources", lambda ctx: project_resources(ctx.kg.schema)
    for name, key, _ in rows:
        for asked in NAMES:
            yield (asked, key), lambda ctx, a=asked, k=key: shown(ctx.kg.find(a, k))
            yield (asked, key, "id"), lambda ctx, a=asked, k=key: shown(ctx.kg.find_by_id(a, k))
        handle = f"{name}/{key}"
        yield handle, lambda ctx, h=handle: shown(ctx.kg.find("Person", h))
    for name in NAMES:
        for start in ("", "p", "zzz"):
            yield (name, start), lambda ctx, n=name, s=start: ctx.kg.ids_from(n, s, 3)
    for format in FORMATS:
        for types in ((), ("Person",), ("Knows", "Note"), ("Nope",)):
            yield (format, types), lambda ctx, f=format, t=types: exported(ctx, f, t)
    for request in EXPORTS:
        yield request, lambda ctx, r=request: exported_as_job(ctx, r)
    yield "labels", labels
    yield "json-ld", documents


def measure_parts(ctx: GraphContext) -> object:
    """The numbers that are about what the graph holds."""
    found = measure(ctx._graph, ctx)
    return found.instances, found.by_type, found.schema


def exported(ctx: GraphContext, format: str, types: tuple[str, ...]) -> bytes:
    """A file."""
    graph = ctx._graph
    return b"".join(export_checkout(graph, ctx.checkout, format, types, ctx.kg.schema_filter))


EXPORTS = (
    ExportRequest(),
    ExportRequest(format="turtle", types=("Person",)),
    ExportRequest(format="csv", types=("Person", "Note")),
    ExportRequest(types=("Person",), fields=("age", "name")),
    ExportRequest(types=("Person",), fields=("age",), where={"age__gte": 1}),
    ExportRequest(types=("Person",), where={"boss__name": "x"}),
    ExportRequest(types=("Knows",), where={"source__age__isnull": True}),
    ExportRequest(types=("Employee",), where={"badge": "b1"}),
    ExportRequest(types=("Nope",)),
)


def exported_as_job(ctx: GraphContext, request: ExportRequest) -> object:
    """The file of a job, and all that its status says of the records."""
    manager = exports_of(ctx._graph)
    export = manager.start(ctx, request, ExportLimits(), limited=False)
    assert manager.find(ctx.actor, export.spec.handle, ctx.access, lambda _: True) is export
    assert export.ended.wait(60)
    own = {"export": "", "commit": "", "created": "", "expires": ""}
    status = msgspec.structs.replace(export.describe(), **own)
    return status, b"".join(manager.read(export, 0, export.files.last.bytes))


def labels(ctx: GraphContext) -> object:
    """What every node is called."""
    name = Titles(ctx.kg.schema)
    return [(each.handle, name.of(each)) for each in every(ctx)]


def documents(ctx: GraphContext) -> object:
    """Every node as JSON-LD."""
    made = JsonLd(ctx.kg.schema, ctx.names)
    return [made.document(each) for each in every(ctx)]


def every(ctx: GraphContext) -> Iterator[NodeState]:
    """All nodes."""
    for each in ctx.kg.schema.types:
        yield from ctx.kg.select(Selection(each.name)).rows


def compare(rows: list[Row], hidden: Hidden, asked: list[Selection], *, fork: bool = False) -> None:
    """Ask both worlds everything."""
    with twins(rows, hidden, fork=fork) as (restricted, twin):
        for what, ask in questions(rows):
            assert told(ask, restricted) == told(ask, twin), what
        for selection in asked:
            ask = pages(selection)
            assert told(ask, restricted) == told(ask, twin), selection


CASES: dict[str, Hidden] = {
    "a type below": Hidden(frozenset({"Employee"})),
    "the lowest type": Hidden(frozenset({"Chief"})),
    "the topmost type": Hidden(frozenset({"Person"})),
    "a target": Hidden(frozenset({"Office"})),
    "an edge type": Hidden(frozenset({"Knows"})),
    "labels and parts of groups": Hidden(
        fields=frozenset({("Person", "alias"), ("Person", "age"), ("Office", "room")})
    ),
    "references": Hidden(
        fields=frozenset({("Person", "boss"), ("Note", "about"), ("Employee", "badge")})
    ),
    "a key": Hidden(fields=frozenset({("Person", "code"), ("Note", "readers")})),
}


def fixed_rows() -> list[Row]:
    """Many people of each kind, who know each other and are written about."""
    made: list[Row] = [
        ("Office", f"o{at}", {"room": "xyz"[at], "floor": at, "rent": 1.5}) for at in range(3)
    ]
    people = [(("Person", "Chief", "Employee")[at % 3], f"p{at}") for at in range(14)]
    for at, (kind, key) in enumerate(people):
        values: dict[str, object] = {
            "code": key,
            "name": ("x", "y", "née")[at // 2 % 3],
            "alias": f"a{at}" if at % 4 else None,
            "age": at // 3 % 4 if at % 5 else None,
            "tags": ["r", "s"][: at % 3],
            "boss": people[(at * 5 + 1) % at] if at % 4 else None,
        }
        if kind != "Person":
            values |= {"badge": f"b{at}" if at % 2 else None, "office": ("Office", f"o{at % 3}")}
        if kind == "Chief":
            values["bonus"] = at
        made.append((kind, key, values))
    for at in range(9):
        readers = [people[at], people[at + 1]][: at % 3]
        about = people[at + 3] if at % 4 else None
        chief = people[1] if at % 2 else None
        note = {"number": at, "about": about, "readers": readers, "chief": chief, "text": "x"}
        note |= {"queue": [*readers, *reversed(readers)], "lines": ["b", "a", "b"][:at]}
        note["words"] = {"en": "x", "de": f"w{at}"} if at % 2 else None
        made.append(("Note", str(at), note))
    for at in range(12):
        ends = {"source": people[at], "target": people[at * 7 % 13]}
        made.append(("Knows", f"k{at}", {**ends, "since": at % 4 or None}))
    for at in (1, 2, 4, 5):
        ends = {"source": people[at], "target": ("Office", "o1")}
        made.append(("Sits", f"s{at}", {**ends, "desk": "d"}))
    return made


@pytest.mark.req("E11a")
@pytest.mark.parametrize("case", CASES)
def test_every_selection_is_that_of_the_twin(case):
    """Whatever is asked of any type and field: the same pages, counts and errors."""
    compare(fixed_rows(), CASES[case], SELECTIONS)


FORKED = ("a type below", "the lowest type", "references")


@pytest.mark.req("E11a")
@pytest.mark.parametrize("case", FORKED)
def test_every_selection_on_a_branch_is_that_of_the_twin(case):
    """The same where nodes are partly the branch's own and partly those of where it began."""
    compare(fixed_rows(), CASES[case], SELECTIONS, fork=True)


@pytest.mark.req("E11a")
@settings(max_examples=12)
@given(row_lists(), hidden_sets(), some_of(SELECTIONS))
def test_reads_are_those_of_the_twin(rows, hidden, asked):
    """Nodes, pages, counts, errors, labels, documents and files tell nothing that is hidden."""
    compare(rows, hidden, asked)


@pytest.mark.long
@settings(max_examples=sized(1500, nightly=80))
@given(row_lists(), hidden_sets(), some_of(SELECTIONS))
def test_reads_are_those_of_the_twin_at_length(rows, hidden, asked):
    """The same, many times."""
    compare(rows, hidden, asked)
