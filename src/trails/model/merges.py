"""What a merge says: its outcome, and every conflict with both sides and what caused it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Outcome = Literal["already_up_to_date", "fast_forward", "merged", "conflicts"]
ConflictKind = Literal[
    "divergent_field",
    "divergent_insert",
    "delete_update",
    "dangling_reference",
    "uniqueness",
    "constraint",
    "schema",
]


Side = Literal["ours", "theirs"]
Take = Literal["ours", "theirs", "value"]


class Conflict(msgspec.Struct, frozen=True):
    """A place where two sides do not fit together; ``id`` is what a resolution names."""

    id: str
    kind: ConflictKind
    handle: str
    field: str
    base: object
    ours: object
    theirs: object
    ours_commits: tuple[str, ...]
    theirs_commits: tuple[str, ...]
    message: str
    takes: tuple[Take, ...] = ("ours", "theirs")
    """The resolutions that settle it."""


class Resolution(msgspec.Struct, frozen=True):
    """How a conflict is settled: with our side, with theirs, or with another value."""

    take: Take
    value: object = None


class MergeRequest(msgspec.Struct, frozen=True):
    """Merge ``source``, a branch or commit, into branch ``target``."""

    source: str
    target: str = "main"
    message: str = ""
    resolutions: Mapping[str, Resolution] = {}
    """Conflict id → how to settle it."""
    dry_run: bool = False
    expected_head: str | None = None
    idempotency_key: str | None = None
    resolve_all: Side | None = None
    """The side that settles every conflict without a resolution of its own, where it can."""


class MergeResult(msgspec.Struct, frozen=True):
    """How a merge went. With conflicts, and on a dry run, nothing was written."""

    outcome: Outcome
    source: str
    target: str
    commit: str | None
    """Where the target is now; of a dry run, where it would be moved to, if that is known."""
    bases: tuple[str, ...] = ()
    created: int = 0
    updated: int = 0
    deleted: int = 0
    conflicts: tuple[Conflict, ...] = ()
    dry_run: bool = False
    suggested: Mapping[str, Side] = {}
    """With conflicts: resolutions that settle all of them, and what settling them brings about."""
    unused: tuple[str, ...] = ()
    """Resolutions of conflicts that did not arise."""
    replayed: bool = False
    """The idempotency key was known: this is the first outcome, nothing was done now."""
