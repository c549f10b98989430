"""Upkeep of a graph: drop what nobody needs, compact, copy, and bring a copy back.

Every commit stays. What goes are views, which can be made again; activities move into archives.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from trails.engine.graph import MAIN, Graph, now
from trails.engine.snapshots import make_room
from trails.errors import CorruptionError, StorageError
from trails.log.storage import files_below, storage_errors
from trails.model.names import branch_folder
from trails.model.upkeep import Cleaned, Manifest, Optimized
from trails.sandbox.scratch import SCRATCH, sweep

MANIFEST: Final = "manifest.json"
BACKUP_FORMAT: Final = 1
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


def backup(graph: Graph, folder: Path, progress: Callable[[str], None]) -> Manifest:
    """Copy the log of a graph, while it is in use, into a new folder."""
    if folder.exists() and any(folder.iterdir()):
        raise StorageError(f"{folder} is not empty; give a folder that does not exist yet")
    progress(f"copying the log of {graph.name}")
    with graph.writing():
        heads = {name: head.commit for name, head in graph.log.branches().items()}
        graph.log.copy_to(folder)
    with storage_errors("write the backup"):
        files = {
            str(path.relative_to(folder)): _digest(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        header = graph.log.header
        manifest = Manifest(BACKUP_FORMAT, graph.name, header.base_iri, now(), heads, files)
        (folder / MANIFEST).write_bytes(
            msgspec.json.format(msgspec.json.encode(manifest, order="sorted"))
        )
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """What a backup says it holds, with every file compared."""
    path = folder / MANIFEST
    if not path.is_file():
        raise StorageError(f"{folder} is not a backup: it has no {MANIFEST}")
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"{path} can't be read: {error}") from None
    if manifest.format != BACKUP_FORMAT:
        raise StorageError(
            f"{folder} has backup format {manifest.format}; this version reads {BACKUP_FORMAT}"
        )
    for name, digest in manifest.files.items():
        file = (folder / name).resolve()
        if not file.is_relative_to(folder.resolve()):
            raise CorruptionError(f"the backup names {name}, which is outside of it")
        if not file.is_file() or _digest(file) != digest:
            raise CorruptionError(f"the backup is damaged: {name} is missing or was changed")
    return manifest


def restore(backup_folder: Path, graph_folder: Path, *, force: bool = False) -> Path | None:
    """Put a backup in a graph's place; where data was moved to that stood there before."""
    manifest = read_manifest(backup_folder)
    stamp = now().replace(":", "").replace(".", "")
    fresh = graph_folder.with_name(f"{graph_folder.name}.restoring-{stamp}")
    aside = None
    with storage_errors("restore the backup"):
        taken = graph_folder.exists() and any(graph_folder.iterdir())
        if taken and not force:
            raise StorageError(
                f"graph {manifest.graph!r} has data here already; restore by force to move it "
                "aside and put the backup in its place"
            )
        try:
            for name in manifest.files:
                target = fresh / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(backup_folder / name, target)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        if taken:
            aside = graph_folder.with_name(f"{graph_folder.name}.replaced-{stamp}")
            graph_folder.rename(aside)
        elif graph_folder.exists():
            graph_folder.rmdir()
        fresh.rename(graph_folder)
    return aside


def _digest(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
