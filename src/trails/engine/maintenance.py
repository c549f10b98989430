"""Upkeep of a graph: drop what nobody needs, and compact.

The log is never touched: every commit stays. What goes are views, which can be made again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trails.engine.graph import MAIN, Graph
from trails.engine.snapshots import make_room
from trails.log.storage import files_below
from trails.model.names import branch_folder
from trails.model.upkeep import Cleaned, Optimized

_KEPT_SNAPSHOTS: Final = 8


def cleanup(graph: Graph, *, keep: int = _KEPT_SNAPSHOTS, dry_run: bool = False) -> Cleaned:
    """Drop old snapshots, files of branches that are gone, and versions that nothing sees."""
    with graph.writing():
        graph.catch_up()
        before = _size(graph)
        folders = _unreachable(graph)
        if dry_run:
            snapshots = tuple(make_room(graph, keep, 2**62, dry_run=True))
            return Cleaned(snapshots, tuple(path.name for path in folders), 0, 0, dry_run=True)
        snapshots = tuple(make_room(graph, keep, 2**62))
        for path in folders:
            shutil.rmtree(path, ignore_errors=True)
        rows = graph.file.purge()
        freed = max(0, before - _size(graph))
    return Cleaned(snapshots, tuple(path.name for path in folders), rows, freed)


def _unreachable(graph: Graph) -> list[Path]:
    """Folders of branches and snapshots that exist no more."""
    if graph.folder is None:
        return []
    wanted = {branch_folder(name) for name in (MAIN, *graph.log.branches())}
    wanted_snapshots = {name[1:] for name in graph.file.layers.refs if name.startswith("@")}
    return [
        path
        for parent, names in (("branches", wanted), ("snapshots", wanted_snapshots))
        for path in sorted((graph.folder / parent).glob("*"))
        if path.is_dir() and path.name not in names
    ]


def _size(graph: Graph) -> int:
    if graph.folder is None:
        return 0
    return sum(facts.st_size for _, facts in files_below(graph.folder))


def optimize(graph: Graph, progress: Callable[[str], None]) -> Optimized:
    """Compact the files of a graph. Branches are left alone: their stores share main's files."""
    with graph.writing():
        graph.catch_up()
        graph.settle()
        before = _size(graph)
        progress("compacting the node index")
        graph.file.purge()
        graph.file.compact()
        progress("compacting the quads view of main")
        graph.stores.main().optimize()
        graph.log.compact()
        return Optimized(before, _size(graph))
