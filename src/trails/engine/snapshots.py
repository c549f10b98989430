"""Snapshots: the graph as of any commit.

A snapshot stands on a layer of its own, made from the nearest line by undoing and
doing what lies between. As many are kept as ``_MOST`` and ``_MOST_ROWS`` allow; the one
that was used longest ago goes first, and is made again when it is asked for.
"""

from __future__ import annotations

from typing import Final

from trails.engine.graph import Graph
from trails.engine.lines import SNAPSHOT, Line
from trails.model.history import Commit, Head

_MOST: Final = 64
_MOST_ROWS: Final = 2_000_000


def snapshot_line(graph: Graph, commit: Commit) -> Line:
    """The graph as it was after a commit."""
    name = SNAPSHOT + commit.id
    line = graph.lines.get(name)
    if line is None:
        with graph.writing():
            line = graph.lines.get(name) or _make(graph, name, commit)
    graph.file.layers.touch(name)
    return line


def _make(graph: Graph, name: str, commit: Commit) -> Line:
    make_room(graph, _MOST - 1, _MOST_ROWS)
    return graph.add_snapshot(name, Head(commit.id, commit.seq, commit.schema))


def make_room(graph: Graph, most: int, most_rows: int, *, dry_run: bool = False) -> list[str]:
    """Drop snapshots until no more are left than that; which ones were dropped."""
    layers = graph.file.layers
    names = layers.oldest([name for name in layers.refs if name.startswith(SNAPSHOT)])
    with graph.file.writer() as db:
        sizes = {name: layers.size(db, layers.refs[name]) for name in names}
    dropped: list[str] = []
    while names and (len(names) > most or sum(sizes[name] for name in names) > most_rows):
        dropped.append(names.pop(0))
    if dropped and not dry_run:
        graph.forget_lines(dropped)
    return [name.removeprefix(SNAPSHOT) for name in dropped]
