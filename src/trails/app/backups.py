"""Backups of a whole project: a folder with a set of backups for each graph."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from trails.app.app import App
from trails.app.settings import DATA_FOLDER, choose_graph
from trails.engine.backups import MANIFEST, Part, back_up, check_digests, read_parts, rebuild
from trails.engine.graph import now
from trails.engine.replacements import GRAPHS, discard_prepared, prepare_graphs, put_in_place
from trails.errors import NotFoundError, QueryError, StorageError
from trails.files import make_folder, sync_folder
from trails.log.storage import storage_errors
from trails.model.upkeep import Manifest, RestoreRequest

Tell = Callable[[str], None]


def backup_project(app: App, target: Path, tell: Tell) -> dict[str, Manifest | None]:
    """Add what is new to the backups in a folder; by graph, what was, or None for nothing.

    A folder that does not exist yet gets whole backups, of all graphs or of none.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        find_sets(target)  # it must be what it is taken for
        return _add(app, target, tell)
    partial = target.with_name(f".{target.name}.partial")
    with storage_errors("write the backup"):
        shutil.rmtree(partial, ignore_errors=True)
        make_folder(partial)
        try:
            made = _add(app, partial, tell)
            partial.rename(target)  # an empty folder there is replaced
            sync_folder(target.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return made


def _add(app: App, folder: Path, tell: Tell) -> dict[str, Manifest | None]:
    return {
        name: back_up(app.stored_graph(name).log, folder / name, tell)
        for name in app.settings.graphs
    }


def find_sets(source: Path) -> dict[str, list[Part]]:
    """The backups in a folder, by graph, complete and in order."""
    if not source.is_dir():
        raise StorageError(f"{source} is not a backup: there is no such folder")
    # A folder without visible names is of a first backup that did not finish.
    folders = sorted(each for each in _visible(source) if each.is_dir() and any(_visible(each)))
    found = [each for each in folders if (each / MANIFEST).exists() or any(each.glob("[0-9]" * 6))]
    if not found or len(found) < len(folders):
        other = next((each for each in folders if each not in found), source)
        raise StorageError(
            f"{source} is not a backup: {other} has neither a {MANIFEST} nor numbered folders"
        )
    sets = {}
    for folder in found:
        parts = read_parts(folder)
        sets[parts[-1].manifest.graph] = parts
    return sets


def _visible(folder: Path) -> Iterator[Path]:
    return (each for each in folder.iterdir() if not each.name.startswith("."))


def list_backups(source: Path, tell: Tell, *, check: bool) -> dict[str, list[Manifest]]:
    """What the backups in a folder hold; with ``check``, every file is read and compared."""
    sets = find_sets(source)
    if check:
        for parts in sets.values():
            check_digests(parts, tell)
    return {name: [part.manifest for part in parts] for name, parts in sets.items()}


def restore_project(
    app: App, source: Path, tell: Tell, wanted: RestoreRequest
) -> dict[str, Path | None]:
    """Put graphs of a backup in their place; by graph, where its old data was moved to.

    None of the graphs may have been opened by ``app`` before.
    """
    done = put_back(app, source, tell, wanted)
    for name in done:
        tell(f"opening {name}, which makes its views")
        app.stored_graph(name)
    return done


def put_back(app: App, source: Path, tell: Tell, wanted: RestoreRequest) -> dict[str, Path | None]:
    """The same, without opening the graphs."""
    if app.folder is None:
        raise StorageError("a project in memory can't be restored; open one in a folder")
    sets, at = find_sets(source), wanted.at
    if wanted.graph is not None:
        name = choose_graph(sets, wanted.graph)
        sets = {name: sets[name]}
    if at is not None and len(sets) > 1 and "-" not in at:
        raise QueryError(
            f"--at {at} is a commit of one graph, and the backup has {', '.join(sets)}; say which "
            "with --graph"
        )
    data = app.folder / DATA_FOLDER
    _check_places(app, data, sets, force=wanted.force)
    for parts in sets.values():
        check_digests(parts, tell)
    with storage_errors("restore the backup"):
        home = prepare_graphs(data)
    try:
        for name, parts in sets.items():
            tell(f"restoring {name}")
            rebuild(parts, home / name, at)
    except BaseException:
        discard_prepared(data)
        raise
    stamp = now().replace(":", "").replace(".", "")
    return put_in_place(data, [*sets], "replaced", stamp, tell)


def _check_places(app: App, data: Path, sets: Mapping[str, Sequence[Part]], *, force: bool) -> None:
    for name in sets:
        if name not in app.settings.graphs:
            raise NotFoundError(
                f"the backup has a graph {name!r}, and this project has none of that name; "
                f"add [graphs.{name}] to trails.toml"
            )
        place = data / GRAPHS / name
        if not force and place.exists() and any(place.iterdir()):
            raise StorageError(
                f"graph {name!r} has data here already; restore by force (--force) to move it "
                "aside and put the backup in its place"
            )
