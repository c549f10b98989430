"""The ``trails`` command: the command line on top of the real operations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trails import __version__
from trails.app.app import App
from trails.engine.doctor import examine, examine_machine
from trails.engine.scaffold import scaffold_project
from trails.engine.verify import verify
from trails.errors import TrailsError
from trails.model.reports import Finding, Report
from trails.model.types import Schema
from trails.registry.registry import Registry, with_queries
from trails.surfaces.cli.commands import build_cli


class LocalOperations:
    """Operations on a project folder of this machine."""

    def new(self, folder: Path, name: str | None) -> tuple[Path, list[str]]:
        """Make a project folder."""
        return scaffold_project(folder, name)

    def doctor(self, folder: Path) -> list[Report]:
        """Examine the machine, the declarations and every graph."""
        machine = Report("This machine", tuple(examine_machine()))
        with App.open(folder, declarations=False) as app:
            title = f"Project {app.settings.project.name}"
            settings = Finding("settings", "ok", f"env is {app.settings.project.env}")
            reports = [machine, Report(title, (settings,))]
            for name in app.settings.graphs:
                declared, findings = _declarations(app, name)
                examined = examine(app.graph(name), declared)
                reports.append(Report(f"Graph {name}", (*findings, *examined)))
        return reports

    def verify(
        self, folder: Path, *, repair: bool, progress: Callable[[str], None]
    ) -> list[Report]:
        """Prove every graph; with ``repair``, rebuild views that differ and prove again."""
        reports = []
        with App.open(folder, declarations=False, progress=progress) as app:
            for name in app.settings.graphs:
                graph = app.graph(name)
                report = Report(f"Graph {name}", tuple(verify(graph, progress)))
                if repair and not report.healthy:
                    progress("rebuilding the views from the log")
                    graph.rebuild()
                    report = Report(f"Graph {name}", tuple(verify(graph, progress)))
                reports.append(report)
        return reports


def _declarations(app: App, graph: str) -> tuple[Schema | None, list[Finding]]:
    """The schema that a graph declares, and what of it would put the graph into quarantine."""
    try:
        registry = app.declared(graph, queries=False)
    except TrailsError as error:
        return None, [Finding("declarations", "problem", error.message, "correct the module")]
    detail = f"{len(registry.types)} type(s), {len(registry.capabilities)} capability(ies)"
    return registry.schema, [Finding("declarations", "ok", detail), *_queries(app, graph, registry)]


def _queries(app: App, graph: str, registry: Registry) -> list[Finding]:
    """How the stored queries are, mistake by mistake."""
    try:
        found = app.stored_queries(graph, registry.schema)
        with_queries(registry, found)
    except TrailsError as error:
        problems = error.data.get("problems")
        told = problems if isinstance(problems, list) else [error.message]
        fix = "correct it; until then the graph is not served"
        return [Finding("queries", "problem", each, fix) for each in told]
    mutations = sum(query.mutation for query in found)
    return [Finding("queries", "ok", f"{len(found)} stored, {mutations} of them change data")]


def main() -> None:
    """Run the command line."""
    build_cli(LocalOperations(), __version__)()
