"""``trails doctor``: examine a project, in its own process or beside the one that serves it.

Nothing is changed. What needs the folder is examined by the process that owns it; what a user's
machine has (entries of MCP clients, variables, stored documents) by the command itself
(``app/served.py``). Each finding has a code of ``model/upkeep.py``.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from trails.app.app import App
from trails.app.ownership import examine_permissions
from trails.app.settings import DATA_FOLDER
from trails.engine.session.results import examine_costs
from trails.engine.upkeep.doctor import examine, examine_machine
from trails.errors import CorruptionError, TrailsError
from trails.identity.tokens import TokenFile
from trails.model.texts import count
from trails.model.types import Schema
from trails.model.upkeep import Finding, Report, flag, passed
from trails.projections.examine import examine_declarations, examine_round_trips, examine_tools
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
            findings = (*_examine_graph(app, name), *examine_round_trips(app.registry(name)))
        else:
            fix = "fix that and restart the server"
            problem = flag("declarations_broken", reason.message, fix, where=name)
            findings = (problem, *examine(app.stored_graph(name), None))
        reports.append(Report(f"Graph {name}", findings))
    return reports


def examine_served(app: App, graph: str) -> Report:
    """Examine one graph while it is served: its tools, its sandbox and its data."""
    common = (_settings(app), _tokens(app), *_permissions(app), _sandbox(app, graph))
    return Report(f"Graph {graph}", (*common, *_examine_graph(app, graph)))


def _settings(app: App) -> Finding:
    return passed("settings", f"env is {app.settings.project.env}")


def _examine_graph(app: App, graph: str) -> tuple[Finding, ...]:
    registry = app.registry(graph)
    detail = f"{count(len(registry.types), 'type')}, {count(len(registry.tools), 'tool')}"
    return (
        passed("declarations", detail),
        passed("policies", _MODES[app.policies.judge(graph).mode]),
        *examine_tools(registry),
        *examine_declarations(registry),
        *examine_costs(app.graph(graph), registry),
        *examine(app.graph(graph), registry.schema),
    )


def _permissions(app: App) -> list[Finding]:
    return [] if app.folder is None else [examine_permissions(app.folder / DATA_FOLDER)]


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
