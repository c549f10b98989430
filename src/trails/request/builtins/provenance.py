"""``node_blame`` and ``prov_list``: who wrote a value, and who called what.

Blame leads from each value of a record to the commit, call and actor that wrote it. The list of
activities has every call, failures and denials included; those of others are for administrators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from trails.engine.evidence.records import Record, known_field, make_place, open_record
from trails.engine.graph.graph import MAIN
from trails.engine.history.blame import BlamedValue
from trails.engine.history.provenance import (
    LIST_ACTIVITIES,
    MOST_ACTIVITIES,
    ProvenanceQuery,
    list_provenance,
)
from trails.engine.session.context import GraphContext
from trails.imports import later
from trails.model.evidence.graphemes import boundary_before
from trails.model.history import Activity
from trails.model.operations.history import ActivityInfo, ActivityList, Attribution, Blame
from trails.model.results import MOST_CHARS
from trails.projections.tools import MAX_CHARS
from trails.request.answers import MASKED, UNKNOWN, unmask
from trails.request.builtins.branches import versions_of
from trails.request.builtins.declare import (
    READER,
    Builtin,
    Route,
    ToolContext,
    field,
)
from trails.request.fitting import Page

if TYPE_CHECKING:
    from trails.engine.evidence import texts
else:
    texts = later("trails.engine.evidence.texts")

_LONGEST: Final = 200
"""Characters of a value in the answer to a model, which knows how to read the rest."""


def _blame(
    tool: ToolContext,
    ctx: GraphContext,
    record: str,
    field: str | None,
    type: str | None,
    branch: str | None,
    snapshot: str | None,
    offset: int,
    **controls: object,
) -> Blame:
    del controls
    place = make_place(branch, snapshot)
    found = open_record(tool.service, ctx, record, place, type_name=type)
    fields = () if field is None else (known_field(found.descriptor, field).name,)
    blamed = versions_of(tool, ctx).blame(found.state, found.commit, fields)
    calls = _calls(tool, ctx, blamed)
    values = tuple(_attribution(found, each, calls) for each in blamed[offset:])
    return Blame(found.uri, found.commit, values)


def _calls(
    tool: ToolContext, ctx: GraphContext, blamed: tuple[BlamedValue, ...]
) -> Mapping[str, Activity]:
    """The calls that made the commits, of those that the actor may see: its own, or all."""
    every = ctx.access.may("Admin", MAIN)
    wanted = {
        each.commit.activity: each.commit.time
        for each in blamed
        if each.commit is not None
        and each.commit.activity is not None
        and (every or each.commit.actor == ctx.actor)
    }
    found = tool.service.graph.activities.find(wanted)
    return found if every else {name: unmask(each) for name, each in found.items()}


def _attribution(record: Record, blamed: BlamedValue, calls: Mapping[str, Activity]) -> Attribution:
    field, commit = record.descriptor.by_name[blamed.field], blamed.commit
    items: tuple[object, ...] = blamed.value if field.ordered else (blamed.value,)  # type: ignore[assignment]
    plain = [texts.plain_value(field.type.scalar, each, record.place) for each in items]
    value = plain if field.ordered else plain[0]
    if commit is None:
        return Attribution(blamed.field, value, None)
    call = calls.get(commit.activity or "")
    return Attribution(
        blamed.field,
        value,
        commit.id,
        commit.time,
        commit.actor,
        commit.branch,
        commit.message,
        commit.activity,
        None if call is None else call.name,
        None if call is None else call.surface,
    )


def _run(tool: ToolContext, ctx: GraphContext, offset: int, **given: object) -> Page:
    found = _blame(tool, ctx, offset=offset, **given)  # type: ignore[arg-type]
    if tool.bounded:
        short = (replace(each, value=_short(each.value)) for each in found.values)
        found = replace(found, values=tuple(short))

    def changes(at: int) -> Mapping[str, object] | None:
        return {"offset": offset + at} if at < len(found.values) else None

    return Page(found, "values", changes)


def _short(value: object) -> object:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if len(text) <= _LONGEST:
        return value
    return text[: boundary_before(text, _LONGEST)] + "…"


NODE_BLAME: Final = Builtin(
    name="node_blame",
    title="Blame",
    description=("Show which commit, actor and call wrote each value of a record."),
    fields=(
        field("record", "As in node_get.", required=True, min_length=1, max_length=8192),
        field("field", "Only this.", max_length=100),
        field("type", "", max_length=100),
        field("branch", "", max_length=100),
        field("snapshot", "", max_length=100),
        field("offset", "", "Int", default=0, min_value=0, max_value=MOST_CHARS),
    ),
    controls=(MAX_CHARS,),
    result=Blame,
    hints=READER,
    action="Read",
    run=_run,
    routes=(Route("GET", "kg/{type}/{record}/blame"),),
    command="blame",
)


def describe_activity(activity: Activity) -> ActivityInfo:
    """An activity as answers show it."""
    return ActivityInfo(
        activity.id,
        activity.name,
        activity.kind,
        activity.actor,
        activity.started,
        activity.ended,
        activity.outcome,
        activity.detail,
        activity.calls,
        activity.surface,
        activity.trace_id,
        activity.used,
        activity.generated,
    )


def _list(
    tool: ToolContext, ctx: GraphContext, after: str | None, limit: int, **given: object
) -> Page:
    page = list_provenance(
        tool.service.graph,
        ctx.access,
        ctx.actor,
        msgspec.convert(given, ProvenanceQuery),
        masks=(MASKED, UNKNOWN),
        after=after,
        limit=limit,
    )
    found = page.activities
    if not ctx.access.may("Admin", MAIN):
        found = tuple(map(unmask, found))
    shown = ActivityList(tuple(map(describe_activity, found)), page.archived)

    def changes(at: int) -> Mapping[str, object] | None:
        del at  # programs get whole pages
        return None if page.next is None else {"after": page.next}

    return Page(shown, "activities", changes)


PROV_LIST: Final = Builtin(
    name=LIST_ACTIVITIES,
    title="List activities",
    description=(
        "List calls, newest first: who called what over which surface, when, with which outcome, "
        "and what it used and made. Without the Admin right, only the caller's own."
    ),
    fields=(
        field("actor", "Only of this actor.", max_length=256),
        field("node", "Only those that changed or read this node.", max_length=2000),
        field("commit", "Only the one that made this commit.", min_length=1, max_length=100),
        field("capability", "Only calls of this name.", max_length=200),
        field("outcome", "ok, or the code of an error.", max_length=100),
        field("since", "A date or time in ISO 8601.", max_length=100),
        field("until", "A date or time in ISO 8601.", max_length=100),
        field("archived", "Search archives too.", "Bool", default=False),
        field("after", "From next.", max_length=2000),
        field("limit", "At most.", "Int", default=50, min_value=1, max_value=MOST_ACTIVITIES),
    ),
    result=ActivityList,
    hints=READER,
    action="Read",
    run=_list,
    offered="never",
    routes=(Route("GET", "prov"),),
    command="prov",
)

BUILTINS: Final = (NODE_BLAME, PROV_LIST)
