"""Which migrations a state of a graph has: a fold over the commits that lie behind it.

The commits say it themselves, so branches, merges, snapshots and backups carry it. A migration
counts if its newest mark behind a commit is forward. Two branches that applied the same one agree;
if one of them rolled it back, its mark is the newer one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trails.engine.graph.graph import Graph
from trails.model.history import Commit, MigrationMark


class AppliedMigration(msgspec.Struct, frozen=True):
    """A migration that a state of the graph has, and the commit that completed it."""

    mark: MigrationMark
    commit: Commit


def applied_migrations(graph: Graph, head: str) -> dict[str, AppliedMigration]:
    """The migrations that a commit has behind it by name, in the order in which they came."""
    found: dict[str, AppliedMigration] = {}
    for commit in graph.ancestry.behind(head, graph.log.migrations()):
        mark = commit.migration
        if mark is None or not mark.complete:
            continue
        for name in (*mark.earlier, mark.name):
            found.pop(name, None)
            if mark.direction == "forward":
                found[name] = AppliedMigration(mark, commit)
    return found


def pending_names(graph: Graph, head: str) -> tuple[str, ...]:
    """The names of the project's migrations that a commit does not have behind it."""
    names = graph.list_migrations()
    applied = applied_migrations(graph, head) if names else {}
    return tuple(name for name in names if name not in applied)


def initial_mark(names: Sequence[str]) -> MigrationMark | None:
    """What a new graph records: it begins with the declared types, which have all migrations."""
    return MigrationMark(names[-1], earlier=tuple(names[:-1])) if names else None
