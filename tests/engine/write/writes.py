"""A write on main, for tests of what goes into one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trails.engine.graph.graph import Graph
from trails.engine.write.write import Write


@contextmanager
def writing(graph: Graph) -> Iterator[Write]:
    """A write that is finished at the block's end, and abandoned when it raises."""
    write = Write(graph, graph.main, actor="test")
    write.begin()
    try:
        yield write
    except BaseException:
        write.abandon()
        raise
    write.finish()
