"""Upkeep of a graph: drop what nobody needs, and compact.

Every commit stays. What goes are views, which can be made again; activities move into archives.
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
from trails.sandbox.scratch import SCRATCH, sweep

_KEPT_SNAPSHOTS: Final = 8


def cleanup(graph: Graph, *, keep: int = _KEPT_SNAPSHOTS, dry_run: bool = False) -> Cleaned:
    """Drop what nobody needs, archive old activities, and give unused space back."""
    graph.check_writable()
    before = _size(graph)
    with graph.writing():
        graph.catch_up()
        folders = _unreachable(graph)
        names = tuple(path.name for path in folders)
        if dry_run:
            snapshots = tuple(make_room(graph, keep, 2**62, dry_run=True))
            count, runs = graph.activities.archivable(), _sweep_runs(graph, dry_run=True)
            return Cleaned(snapshots, names, 0, 0, activities=count, runs=runs, dry_run=True)
        snapshots = tuple(make_room(graph, keep, 2**62))
        for path in folders:
            shutil.rmtree(path, ignore_errors=True)
        rows = graph.file.purge()
        graph.file.give_back_space()
    # The log has a lock of its own: what follows is done in steps, between which others write.
    archives = graph.activities.archive()
    runs = _sweep_runs(graph)
    graph.log.give_back_space()
    return Cleaned(
        snapshots,
        names,
        rows,
        max(0, before - _size(graph)),
        activities=sum(each.count for each in archives),
        archives=tuple(each.name for each in archives),
        runs=runs,
    )


def remove_files(graph: Graph, *, dry_run: bool = False) -> Cleaned:
    """Remove what can be made again and goes without writing anything: for a disk that is full."""
    if graph.folder is None:
        return Cleaned((), (), 0, 0, dry_run=dry_run)
    before = _size(graph)
    lines = list(graph.lines.values())
    in_use = {line.name[1:] for line in lines if line.fixed and line.quads is not None}
    found = sorted((graph.folder / "snapshots").glob("*"))
    snapshots = [path for path in found if path.name not in in_use]
    folders = _unreachable(graph)
    gone = tuple(path.name for path in folders if path.parent.name != "snapshots")
    runs = _sweep_runs(graph, dry_run=dry_run)
    if dry_run:
        found_names = tuple(path.name for path in snapshots)
        return Cleaned(found_names, gone, 0, 0, runs=runs, dry_run=True)
    for path in (*snapshots, *folders):
        shutil.rmtree(path, ignore_errors=True)
    return Cleaned(
        tuple(path.name for path in snapshots if not path.exists()),
        gone,
        0,
        max(0, before - _size(graph)),
        runs=runs,
    )


def _sweep_runs(graph: Graph, *, dry_run: bool = False) -> tuple[str, ...]:
    """Scratch space of sandboxes whose process was killed."""
    if graph.folder is None:
        return ()
    return tuple(sweep(graph.folder / SCRATCH, dry_run=dry_run))


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
    graph.check_writable()
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
