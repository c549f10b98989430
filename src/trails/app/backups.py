"""Backups of a whole project: the log of every graph in a folder of its own.

A backup is there completely or not at all, and a restore begins only when every
digest was compared.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from trails.app.app import App
from trails.app.settings import DATA_FOLDER
from trails.engine.maintenance import MANIFEST, backup, read_manifest, restore
from trails.errors import NotFoundError, StorageError
from trails.log.storage import storage_errors
from trails.model.upkeep import Manifest


def backup_project(app: App, target: Path, progress: Callable[[str], None]) -> dict[str, Manifest]:
    """Copy the logs of all graphs while they are in use; what was copied, by graph."""
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise StorageError(f"{target} is not an empty folder; give one that does not exist yet")
    partial = target.with_name(f".{target.name}.partial")
    with storage_errors("write the backup"):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            made = {
                name: backup(app.graph(name), partial / name, progress)
                for name in app.settings.graphs
            }
            if target.exists():
                target.rmdir()
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return made


def restore_project(
    app: App, source: Path, progress: Callable[[str], None], *, force: bool = False
) -> dict[str, Path | None]:
    """Put every graph of a backup in its place; by graph, where its old data was moved to.

    None of the graphs may have been opened by ``app`` before.
    """
    if app.folder is None:
        raise StorageError("a project in memory can't be restored; open one in a folder")
    found = sorted(path.parent for path in source.glob(f"*/{MANIFEST}"))
    if not found:
        raise StorageError(f"{source} is not a backup: no folder in it has a {MANIFEST}")
    graphs = app.folder / DATA_FOLDER / "graphs"
    names = {}
    for folder in found:
        progress(f"comparing the digests of {folder.name}")
        name = names[folder] = read_manifest(folder).graph
        if name not in app.settings.graphs:
            raise NotFoundError(
                f"the backup has a graph {name!r}, and this project has none of that name; "
                f"add [graphs.{name}] to trails.toml"
            )
        place = graphs / name
        if not force and place.exists() and any(place.iterdir()):
            raise StorageError(
                f"graph {name!r} has data here already; restore by force (--force) to move it "
                "aside and put the backup in its place"
            )
    done: dict[str, Path | None] = {}
    for folder, name in names.items():
        progress(f"restoring {name}")
        done[name] = restore(folder, graphs / name, force=force)
        progress(f"opening {name}, which makes its views")
        app.graph(name)
    return done
