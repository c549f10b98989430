"""What history says: branches, pages of commits, and differences per node and field."""

from __future__ import annotations

from typing import Final

import msgspec

from trails.model.history import Commit


class BranchInfo(msgspec.Struct, frozen=True):
    """A branch as a listing shows it."""

    name: str
    commit: str
    seq: int
    time: str
    """When its newest commit was made; empty before the first."""
    message: str
    actor: str


class BranchFilter(msgspec.Struct, frozen=True):
    """Which branches are listed."""

    prefix: str = ""
    after: str | None = None
    """The name of the last branch of the page before."""
    limit: int | None = None


ALL_BRANCHES: Final = BranchFilter()


class BranchPage(msgspec.Struct, frozen=True):
    """Some branches."""

    branches: list[BranchInfo]
    next: str | None = None
    """After which name the next page begins; None at the end."""


class FieldChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A field before and after; of a set, what went and what came."""

    field: str
    before: object = None
    after: object = None
    removed: tuple[object, ...] = ()
    added: tuple[object, ...] = ()


class NodeChange(msgspec.Struct, frozen=True):
    """A node that was created, updated or deleted, field by field."""

    handle: str
    change: str
    fields: tuple[FieldChange, ...]


class CommitFilter(msgspec.Struct, frozen=True):
    """Which commits to list; everything, where nothing is said."""

    branch: str | None = None
    """A branch, or a commit: what lies behind it."""
    actor: str | None = None
    node: str | None = None
    """A node's handle or IRI."""


class CommitPage(msgspec.Struct, frozen=True):
    """Commits, newest first, and where the next page begins."""

    commits: tuple[Commit, ...]
    next: str | None


class Difference(msgspec.Struct, frozen=True):
    """What is different between two states, node by node and field by field."""

    start: str
    end: str
    created: int
    updated: int
    deleted: int
    changes: tuple[NodeChange, ...]
    truncated: bool
    """Whether there are more changes than are shown."""


class CommitDetail(msgspec.Struct, frozen=True):
    """A commit and what it changed, seen from its first parent."""

    commit: Commit
    difference: Difference
