"""``commit_list``, ``commit_get`` and ``graph_diff``: what was changed, by whom and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, cast

import msgspec

from trails.engine.session.context import GraphContext
from trails.model.history import Commit, CommitDetail, CommitPage, Difference
from trails.model.nodes import split_handle
from trails.model.uris import InstanceAddress, ReadPoint, format_address
from trails.projections.tools import MAX_CHARS
from trails.request.answers import CONTINUED
from trails.request.builtins.branches import versions_of
from trails.request.builtins.declare import (
    BOOLEAN,
    INTEGER,
    MAYBE_STRING,
    READER,
    STRING,
    Builtin,
    Route,
    ToolContext,
    field,
    listed,
    said,
    shown,
)
from trails.request.fitting import Call, Page, Path, read_field

_COMMIT: Final = shown(
    commit=said(STRING, "Its id; use it as snapshot to read the graph as it was then."),
    branch=STRING,
    parents=listed(STRING),
    actor=STRING,
    time=STRING,
    message=STRING,
    activity=said(MAYBE_STRING, "The call that made it."),
    added=said(INTEGER, "Statements added."),
    removed=said(INTEGER, "Statements removed."),
)


def _shown(commit: Commit) -> dict[str, object]:
    return {
        "commit": commit.id,
        "branch": commit.branch,
        "parents": commit.parents,
        "actor": commit.actor,
        "time": commit.time,
        "message": commit.message,
        "activity": commit.activity,
        "added": commit.added,
        "removed": commit.removed,
    }


def _list(tool: ToolContext, ctx: GraphContext, **given: object) -> object:
    page = _list_record(tool, ctx, **given)

    def changes(at: int) -> Mapping[str, object] | None:
        if at < len(page.commits):
            # The cursor after fewer commits is that of a shorter page.
            shorter = _list_record(tool, ctx, **{**given, "limit": at}) if at else None
            return {"after": given["after"] if shorter is None else shorter.next}
        return None if page.next is None else {"after": page.next}

    return Page({"commits": [_shown(each) for each in page.commits]}, "commits", changes)


def _list_record(tool: ToolContext, ctx: GraphContext, **given: object) -> CommitPage:
    wanted = msgspec.convert(given, _Page)
    return versions_of(tool, ctx).commits(
        None if wanted.all_branches else wanted.branch,
        actor=wanted.actor,
        node=wanted.node,
        after=wanted.after,
        limit=wanted.limit,
    )


class _Page(msgspec.Struct, frozen=True):
    branch: str
    all_branches: bool
    actor: str | None
    node: str | None
    after: str | None
    limit: int


def _get(tool: ToolContext, ctx: GraphContext, **given: object) -> object:
    found = _get_record(tool, ctx, **given)
    commit = found.commit
    places = ReadPoint(commit=commit.first_parent), ReadPoint(commit=commit.id)
    return _changed(found.difference, places, _shown(commit), {"commit": commit.id}, given["after"])


def _changed(
    difference: Difference,
    places: tuple[ReadPoint, ReadPoint],
    head: Mapping[str, object],
    pinned: Mapping[str, object],
    after: object,
) -> Page:
    """Changed nodes as a page; ``pinned`` are the commits that the next call names."""
    shown = difference.changes
    total = difference.created + difference.updated + difference.deleted

    def changes(at: int) -> Mapping[str, object] | None:
        if at < len(shown) or (difference.truncated and shown):
            return {**pinned, "after": shown[at - 1].handle if at else after}
        return None

    body = {
        **head,
        "created": difference.created,
        "updated": difference.updated,
        "deleted": difference.deleted,
        "truncated": difference.truncated,
        "changes": msgspec.to_builtins(shown),
    }
    if difference.truncated and not shown:
        body["notice"] = f"the {total} changes are too many to be listed"
    return Page(body, "changes", changes, total, locate=partial(_locate, places))


def _locate(
    places: tuple[ReadPoint, ReadPoint], item: Mapping[str, object], path: Path, shown: int
) -> Call | None:
    """The field of a changed node that a long text was or is the value of."""
    if len(path) != 3 or path[2] not in {"before", "after"}:
        return None
    fields = cast(Sequence[Mapping[str, object]], item["fields"])
    type_name, identifier = split_handle(str(item["handle"]))
    address = InstanceAddress(type_name, identifier, places[path[2] == "after"])
    return read_field(format_address(address), str(fields[int(path[1])]["field"]), shown)


def _get_record(tool: ToolContext, ctx: GraphContext, **given: object) -> CommitDetail:
    wanted = msgspec.convert(given, _Changes)
    return versions_of(tool, ctx).commit(wanted.commit, limit=wanted.limit, after=wanted.after)


class _Changes(msgspec.Struct, frozen=True):
    commit: str
    limit: int
    after: str | None


def _diff(tool: ToolContext, ctx: GraphContext, **given: object) -> object:
    found = _diff_record(tool, ctx, **given)
    places = ReadPoint(commit=found.start), ReadPoint(commit=found.end)
    ends = {"start": found.start, "end": found.end}
    return _changed(found, places, ends, {"from": found.start, "to": found.end}, given["after"])


def _diff_record(tool: ToolContext, ctx: GraphContext, **given: object) -> Difference:
    start, end, after = str(given["from"]), str(given["to"]), cast(str | None, given["after"])
    return versions_of(tool, ctx).diff(start, end, limit=cast(int, given["limit"]), after=after)


_MOST: Final = 10_000

COMMIT_LIST: Final = Builtin(
    name="commit_list",
    title="List commits",
    description=(
        "List commits, newest first: who changed the graph, when and why; by branch, actor or "
        "node (TypeName/its-id or IRI)."
    ),
    fields=(
        field(
            "branch",
            "A branch or commit.",
            default="main",
            max_length=100,
        ),
        field("all_branches", "Of every branch.", "Bool", default=False),
        field("actor", "Only of this actor.", max_length=256),
        field("node", "Its history.", max_length=2000),
        field("after", "From next.", max_length=100_000),
        field("limit", "At most.", "Int", default=50, min_value=1, max_value=1000),
    ),
    controls=(MAX_CHARS,),
    output=shown(commits=listed(_COMMIT), optional=CONTINUED),
    hints=READER,
    action="Read",
    run=_list,
    record=_list_record,
    routes=(Route("GET", "commits"),),
    command="commit list",
)

COMMIT_GET: Final = Builtin(
    name="commit_get",
    title="Get a commit",
    description=(
        "Show one commit: who made it, when and why, and what it changed, node by node and field "
        "by field, before and after."
    ),
    fields=(
        field(
            "commit",
            "An id, the start of one, or a branch.",
            required=True,
            min_length=1,
            max_length=100,
        ),
        field(
            "limit",
            "Most nodes to show.",
            "Int",
            default=200,
            min_value=1,
            max_value=_MOST,
        ),
        field("after", "Only nodes after this handle.", max_length=2000),
    ),
    controls=(MAX_CHARS,),
    output=shown(
        commit=STRING,
        branch=STRING,
        parents=listed(STRING),
        actor=STRING,
        time=STRING,
        message=STRING,
        activity=MAYBE_STRING,
        added=INTEGER,
        removed=INTEGER,
        created=said(INTEGER, "Nodes created."),
        updated=said(INTEGER, "Nodes updated."),
        deleted=said(INTEGER, "Nodes deleted."),
        changes=listed(
            shown(
                handle=said(STRING, "The node, as <Type>/<id>."),
                change=STRING,
                fields=listed(shown(field=STRING)),
            )
        ),
        truncated=BOOLEAN,
        optional={"notice": STRING, **CONTINUED},
    ),
    hints=READER,
    action="Read",
    run=_get,
    record=_get_record,
    routes=(Route("GET", "commits/{commit}"),),
    command="commit show",
)

GRAPH_DIFF: Final = Builtin(
    name="graph_diff",
    title="Difference",
    description="Show the changes from one state to another, node by node and field by field.",
    fields=(
        field("from", "A branch or commit.", required=True, min_length=1, max_length=100),
        field("to", "Another one.", required=True, min_length=1, max_length=100),
        field(
            "limit",
            "Maximum number of nodes to show.",
            "Int",
            default=200,
            min_value=1,
            max_value=_MOST,
        ),
        field("after", "Only nodes after this handle.", max_length=2000),
    ),
    controls=(MAX_CHARS,),
    output={"type": "object"},
    hints=READER,
    action="Read",
    run=_diff,
    record=_diff_record,
    offered="never",
    routes=(Route("GET", "diff"), Route("GET", "branches/{to}/diff", {"from": "main"})),
    command="diff",
)

BUILTINS: Final = (COMMIT_LIST, COMMIT_GET, GRAPH_DIFF)
