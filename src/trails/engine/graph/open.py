"""Open a graph: the one place that decides which log it has.

Looks first whether the log has lost commits; such a graph is opened read-only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trails.engine.graph.graph import Graph, ignore, now
from trails.engine.graph.lost_commits import find_loss
from trails.log.sqlite import SqliteLog
from trails.model.results import ReadOnly
from trails.model.upkeep import KEEP_ALL, Retention
from trails.model.writes import KEEP_DAYS


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
