"""``trails doctor``: examine a project, in its own process or beside the one that serves it.

Nothing is changed. What needs the folder is examined by the process that owns it; what a user's
machine has (entries of MCP clients, variables, stored documents) by the command itself
(``app/served.py``). Each finding has a code of ``model/upkeep.py``.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trails.app.app import App
from trails.app.ownership import examine_permissions
from trails.app.plugins import examine_plugins
from trails.app.settings import DATA_FOLDER
from trails.app.staging import JOURNAL
from trails.app.webhooks.settings import WebhookSettings
from trails.app.webhooks.states import describe_webhook, read_state
from trails.engine.graph.graph import MAIN, Graph
from trails.engine.graph.migrations import applied_migrations
from trails.engine.migrations.runner import interrupted_migrations
from trails.engine.migrations.state import compare_migrations
from trails.engine.session.results import examine_costs
from trails.errors import CorruptionError, SchemaMismatchError, TrailsError
from trails.identity.tokens import TokenFile
from trails.imports import later
from trails.model.texts import count
from trails.model.types import Schema
from trails.model.upkeep import Finding, Report, flag, passed
from trails.projections.examine import examine_declarations, examine_round_trips, examine_tools
from trails.registry.registry import Registry, with_queries

if TYPE_CHECKING:
    from trails.engine.upkeep import doctor
else:
    doctor = later("trails.engine.upkeep.doctor")

_MODES: Final = {
    "open": "none, and no tokens: every user of this machine can do everything",
    "read only": "none: every token can read",
    "policies": "they decide",
}

_CONTINUE: Final = "run 'trails migrate apply', or 'rollback' if that was interrupted"
_MIGRATIONS: Final = {
    "pending": ("migration_pending", "run 'trails migrate plan', then 'trails migrate apply'"),
    "changed": (
        "migration_changed",
        "restore the file as it was applied, and write a new migration for the rest",
    ),
    "unknown": (
        "migration_unknown",
        "add its file, for example from the version of the project that applied it",
    ),
}
"""State of a migration → code of its finding, and what to do."""


def examine_project(app: App) -> list[Report]:
    """Run all checks of ``trails doctor``."""
    title = f"Project {app.settings.project.name}"
    first = next((each for each in app.settings.graphs if each not in app.quarantined), "main")
    reports = [
        Report("This machine", (*doctor.examine_machine(), _sandbox(app, first))),
        Report(title, (_settings(app), *examine_plugins(app.plugins), *_of_project(app))),
    ]
    for name in app.settings.graphs:
        try:
            graph = app.stored_graph(name)
        except SchemaMismatchError as error:  # types of a plugin that is missing
            problem = flag("graph_unreadable", error.message, where=name)
            reports.append(Report(f"Graph {name}", (problem,)))
            continue
        declared, findings = _declarations(app, name)
        examined = doctor.examine(graph, declared)
        migrations = examine_migrations(app, name)
        webhooks = examine_webhooks(graph, app.settings.graphs[name].webhooks)
        found = (*findings, *migrations, *webhooks, *examined)
        reports.append(Report(f"Graph {name}", found))
    return reports


def examine_serving(app: App) -> list[Report]:
    """Run the checks while the project is served; declarations are those that were read last."""
    title = f"Project {app.settings.project.name}"
    served = [each for each in app.settings.graphs if each not in app.quarantined]
    sandbox = [_sandbox(app, served[0])] if served else []
    reports = [
        Report("This machine", (*doctor.examine_machine(), *sandbox)),
        Report(title, (_settings(app), *examine_plugins(app.plugins), *_of_project(app))),
    ]
    for name in app.settings.graphs:
        reason = app.quarantined.get(name)
        if reason is None:
            findings = (*_examine_graph(app, name), *examine_round_trips(app.registry(name)))
        else:
            where = str(reason.data.get("where", name))
            findings = (flag("declarations_broken", reason.message, _fix(app), where=where),)
            with suppress(SchemaMismatchError):  # that is the reason, then
                findings = (*findings, *doctor.examine(app.stored_graph(name), None))
        reports.append(Report(f"Graph {name}", findings))
    return reports


def examine_served(app: App, graph: str) -> Report:
    """Examine one graph while it is served: its tools, its sandbox and its data."""
    plugins = examine_plugins(app.plugins)
    common = (_settings(app), *plugins, *_of_project(app), _sandbox(app, graph))
    return Report(f"Graph {graph}", (*common, *_examine_graph(app, graph)))


def _unfinished(app: App) -> Iterator[Finding]:
    """Report a change of files that a killed process left; opening for writing settles it."""
    if app.folder is not None and (app.folder / DATA_FOLDER / JOURNAL).exists():
        yield flag(
            "declarations_unfinished",
            "a change of the project's files was interrupted",
            "open the project for writing, which finishes or undoes it",
            where=f"{DATA_FOLDER}/{JOURNAL}",
        )


def _settings(app: App) -> Finding:
    return passed("settings", f"env is {app.settings.project.env}")


def _examine_graph(app: App, graph: str) -> tuple[Finding, ...]:
    registry = app.registry(graph)
    detail = f"{count(len(registry.types), 'type')}, {count(len(registry.tools), 'tool')}"
    return (
        passed("declarations", detail),
        *_not_reloaded(app, graph),
        passed("policies", _MODES[app.policies.judge(graph).mode]),
        *examine_tools(registry),
        *examine_declarations(registry),
        *examine_costs(app.graph(graph), registry),
        *examine_migrations(app, graph),
        *examine_webhooks(app.graph(graph), app.settings.graphs[graph].webhooks),
        *doctor.examine(app.graph(graph), registry.schema),
    )


def examine_migrations(app: App, graph: str) -> list[Finding]:
    """Compare the migrations of ``main`` with their files, whose code runs for that."""
    try:
        files = app.migrations(graph)
    except TrailsError as error:
        return [flag("migration_broken", error.message, "fix the files in its folder")]
    opened = app.stored_graph(graph)
    states = compare_migrations(files, applied_migrations(opened, opened.log_head(MAIN).commit))
    found = [
        flag(known[0], f"{each.name} is {each.state}", known[1], where=each.name)
        for each in states
        if (known := _MIGRATIONS.get(each.state)) is not None
    ]
    found += [
        flag("migration_interrupted", f"{name} was not finished", _CONTINUE, where=name)
        for name in interrupted_migrations(opened, MAIN)
    ]
    applied = sum(each.state == "applied" for each in states)
    return found or [passed("migrations", f"{applied} applied")]


def examine_webhooks(graph: Graph, webhooks: Sequence[WebhookSettings]) -> list[Finding]:
    """Report webhooks whose receivers do not get the changes of a graph."""
    found = [finding for each in webhooks for finding in _webhook(graph, each)]
    if found or not webhooks:
        return found
    return [passed("webhooks", f"{count(len(webhooks), 'webhook')}, none failing")]


def _webhook(graph: Graph, given: WebhookSettings) -> Iterator[Finding]:
    try:
        status = describe_webhook(graph.name, given, read_state(graph, given))
    except CorruptionError as error:
        yield flag("webhook_unreadable", error.message, where=given.name)
        return
    if status.state == "disabled":
        resume = f"trails webhooks resume {given.name} --graph {graph.name}"
        fix = f"correct the cause, then run '{resume}'"
        yield flag("webhook_disabled", f"{given.name}: {status.disabled}", fix, where=given.name)
    elif status.state == "retrying":
        attempts = count(status.failures, "attempt")
        detail = f"{given.name}: {attempts} failed, the last with {status.last_error}"
        fix = f"it is retried at {status.next_attempt}" if status.next_attempt else ""
        yield flag("webhook_failing", detail, fix, where=given.name)


def _not_reloaded(app: App, graph: str) -> Iterator[Finding]:
    """Report changed files that can't be used."""
    error = app.reload_errors.get(graph)
    if error is not None:
        yield flag("reload_failed", error.message, _fix(app), where=error.where)


def _fix(app: App) -> str:
    if app.settings.project.env == "development":
        return "fix it; the server reads changed files by itself"
    return "fix it, then run 'trails reload'"


def _of_project(app: App) -> list[Finding]:
    data = [] if app.folder is None else [examine_permissions(app.folder / DATA_FOLDER)]
    return [_tokens(app), *data, *_unfinished(app)]


def examine_policies(folder: Path | None, graph: str) -> list[Finding]:
    """Examine the policies of a graph, as its files are now; report each mistake."""
    if folder is None:
        return []
    # Cedar is slow to import, and a server examines its graphs without it.
    from trails.app.policy_inspection import PolicyInspector  # noqa: PLC0415

    try:
        check = PolicyInspector(folder).check_one(graph)
    except TrailsError:
        return []  # broken declarations were already reported
    if check.problems:
        fix = "fix it; until then the graph is not served"
        return [flag("policy_broken", str(each), fix) for each in check.problems]
    counted = f": {check.permits} permit and {check.forbids} forbid" if check.files else ""
    notes = [flag("policy_advice", each) for each in check.notes]
    return [passed("policies", _MODES[check.mode] + counted), *notes]


def _tokens(app: App) -> Finding:
    """Report the number of tokens, and whether they work."""
    if app.folder is None:
        return passed("tokens", "none: nothing is stored")
    try:
        found = TokenFile(app.folder / DATA_FOLDER).list()
    except CorruptionError as error:
        return flag("tokens_unreadable", error.message, "until then every request is refused")
    if not found:
        return passed("tokens", "none were ever created")
    now = datetime.now(UTC)
    states = Counter(each.state(now) for each in found)
    detail = ", ".join(f"{count} {state}" for state, count in states.items())
    if states["valid"]:
        return passed("tokens", detail)
    return flag("tokens_expired", f"{detail}: none is valid", "create one: trails token new")


def _sandbox(app: App, graph: str) -> Finding:
    """Report how untrusted text is confined on a graph, or why it is not."""
    try:
        held = app.untrusted(graph).sandbox.confinement
    except TrailsError as error:
        fix = "until that works, untrusted queries and RDF files are refused"
        return flag("sandbox_failed", error.message, fix)
    if held.complete:
        detail = (
            f"untrusted queries and files are confined: Landlock {held.landlock}, seccomp, "
            f"uid {held.uid}, {held.memory >> 20:,} MiB"
        )
        return passed("sandbox", detail)
    if app.settings.sandbox.allow_unconfined:
        detail = f"not confined, as [sandbox] allow_unconfined permits: {held.missing}"
        return flag("sandbox_open", detail)
    return flag(
        "sandbox_missing",
        f"untrusted queries and RDF files are refused: {held.missing}",
        "use Linux with Landlock and seccomp, or set [sandbox] allow_unconfined = true",
    )


def _declarations(app: App, graph: str) -> tuple[Schema | None, list[Finding]]:
    """Report the declared schema, and what would quarantine the graph."""
    try:
        registry = app.declared(graph, queries=False)
    except TrailsError as error:
        return None, [flag("declarations_broken", error.message, "fix the module")]
    capabilities = count(len(registry.capabilities), "capability", "capabilities")
    detail = f"{count(len(registry.types), 'type')}, {capabilities}"
    return registry.schema, [
        passed("declarations", detail),
        *_shadowed(app, graph),
        *_queries(app, graph, registry),
        *examine_policies(app.folder, graph),
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
        return [flag("query_broken", each, fix) for each in shown]
    mutations = sum(query.mutation for query in found)
    return [
        passed("queries", f"{len(found)} stored, {mutations} of them change data"),
        *examine_tools(joined),
        *examine_declarations(joined),
        *examine_round_trips(joined),
        *examine_costs(app.graph(graph), joined),
    ]


def _shadowed(app: App, graph: str) -> Iterator[Finding]:
    """Report declarations that a later one of the same name in the module replaces."""
    if app.folder is None:
        return
    file = app.settings.graphs[graph].app
    try:
        tree = ast.parse((app.folder / file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return  # reported where the module is loaded
    defined: dict[str, int] = {}
    for each in tree.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            earlier = defined.get(each.name)
            if earlier is not None:
                yield flag(
                    "declaration_shadowed",
                    f"{each.name} is defined in lines {earlier} and {each.lineno}; only the last "
                    "definition is used",
                    "give one of them another name",
                    where=f"{file}:{earlier}",
                )
            if each.decorator_list:
                defined[each.name] = each.lineno
