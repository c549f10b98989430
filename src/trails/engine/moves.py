"""Moves: what a branch's readers see differently after its head went elsewhere."""

from __future__ import annotations

from typing import Final

from trails.engine.changes import net_changes
from trails.engine.feed import MANY, Change, Tally
from trails.engine.graph import Graph
from trails.engine.lines import Line
from trails.errors import TrailsError

_STATEMENTS: Final = 10 * MANY
"""A way through the log that is longer is not walked to find out which nodes it changed."""


def tell_move(graph: Graph, line: Line, start: str, end: str) -> None:
    """Tell the feed that a branch went from one commit to another."""
    if graph.feed.listened:
        change = _net_change(graph, line.name, start, end)
        graph.feed.tell(graph.tracing.complete(change, line, start, end))


def _net_change(graph: Graph, branch: str, start: str, end: str) -> Change:
    try:
        schema = graph.schema_at(end)
        path = graph.ancestry.path(start, end)
        length = sum(each.added + each.removed for each in (*path.undo, *path.redo))
        if length > _STATEMENTS or graph.schema_at(start) != schema:
            return Change(branch)
        tally = Tally()
        tally.add(net_changes(graph, path))
        return tally.change(branch, graph.compiled(schema).schema)
    except TrailsError:
        return Change(branch)  # the move is made, whatever can be read of the way
