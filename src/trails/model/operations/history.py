"""Results about branches, commits, differences, merges and provenance."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from trails.model.history import BranchInfo, Commit, ConflictKind, NodeChange, Outcome, Side, Take
from trails.model.operations.pages import Call, Continued

# --- branches ----------------------------------------------------------------------------


class OpenProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A branch with changes that wait for a merge."""

    proposal: Annotated[str, Meta(description="The branch.")]
    target: str
    author: str
    created: Annotated[str, Meta(description="The time of its first commit.")]
    age_seconds: int
    message: str
    commits: int
    created_nodes: Annotated[int | None, Meta(description="Null if they are too many to count.")]
    updated_nodes: int | None
    deleted_nodes: int | None
    conflicts: Annotated[
        int | None,
        Meta(description="Conflicts with the target now; null if large, or not yours to merge."),
    ]
    merge: Annotated[Call, Meta(description="The call that approves it.")]
    discard: Annotated[Call, Meta(description="The call that rejects it.")]
    commands: Annotated[tuple[str, ...], Meta(description="The same two as commands.")]


class ProposalList(Continued, frozen=True):
    """Open proposals, oldest first."""

    proposals: tuple[OpenProposal, ...]


class BranchList(Continued, frozen=True):
    """Branches, ``main`` first, then by name."""

    branches: tuple[BranchInfo, ...]
    proposals: Annotated[
        tuple[OpenProposal, ...],
        Meta(description="With the prefix proposals/: the first open proposals, oldest first."),
    ] = ()


class BranchCreated(msgspec.Struct, frozen=True):
    """A branch that was created."""

    branch: BranchInfo
    source: Annotated[str, Meta(description="The branch or commit that it starts from.")] = (
        msgspec.field(name="from")
    )


class BranchDeleted(msgspec.Struct, frozen=True):
    """A branch that was deleted, as it was."""

    deleted: BranchInfo


# --- commits -----------------------------------------------------------------------------


class CommitInfo(msgspec.Struct, frozen=True):
    """A commit as a listing shows it."""

    commit: Annotated[
        str, Meta(description="Its id; as snapshot, it reads the graph as it was then.")
    ]
    position: Annotated[int, Meta(description="Its place in the log, from 1.")]
    branch: Annotated[str, Meta(description="Where it was made.")]
    parents: tuple[str, ...]
    actor: str
    time: str
    message: str
    activity: Annotated[str | None, Meta(description="The id of the call that made it.")]
    added: Annotated[int, Meta(description="Statements added.")]
    removed: Annotated[int, Meta(description="Statements removed.")]

    @classmethod
    def of(cls, commit: Commit) -> CommitInfo:
        """What is shown of a commit of the log."""
        return cls(
            commit.id,
            commit.seq,
            commit.branch,
            commit.parents,
            commit.actor,
            commit.time,
            commit.message,
            commit.activity,
            commit.added,
            commit.removed,
        )


class CommitList(Continued, frozen=True):
    """Commits, newest first."""

    commits: tuple[CommitInfo, ...]


class Changes(Continued, frozen=True, kw_only=True):
    """What changed from one state to another, node by node and field by field."""

    created: Annotated[int, Meta(description="Nodes created.")]
    updated: Annotated[int, Meta(description="Nodes updated.")]
    deleted: Annotated[int, Meta(description="Nodes deleted.")]
    truncated: Annotated[bool, Meta(description="Whether more nodes changed than are listed.")]
    changes: tuple[NodeChange, ...]
    notice: str | None = None


class CommitResult(Changes, frozen=True):
    """A commit, and what it changed compared with its first parent."""

    commit: str
    position: int
    branch: str
    parents: tuple[str, ...]
    actor: str
    time: str
    message: str
    activity: str | None
    added: Annotated[int, Meta(description="Statements added.")]
    removed: Annotated[int, Meta(description="Statements removed.")]


class DifferenceResult(Changes, frozen=True):
    """The changes between two states."""

    start: Annotated[str, Meta(description="The commit of the first state.")] = msgspec.field(
        name="from"
    )
    end: Annotated[str, Meta(description="The commit of the second state.")] = msgspec.field(
        name="to"
    )


# --- merges ------------------------------------------------------------------------------


class ResolutionChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A resolution, ready to be sent; with ``take`` value, a value belongs in ``value``."""

    conflict: str
    take: Take
    value: UnsetType | None = UNSET


class ConflictInfo(msgspec.Struct, frozen=True):
    """A conflict between the two sides of a merge."""

    id: Annotated[str, Meta(description="Pass it as conflict in a resolution.")]
    kind: ConflictKind
    handle: Annotated[str, Meta(description="The node, as <Type>/<id>.")]
    field: str
    base: Annotated[object, Meta(description="The value at the common ancestor.")]
    ours: Annotated[object, Meta(description="The value in the target.")]
    theirs: Annotated[object, Meta(description="The value in the source.")]
    ours_commits: tuple[str, ...]
    theirs_commits: tuple[str, ...]
    message: str
    resolutions: Annotated[
        tuple[ResolutionChoice, ...], Meta(description="The possible resolutions.")
    ]


class Suggestion(msgspec.Struct, frozen=True):
    """The resolution that is suggested for a conflict."""

    conflict: str
    take: Side


class MergeOutcome(Continued, frozen=True):
    """The outcome of a merge. With conflicts, and on a dry run, nothing was written."""

    outcome: Outcome
    source: str
    target: str
    commit: Annotated[str | None, Meta(description="The commit that the target is at now.")]
    created: Annotated[
        int | None,
        Meta(
            description="Records. Null, as updated and deleted, if a fast-forward brings so many "
            "changes that counting them would take long; a dry run counts them."
        ),
    ]
    updated: int | None
    deleted: int | None
    dry_run: bool
    replayed: Annotated[
        bool, Meta(description="The idempotency key was known: this is the first call's outcome.")
    ]
    unused: Annotated[
        tuple[str, ...], Meta(description="Resolutions of conflicts that did not occur.")
    ]
    conflicts: tuple[ConflictInfo, ...]
    suggested: Annotated[
        tuple[Suggestion, ...], Meta(description="With conflicts: resolutions for all of them.")
    ]


# --- provenance --------------------------------------------------------------------------


class Attribution(msgspec.Struct, frozen=True):
    """One value, or one item of a list, and who wrote it."""

    field: str
    value: object
    commit: Annotated[
        str | None,
        Meta(description="Null if it is not known: too many commits changed the record since."),
    ]
    time: str | None = None
    actor: str | None = None
    branch: Annotated[str | None, Meta(description="Where the commit was made.")] = None
    message: str | None = None
    activity: Annotated[
        str | None, Meta(description="The id of the call that made the commit.")
    ] = None
    call: Annotated[
        str | None,
        Meta(description="What was called; null if the caller may not see it."),
    ] = None
    surface: str | None = None


class Blame(Continued, frozen=True):
    """Who wrote the values of a record."""

    id: str
    commit: Annotated[str, Meta(description="The commit whose state it is.")]
    values: tuple[Attribution, ...]


class ActivityInfo(msgspec.Struct, frozen=True):
    """One call, or several with the same refusal."""

    id: str
    name: str
    kind: str
    actor: str
    started: str
    ended: str
    outcome: Annotated[str, Meta(description="ok, or the code of an error.")]
    detail: str
    calls: int
    surface: str
    trace: Annotated[str, Meta(description="The trace of the caller, or one of its own.")]
    used: Annotated[
        tuple[str, ...],
        Meta(description="The commit whose state was read, then nodes that were read, as Type/id."),
    ]
    generated: Annotated[tuple[str, ...], Meta(description="The commits that it made.")]


class ActivityList(Continued, frozen=True):
    """Activities, newest first."""

    activities: tuple[ActivityInfo, ...]
    archived: Annotated[
        bool, Meta(description="Whether older activities are in archives that were not searched.")
    ]
