"""Open a graph: the one place that says which log and which views it has.

Looks first whether the log has lost commits; such a graph is opened read-only. The node index of a
graph that can't be written is used as it is, or copied to memory where it lags.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from trails.engine.graph.graph import MAIN, Graph, MakeView, ignore, now
from trails.engine.graph.lost_commits import find_loss
from trails.engine.graph.node_indexes import NodeIndexes
from trails.engine.graph.stores import Stores
from trails.errors import StorageError
from trails.log.sqlite import SqliteLog
from trails.model.history import Head
from trails.model.results import ReadOnly
from trails.model.types import Schema
from trails.model.upkeep import KEEP_ALL, Retention
from trails.model.writes import KEEP_DAYS
from trails.views.nodes.file import NodeFile


def _make_node_indexes(graph: Graph) -> NodeIndexes:
    return NodeIndexes(
        _open_file(graph),
        graph.checkouts,
        graph.folding,
        lambda: _heads(graph),
        graph.drop_checkouts,
        graph.writing,
        graph.progress,
    )


def _make_stores(graph: Graph) -> Stores:
    read_only = graph.read_only is not None
    return Stores(
        graph.main,
        graph.folding,
        graph.reading_store,
        graph.writing,
        graph.progress,
        read_only=read_only,
    )


VIEWS: Final[tuple[MakeView, ...]] = (_make_node_indexes, _make_stores)
"""What makes the views of a graph, in the order in which they follow a commit.

The node indexes come first: a write is checked in them.
"""


def open_graph(
    folder: Path | None,
    *,
    name: str,
    base_iri: str,
    allow_bypass: bool = False,
    retention: Retention = KEEP_ALL,
    keep_keys_days: int = KEEP_DAYS,
    read_only: ReadOnly | None = None,
    progress: Callable[[str], None] = ignore,
) -> Graph:
    """Open the graph of a folder, which is created if it is empty; None is one in memory."""
    loss = None if folder is None else find_loss(folder)
    if loss is not None:
        read_only = ReadOnly("behind", loss.describe(name))
    if read_only is not None:
        progress(f"graph {name}: {read_only.reason}")
    log = SqliteLog(folder, name, base_iri, now(), read_only=read_only is not None)
    try:
        graph = Graph(
            log,
            VIEWS,
            folder,
            name=name,
            retention=retention,
            read_only=read_only,
            loss=loss,
            progress=progress,
        )
    except BaseException:
        log.close()
        raise
    graph.allow_bypass = allow_bypass
    graph.keep_keys_days = keep_keys_days
    return graph


def _heads(graph: Graph) -> dict[str, Head]:
    return {MAIN: graph.log_head(MAIN), **graph.log.branches()}


def _open_file(graph: Graph) -> NodeFile:
    """The node index: the file itself or, where it can't be used as it is, a copy in memory."""
    path = None if graph.folder is None else graph.folder / "nodes.db"
    owner = f"{graph.name} {graph.names.base}"

    def schema_of(digest: str) -> Schema:
        return graph.compiled(digest).schema

    if path is None or graph.read_only is None:
        return NodeFile(path, schema_of, owner)
    try:
        found = NodeFile(path, schema_of, owner, read_only=True)
    except StorageError:
        graph.progress("the node index can't be read; making one in memory")
        return NodeFile(None, schema_of, owner)
    if _is_usable(graph, found):
        return found
    found.close()
    graph.progress("the node index is not at the head of every branch; copying it to memory")
    return NodeFile(None, schema_of, owner, source=path)


def _is_usable(graph: Graph, file: NodeFile) -> bool:
    """Whether an index that can't be changed has everything that the log has."""
    layers = file.layers
    if graph.loss is not None:
        return MAIN in layers.refs and all(
            not each.schema or graph.find_schema(each.schema) is not None for each in layers
        )
    return all(
        name in layers.refs and layers[layers.refs[name]].position.commit == head.commit
        for name, head in _heads(graph).items()
    )
