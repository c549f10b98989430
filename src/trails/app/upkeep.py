"""Maintenance and ``doctor`` of a whole project, here or in the process that serves the folder.

Each operation has a name, an argument type, a result type and a function on an app. The
process that owns the folder calls the function; otherwise the command line sends it to the
owner by name. Backups of a project are a folder with a set of backups for each graph.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from trails.app.app import App
from trails.app.ownership import examine_permissions
from trails.app.settings import DATA_FOLDER, choose_graph
from trails.app.webhooks.states import describe_webhook, read_state, resume_webhook
from trails.engine.graph.graph import Graph, now
from trails.engine.session.results import examine_costs
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
from trails.engine.upkeep.doctor import examine, examine_machine
from trails.engine.upkeep.maintenance import cleanup, optimize, remove_files
from trails.engine.upkeep.verify import verify, verify_and_repair
from trails.errors import (
    CorruptionError,
    NotFoundError,
    QueryError,
    StorageError,
    StorageFullError,
    TrailsError,
    UnwritableError,
)
from trails.files import make_folder, sync_folder
from trails.identity.tokens import TokenFile
from trails.log.storage import storage_errors
from trails.model.texts import count
from trails.model.types import Schema
from trails.model.upkeep import (
    Cleaned,
    Finding,
    Manifest,
    Optimized,
    Report,
    RestoreRequest,
    WebhookStatus,
)
from trails.projections.tools import examine_tools
from trails.registry.registry import Registry, with_queries

_MODES: Final = {
    "open": "none, and no tokens: every user of this machine can do everything",
    "read only": "none: every token can read",
    "policies": "they decide",
}


def examine_project(app: App) -> list[Report]:
    """Run all checks of ``trails doctor``."""
    title = f"Project {app.settings.project.name}"
    first = next((each for each in app.settings.graphs if each not in app.quarantined), "main")
    reports = [
        Report("This machine", (*examine_machine(), _sandbox(app, first))),
        Report(title, (_settings(app), _tokens(app), *_permissions(app))),
    ]
    for name in app.settings.graphs:
        declared, findings = _declarations(app, name)
        examined = examine(app.graph(name), declared)
        reports.append(Report(f"Graph {name}", (*findings, *examined)))
    return reports


def examine_serving(app: App) -> list[Report]:
    """Run the checks while the project is served; declarations are those read at its start."""
    title = f"Project {app.settings.project.name}"
    served = [each for each in app.settings.graphs if each not in app.quarantined]
    sandbox = [_sandbox(app, served[0])] if served else []
    reports = [
        Report("This machine", (*examine_machine(), *sandbox)),
        Report(title, (_settings(app), _tokens(app), *_permissions(app))),
    ]
    for name in app.settings.graphs:
        reason = app.quarantined.get(name)
        if reason is None:
            findings = _examine_graph(app, name)
        else:
            fix = "fix that and restart the server"
            problem = Finding("declarations", "problem", reason.message, fix)
            findings = (problem, *examine(app.stored_graph(name), None))
        reports.append(Report(f"Graph {name}", findings))
    return reports


def examine_served(app: App, graph: str) -> Report:
    """Examine one graph while it is served: its tools, its sandbox and its data."""
    common = (_settings(app), _tokens(app), *_permissions(app), _sandbox(app, graph))
    return Report(f"Graph {graph}", (*common, *_examine_graph(app, graph)))


def _settings(app: App) -> Finding:
    return Finding("settings", "ok", f"env is {app.settings.project.env}")


def _examine_graph(app: App, graph: str) -> tuple[Finding, ...]:
    registry = app.registry(graph)
    detail = f"{count(len(registry.types), 'type')}, {count(len(registry.tools), 'tool')}"
    return (
        Finding("declarations", "ok", detail),
        Finding("policies", "ok", _MODES[app.policies.judge(graph).mode]),
        *examine_tools(registry),
        *examine_costs(app.graph(graph), registry),
        *examine(app.graph(graph), registry.schema),
    )


def _permissions(app: App) -> list[Finding]:
    return [] if app.folder is None else [examine_permissions(app.folder / DATA_FOLDER)]


def _policies(app: App, graph: str) -> list[Finding]:
    """Examine the policies of a graph; report each mistake."""
    if app.folder is None:
        return []
    # Cedar is slow to import, and a server examines its graphs without it.
    from trails.app.policy_inspection import PolicyInspector  # noqa: PLC0415

    try:
        check = PolicyInspector(app.folder).check_one(graph)
    except TrailsError:
        return []  # broken declarations were already reported
    if check.problems:
        fix = "fix it; until then the graph is not served"
        return [Finding("policies", "problem", str(each), fix) for each in check.problems]
    counted = f": {check.permits} permit and {check.forbids} forbid" if check.files else ""
    notes = [Finding("policies", "note", each) for each in check.notes]
    return [Finding("policies", "ok", _MODES[check.mode] + counted), *notes]


def _tokens(app: App) -> Finding:
    """Report the number of tokens, and whether they work."""
    if app.folder is None:
        return Finding("tokens", "ok", "none: nothing is stored")
    try:
        found = TokenFile(app.folder / DATA_FOLDER).list()
    except CorruptionError as error:
        return Finding("tokens", "problem", error.message, "until then every request is refused")
    if not found:
        return Finding("tokens", "ok", "none were ever created")
    now = datetime.now(UTC)
    states = Counter(each.state(now) for each in found)
    detail = ", ".join(f"{count} {state}" for state, count in states.items())
    if states["valid"]:
        return Finding("tokens", "ok", detail)
    return Finding("tokens", "note", f"{detail}: none is valid", "create one: trails token new")


def _sandbox(app: App, graph: str) -> Finding:
    """Report how untrusted text is confined on a graph, or why it is not."""
    try:
        held = app.untrusted(graph).sandbox.confinement
    except TrailsError as error:
        fix = "until that works, untrusted queries and RDF files are refused"
        return Finding("sandbox", "problem", error.message, fix)
    if held.complete:
        detail = (
            f"untrusted queries and files are confined: Landlock {held.landlock}, seccomp, "
            f"uid {held.uid}, {held.memory >> 20:,} MiB"
        )
        return Finding("sandbox", "ok", detail)
    if app.settings.sandbox.allow_unconfined:
        detail = f"not confined, as [sandbox] allow_unconfined permits: {held.missing}"
        return Finding("sandbox", "note", detail)
    return Finding(
        "sandbox",
        "note",
        f"untrusted queries and RDF files are refused: {held.missing}",
        "use Linux with Landlock and seccomp, or set [sandbox] allow_unconfined = true",
    )


def _declarations(app: App, graph: str) -> tuple[Schema | None, list[Finding]]:
    """Report the declared schema, and what would quarantine the graph."""
    try:
        registry = app.declared(graph, queries=False)
    except TrailsError as error:
        return None, [Finding("declarations", "problem", error.message, "fix the module")]
    capabilities = count(len(registry.capabilities), "capability", "capabilities")
    detail = f"{count(len(registry.types), 'type')}, {capabilities}"
    return registry.schema, [
        Finding("declarations", "ok", detail),
        *_queries(app, graph, registry),
        *_policies(app, graph),
    ]


def _queries(app: App, graph: str, registry: Registry) -> list[Finding]:
    """Report the stored queries, with each mistake, and the resulting tools."""
    try:
        found = app.stored_queries(graph, registry.schema)
        joined = with_queries(registry, found)
    except TrailsError as error:
        problems = error.data.get("problems")
        shown = problems if isinstance(problems, list) else [error.message]
        fix = "fix it; until then the graph is not served"
        return [Finding("queries", "problem", each, fix) for each in shown]
    mutations = sum(query.mutation for query in found)
    return [
        Finding("queries", "ok", f"{len(found)} stored, {mutations} of them change data"),
        *examine_tools(joined),
        *examine_costs(app.graph(graph), joined),
    ]


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
    _check_places(app, data, sets, force=wanted.force)
    for parts in sets.values():
        check_digests(parts, report)
    with storage_errors("restore the backup"):
        home = prepare_graphs(data)
    try:
        for name, parts in sets.items():
            report(f"restoring {name}")
            rebuild(parts, home / name, at)
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
        return (Finding("graph", "problem", error.message),)
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
        each.name: each for each in (BACKUP, VERIFY, CLEANUP, OPTIMIZE, DOCTOR, WEBHOOKS)
    }
    return known.get(name)
