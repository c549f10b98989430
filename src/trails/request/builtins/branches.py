"""``branch_list``, ``branch_create``, ``branch_delete``: lines of work beside each other.

``branch_merge``: bring the work of one branch into another.

Programs get whole records (``record``), in the form of ``trails.model``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

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
from trails.projections.tools import MAX_CHARS
from trails.request.answers import CONTINUED
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
from trails.request.fitting import Call, Page

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
    found = page.branches

    def changes(at: int) -> Mapping[str, object] | None:
        if at < len(found) or page.next is not None:
            return {"after": found[at - 1].name if at else given["after"]}
        return None

    return Page({"branches": [_shown(each) for each in found]}, "branches", changes)


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
        "List the branches, main first, each with its newest commit. Changes on a branch "
        "are not visible on others until they are merged."
    ),
    fields=(
        field("prefix", "How their names start.", default="", max_length=100),
        field("after", "Only those after this one.", max_length=100),
        field("limit", "At most.", "Int", default=100, min_value=1, max_value=1000),
    ),
    controls=(MAX_CHARS,),
    output=shown(branches=listed(_BRANCH), optional=CONTINUED),
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
        "Create a branch to change data without touching main: write with branch set to its "
        "name, review, then branch_merge or branch_delete it."
    ),
    fields=(
        field(
            "name",
            "Such as agents/ada/tidy-up.",
            required=True,
            min_length=1,
            max_length=100,
        ),
        field(
            "from",
            "A branch or commit.",
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
        "Delete a branch. Refused with unmerged commits, unless force is true; its commits can "
        "still be read by id."
    ),
    fields=(
        field("name", "Its name.", required=True, min_length=1, max_length=100),
        field("force", "Delete anyway.", "Bool", default=False),
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
        field("conflict", "Its id.", required=True, min_length=1),
        field(
            "take",
            "ours: what the target has; theirs: what the source has; value: value.",
            required=True,
            one_of=["ours", "theirs", "value"],
        ),
        field("value", "For take=value.", ANY),
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


def _merge(
    tool: ToolContext, ctx: GraphContext, after: str | None = None, **given: object
) -> object:
    request = _merge_request(**given)  # type: ignore[arg-type]
    result = versions_of(tool, ctx).merge(request)
    if result.conflicts and not request.dry_run:
        raise _refused(result)
    return _shown_merge(result, after)


def _merge_record(
    tool: ToolContext, ctx: GraphContext, after: str | None = None, **given: object
) -> object:
    del after  # a program gets all conflicts
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


def _shown_merge(result: MergeResult, after: str | None) -> Page:
    """The outcome; conflicts are a page, each with the resolution that is suggested for it."""
    every = sorted(result.conflicts, key=lambda each: each.id)
    found = [each for each in every if after is None or each.id > after]
    shown = {each.id for each in every}

    def changes(at: int) -> Mapping[str, object] | None:
        if at < len(found):
            return {"after": found[at - 1].id if at else after}
        return None

    def narrow(items: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
        kept = {each["id"] for each in items}
        last = not found or (bool(items) and items[-1]["id"] == found[-1].id)
        wanted = [
            each
            for each in _suggested(result)
            # Those of conflicts that follow from resolutions are on the last page.
            if each["conflict"] in kept or (last and each["conflict"] not in shown)
        ]
        return {"suggested": wanted}

    body: dict[str, object] = {
        "outcome": result.outcome,
        "source": result.source,
        "target": result.target,
        "commit": result.commit,
        "created": result.created,
        "updated": result.updated,
        "deleted": result.deleted,
        "dry_run": result.dry_run,
        "replayed": result.replayed,
        "unused": list(result.unused),
        "conflicts": [_conflict(each) for each in found],
    }
    body |= narrow(cast(Sequence[Mapping[str, object]], body["conflicts"]))
    return Page(body, "conflicts", changes, len(every), narrow=narrow)


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


_SPELLED: Final = 12_000
"""Characters of conflicts in a message, and again in its data."""


def _refused(result: MergeResult) -> ConflictError:
    found = sorted(result.conflicts, key=lambda each: each.id)
    shown = _first(found)
    more = len(found) - len(shown)
    rest = {"source": result.source, "target": result.target, "dry_run": True}
    call = Call("branch_merge", {**rest, "after": shown[-1].id})
    return ConflictError(
        f"{count(len(found), 'conflict')}, nothing was written. "
        + " ".join(_spelled(shown))
        + (f" {more} more are listed by branch_merge with {_json(call.arguments)}." if more else "")
        + " Call branch_merge again with resolutions, one for each: "
        '{"conflict": "<id>", "take": "ours"} keeps what '
        f"{result.target} has, "
        '"theirs" takes what '
        f'{result.source} has, "value" with a value sets that; or with resolve_all.'
        + (
            f" These settle everything: {_json({'resolutions': _suggested(result)})}."
            if result.suggested and not more
            else ""
        ),
        conflicts=[_conflict(each) for each in shown],
        suggested=[] if more else _suggested(result),
        **({"more": more, "next": call} if more else {}),
    )


def _first(conflicts: Sequence[Conflict]) -> Sequence[Conflict]:
    """The first ones, as many as an error has room for."""
    room = _SPELLED
    for at, each in enumerate(conflicts):
        room -= len(msgspec.json.encode(_conflict(each)))
        if room < 0:
            return conflicts[: max(at, 1)]
    return conflicts


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


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
        "Merge a branch or commit into a branch, field by field. If both sides changed the same "
        "thing in different ways, nothing is written and the error lists the conflicts with "
        "their ids; call again with a resolution for each, or with resolve_all."
    ),
    fields=(
        field("source", "A branch or commit.", required=True, min_length=1),
        field("target", "Merge into it.", default="main"),
        field(
            "resolutions",
            "One for each conflict.",
            "Object",
            target="Resolution",
            many=True,
        ),
        field(
            "resolve_all",
            "For all others.",
            one_of=["ours", "theirs"],
        ),
        field("dry_run", "Only report what would happen.", "Bool", default=False),
        field("after", "With dry_run: only conflicts after this id.", max_length=200),
        MESSAGE,
        EXPECTED_HEAD,
        IDEMPOTENCY_KEY,
    ),
    controls=(MAX_CHARS,),
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
        optional=CONTINUED,
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
