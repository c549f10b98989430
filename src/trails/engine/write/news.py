"""What a write tells those who listen to the graph; without any, nothing is collected."""

from __future__ import annotations

from collections.abc import Sequence

from trails.engine.feed import Tally
from trails.engine.graph import Graph
from trails.engine.lines import Line
from trails.engine.write.touched import Touches
from trails.views.nodes.index import Replacement


class News:
    """What readers of a branch will see differently."""

    def __init__(self, graph: Graph, line: Line) -> None:
        self._graph = graph
        self._line = line
        feed = graph.feed
        self._tally = Tally(traced=feed.traced(line.name)) if feed.listened else None
        """None where nobody listened in time."""

    def add_puts(self, puts: Sequence[Replacement]) -> None:
        """These nodes were put or deleted."""
        if self._tally is not None:
            states = (
                (put.handle, None if put.before is None else put.before.state, put.after)
                for put in puts
            )
            self._tally.compare(self._line.schema, states)

    def add_touched(self, touches: Touches) -> None:
        """These nodes were touched one by one."""
        if self._tally is not None:
            self._tally.compare(self._line.schema, touches.differences())

    def add_everything(self) -> None:
        """Any node may be seen differently."""
        if self._tally is not None:
            self._tally.everything = True

    def tell(self, touches: Touches, before: str, after: str) -> None:
        """Hand everything to whoever listens now, these touched nodes included.

        The write led from one commit to another.
        """
        graph, line = self._graph, self._line
        if not graph.feed.listened:
            return
        if self._tally is None:
            self._tally = Tally()
            self._tally.everything = True
        self.add_touched(touches)
        change = self._tally.change(line.name, line.schema)
        graph.feed.tell(graph.tracing.complete(change, line, before, after))
