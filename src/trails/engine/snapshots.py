"""Snapshots: the graph as of any commit.

A snapshot stands on a layer of its own, made from the nearest line by undoing and
doing what lies between. As many are kept as ``_MOST`` and ``_MOST_ROWS`` allow; the one
that was used longest ago goes first, and is made again when it is asked for.

A layer that takes much work is built part by part, under a name of its own; between parts, writers
have their turn. What a crash leaves of it is removed when the graph is opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from trails.engine.graph import Graph
from trails.engine.lines import SNAPSHOT, Line
from trails.model.history import Commit, Head, Position
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.layers import UNFINISHED

AT_ONCE: Final = 1_000
"""Statements that are undone or done in one part."""
_ACTOR: Final = "/snapshots"
"""In whose name the writer's lock is taken, so that actors and snapshots take turns."""
_MOST: Final = 64
_MOST_ROWS: Final = 2_000_000


def snapshot_line(graph: Graph, commit: Commit) -> Line:
    """The graph as it was after a commit."""
    name = SNAPSHOT + commit.id
    line = graph.lines.get(name)
    if line is None:
        build_distant(graph, commit)
        with graph.writing():
            line = graph.lines.get(name) or _make(graph, name, commit)
    graph.file.layers.touch(name)
    return line


def _make(graph: Graph, name: str, commit: Commit) -> Line:
    if name not in graph.file.layers.refs:
        make_room(graph, _MOST - 1, _MOST_ROWS)
    return graph.add_snapshot(name, Head(commit.id, commit.seq, commit.schema))


def build_distant(graph: Graph, commit: Commit) -> None:
    """Build the layer of a commit that is far from all lines in use, if it is; without the lock.

    Whoever takes the lock next finds it built, or builds it there: when the node index was
    replaced meanwhile.
    """
    if graph.file.in_memory or graph.file.frozen:
        return
    name, head = SNAPSHOT + commit.id, Head(commit.id, commit.seq, commit.schema)
    with graph.writing(_ACTOR):
        if not _is_distant(graph, name, head):
            return
    with graph.building:
        _build(graph, name, head)


def _is_distant(graph: Graph, name: str, head: Head) -> bool:
    if name in graph.file.layers.refs:
        return False
    path = graph.path_to(head)[1]
    return sum(each.added + each.removed + 1 for each in (*path.undo, *path.redo)) > AT_ONCE


def _build(graph: Graph, name: str, head: Head) -> None:
    file = graph.file
    nodes = NodeIndex(file, UNFINISHED + name)
    with graph.writing(_ACTOR):
        if not _is_distant(graph, name, head):  # somebody else has built it
            return
        base, path = graph.path_to(head)
        with file.turns.exclusive(), file.transaction():
            file.layers.stand(file.db, UNFINISHED + name, base.nodes.layer.number)
            nodes.follow(graph.compiled(graph.schema_at(base.nodes.position.commit)).schema)
    try:
        with closing(graph.folding.walk_parts(nodes, path, AT_ONCE)) as parts:
            while _do_part(graph, nodes, parts):
                pass
        with graph.writing(_ACTOR):
            if nodes.known:
                make_room(graph, _MOST - 1, _MOST_ROWS)
                _finish(graph, nodes, name, head)
                graph.add_snapshot(name, head)
    finally:
        if nodes.known:
            with graph.writing(_ACTOR):
                graph.forget_lines([UNFINISHED + name])


def _do_part(graph: Graph, nodes: NodeIndex, parts: Iterator[int]) -> bool:
    """Do one part in a transaction of its own; whether there may be more."""
    with graph.writing(_ACTOR):
        if not nodes.known:
            return False
        with graph.file.transaction():
            work = 0
            while work < AT_ONCE:
                done = next(parts, None)
                if done is None:
                    return False
                work += done
    return True


def _finish(graph: Graph, nodes: NodeIndex, name: str, head: Head) -> None:
    """Give a layer that is built its name."""
    file = graph.file
    built = NodeIndex(file, name)
    built.follow(nodes.schema)
    with file.turns.exclusive(), file.step():
        file.layers.point(file.db, name, nodes.layer.number)
        file.layers.forget(file.db, UNFINISHED + name)
        built.commit(Position(head.seq, head.commit))


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
