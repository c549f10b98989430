"""What types, fields and nodes are called in another state of a graph.

A commit records what its change of types renamed. Along the commits between two states, renames
add up: ``NameHistory`` follows a name from the first state to the last.
"""

from __future__ import annotations

from collections.abc import Sequence

from trails.engine.graph.ancestry import Path
from trails.engine.graph.graph import Graph
from trails.model.history import Rename
from trails.model.nodes import make_handle, split_handle
from trails.model.types import Schema

RenameStep = tuple[Schema, tuple[Rename, ...]]
"""The types before some renames, and the renames in order."""


class NameHistory:
    """Follows names along renames."""

    def __init__(self, steps: Sequence[RenameStep]) -> None:
        self.steps = steps

    @classmethod
    def between(cls, graph: Graph, start: str, end: str) -> NameHistory:
        """From the state of one commit to that of another."""
        return cls.along(graph, graph.ancestry.path(start, end))

    @classmethod
    def along(cls, graph: Graph, path: Path) -> NameHistory:
        """Along a way through the log."""
        steps: list[RenameStep] = []
        for commit in path.undo:
            if commit.renames:
                schema = graph.compiled(commit.schema).schema
                steps.append((schema, tuple(map(_inverse, reversed(commit.renames)))))
        for commit in path.redo:
            if commit.renames:
                former, _ = graph.folding.types_around(commit)
                steps.append((former.schema, commit.renames))
        return cls(steps)

    def __bool__(self) -> bool:
        """Whether anything has another name."""
        return bool(self.steps)

    def type(self, name: str) -> str:
        """The name of a type in the last state."""
        return self._follow(name, "")[0]

    def field(self, type_name: str, field: str) -> str:
        """The name of a field of a type in the last state."""
        return self._follow(type_name, field)[1]

    def _follow(self, name: str, field: str) -> tuple[str, str]:
        for schema, renames in self.steps:
            lineage = list(schema.lineage(name)) if name in schema.by_name else [name]
            for each in renames:
                if each.field:
                    if each.field == field and each.type in lineage:
                        field = each.to
                elif each.type in lineage:
                    lineage[lineage.index(each.type)] = each.to
            name = lineage[0]
        return name, field

    def handle(self, handle: str) -> str:
        """The handle of a node, whose id stays."""
        if not self.steps:
            return handle
        name, identifier = split_handle(handle)
        return make_handle(self.type(name), identifier)


def renamed_type(graph: Graph, head: str, name: str) -> str:
    """What a type that once had a name is called at a commit; the name itself if it is unknown."""
    steps: list[RenameStep] = []
    for commit in graph.ancestry.behind(head, graph.log.renames()):
        former, _ = graph.folding.types_around(commit)
        steps.append((former.schema, commit.renames))
    return NameHistory(steps).type(name)


def _inverse(rename: Rename) -> Rename:
    if rename.field:
        return Rename(rename.type, rename.field, rename.to)
    return Rename(rename.to, rename.type)
