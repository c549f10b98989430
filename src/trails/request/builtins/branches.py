"""``branch_list``, ``branch_create``, ``branch_delete``: lines of work beside each other.

``branch_merge``: bring the work of one branch into another. ``proposal_list``: what waits for that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from trails.engine.graph.graph import MAIN
from trails.engine.history.branches import Versions
from trails.engine.history.proposals import Proposal, ProposalFilter, open_proposals
from trails.engine.session.context import GraphContext
from trails.errors import ConflictError
from trails.model.changes.proposals import PREFIX
from trails.model.constraints import shorten
from trails.model.history import (
    BranchFilter,
    Conflict,
    MergeRequest,
    MergeResult,
    Resolution,
)
from trails.model.operations.history import (
    BranchCreated,
    BranchDeleted,
    BranchList,
    ConflictInfo,
    MergeOutcome,
    OpenProposal,
    ProposalList,
    ResolutionChoice,
    Suggestion,
)
from trails.model.operations.pages import Call
from trails.model.texts import count
from trails.model.types import ANY, ShapeDescriptor
from trails.projections.tools import DRY_RUN, EXPECTED_HEAD, IDEMPOTENCY_KEY, MAX_CHARS
from trails.request.builtins.declare import (
    ADDER,
    MESSAGE,
    READER,
    WRITER,
    Builtin,
    Route,
    ToolContext,
    field,
)
from trails.request.fitting import Page


def versions_of(tool: ToolContext, ctx: GraphContext) -> Versions:
    """Branches and commits, as the caller may see and change them."""
    return tool.service.versions(ctx.actor, ctx.call, ctx.access)


def _list(tool: ToolContext, ctx: GraphContext, **given: object) -> Page:
    page = versions_of(tool, ctx).branch_page(msgspec.convert(given, BranchFilter))
    found = page.branches

    def changes(at: int) -> Mapping[str, object] | None:
        if at < len(found) or page.next is not None:
            return {"after": found[at - 1].name if at else given["after"]}
        return None

    proposals: tuple[OpenProposal, ...] = ()
    if str(given["prefix"]).startswith(PREFIX) and given["after"] is None:
        proposals = tuple(map(_shown_proposal, _open(tool, ctx, ProposalFilter(limit=_FEW))[0]))
    return Page(BranchList(tuple(found), proposals), "branches", changes)


_FEW: Final = 20
"""Open proposals that a list of branches describes."""


def _open(
    tool: ToolContext, ctx: GraphContext, wanted: ProposalFilter
) -> tuple[list[Proposal], str | None]:
    return open_proposals(tool.service.graph, versions_of(tool, ctx), ctx.access, wanted)


def _shown_proposal(proposal: Proposal) -> OpenProposal:
    branch, target = proposal.branch, proposal.target
    into = "" if target == MAIN else f" --into {target}"
    created, updated, deleted = proposal.counts
    return OpenProposal(
        proposal=branch,
        target=target,
        author=proposal.author,
        created=proposal.commits[0].time,
        age_seconds=proposal.age,
        message=proposal.commits[-1].message,
        commits=len(proposal.commits),
        created_nodes=created,
        updated_nodes=updated,
        deleted_nodes=deleted,
        conflicts=proposal.conflicts,
        merge=Call("branch_merge", {"source": branch, "target": target}),
        discard=Call("branch_delete", {"name": branch, "force": True}),
        commands=(
            f"trails branch merge {branch}{into}",
            f"trails branch delete {branch} --force",
        ),
    )


def _proposals(tool: ToolContext, ctx: GraphContext, **given: object) -> Page:
    found, following = _open(tool, ctx, msgspec.convert(given, ProposalFilter))

    def changes(at: int) -> Mapping[str, object] | None:
        if at < len(found) or following is not None:
            return {"after": found[at - 1].branch if at else given["after"]}
        return None

    return Page(ProposalList(tuple(map(_shown_proposal, found))), "proposals", changes)


PROPOSAL_LIST: Final = Builtin(
    name="proposal_list",
    title="List proposals",
    description=(
        "List the open proposals, oldest first: branches below proposals/ with changes that wait "
        "for a merge, with author, age, size, conflicts, and the calls that approve or reject "
        "each."
    ),
    fields=(
        field("author", "Only those of this actor.", max_length=256),
        field("target", "Only those for this branch.", max_length=100),
        field("after", "Only those after this one.", max_length=100),
        field("limit", "At most.", "Int", default=50, min_value=1, max_value=500),
    ),
    controls=(MAX_CHARS,),
    result=ProposalList,
    hints=READER,
    action="Read",
    run=_proposals,
    offered="never",
    routes=(Route("GET", "proposals"),),
    command="proposals",
)


def _create(tool: ToolContext, ctx: GraphContext, **given: str) -> BranchCreated:
    made = versions_of(tool, ctx).create_branch(given["name"], given["from"])
    return BranchCreated(made, given["from"])


def _delete(tool: ToolContext, ctx: GraphContext, name: str, *, force: bool) -> BranchDeleted:
    return BranchDeleted(versions_of(tool, ctx).delete_branch(name, force=force))


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
    result=BranchList,
    hints=READER,
    action="Read",
    run=_list,
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
    unlisted=(DRY_RUN,),
    result=BranchCreated,
    hints=ADDER,
    action="BranchCreate",
    also=("Read",),
    kind="mutation",
    run=_create,
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
    unlisted=(DRY_RUN,),
    result=BranchDeleted,
    hints=WRITER,
    action="BranchDelete",
    kind="mutation",
    run=_delete,
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


def _merge(tool: ToolContext, ctx: GraphContext, after: str | None = None, **given: object) -> Page:
    request = _merge_request(**given)  # type: ignore[arg-type]
    result = versions_of(tool, ctx).merge(request)
    if result.conflicts and not request.dry_run:
        raise _refused(result, bounded=tool.bounded)
    return _shown_merge(result, after)


def _shown_merge(result: MergeResult, after: str | None) -> Page:
    """The outcome; conflicts are a page, each with the resolution that is suggested for it."""
    every = sorted(result.conflicts, key=lambda each: each.id)
    found = [each for each in every if after is None or each.id > after]
    shown = {each.id for each in every}

    def changes(at: int) -> Mapping[str, object] | None:
        if at < len(found):
            return {"after": found[at - 1].id if at else after}
        return None

    def suggested(kept: Collection[str], *, last: bool) -> tuple[Suggestion, ...]:
        # Those of conflicts that follow from resolutions are on the last page.
        return tuple(
            each
            for each in _suggested(result)
            if each.conflict in kept or (last and each.conflict not in shown)
        )

    def narrow(items: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
        kept = {str(each["id"]) for each in items}
        return {"suggested": suggested(kept, last=not found or found[-1].id in kept)}

    settled = suggested({each.id for each in found}, last=True)
    outcome = _outcome(result, found, settled)
    return Page(outcome, "conflicts", changes, len(every), narrow=narrow)


def _outcome(
    result: MergeResult, conflicts: Iterable[Conflict], suggested: tuple[Suggestion, ...]
) -> MergeOutcome:
    return MergeOutcome(
        result.outcome,
        result.source,
        result.target,
        result.commit,
        result.created,
        result.updated,
        result.deleted,
        result.dry_run,
        result.replayed,
        result.unused,
        tuple(map(_conflict, conflicts)),
        suggested,
    )


def _suggested(result: MergeResult) -> tuple[Suggestion, ...]:
    return tuple(Suggestion(each, side) for each, side in result.suggested.items())


def _conflict(conflict: Conflict) -> ConflictInfo:
    return ConflictInfo(
        conflict.id,
        conflict.kind,
        conflict.handle,
        conflict.field,
        conflict.base,
        conflict.ours,
        conflict.theirs,
        conflict.ours_commits,
        conflict.theirs_commits,
        conflict.message,
        tuple(
            ResolutionChoice(conflict.id, take, None if take == "value" else UNSET)
            for take in conflict.takes
        ),
    )


_SPELLED: Final = 12_000
"""Characters of conflicts in a message, and again in its data."""


def _refused(result: MergeResult, *, bounded: bool) -> ConflictError:
    """The error of a merge with conflicts: for a model the first of them, for a program all."""
    found = sorted(result.conflicts, key=lambda each: each.id)
    shown = _first(found)
    more = len(found) - len(shown)
    rest = {"source": result.source, "target": result.target, "dry_run": True}
    call = Call("branch_merge", {**rest, "after": shown[-1].id})
    part = bounded and more > 0
    outcome = _outcome(result, shown if part else found, () if part else _suggested(result))
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
        **msgspec.to_builtins(outcome),
        **({"more": more, "next": call} if part else {}),
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
    result=MergeOutcome,
    hints=WRITER,
    action="BranchMerge",
    also=("Read", "Change"),
    kind="mutation",
    run=_merge,
    routes=(Route("POST", "branches/merge"),),
    command="branch merge",
)

BUILTINS: Final = (BRANCH_LIST, BRANCH_CREATE, BRANCH_DELETE, BRANCH_MERGE, PROPOSAL_LIST)
