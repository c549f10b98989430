"""Upkeep and statistics of a graph: remove what is not needed, compact, count.

Every commit stays. Views can be rebuilt, so unused ones are removed; old activities move to
archives.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from trails.engine.evidence.exports import exports_of
from trails.engine.graph.checkouts import SNAPSHOT
from trails.engine.graph.graph import MAIN, Graph
from trails.engine.session.context import GraphContext
from trails.engine.upkeep.blob_check import named_blobs
from trails.engine.visibility.refs import RefResolver, make_room, reader
from trails.log.storage import files_below
from trails.model.names import branch_folder
from trails.model.upkeep import Cleaned, Optimized
from trails.sandbox.scratch import SCRATCH, sweep

_KEPT_SNAPSHOTS: Final = 8


def cleanup(graph: Graph, *, keep: int = _KEPT_SNAPSHOTS, dry_run: bool = False) -> Cleaned:
    """Remove unused views, archive old activities, and release unused space."""
    graph.check_writable()
    before = _size(graph)
    with graph.writing():
        graph.catch_up()
        folders = _unreachable(graph)
        names = tuple(path.name for path in folders)
        if dry_run:
            snapshots = tuple(make_room(graph, keep, 2**62, dry_run=True))
            return Cleaned(
                snapshots,
                names,
                0,
                0,
                activities=graph.activities.archivable(),
                runs=_sweep_runs(graph, dry_run=True),
                exports=_sweep_exports(graph, dry_run=True),
                dry_run=True,
            )
        snapshots = tuple(make_room(graph, keep, 2**62))
        for path in folders:
            shutil.rmtree(path, ignore_errors=True)
        rows = sum(view.clean() for view in graph.views)
        graph.blobs.clean(partial(named_blobs, graph))
    # The log has its own lock: the rest is done in steps, between which others can write.
    archives = graph.activities.archive()
    runs, exports = _sweep_runs(graph), _sweep_exports(graph)
    graph.log.give_back_space()
    return Cleaned(
        snapshots,
        names,
        rows,
        max(0, before - _size(graph)),
        activities=sum(each.count for each in archives),
        archives=tuple(each.name for each in archives),
        runs=runs,
        exports=exports,
    )


def remove_files(graph: Graph, *, dry_run: bool = False) -> Cleaned:
    """Remove what can be rebuilt, without writing anything; works on a full disk."""
    if graph.folder is None:
        return Cleaned((), (), 0, 0, dry_run=dry_run)
    before = _size(graph)
    in_use = {
        checkout.name[1:]
        for checkout in list(graph.checkouts.values())
        if checkout.fixed and any(view.is_open(checkout) for view in graph.views)
    }
    found = sorted((graph.folder / "snapshots").glob("*"))
    snapshots = [path for path in found if path.name not in in_use]
    folders = _unreachable(graph)
    gone = tuple(path.name for path in folders if path.parent.name != "snapshots")
    runs, exports = _sweep_runs(graph, dry_run=dry_run), _sweep_exports(graph, dry_run=dry_run)
    if dry_run:
        found_names = tuple(path.name for path in snapshots)
        return Cleaned(found_names, gone, 0, 0, runs=runs, exports=exports, dry_run=True)
    for path in (*snapshots, *folders):
        shutil.rmtree(path, ignore_errors=True)
    return Cleaned(
        tuple(path.name for path in snapshots if not path.exists()),
        gone,
        0,
        max(0, before - _size(graph)),
        runs=runs,
        exports=exports,
    )


def _sweep_exports(graph: Graph, *, dry_run: bool = False) -> tuple[str, ...]:
    """Delete exports that have expired."""
    return tuple(exports_of(graph).sweep(dry_run=dry_run))


def _sweep_runs(graph: Graph, *, dry_run: bool = False) -> tuple[str, ...]:
    """Remove scratch space of sandboxes whose process was killed."""
    if graph.folder is None:
        return ()
    return tuple(sweep(graph.folder / SCRATCH, dry_run=dry_run))


def _unreachable(graph: Graph) -> list[Path]:
    """Folders of branches and snapshots that no longer exist."""
    if graph.folder is None:
        return []
    wanted = {branch_folder(name) for name in (MAIN, *graph.log.branches())}
    held = {*graph.checkouts, *(name for view in graph.views for name in view.names())}
    wanted_snapshots = {name[1:] for name in held if name.startswith(SNAPSHOT)}
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
        before = _size(graph)
        for view in graph.views:
            progress(f"compacting the {view.name}")
            view.compact()
        graph.log.compact()
        return Optimized(before, _size(graph))


class Statistics(msgspec.Struct, frozen=True):
    """Statistics of a graph on one branch or snapshot."""

    graph: str
    base_iri: str
    branch: str | None
    snapshot: str | None
    head: str
    """The newest visible commit; empty before the first."""
    schema: str
    instances: int
    by_type: Mapping[str, int]
    """Type → number of nodes, including subtypes."""
    commits: int | None
    """Commits of all branches; None for actors who may not administer the graph."""
    branches: int
    """The readable branches."""
    bytes: Mapping[str, int] | None
    """Bytes by part, each file counted once; None in memory, and as with ``commits``."""


def measure(graph: Graph, ctx: GraphContext) -> Statistics:
    """Count what is visible."""
    branches = RefResolver(graph, reader(ctx.access)).branches()
    # Independent of hidden branches, so that their existence is not revealed.
    whole = ctx.visibility.reads_all and ctx.access.may("Admin", MAIN)
    by_type = ctx.kg.counts()
    topmost = [each.name for each in ctx.kg.schema.types if each.extends is None]
    return Statistics(
        graph=graph.name,
        base_iri=graph.names.base,
        branch=ctx.branch or None,
        snapshot=ctx.snapshot,
        head=ctx.kg.head.commit,
        schema=ctx.kg.schema.digest,
        instances=sum(by_type[name] for name in topmost),
        by_type=by_type,
        commits=graph.log.last_seq() if whole else None,
        branches=len(branches),
        bytes=_sizes(graph) if whole else None,
    )


def _sizes(graph: Graph) -> dict[str, int] | None:
    if graph.folder is None:
        return None
    views = {view.name.replace(" ", "_"): view.size() for view in graph.views}
    blobs = graph.blobs.size()
    return {"log": graph.log.size(), **({"blobs": blobs} if blobs else {}), **views}
