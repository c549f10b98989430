"""Results of dry runs and of proposals."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from trails.model.operations.history import Changes
from trails.model.operations.pages import Call

Result = Annotated[
    object, Meta(description="What the call returns; null in a list without its own result.")
]


class DryRunResult(Changes, frozen=True, kw_only=True):
    """What a call would return and change. Nothing was written."""

    dry_run: Annotated[bool, Meta(description="Always true.")]
    branch: str
    head: Annotated[str, Meta(description="The commit on which it was worked out.")]
    result: Result


class ProposalResult(Changes, frozen=True, kw_only=True):
    """A call that was made on a branch of its own, to be reviewed and merged."""

    proposal: Annotated[
        str | None, Meta(description="The branch; null if the call changes nothing.")
    ]
    target: Annotated[str, Meta(description="The branch that it is to be merged into.")]
    head: Annotated[str, Meta(description="The commit of the target from which it starts.")]
    commit: Annotated[str | None, Meta(description="The commit on the branch.")]
    result: Result
    violations: Annotated[
        tuple[str, ...],
        Meta(description="What a merge would refuse now, because the target has moved."),
    ] = ()
    merge: Annotated[Call | None, Meta(description="The call that approves it.")] = None
    discard: Annotated[Call | None, Meta(description="The call that rejects it.")] = None
