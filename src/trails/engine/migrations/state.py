"""Compare the migrations that a branch has applied with the files of the project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trails.engine.graph.migrations import AppliedMigration
from trails.model.operations.migrations import MigrationState
from trails.registry.migrations import MigrationFile


def compare_migrations(
    files: Sequence[MigrationFile], applied: Mapping[str, AppliedMigration]
) -> tuple[MigrationState, ...]:
    """Every migration that is applied or has a file, by name."""
    known = {each.name: each for each in files}
    return tuple(
        _compare(name, known.get(name), applied.get(name)) for name in sorted({*known, *applied})
    )


def _compare(
    name: str, file: MigrationFile | None, applied: AppliedMigration | None
) -> MigrationState:
    description = "" if file is None else file.description.partition("\n")[0]
    if applied is None:
        return MigrationState(name, "pending", description)
    same = file is not None and applied.mark.checksum in {"", file.checksum}
    return MigrationState(
        name,
        "unknown" if file is None else "applied" if same else "changed",
        description,
        applied.commit.id,
        applied.commit.time,
        applied.commit.actor,
    )
