"""Maintenance of a whole project, here or in the process that serves the folder.

Each operation has a name, an argument type, a result type and a function on an app. The
process that owns the folder calls the function; otherwise the command line sends it to the
owner by name. Backups of a project are a folder with a set of backups for each graph.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from trails.app.app import App
from trails.app.doctor import examine_project, examine_serving
from trails.app.log_urls import check_connection, check_log_url
from trails.app.settings import DATA_FOLDER, choose_graph
from trails.app.webhooks.states import describe_webhook, read_state, resume_webhook
from trails.engine.graph.graph import Graph, now
from trails.engine.upkeep.backups import (
    GRAPHS,
    MANIFEST,
    BackupPart,
    back_up,
    check_digests,
    discard_prepared,
    prepare_graphs,
    put_in_place,
    read_parts,
    rebuild,
)
from trails.engine.upkeep.log_moves import (
    Moving,
    move_to_file,
    move_to_server,
    restored_to_server,
)
from trails.engine.upkeep.maintenance import cleanup, optimize, remove_files
from trails.engine.upkeep.verify import verify, verify_and_repair
from trails.errors import (
    NotFoundError,
    QueryError,
    ReadOnlyError,
    SettingsError,
    StorageError,
    StorageFullError,
    UnwritableError,
)
from trails.files import make_folder, sync_folder
from trails.log.storage import storage_errors
from trails.log.switching import refuse_moved
from trails.model.upkeep import (
    Cleaned,
    Finding,
    Manifest,
    MovedLog,
    Optimized,
    ReloadReport,
    Report,
    RestoreRequest,
    WebhookStatus,
    flag,
)

Progress = Callable[[str], None]


def backup_project(app: App, target: Path, report: Progress) -> dict[str, Manifest | None]:
    """Add the changes to the backups in a folder; return by graph what was added, or None.

    A folder that does not exist yet gets full backups, of all graphs or of none.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        find_sets(target)  # check that it is a set of backups
        return _add(app, target, report)
    partial = target.with_name(f".{target.name}.partial")
    with storage_errors("write the backup"):
        shutil.rmtree(partial, ignore_errors=True)
        make_folder(partial)
        try:
            made = _add(app, partial, report)
            partial.rename(target)  # an empty folder there is replaced
            sync_folder(target.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return made


def _add(app: App, folder: Path, report: Progress) -> dict[str, Manifest | None]:
    graphs = {name: app.stored_graph(name) for name in app.settings.graphs}
    return {
        name: back_up(graph.log, folder / name, report, graph.blobs.folder)
        for name, graph in graphs.items()
    }


def find_sets(source: Path) -> dict[str, list[BackupPart]]:
    """Return the backups in a folder, by graph, complete and in order."""
    if not source.is_dir():
        raise StorageError(f"{source} is not a backup: there is no such folder")
    # A folder without visible names is left from a first backup that did not finish.
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


def list_backups(source: Path, report: Progress, *, check: bool) -> dict[str, list[Manifest]]:
    """List the backups in a folder; with ``check``, read and compare every file."""
    sets = find_sets(source)
    if check:
        for parts in sets.values():
            check_digests(parts, report)
    return {name: [part.manifest for part in parts] for name, parts in sets.items()}


def restore_project(
    app: App, source: Path, report: Progress, wanted: RestoreRequest
) -> dict[str, Path | None]:
    """Restore graphs from a backup; return by graph where its old data was moved.

    ``app`` must not have opened any of the graphs.
    """
    done = put_back(app, source, report, wanted)
    for name in done:
        report(f"opening {name}, which builds its views")
        app.stored_graph(name)
    return done


def move_log(app: App, graph: str, to: str, report: Progress) -> MovedLog:
    """Move the log of a graph, which the app has not opened.

    ``to`` is ``file``, the URL of a server, or ``postgresql``: the server that the settings name.
    """
    if app.folder is None:
        raise StorageError("a project in memory has no log to copy; open one in a folder")
    if app.settings.project.read_only:
        raise ReadOnlyError("this project is open read-only; open it for writing to move a log")
    url = app.settings.log_url(graph, os.environ)
    if to not in {"file", "postgresql"}:
        check_log_url("--to", to)
        check_connection("--to", to)
        url = to
    elif to == "postgresql" and not url:
        raise SettingsError(
            f"the settings name no server for graph {graph!r}: give the URL, as --to "
            f"postgresql://user@host:5432/database, or set url in [graphs.{graph}.log] of "
            "trails.toml, or TRAILS_LOG_URL"
        )
    folder = app.folder / DATA_FOLDER / GRAPHS / graph
    asked = Moving(folder, graph, app.settings.base_iri(graph), url, report)
    return move_to_file(asked) if to == "file" else move_to_server(asked)


def check_recoverable(app: App, graph: str) -> None:
    """Refuse to make a log in a folder of what is left of it, if the log is elsewhere."""
    if app.settings.log_url(graph, os.environ):
        raise StorageError(
            f"the log of graph {graph!r} is on a PostgreSQL server and can't be recovered here: "
            "use the tools of PostgreSQL, or 'trails restore' with a URL that names an empty "
            "schema. If the database has lost commits that views in this folder name, and "
            "they can't be brought back, remove the views (all of "
            f".trails/graphs/{graph} but blobs) to go on without them"
        )
    if app.folder is not None:
        refuse_moved(app.folder / DATA_FOLDER / GRAPHS / graph, graph)


def put_back(
    app: App, source: Path, report: Progress, wanted: RestoreRequest
) -> dict[str, Path | None]:
    """Restore without opening the graphs."""
    if app.folder is None:
        raise StorageError("a project in memory can't be restored; open one in a folder")
    sets, at = find_sets(source), wanted.at
    if wanted.graph is not None:
        name = choose_graph(sets, wanted.graph)
        sets = {name: sets[name]}
    if at is not None and len(sets) > 1 and "-" not in at:
        raise QueryError(
            f"--at {at} is a commit of one graph, but the backup has {', '.join(sets)}; choose one "
            "with --graph"
        )
    data = app.folder / DATA_FOLDER
    urls = {name: app.settings.log_url(name, os.environ) for name in sets}
    for name, url in urls.items():
        if not url:
            refuse_moved(data / GRAPHS / name, name)
    _check_places(app, data, sets, force=wanted.force)
    for parts in sets.values():
        check_digests(parts, report)
    with storage_errors("restore the backup"):
        home = prepare_graphs(data)
    with ExitStack() as servers:
        try:
            for name, parts in sets.items():
                report(f"restoring {name}")
                rebuild(parts, home / name, at)
            for name in filter(urls.get, sets):
                base_iri = app.settings.base_iri(name)
                asked = Moving(home / name, name, base_iri, urls[name], report)
                servers.enter_context(restored_to_server(asked))
        except BaseException:
            discard_prepared(data)
            raise
        stamp = now().replace(":", "").replace(".", "")
        return put_in_place(data, [*sets], "replaced", stamp, report)


def _check_places(
    app: App, data: Path, sets: Mapping[str, Sequence[BackupPart]], *, force: bool
) -> None:
    for name in sets:
        if name not in app.settings.graphs:
            raise NotFoundError(
                f"the backup has a graph {name!r}, but this project has none of that name; "
                f"add [graphs.{name}] to trails.toml"
            )
        place = data / GRAPHS / name
        if not force and place.exists() and any(place.iterdir()):
            raise StorageError(
                f"graph {name!r} already has data here; use --force to move it "
                "aside and restore the backup in its place"
            )


_A = TypeVar("_A", bound=msgspec.Struct)
_R = TypeVar("_R")


class UpkeepOperation(msgspec.Struct, Generic[_A, _R], frozen=True):
    """An operation on a project."""

    name: str
    takes: type[_A]
    gives: type[_R]
    run: Callable[[App, _A, Progress], _R]


class BackupArguments(msgspec.Struct, frozen=True):
    target: str


class VerifyArguments(msgspec.Struct, frozen=True):
    repair: bool = False


class DoctorArguments(msgspec.Struct, frozen=True): ...


class CleanupArguments(msgspec.Struct, frozen=True):
    keep: int
    dry_run: bool = False
    graph: str | None = None


class OptimizeArguments(msgspec.Struct, frozen=True):
    graph: str | None = None


def _graphs(app: App, graph: str | None) -> dict[str, Graph]:
    """Return the chosen graphs, including those that are not served."""
    known = app.settings.graphs
    names = known if graph is None else [choose_graph(known, graph)]
    return {name: app.stored_graph(name) for name in names}


def _backup(app: App, given: BackupArguments, report: Progress) -> dict[str, Manifest | None]:
    return backup_project(app, Path(given.target), report)


def _verify(app: App, given: VerifyArguments, report: Progress) -> list[Report]:
    return [
        Report(f"Graph {name}", _verify_graph(app, name, report, repair=given.repair))
        for name in app.settings.graphs
    ]


def _verify_graph(app: App, name: str, report: Progress, *, repair: bool) -> tuple[Finding, ...]:
    """Verify one graph; if it can't be opened, report that as a finding."""
    try:
        graph = app.stored_graph(name)
    except StorageError as error:
        return (flag("graph_unreadable", error.message),)
    return verify_and_repair(graph, report) if repair else tuple(verify(graph, report))


def _cleanup(app: App, given: CleanupArguments, report: Progress) -> dict[str, Cleaned]:
    done = {}
    for name, graph in _graphs(app, given.graph).items():
        report(f"cleaning up {name}")
        done[name] = _clean(app, name, graph, given)
    return done


def _clean(app: App, name: str, graph: Graph, given: CleanupArguments) -> Cleaned:
    """Clean up one graph; on a full disk, start with what can be removed without writing."""
    try:
        return cleanup(graph, keep=given.keep, dry_run=given.dry_run)
    except (StorageFullError, UnwritableError) as error:
        removed = remove_files(graph, dry_run=given.dry_run)
        if given.dry_run:
            return removed
        if not removed.bytes:
            raise type(error)(
                f"nothing in graph {name!r} can be removed without writing, and the disk can't be "
                "written; free some space in another way, or make it writable, and retry"
            ) from None
    if not app.serving:
        graph = app.reopen(name)
    try:
        done = cleanup(graph, keep=given.keep)
    except (StorageFullError, UnwritableError):
        return removed
    return msgspec.structs.replace(
        done,
        snapshots=(*removed.snapshots, *done.snapshots),
        folders=(*removed.folders, *done.folders),
        bytes=removed.bytes + done.bytes,
    )


def _optimize(app: App, given: OptimizeArguments, report: Progress) -> dict[str, Optimized]:
    return {name: optimize(graph, report) for name, graph in _graphs(app, given.graph).items()}


def _doctor(app: App, given: DoctorArguments, report: Progress) -> list[Report]:
    del given
    report("examining the project")
    return examine_serving(app) if app.serving else examine_project(app)


BACKUP: Final = UpkeepOperation("backup", BackupArguments, dict[str, Manifest | None], _backup)
VERIFY: Final = UpkeepOperation("verify", VerifyArguments, list[Report], _verify)
CLEANUP: Final = UpkeepOperation("cleanup", CleanupArguments, dict[str, Cleaned], _cleanup)
OPTIMIZE: Final = UpkeepOperation("optimize", OptimizeArguments, dict[str, Optimized], _optimize)
DOCTOR: Final = UpkeepOperation("doctor", DoctorArguments, list[Report], _doctor)


class ReloadArguments(msgspec.Struct, frozen=True):
    graph: str | None = None
    apply_schema: bool | None = None


def _reload(app: App, given: ReloadArguments, report: Progress) -> list[ReloadReport]:
    known = app.settings.graphs
    done = []
    for name in known if given.graph is None else [choose_graph(known, given.graph)]:
        report(f"reloading {name}")
        done.append(app.reload(name, apply_schema=given.apply_schema))
    return done


RELOAD: Final = UpkeepOperation("reload", ReloadArguments, list[ReloadReport], _reload)


class WebhookArguments(msgspec.Struct, frozen=True):
    graph: str | None = None
    resume: str | None = None
    """The webhook to enable again; None lists them."""
    since: str | None = None
    """The commit that it continues after, or ``head``; None: where it was."""


def _webhooks(app: App, given: WebhookArguments, report: Progress) -> list[WebhookStatus]:
    del report
    if given.resume is not None:
        name = choose_graph(app.settings.graphs, given.graph)
        known = app.settings.graphs[name].webhooks
        return [resume_webhook(app.stored_graph(name), known, given.resume, given.since)]
    return [
        describe_webhook(name, each, read_state(graph, each))
        for name, graph in _graphs(app, given.graph).items()
        for each in app.settings.graphs[name].webhooks
    ]


WEBHOOKS: Final = UpkeepOperation("webhooks", WebhookArguments, list[WebhookStatus], _webhooks)


def find_operation(name: str) -> UpkeepOperation[msgspec.Struct, object] | None:
    known: dict[str, UpkeepOperation] = {  # type: ignore[type-arg]  # each with types of its own
        each.name: each for each in (BACKUP, VERIFY, CLEANUP, OPTIMIZE, DOCTOR, RELOAD, WEBHOOKS)
    }
    return known.get(name)
