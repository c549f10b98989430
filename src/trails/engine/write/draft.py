"""A draft: what a write would make of a branch, worked out without the writer's lock.

It reads a fixed state of the node index and keeps its changes in temporary tables. Nobody
waits for it, and nobody sees anything of it. A write may take over its result if the branch
is still where the draft found it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from trails.engine.access import Access
from trails.engine.activities import Call
from trails.engine.graph import Graph
from trails.engine.guards import guard_of
from trails.engine.lines import Line
from trails.engine.standing import check_wanted
from trails.engine.write.delta import Delta
from trails.engine.write.news import News
from trails.engine.write.pending import PendingNodes
from trails.model.history import Head
from trails.model.nodes import NodeState
from trails.model.types import Schema
from trails.views.nodes.file import Draft as DraftFile
from trails.views.nodes.index import DraftIndex


@contextmanager
def drafting(graph: Graph, line: Line, access: Access, call: Call | None = None) -> Iterator[Draft]:
    """Draft a write of a branch, as one actor may write it; not for graphs in memory."""
    with graph.file.draft() as file:
        draft = Draft(graph, file, line, access, call)
        try:
            yield draft
        finally:
            draft.nodes.delta.discard()


class Draft:
    """A write that only says what it would do."""

    def __init__(
        self, graph: Graph, file: DraftFile, line: Line, access: Access, call: Call | None
    ) -> None:
        self._graph = graph
        self._file = file
        self._access = access
        index = DraftIndex(file, line.name)
        self.line = self._copy(line, index)
        """The branch that would be written, in the draft."""
        self.schema: Schema | None = None
        """The types that the branch would get, where they are others."""
        index.grow()
        self.nodes = PendingNodes(
            self.line,
            file.db,
            graph.log.last_seq() + 1,
            guard=guard_of(access, line.name, self.line.compiled),
            delta=Delta(graph, self.line),
            news=News(graph, self.line),
            go_on=partial(check_wanted, call),
        )

    def read(self, line: Line) -> Line:
        """Another branch or snapshot, at the same moment."""
        return self._copy(line, DraftIndex(self._file, line.name))

    def _copy(self, line: Line, index: DraftIndex) -> Line:
        at = index.position
        found = Line(
            self._file, line.name, None, Head(at.commit, at.seq, self._graph.schema_at(at.commit))
        )
        found.nodes = index
        found.use(self._graph.compiled(found.head.schema))
        return found

    def change_schema(self, schema: Schema) -> None:
        """Go on with these types; call it before any other change."""
        self.line.nodes.adopt(schema)
        self.line.use(self._graph.compile(schema))
        self.nodes.use(guard_of(self._access, self.line.name, self.line.compiled))
        self.schema = schema

    @property
    def states(self) -> dict[str, NodeState | None]:
        """The nodes that would change, as they would be."""
        return {handle: after for handle, _, after in self.nodes.touches.differences()}
