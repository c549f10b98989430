"""``node_select``: records by any conditions, whole, for programs.

What ``objects(ctx).where(…)`` asks for in the process that owns a graph, a program elsewhere asks
here. It is not a tool: a model reads better with ``node_list``, ``node_get`` and ``search``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from trails.engine.evidence.lists import Item, ListRequest, list_records
from trails.engine.evidence.records import Record, check_type, make_place, open_place
from trails.engine.graph.cursors import Cursors
from trails.engine.session.context import GraphContext
from trails.errors import QueryError, ValidationError
from trails.model.fairness import reading_within
from trails.model.nodes import Selection
from trails.model.operations.selections import (
    SelectedRecord,
    SelectedRecords,
    read_conditions,
    read_order,
    write_values,
)
from trails.request.builtins.declare import (
    NEAR,
    READER,
    Builtin,
    Route,
    ToolContext,
    field,
    read_near,
)

SELECT_RECORDS: Final = "node_select"
_ROOM: Final = 4 << 20
"""Bytes of JSON after which a page is full; a record that is larger is a page of its own."""
_AT_ONCE: Final = 100


class _Wanted(msgspec.Struct, frozen=True):
    """The arguments."""

    type: str
    record: str | None
    where: Mapping[str, object] | None
    order: tuple[str, ...]
    near: Mapping[str, object] | None
    limit: int
    offset: int
    cursor: str | None
    count: bool | None
    branch: str | None
    snapshot: str | None

    def selection(self, ctx: GraphContext) -> Selection:
        """What they select, of the types that the actor sees."""
        check_type(ctx.kg.schema, self.type, ctx.kg)
        where = None if self.where is None else read_conditions(self.where)
        return Selection(self.type, where, read_order(self.order), self.limit, self.offset)


def _select(tool: ToolContext, ctx: GraphContext, **given: object) -> SelectedRecords:
    wanted = msgspec.convert(given, _Wanted)
    sandbox = tool.service.untrusted.sandbox
    try:
        with sandbox.spending(ctx.actor), reading_within(sandbox.limits.seconds):
            if wanted.record is not None:
                return _find(tool, ctx, wanted, wanted.record)
            if wanted.count:
                return _count(tool, ctx, wanted)
            return _list(tool, ctx, wanted)
    except ValidationError as error:  # a condition, as a program gets it in this process
        first = error.fields[0]
        raise QueryError(first.message, field=first.field, reason=first.code) from None


def _find(tool: ToolContext, ctx: GraphContext, wanted: _Wanted, reference: str) -> SelectedRecords:
    opened = open_place(tool.service, ctx, make_place(wanted.branch, wanted.snapshot))
    kg = opened.kg
    check_type(kg.schema, wanted.type, kg)
    state, commit = kg.find_with_commit(wanted.type, reference)
    if state is None:
        return SelectedRecords(commit=commit, missing=kg.describe_missing(wanted.type, reference))
    values = write_values(kg.schema.by_name[state.type], state.values)
    found = SelectedRecord(type=state.type, id=state.id, values=values)
    return SelectedRecords(commit=commit, records=(found,))


def _count(tool: ToolContext, ctx: GraphContext, wanted: _Wanted) -> SelectedRecords:
    opened = open_place(tool.service, ctx, make_place(wanted.branch, wanted.snapshot))
    selection = wanted.selection(opened)
    commit = opened.kg.head.commit
    counted = msgspec.structs.replace(selection, order=(), limit=None, offset=0)
    return SelectedRecords(commit=commit, count=opened.kg.count(counted))


def _list(tool: ToolContext, ctx: GraphContext, wanted: _Wanted) -> SelectedRecords:
    near = None if wanted.near is None else read_near(wanted.near)
    request = ListRequest(
        tool=SELECT_RECORDS,
        place=make_place(wanted.branch, wanted.snapshot),
        select=wanted.selection,
        subject=[
            wanted.type,
            msgspec.to_builtins(wanted.where),
            wanted.order,
            msgspec.to_builtins(near),
        ],
        show=_item,
        room=_ROOM,
        cursor=wanted.cursor,
        at_once=_AT_ONCE,
        near=near,
    )
    page = list_records(tool.service, ctx, request)
    return SelectedRecords(
        commit=page.commit,
        records=msgspec.convert(page.items, tuple[SelectedRecord, ...]),
        cursor=page.cursor(Cursors(tool.service.graph), len(page.items)),
    )


def _item(record: Record) -> Item:
    state = record.state
    values = write_values(record.ctx.kg.schema.by_name[state.type], state.values)
    return {"type": state.type, "id": state.id, "values": values}


NODE_SELECT: Final = Builtin(
    name=SELECT_RECORDS,
    title="Select records",
    description=(
        "Select records of a type and its subtypes by any conditions, with all of their values. "
        'where is {"field": "owner__name", "lookup": "icontains", "value": "an"}, or conditions '
        'joined by {"and": […]}, {"or": […]} and {"not": …}. All pages are of one commit.'
    ),
    fields=(
        field("type", "", required=True, min_length=1, max_length=100),
        field("record", "One record: its key, Type/id or IRI.", min_length=1, max_length=8192),
        field("where", "Conditions.", "Map"),
        field("order", "Fields to sort by; -field descends.", many=True, max_count=50),
        NEAR,
        field("limit", "", "Int", default=100, min_value=1, max_value=1000),
        field("offset", "", "Int", default=0, min_value=0),
        field("cursor", "From the page before.", max_length=4000),
        field("count", "Only count the records.", "Bool"),
        field("branch", "", max_length=100),
        field("snapshot", "", max_length=100),
    ),
    result=SelectedRecords,
    hints=READER,
    action="Read",
    run=_select,
    offered="never",
    routes=(Route("POST", "select"),),
)

BUILTINS: Final = (NODE_SELECT,)
