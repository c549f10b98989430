"""Results of the operations on migrations."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trails.model.changes.file_diffs import FileDiff
from trails.model.changes.steps import Effect, Offense

Direction = Literal["forward", "reverse"]


class MigrationState(msgspec.Struct, frozen=True):
    """One migration on one branch."""

    name: str
    state: Annotated[
        Literal["applied", "pending", "changed", "unknown"],
        Meta(
            description="changed: the file was edited after it was applied; "
            "unknown: applied, but its file is missing."
        ),
    ]
    description: str = ""
    commit: Annotated[str, Meta(description="The commit that applied it.")] = ""
    time: str = ""
    actor: str = ""


class MigrationStatus(msgspec.Struct, frozen=True):
    """The migrations of a branch."""

    branch: str
    head: str
    migrations: tuple[MigrationState, ...]
    pending: int
    interrupted: Annotated[
        tuple[str, ...],
        Meta(description="Migrations that did not finish; apply or rollback continues them."),
    ] = ()


class PlannedStep(msgspec.Struct, frozen=True):
    """One step of a migration."""

    summary: str
    effect: Effect
    nodes: Annotated[
        int | None,
        Meta(description="Nodes that it changes; null if that depends on a function before it."),
    ] = None
    lost: Annotated[int, Meta(description="Values that it removes from the branch.")] = 0
    offending: Annotated[int, Meta(description="Violations that forbid it.")] = 0


class PlannedMigration(msgspec.Struct, frozen=True):
    """What a migration would do."""

    name: str
    direction: Direction
    steps: tuple[PlannedStep, ...]
    description: str = ""
    offenses: tuple[Offense, ...] = ()


class MigrationPlan(msgspec.Struct, frozen=True):
    """What applying or rolling back would do; nothing was written."""

    branch: str
    head: str
    migrations: tuple[PlannedMigration, ...]
    loses_data: Annotated[
        bool, Meta(description="Whether allow_data_loss is needed to apply it.")
    ] = False
    diff: Annotated[FileDiff | None, Meta(description="For a new migration: its file.")] = None
    hints: tuple[str, ...] = ()


class MigratedTo(msgspec.Struct, frozen=True):
    """One migration that was applied or rolled back."""

    name: str
    direction: Direction
    commit: str


class MigrationOutcome(msgspec.Struct, frozen=True):
    """What was done, migration by migration."""

    branch: str
    head: str
    migrations: tuple[MigratedTo, ...]
    pending: int
    dry_run: bool = False
    plan: Annotated[
        tuple[PlannedMigration, ...], Meta(description="For a dry run: what would be done.")
    ] = ()
