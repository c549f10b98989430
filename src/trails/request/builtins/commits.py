"""``commit_list``, ``commit_get`` and ``graph_diff``: what was changed, by whom and when."""

from __future__ import annotations

from typing import Final, cast

import msgspec

from trails.engine.session.context import GraphContext
from trails.model.history import Commit, CommitDetail, CommitPage
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
    body: dict[str, object] = {"commits": [_shown(each) for each in page.commits]}
    if page.next is not None:
        said = {name: value for name, value in given.items() if value is not None}
        body["next"] = {"tool": "commit_list", "arguments": {**said, "after": page.next}}
    return body


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


def _get(tool: ToolContext, ctx: GraphContext, commit: str, limit: int) -> object:
    found = _get_record(tool, ctx, commit, limit)
    change = found.difference
    body: dict[str, object] = {
        **_shown(found.commit),
        "created": change.created,
        "updated": change.updated,
        "deleted": change.deleted,
        "changes": msgspec.to_builtins(change.changes),
        "truncated": change.truncated,
    }
    if change.truncated:
        total = change.created + change.updated + change.deleted
        body["notice"] = (
            f"{len(change.changes)} of {total} changed nodes are shown; ask again with a higher "
            f"limit ({_MOST} at most)"
        )
    return body


def _get_record(tool: ToolContext, ctx: GraphContext, commit: str, limit: int) -> CommitDetail:
    return versions_of(tool, ctx).commit(commit, limit=limit)


def _diff(tool: ToolContext, ctx: GraphContext, **given: object) -> object:
    start, end = str(given["from"]), str(given["to"])
    return versions_of(tool, ctx).diff(start, end, limit=cast(int, given["limit"]))


_MOST: Final = 10_000

COMMIT_LIST: Final = Builtin(
    name="commit_list",
    title="List commits",
    description=(
        "List commits, newest first: who changed the graph, when and why. Filter by branch, by "
        "actor, or by node (an IRI or handle like TypeName/its-id) to see one node's history. "
        "If there are more than limit, the result has next with the tool and the exact arguments "
        "of the call that continues. For what a commit changed use commit_get."
    ),
    fields=(
        field(
            "branch",
            "A branch or commit id; its history is listed.",
            default="main",
            max_length=100,
        ),
        field("all_branches", "List the commits of all branches instead.", "Bool", default=False),
        field("actor", "Only commits of this actor.", max_length=256),
        field("node", "Only commits that changed this node.", max_length=2000),
        field("after", "The cursor in next of the previous result.", max_length=100_000),
        field(
            "limit", "Maximum number of commits.", "Int", default=50, min_value=1, max_value=1000
        ),
    ),
    output=shown(
        commits=listed(_COMMIT),
        optional={
            "next": said(
                shown(tool=STRING, arguments={"type": "object"}),
                "The call that continues; absent at the end.",
            )
        },
    ),
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
        "by field, each with the value before and after. Takes the id of a commit (or the first "
        "characters of one) or the name of a branch for its newest. If there are more changed "
        "nodes than limit, truncated is true and notice says how to see more."
    ),
    fields=(
        field("commit", "A commit id or a branch.", required=True, min_length=1, max_length=100),
        field(
            "limit",
            "Maximum number of changed nodes to show.",
            "Int",
            default=200,
            min_value=1,
            max_value=_MOST,
        ),
    ),
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
        optional={"notice": STRING},
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
    ),
    output={"type": "object"},
    hints=READER,
    action="Read",
    run=_diff,
    offered="never",
    routes=(Route("GET", "diff"), Route("GET", "branches/{to}/diff", {"from": "main"})),
    command="diff",
)

BUILTINS: Final = (COMMIT_LIST, COMMIT_GET, GRAPH_DIFF)
