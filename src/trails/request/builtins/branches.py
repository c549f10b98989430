"""``branch_list``, ``branch_create``, ``branch_delete``: lines of work beside each other."""

from __future__ import annotations

from typing import Final

import msgspec

from trails.engine.context import GraphContext
from trails.model.versions import BranchFilter, BranchInfo
from trails.request.builtins.declare import (
    ADDER,
    INTEGER,
    MAYBE_STRING,
    READER,
    STRING,
    WRITER,
    Builtin,
    Desk,
    field,
    listed,
    said,
    shown,
)

_BRANCH: Final = shown(
    name=STRING,
    head=said(STRING, "Its newest commit; empty before the first."),
    commits=said(INTEGER, "The place of that commit in the log; 0 where that is not told."),
    time=said(STRING, "When that commit was made."),
    message=STRING,
    actor=said(STRING, "Who made it."),
)


def _shown(branch: BranchInfo) -> dict[str, object]:
    return {
        "name": branch.name,
        "head": branch.commit,
        "commits": branch.seq,
        "time": branch.time,
        "message": branch.message,
        "actor": branch.actor,
    }


def _list(desk: Desk, ctx: GraphContext, **given: object) -> object:
    wanted = msgspec.convert(given, BranchFilter)
    page = desk.service.versions(ctx.actor, ctx.call, ctx.access).branch_page(wanted)
    return {"branches": [_shown(each) for each in page.branches], "next": page.next}


def _create(desk: Desk, ctx: GraphContext, **given: str) -> object:
    versions = desk.service.versions(ctx.actor, ctx.call, ctx.access)
    made = versions.create_branch(given["name"], given["from"])
    return {"branch": _shown(made), "from": given["from"]}


def _delete(desk: Desk, ctx: GraphContext, name: str, *, force: bool) -> object:
    gone = desk.service.versions(ctx.actor, ctx.call, ctx.access).delete_branch(name, force=force)
    return {"deleted": _shown(gone)}


BRANCH_LIST: Final = Builtin(
    name="branch_list",
    title="List branches",
    description=(
        "List the branches of the graph, main first, each with its newest commit. A branch is a "
        "line of work of its own: what is written on one is not seen on another until they are "
        "merged. Most tools take a branch argument; without it they work on main. Where next is "
        "not null there are more: call again with it as after."
    ),
    fields=(
        field("prefix", "Only branches whose names begin so.", default="", max_length=100),
        field("after", "The next of the page before.", max_length=100),
        field("limit", "How many at most.", "Int", default=100, min_value=1, max_value=1000),
    ),
    output=shown(
        branches=listed(_BRANCH),
        next=said(MAYBE_STRING, "The after of the next page; null where there is none."),
    ),
    hints=READER,
    action="Read",
    run=_list,
)

BRANCH_CREATE: Final = Builtin(
    name="branch_create",
    title="Create a branch",
    description=(
        "Make a branch, so that you can change data without touching main: create it, write with "
        "branch set to its name, look at it, then branch_merge or branch_delete it. It begins "
        "where another branch is, or at any past commit, and costs next to nothing. Example: "
        '{"name": "agents/ada/tidy-up"}. Returns the new branch. An existing name is a conflict.'
    ),
    fields=(
        field(
            "name",
            "Letters, digits, '.', '_', '-', and '/' between parts, 100 at most.",
            required=True,
            min_length=1,
            max_length=100,
        ),
        field(
            "from",
            "A branch, or the id of a commit, at which the new branch begins.",
            default="main",
            max_length=100,
        ),
    ),
    output=shown(branch=_BRANCH, **{"from": STRING}),
    hints=ADDER,
    action="BranchCreate",
    also=("Read",),
    kind="mutation",
    run=_create,
)

BRANCH_DELETE: Final = Builtin(
    name="branch_delete",
    title="Delete a branch",
    description=(
        "Delete a branch that is no longer needed. Refused while it has commits that are merged "
        "nowhere, unless force is true; its commits can still be read by their ids afterwards. "
        "main can't be deleted. Returns the branch as it was."
    ),
    fields=(
        field("name", "The branch to delete.", required=True, min_length=1, max_length=100),
        field("force", "Delete it even if its work is merged nowhere.", "Bool", default=False),
    ),
    output=shown(deleted=_BRANCH),
    hints=WRITER,
    action="BranchDelete",
    kind="mutation",
    run=_delete,
)
