"""The Context that capabilities are handed: an actor on a branch or snapshot of a graph."""

from __future__ import annotations

from trails.authoring.context import Row
from trails.authoring.nodes import Node, blank, loaded
from trails.engine.graph import Graph
from trails.engine.knowledge import Knowledge
from trails.engine.lines import SNAPSHOT, Line
from trails.errors import NotFoundError
from trails.model.nodes import split_handle
from trails.registry.registry import Registry


class GraphContext:
    """One actor's view of one line, with the registry that was current when it began."""

    def __init__(
        self,
        graph: Graph,
        registry: Registry,
        *,
        actor: str,
        line: Line,
        activity: str | None = None,
    ) -> None:
        self._graph = graph
        self.line = line
        self.registry = registry
        self._classes = registry.classes
        self.actor = actor
        self.branch = "" if line.fixed else line.name
        self.snapshot = line.name.removeprefix(SNAPSHOT) if line.fixed else None
        self.graph = graph.name
        self.kg = Knowledge(graph, line, registry.schema, actor, activity)

    def for_activity(self, activity: str) -> GraphContext:
        """The same actor on the same branch, with commits that name an activity."""
        return GraphContext(
            self._graph, self.registry, actor=self.actor, line=self.line, activity=activity
        )

    def hydrate(self, row: Row) -> Node:
        """A stored node as an instance of its class."""
        cls = self._classes.get(row.type) or self._class_of(row.type)
        return loaded(cls, self, row.id, row.values)

    def reference(self, handle: str) -> Node:
        """An instance that stands for a node and loads it when asked."""
        type_name, identifier = split_handle(handle)
        return blank(self._class_of(type_name), self, identifier, handle)

    def _class_of(self, type_name: str) -> type[Node]:
        found = self._classes.get(type_name)
        if found is None:
            raise NotFoundError(f"no class is registered for the stored type {type_name!r}")
        return found
