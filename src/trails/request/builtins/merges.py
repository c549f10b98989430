"""``branch_merge``: bring the work of one branch into another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from trails.engine.context import GraphContext
from trails.errors import ConflictError
from trails.model.constraints import shorten
from trails.model.merges import Conflict, MergeRequest, MergeResult, Resolution
from trails.model.types import ShapeDescriptor
from trails.model.wording import count
from trails.request.builtins.declare import (
    BOOLEAN,
    EXPECTED_HEAD,
    IDEMPOTENCY_KEY,
    INTEGER,
    MAYBE_STRING,
    MESSAGE,
    STRING,
    WRITER,
    Builtin,
    Desk,
    field,
    listed,
    said,
    shown,
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
        field("value", "With take=value: the value, as JSON.", "Json"),
    ),
)


def merge_request(resolutions: Sequence[Mapping[str, object]], **given: object) -> MergeRequest:
    """What the arguments ask for."""
    settled = {
        str(each["conflict"]): msgspec.convert(
            {"take": each["take"], "value": each["value"]}, Resolution
        )
        for each in resolutions
    }
    request = msgspec.convert({**given, "message": given["message"] or ""}, MergeRequest)
    return msgspec.structs.replace(request, resolutions=settled)


def _merge(desk: Desk, ctx: GraphContext, **given: object) -> object:
    request = merge_request(**given)  # type: ignore[arg-type]
    result = desk.service.versions(ctx.actor, ctx.call, ctx.access).merge(request)
    if result.conflicts and not request.dry_run:
        raise _refused(result)
    return _shown(result)


def _shown(result: MergeResult) -> dict[str, object]:
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
    id=said(STRING, "What a resolution names."),
    kind=STRING,
    node=said(STRING, "The node, as <Type>/<id>."),
    field=STRING,
    base=said({}, "The value before the two sides went apart."),
    ours=said({}, "The value in the target."),
    theirs=said({}, "The value in the source."),
    message=STRING,
    resolutions=said(
        listed(shown(conflict=STRING, take=STRING)), "What can be passed to settle it."
    ),
)

BRANCH_MERGE: Final = Builtin(
    name="branch_merge",
    title="Merge a branch",
    description=(
        "Bring the commits of one branch (or commit) into another, field by field: different "
        "fields of one node merge by themselves. If both sides changed the same thing in "
        "different ways, nothing is written and the error lists every conflict with its id; call "
        "again with one resolution for each, or with resolve_all. dry_run=true only tells what "
        "would happen. Example: "
        '{"source": "agents/ada/tidy-up", "message": "Tidy up"}. Returns the outcome '
        "(already_up_to_date, fast_forward, merged; with dry_run also conflicts), the commit that "
        "the target is at now, and how many nodes were created, updated and deleted."
    ),
    fields=(
        field("source", "The branch or commit to merge.", required=True, min_length=1),
        field("target", "The branch to merge into.", default="main"),
        field(
            "resolutions",
            "How conflicts are settled, one for each.",
            "Object",
            target="Resolution",
            many=True,
        ),
        field(
            "resolve_all",
            "Settle every conflict that no resolution names with what the target has (ours) or "
            "what the source has (theirs). What that side can't settle is still a conflict.",
            one_of=["ours", "theirs"],
        ),
        field("dry_run", "Only tell what would happen; write nothing.", "Bool", default=False),
        MESSAGE,
        EXPECTED_HEAD,
        IDEMPOTENCY_KEY,
    ),
    shapes=(_RESOLUTION,),
    output=shown(
        outcome=STRING,
        source=STRING,
        target=STRING,
        commit=said(MAYBE_STRING, "Where the target is now."),
        created=INTEGER,
        updated=INTEGER,
        deleted=INTEGER,
        dry_run=BOOLEAN,
        replayed=said(BOOLEAN, "The idempotency key was known: this is the first call's outcome."),
        conflicts=listed(_CONFLICT),
        suggested=said(
            listed(shown(conflict=STRING, take=STRING)),
            "With conflicts: resolutions that settle all of them.",
        ),
        unused=said(listed(STRING), "Resolutions of conflicts that did not arise."),
    ),
    hints=WRITER,
    action="BranchMerge",
    also=("Read", "Change"),
    kind="mutation",
    run=_merge,
)
