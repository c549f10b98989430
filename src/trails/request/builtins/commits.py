"""``commit_list``, ``commit_get`` and ``graph_diff``: what was changed, by whom and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, cast

import msgspec

from trails.engine.session.context import GraphContext
from trails.model.history import CommitPage, Difference
from trails.model.nodes import split_handle
from trails.model.operations.history import (
    Changes,
    CommitInfo,
    CommitList,
    CommitResult,
    DifferenceResult,
)
from trails.model.operations.pages import Call
from trails.model.uris import InstanceAddress, ReadPoint, format_address
from trails.projections.tools import MAX_CHARS
from trails.request.builtins.branches import versions_of
from trails.request.builtins.declare import (
    READER,
    Builtin,
    Route,
    ToolContext,
    field,
)
from trails.request.fitting import Page, Path, read_field


def _list(tool: ToolContext, ctx: GraphContext, **given: object) -> Page:
    page = _commits(tool, ctx, **given)

    def changes(at: int) -> Mapping[str, object] | None:
        if at < len(page.commits):
            # The cursor after fewer commits is that of a shorter page.
            shorter = _commits(tool, ctx, **{**given, "limit": at}) if at else None
            return {"after": given["after"] if shorter is None else shorter.next}
        return None if page.next is None else {"after": page.next}

    return Page(CommitList(tuple(map(CommitInfo.of, page.commits))), "commits", changes)


def _commits(tool: ToolContext, ctx: GraphContext, **given: object) -> CommitPage:
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


def _get(tool: ToolContext, ctx: GraphContext, **given: object) -> Page:
    wanted = msgspec.convert(given, _Changes)
    found = versions_of(tool, ctx).commit(wanted.commit, limit=wanted.limit, after=wanted.after)
    commit, difference = found.commit, found.difference
    result = CommitResult(
        **msgspec.structs.asdict(CommitInfo.of(commit)),
        **_parts_of(difference),  # type: ignore[arg-type]
    )
    places = ReadPoint(commit=commit.first_parent), ReadPoint(commit=commit.id)
    return _changed(difference, places, result, {"commit": commit.id}, wanted.after)


def _parts_of(difference: Difference) -> dict[str, object]:
    total = difference.created + difference.updated + difference.deleted
    unlisted = difference.truncated and not difference.changes
    return {
        "created": difference.created,
        "updated": difference.updated,
        "deleted": difference.deleted,
        "truncated": difference.truncated,
        "changes": difference.changes,
        "notice": f"the {total} changes are too many to be listed" if unlisted else None,
    }


def _changed(
    difference: Difference,
    places: tuple[ReadPoint, ReadPoint],
    result: Changes,
    pinned: Mapping[str, object],
    after: str | None,
) -> Page:
    """Changed nodes as a page; ``pinned`` are the commits that the next call names."""
    shown = difference.changes
    total = difference.created + difference.updated + difference.deleted

    def changes(at: int) -> Mapping[str, object] | None:
        if at < len(shown) or (difference.truncated and shown):
            return {**pinned, "after": shown[at - 1].handle if at else after}
        return None

    return Page(result, "changes", changes, total, locate=partial(_locate, places))


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


class _Changes(msgspec.Struct, frozen=True):
    commit: str
    limit: int
    after: str | None


def _diff(tool: ToolContext, ctx: GraphContext, **given: object) -> Page:
    start, end, after = str(given["from"]), str(given["to"]), cast(str | None, given["after"])
    versions = versions_of(tool, ctx)
    found = versions.diff(start, end, limit=cast(int, given["limit"]), after=after)
    result = DifferenceResult(found.start, found.end, **_parts_of(found))  # type: ignore[arg-type]
    places = ReadPoint(commit=found.start), ReadPoint(commit=found.end)
    return _changed(found, places, result, {"from": found.start, "to": found.end}, after)


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
    result=CommitList,
    hints=READER,
    action="Read",
    run=_list,
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
    result=CommitResult,
    hints=READER,
    action="Read",
    run=_get,
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
    result=DifferenceResult,
    hints=READER,
    action="Read",
    run=_diff,
    offered="never",
    routes=(
        Route("GET", "diff"),
        Route("GET", "branches/{to}/diff", {"from": "main"}, name="branch_diff"),
    ),
    command="diff",
)

BUILTINS: Final = (COMMIT_LIST, COMMIT_GET, GRAPH_DIFF)
