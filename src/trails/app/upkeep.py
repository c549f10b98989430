"""Upkeep of a whole project, in this process or in the one that serves the folder.

Each operation has a name, an argument type, a result type and a function on an app. A process
that owns the folder calls the function; otherwise the command line asks the owner by that name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from trails.app.app import App
from trails.app.backups import backup_project
from trails.app.health import examine_project, examine_serving
from trails.app.settings import choose_graph
from trails.engine.graph import Graph
from trails.engine.maintenance import cleanup, optimize, remove_files
from trails.engine.verify import verify, verify_and_repair
from trails.errors import StorageError, StorageFullError, UnwritableError
from trails.model.reports import Finding, Report
from trails.model.upkeep import Cleaned, Manifest, Optimized

Tell = Callable[[str], None]
_A = TypeVar("_A", bound=msgspec.Struct)
_R = TypeVar("_R")


class Operation(msgspec.Struct, Generic[_A, _R], frozen=True):
    """Something that is done to a project."""

    name: str
    takes: type[_A]
    gives: type[_R]
    run: Callable[[App, _A, Tell], _R]


class BackupArguments(msgspec.Struct, frozen=True):
    """Where to."""

    target: str


class VerifyArguments(msgspec.Struct, frozen=True):
    """Whether views that differ are rebuilt."""

    repair: bool = False


class DoctorArguments(msgspec.Struct, frozen=True):
    """Nothing."""


class CleanupArguments(msgspec.Struct, frozen=True):
    """How many snapshots stay, and of which graph; None: of all."""

    keep: int
    dry_run: bool = False
    graph: str | None = None


class OptimizeArguments(msgspec.Struct, frozen=True):
    """Which graph; None: all."""

    graph: str | None = None


def _graphs(app: App, graph: str | None) -> dict[str, Graph]:
    """Those that are meant, also ones that are not served."""
    known = app.settings.graphs
    names = known if graph is None else [choose_graph(known, graph)]
    return {name: app.stored_graph(name) for name in names}


def _backup(app: App, given: BackupArguments, tell: Tell) -> dict[str, Manifest | None]:
    return backup_project(app, Path(given.target), tell)


def _verify(app: App, given: VerifyArguments, tell: Tell) -> list[Report]:
    return [
        Report(f"Graph {name}", _verify_graph(app, name, tell, repair=given.repair))
        for name in app.settings.graphs
    ]


def _verify_graph(app: App, name: str, tell: Tell, *, repair: bool) -> tuple[Finding, ...]:
    """Prove one graph; that it can't even be opened is a finding, and the others are proven."""
    try:
        graph = app.stored_graph(name)
    except StorageError as error:
        return (Finding("graph", "problem", error.message),)
    return verify_and_repair(graph, tell) if repair else tuple(verify(graph, tell))


def _cleanup(app: App, given: CleanupArguments, tell: Tell) -> dict[str, Cleaned]:
    done = {}
    for name, graph in _graphs(app, given.graph).items():
        tell(f"cleaning up {name}")
        done[name] = _clean(app, name, graph, given)
    return done


def _clean(app: App, name: str, graph: Graph, given: CleanupArguments) -> Cleaned:
    """Clean up one graph; on a full disk begin with what can be removed without writing."""
    try:
        return cleanup(graph, keep=given.keep, dry_run=given.dry_run)
    except (StorageFullError, UnwritableError) as error:
        removed = remove_files(graph, dry_run=given.dry_run)
        if given.dry_run:
            return removed
        if not removed.bytes:
            raise type(error)(
                f"nothing of graph {name!r} can be removed without writing, and the disk can't be "
                "written; free some space on it in another way, or make it writable, and try again"
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


def _optimize(app: App, given: OptimizeArguments, tell: Tell) -> dict[str, Optimized]:
    return {name: optimize(graph, tell) for name, graph in _graphs(app, given.graph).items()}


def _doctor(app: App, given: DoctorArguments, tell: Tell) -> list[Report]:
    del given
    tell("examining the project")
    return examine_serving(app) if app.serving else examine_project(app)


BACKUP: Final = Operation("backup", BackupArguments, dict[str, Manifest | None], _backup)
VERIFY: Final = Operation("verify", VerifyArguments, list[Report], _verify)
CLEANUP: Final = Operation("cleanup", CleanupArguments, dict[str, Cleaned], _cleanup)
OPTIMIZE: Final = Operation("optimize", OptimizeArguments, dict[str, Optimized], _optimize)
DOCTOR: Final = Operation("doctor", DoctorArguments, list[Report], _doctor)


def find_operation(name: str) -> Operation[msgspec.Struct, object] | None:
    """An operation by its name."""
    known: dict[str, Operation] = {  # type: ignore[type-arg]  # each with types of its own
        each.name: each for each in (BACKUP, VERIFY, CLEANUP, OPTIMIZE, DOCTOR)
    }
    return known.get(name)
