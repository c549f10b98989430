"""``branch_list``, ``branch_create``, ``branch_delete``: lines of work beside each other.

``branch_merge``: bring the work of one branch into another.

Programs get whole records (``record``), in the form of ``trails.model``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from trails.engine.history.branches import Versions
from trails.engine.session.context import GraphContext
from trails.errors import ConflictError
from trails.model.constraints import shorten
from trails.model.history import (
    BranchFilter,
    BranchInfo,
    BranchPage,
    Conflict,
    MergeRequest,
    MergeResult,
    Resolution,
)
from trails.model.texts import count
from trails.model.types import ANY, ShapeDescriptor
from trails.request.builtins.declare import (
    ADDER,
    BOOLEAN,
    EXPECTED_HEAD,
    IDEMPOTENCY_KEY,
    INTEGER,
    MAYBE_STRING,
    MESSAGE,
    READER,
    STRING,
    WRITER,
    Builtin,
    Route,
    ToolContext,
    field,
    listed,
    said,
    shown,
)

_BRANCH: Final = shown(
    name=STRING,
    head=said(STRING, "Its newest commit; empty before the first."),
    commits=said(INTEGER, "The position of that commit in the log; 0 if it is not shown."),
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


def versions_of(tool: ToolContext, ctx: GraphContext) -> Versions:
    """Branches and commits, as the caller may see and change them."""
    return tool.service.versions(ctx.actor, ctx.call, ctx.access)


def _list(tool: ToolContext, ctx: GraphContext, **given: object) -> object:
    page = _list_record(tool, ctx, **given)
    return {"branches": [_shown(each) for each in page.branches], "next": page.next}


def _list_record(tool: ToolContext, ctx: GraphContext, **given: object) -> BranchPage:
    return versions_of(tool, ctx).branch_page(msgspec.convert(given, BranchFilter))


def _create(tool: ToolContext, ctx: GraphContext, **given: str) -> object:
    made = versions_of(tool, ctx).create_branch(given["name"], given["from"])
    return {"branch": _shown(made), "from": given["from"]}


def _create_record(tool: ToolContext, ctx: GraphContext, **given: str) -> object:
    return {"branch": versions_of(tool, ctx).create_branch(given["name"], given["from"])}


def _delete(tool: ToolContext, ctx: GraphContext, name: str, *, force: bool) -> object:
    return {"deleted": _shown(versions_of(tool, ctx).delete_branch(name, force=force))}


def _delete_record(tool: ToolContext, ctx: GraphContext, name: str, *, force: bool) -> object:
    return {"branch": versions_of(tool, ctx).delete_branch(name, force=force), "deleted": True}


BRANCH_LIST: Final = Builtin(
    name="branch_list",
    title="List branches",
    description=(
        "List the branches of the graph, main first, each with its newest commit. A branch is a "
        "separate version of the graph: changes on one are not visible on another until they "
        "are merged. Most tools take a branch argument; without it they work on main. If next "
        "is not null, there are more: call again with it as after."
    ),
    fields=(
        field("prefix", "Only branches whose names start with this.", default="", max_length=100),
        field("after", "The value of next on the previous page.", max_length=100),
        field(
            "limit", "Maximum number of branches.", "Int", default=100, min_value=1, max_value=1000
        ),
    ),
    output=shown(
        branches=listed(_BRANCH),
        next=said(MAYBE_STRING, "Pass it as after to get the next page; null on the last one."),
    ),
    hints=READER,
    action="Read",
    run=_list,
    record=_list_record,
    routes=(Route("GET", "branches"),),
    command="branch list",
)

BRANCH_CREATE: Final = Builtin(
    name="branch_create",
    title="Create a branch",
    description=(
        "Create a branch, so that you can change data without touching main: write with branch "
        "set to its name, review the result, then branch_merge or branch_delete it. It starts "
        'at another branch or at any past commit, and is cheap. Example: {"name": '
        '"agents/ada/tidy-up"}. Returns the new branch. An existing name is a conflict.'
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
            "The branch or commit id to start from.",
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
    record=_create_record,
    routes=(Route("POST", "branches"),),
    command="branch create",
)

BRANCH_DELETE: Final = Builtin(
    name="branch_delete",
    title="Delete a branch",
    description=(
        "Delete a branch that is no longer needed. Refused if it has unmerged commits, unless "
        "force is true; its commits can still be read by their ids afterwards. main can't be "
        "deleted. Returns the branch as it was."
    ),
    fields=(
        field("name", "The branch to delete.", required=True, min_length=1, max_length=100),
        field("force", "Delete it even if it has unmerged commits.", "Bool", default=False),
    ),
    output=shown(deleted=_BRANCH),
    hints=WRITER,
    action="BranchDelete",
    kind="mutation",
    run=_delete,
    record=_delete_record,
    routes=(Route("DELETE", "branches/{name}"),),
    command="branch delete",
)


_RESOLUTION: Final = ShapeDescriptor(
    "Resolution",
    (
        field("conflict", "The id of the conflict.", required=True, min_length=1),
        field(
            "take",
            "ours keeps what the target has, theirs takes what the source has, value sets value.",
            required=True,
            one_of=["ours", "theirs", "value"],
        ),
        field("value", "With take=value: the value, as JSON.", ANY),
    ),
)


def _merge_request(resolutions: Sequence[Mapping[str, object]], **given: object) -> MergeRequest:
    """What the arguments ask for."""
    settled = {
        str(each["conflict"]): msgspec.convert(
            {"take": each["take"], "value": each["value"]}, Resolution
        )
        for each in resolutions
    }
    request = msgspec.convert({**given, "message": given["message"] or ""}, MergeRequest)
    return msgspec.structs.replace(request, resolutions=settled)


def _merge(tool: ToolContext, ctx: GraphContext, **given: object) -> object:
    request = _merge_request(**given)  # type: ignore[arg-type]
    result = versions_of(tool, ctx).merge(request)
    if result.conflicts and not request.dry_run:
        raise _refused(result)
    return _shown_merge(result)


def _merge_record(tool: ToolContext, ctx: GraphContext, **given: object) -> object:
    request = _merge_request(**given)  # type: ignore[arg-type]
    result = versions_of(tool, ctx).merge(request)
    if result.conflicts and not request.dry_run:
        listed = "; ".join(f"{each.id}: {each.message}" for each in result.conflicts[:20])
        raise ConflictError(
            f"{count(len(result.conflicts), 'conflict')}, nothing was written; settle each with a "
            f"resolution, or resolve them on a branch: {listed}",
            **msgspec.to_builtins(result),
        )
    return result


def _shown_merge(result: MergeResult) -> dict[str, object]:
    return {
        "outcome": result.outcome,
        "source": result.source,
        "target": result.target,
        "commit": result.commit,
        "created": result.created,
        "updated": result.updated,
        "deleted": result.deleted,
        "dry_run": result.dry_run,
        "replayed": result.replayed,
        "conflicts": [_conflict(each) for each in result.conflicts],
        "suggested": _suggested(result),
        "unused": list(result.unused),
    }


def _suggested(result: MergeResult) -> list[dict[str, object]]:
    return [{"conflict": each, "take": side} for each, side in result.suggested.items()]


def _conflict(conflict: Conflict) -> dict[str, object]:
    return {
        "id": conflict.id,
        "kind": conflict.kind,
        "node": conflict.handle,
        "field": conflict.field,
        "base": conflict.base,
        "ours": conflict.ours,
        "theirs": conflict.theirs,
        "message": conflict.message,
        "resolutions": [
            {"conflict": conflict.id, "take": take} | ({"value": None} if take == "value" else {})
            for take in conflict.takes
        ],
    }


def _refused(result: MergeResult) -> ConflictError:
    return ConflictError(
        f"{count(len(result.conflicts), 'conflict')}, nothing was written. "
        + " ".join(_spelled(result.conflicts))
        + " Call branch_merge again with resolutions, one for each: "
        '{"conflict": "<id>", "take": "ours"} keeps what '
        f"{result.target} has, "
        '"theirs" takes what '
        f'{result.source} has, "value" with a value sets that; or with resolve_all.'
        + (f" These settle everything: {_spelled_json(result)}." if result.suggested else ""),
        conflicts=[_conflict(each) for each in result.conflicts],
        suggested=_suggested(result),
    )


def _spelled_json(result: MergeResult) -> str:
    return msgspec.json.encode({"resolutions": _suggested(result)}).decode()


def _spelled(conflicts: Iterable[Conflict]) -> Iterable[str]:
    for number, each in enumerate(conflicts, start=1):
        sides = "" if each.field else f" (ours {shorten(each.ours)}, theirs {shorten(each.theirs)})"
        yield f"({number}) {each.id} [{each.kind}]: {each.message}{sides}."


_CONFLICT: Final = shown(
    id=said(STRING, "Pass it as conflict in a resolution."),
    kind=STRING,
    node=said(STRING, "The node, as <Type>/<id>."),
    field=STRING,
    base=said({}, "The value at the common ancestor."),
    ours=said({}, "The value in the target."),
    theirs=said({}, "The value in the source."),
    message=STRING,
    resolutions=said(listed(shown(conflict=STRING, take=STRING)), "The possible resolutions."),
)

BRANCH_MERGE: Final = Builtin(
    name="branch_merge",
    title="Merge a branch",
    description=(
        "Merge a branch or commit into a branch, field by field: changes to different fields of "
        "a node are combined. If both sides changed the same thing in different ways, nothing "
        "is written and the error lists every conflict with its id; call again with one "
        "resolution for each, or with resolve_all. dry_run=true only reports what would happen. "
        'Example: {"source": "agents/ada/tidy-up", "message": "Tidy up"}. Returns the outcome '
        "(already_up_to_date, fast_forward, merged; with dry_run also conflicts), the commit "
        "that the target is at now, and how many nodes were created, updated and deleted."
    ),
    fields=(
        field("source", "The branch or commit to merge.", required=True, min_length=1),
        field("target", "The branch to merge into.", default="main"),
        field(
            "resolutions",
            "Resolutions, one for each conflict.",
            "Object",
            target="Resolution",
            many=True,
        ),
        field(
            "resolve_all",
            "Resolve all other conflicts with what the target has (ours) or what the source has "
            "(theirs). A conflict that this side can't resolve remains.",
            one_of=["ours", "theirs"],
        ),
        field("dry_run", "Only report what would happen; write nothing.", "Bool", default=False),
        MESSAGE,
        EXPECTED_HEAD,
        IDEMPOTENCY_KEY,
    ),
    shapes=(_RESOLUTION,),
    output=shown(
        outcome=STRING,
        source=STRING,
        target=STRING,
        commit=said(MAYBE_STRING, "The commit that the target is at now."),
        created=INTEGER,
        updated=INTEGER,
        deleted=INTEGER,
        dry_run=BOOLEAN,
        replayed=said(BOOLEAN, "The idempotency key was known: this is the first call's outcome."),
        conflicts=listed(_CONFLICT),
        suggested=said(
            listed(shown(conflict=STRING, take=STRING)),
            "With conflicts: resolutions for all of them.",
        ),
        unused=said(listed(STRING), "Resolutions of conflicts that did not occur."),
    ),
    hints=WRITER,
    action="BranchMerge",
    also=("Read", "Change"),
    kind="mutation",
    run=_merge,
    record=_merge_record,
    routes=(Route("POST", "branches/merge"),),
    command="branch merge",
)

BUILTINS: Final = (BRANCH_LIST, BRANCH_CREATE, BRANCH_DELETE, BRANCH_MERGE)
