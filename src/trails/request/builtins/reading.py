"""``node_get``, ``node_list``, ``fetch`` and ``read_record_field``: reading without SPARQL.

Every answer is bounded, says what it leaves out, and has the call that continues. They take a
record in every form in which an answer shows one, and pin what they continue to a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import time
from typing import Final, TypeVar

import msgspec

from trails.engine.evidence.fields import (
    DEFAULT_LENGTH,
    MOST_LENGTH,
    FieldRequest,
    read_field,
)
from trails.engine.evidence.lists import LIST_RECORDS, Item, ListRequest, list_records
from trails.engine.evidence.records import (
    Record,
    check_type,
    known_field,
    make_place,
    open_record,
)
from trails.engine.evidence.values import BoundedValues, bounded_values, size_of
from trails.engine.graph.cursors import LIFETIME, Cursors, expiry
from trails.engine.session.context import GraphContext
from trails.errors import FieldError, ValidationError
from trails.model.nodes import Order, Selection
from trails.model.operations.pages import Call
from trails.model.operations.records import (
    FetchedRecord,
    FieldWindow,
    RecordItem,
    RecordList,
    RecordOrigin,
    RecordResult,
)
from trails.model.results import LEAST_CHARS, MOST_CHARS
from trails.model.types import TypeDescriptor
from trails.model.uris import parse_clause
from trails.request.builtins.declare import (
    NEAR,
    READER,
    Builtin,
    Route,
    ToolContext,
    field,
    read_near,
)
from trails.request.fitting import abridge
from trails.request.resources.contents import condition_of

_LEAST: Final = 16

_RECORD: Final = field(
    "record",
    "trails://kg/Type/id, the IRI, or Type/id.",
    required=True,
    min_length=1,
    max_length=8192,
)
_TYPE: Final = field("type", "The type, if record is a bare key.", max_length=100)
_BRANCH: Final = field("branch", "", max_length=100)
_SNAPSHOT: Final = field("snapshot", "", max_length=100)
_BOUND: Final = field("max_chars", "", "Int", min_value=LEAST_CHARS, max_value=MOST_CHARS)


_Shown = TypeVar("_Shown", bound=msgspec.Struct)


def _fit(make: Callable[[int], _Shown], room: int, limit: int) -> _Shown:
    """The largest of some answers that has at most ``limit`` characters; ``room`` is the first."""
    while True:
        answer = make(room)
        size = size_of(answer)
        if size <= limit or room <= _LEAST:
            return answer
        room = max(_LEAST, min(room - (size - limit), room * limit // size))


# --- one field ---------------------------------------------------------------------------


def _read(
    tool: ToolContext, ctx: GraphContext, max_chars: int | None, **given: object
) -> FieldWindow:
    request, most = _request({**given, "max_chars": max_chars}), tool.most(max_chars)
    room = min(request.length, most)
    return read_field(tool.service, ctx, request, lambda found: _fit(found.show, room, most))


def _request(given: Mapping[str, object]) -> FieldRequest:
    wanted = {name: value for name, value in given.items() if value is not None}
    place = make_place(wanted.pop("branch", None), wanted.pop("snapshot", None))
    return msgspec.convert({**wanted, "place": place}, FieldRequest)


READ_RECORD_FIELD: Final = Builtin(
    name="read_record_field",
    title="Read a field",
    description=(
        "Read a window of one field's text, exactly as stored: from offset on, around a match of "
        "query, or where cursor goes on. Offsets count characters; next and previous stay on the "
        "same commit. Values that are not text are read as JSON."
    ),
    fields=(
        _RECORD,
        field("field", "", required=True, min_length=1, max_length=100),
        _TYPE,
        field("item", "Of a list: which item, from 0.", "Int", min_value=0),
        field("path", "Of JSON: a JSON pointer, like /a/0.", max_length=2000),
        field("offset", "Where to begin.", "Int", min_value=0),
        field("cursor", "From next or previous.", max_length=2000),
        field("query", "Words to find.", max_length=2000),
        field("match", "Which match, from 1.", "Int", min_value=1),
        field("before", "Characters before it.", "Int", min_value=0),
        field(
            "length",
            "Characters of text.",
            "Int",
            default=DEFAULT_LENGTH,
            min_value=1,
            max_value=MOST_LENGTH,
        ),
        _BRANCH,
        _SNAPSHOT,
        _BOUND,
    ),
    result=FieldWindow,
    hints=READER,
    action="Read",
    run=_read,
    routes=(Route("GET", "kg/{type}/{record}/fields/{field}"),),
    command="read",
)


# --- one record --------------------------------------------------------------------------


def _open(
    tool: ToolContext,
    ctx: GraphContext,
    reference: str,
    branch: str | None,
    snapshot: str | None,
    *,
    type: str | None = None,
    argument: str = "record",
) -> Record:
    return open_record(
        tool.service,
        ctx,
        reference,
        make_place(branch, snapshot),
        type_name=type,
        argument=argument,
    )


def _get(
    tool: ToolContext,
    ctx: GraphContext,
    record: str,
    fields: Sequence[str],
    max_chars: int | None,
    type: str | None,
    branch: str | None,
    snapshot: str | None,
) -> RecordResult:
    found = _open(tool, ctx, record, branch, snapshot, type=type)
    cursors = Cursors(tool.service.graph)
    wanted = [known_field(found.descriptor, name, "fields") for name in fields]

    def make(room: int) -> RecordResult:
        values = bounded_values(
            found, wanted or found.descriptor.fields, room, cursors, blanks=bool(wanted)
        )
        return RecordResult(
            id=found.uri,
            type=found.state.type,
            title=found.title,
            iri=found.ctx.kg.iri(found.state.handle),
            commit=found.commit,
            values=values.values,
            complete=not values.left_out,
            left_out=values.left_out,
        )

    most = tool.most(max_chars)
    return _fit(make, most, most)


NODE_GET: Final = Builtin(
    name="node_get",
    title="Get a record",
    description=(
        "Get one record: its title and the values of its fields, or of those in fields. References "
        "are ids of other records. left_out lists long values that are not shown whole, each with "
        "the call that reads the rest."
    ),
    fields=(
        _RECORD,
        field("fields", "Only these fields.", many=True, max_count=200),
        _TYPE,
        _BRANCH,
        _SNAPSHOT,
        _BOUND,
    ),
    result=RecordResult,
    hints=READER,
    action="Read",
    run=_get,
)


def _fetch(tool: ToolContext, ctx: GraphContext, id: str, max_chars: int | None) -> FetchedRecord:
    found = _open(tool, ctx, id, None, None, argument="id")
    cursors = Cursors(tool.service.graph)

    def make(room: int) -> FetchedRecord:
        values = bounded_values(found, found.descriptor.fields, room, cursors)
        place = found.place
        branch = place.branch or ("" if place.commit else "main")
        return FetchedRecord(
            id=found.uri,
            title=found.title,
            text=_prose(values),
            url=found.ctx.kg.iri(found.state.handle),
            metadata=RecordOrigin(found.state.type, branch, found.commit),
            complete=not values.left_out,
            left_out=values.left_out,
        )

    most = tool.most(max_chars)
    return _fit(make, most, most)


def _prose(found: BoundedValues) -> str:
    """The values of a record as a text to read: one line each, long ones on lines of their own."""
    parts: list[str] = []
    for name, value in found.values.items():
        text = _spell(value)
        parts.append(f"{name}:\n{text}" if "\n" in text else f"{name}: {text}")
    for note in found.left_out:
        some = f"{note.shown} of {note.of} {note.unit} are shown"
        parts.append(f"[{note.field}: {some}; left_out has the call for the rest]")
    return "\n".join(parts)


def _spell(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return msgspec.json.encode(value).decode()


FETCH: Final = Builtin(
    name="fetch",
    title="Fetch a record",
    description=(
        "Fetch one record by its id, as search and node_list show it, as a text to read: a line "
        "for each field."
    ),
    fields=(
        field("id", "trails://kg/Type/id, the IRI, or Type/id.", required=True, max_length=8192),
        _BOUND,
    ),
    result=FetchedRecord,
    hints=READER,
    action="Read",
    run=_fetch,
    routes=(Route("GET", "fetch"),),
)

# --- many records ------------------------------------------------------------------------

_SHARE: Final = 8
"""The values of one record get at most this part of an answer, so that others have room too."""
_LEAST_VALUES: Final = 400


def _list(
    tool: ToolContext, ctx: GraphContext, max_chars: int | None, **given: object
) -> RecordList:
    wanted, most = msgspec.convert(given, _Wanted), tool.most(max_chars)
    cursors, share = Cursors(tool.service.graph), max(_LEAST_VALUES, most // _SHARE)
    page = list_records(
        tool.service,
        ctx,
        wanted.request(lambda each: _item(each, wanted.fields, share, cursors), 4 * most),
    )
    items = page.items

    def make(shown: int) -> RecordList:
        cursor = page.cursor(cursors, shown)
        following: Call | None = None
        if cursor is not None:
            asked = {**given, "max_chars": max_chars}
            arguments = {name: each for name, each in asked.items() if each not in (None, [], ())}
            following = Call(LIST_RECORDS, {**arguments, "cursor": cursor})
            following = abridge(following, most // 4)  # a vector is long
        return RecordList(
            type=wanted.type,
            commit=page.commit,
            total=page.total,
            records=tuple(RecordItem(**each) for each in items[:shown]),  # type: ignore[arg-type]
            next=following,
            expires=None if cursor is None else expiry(time() + LIFETIME),
        )

    shown = len(items)
    while True:
        answer = make(shown)
        size = size_of(answer)
        if size <= most or shown <= 1:
            return answer
        shown = max(1, min(shown - 1, shown * most // size))


class _Wanted(msgspec.Struct, frozen=True):
    """The arguments of ``node_list``."""

    type: str
    where: str | None
    order: str | None
    near: Mapping[str, object] | None
    fields: tuple[str, ...]
    limit: int
    cursor: str | None
    branch: str | None
    snapshot: str | None

    def request(self, show: Callable[[Record], Item], room: int) -> ListRequest:
        """What they ask for."""
        if self.near is not None and self.order is not None:
            message = "near has its own order: the nearest first; leave out order"
            raise ValidationError([FieldError("order", "conflict", message, self.order[:100])])
        near = None if self.near is None else read_near(self.near)
        return ListRequest(
            tool=LIST_RECORDS,
            place=make_place(self.branch, self.snapshot),
            select=self._selection,
            subject=[self.type, self.where, self.order, msgspec.to_builtins(near)],
            show=show,
            room=room,
            cursor=self.cursor,
            near=near,
        )

    def _selection(self, ctx: GraphContext) -> Selection:
        schema = ctx.kg.schema
        check_type(schema, self.type, ctx.kg)
        descriptor = schema.by_name[self.type]
        for name in self.fields:
            known_field(descriptor, name, "fields")
        clause = None if self.where is None else parse_clause(self.where)
        where = None if clause is None else condition_of(descriptor, clause)
        return Selection(self.type, where, _order(descriptor, self.order), self.limit)


def _order(descriptor: TypeDescriptor, text: str | None) -> tuple[Order, ...]:
    if text is None:
        return ()
    name = text.removeprefix("-")
    found = known_field(descriptor, name, "order")
    row = found.type.scalar.row
    if found.many or (row is not None and row.sort_key is None):
        message = f"{name} is {found.type}, which has no order; sort by another field"
        raise ValidationError([FieldError("order", "datatype", message, text[:100])])
    return (Order(name, descending=text.startswith("-")),)


def _item(record: Record, fields: Sequence[str], room: int, cursors: Cursors) -> Item:
    item: Item = {"id": record.uri, "title": record.title}
    if fields:
        wanted = [record.field(name) for name in fields]
        found = bounded_values(record, wanted, room, cursors, blanks=True)
        item |= {"values": found.values, "left_out": found.left_out}
    return item


NODE_LIST: Final = Builtin(
    name=LIST_RECORDS,
    title="List records",
    description=(
        "List the records of a type and its subtypes: ids and titles, and the values of fields. "
        'where keeps those with one value: "status=open". order sorts by a field, near lists the '
        "nearest first. All pages are of one commit."
    ),
    fields=(
        field("type", "", required=True, min_length=1, max_length=100),
        field("where", "field=value", min_length=1, max_length=2000),
        field("order", "field or -field", min_length=1, max_length=100),
        NEAR,
        field("fields", "Fields whose values to show.", many=True, max_count=50),
        field("limit", "", "Int", default=50, min_value=1, max_value=1000),
        field("cursor", "From next.", max_length=4000),
        _BRANCH,
        _SNAPSHOT,
        _BOUND,
    ),
    result=RecordList,
    hints=READER,
    action="Read",
    run=_list,
)

BUILTINS: Final = (READ_RECORD_FIELD, NODE_GET, NODE_LIST, FETCH)
