"""The operations of the command line on a project folder of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trails.app.app import App
from trails.app.backups import backup_project, restore_project
from trails.app.clients.requests import install_client, list_clients, uninstall_client
from trails.app.health import examine_project
from trails.app.session import LocalSession
from trails.engine.scaffold import scaffold_project
from trails.engine.verify import verify
from trails.errors import NotFoundError
from trails.model.clients import ClientPlace, Installation, InstallRequest
from trails.model.reports import Report
from trails.model.upkeep import Manifest
from trails.surfaces.cli.operations import Session, Tell


class LocalOperations:
    """Operations that open the project in this process."""

    def new(self, folder: Path, name: str | None) -> tuple[Path, list[str]]:
        """Make a project folder."""
        return scaffold_project(folder, name)

    def doctor(self, folder: Path) -> list[Report]:
        """Examine the machine, the declarations and every graph."""
        with App.open(folder, declarations=False) as app:
            return examine_project(app)

    def verify(self, folder: Path, *, repair: bool, progress: Tell) -> list[Report]:
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

    @contextmanager
    def open(
        self, folder: Path, graph: str | None, tell: Tell, *, declared: bool
    ) -> Iterator[Session]:
        """Open one graph of a project."""
        with App.open(folder, declarations=declared, progress=tell) as app:
            yield LocalSession(app, _chosen(app, graph))

    @contextmanager
    def open_all(self, folder: Path, graph: str | None, tell: Tell) -> Iterator[list[Session]]:
        """Open every graph of a project, or one."""
        with App.open(folder, declarations=False, progress=tell) as app:
            names = app.settings.graphs if graph is None else [_chosen(app, graph)]
            yield [LocalSession(app, name) for name in names]

    def backup(self, folder: Path, target: Path, tell: Tell) -> dict[str, Manifest]:
        """Copy the logs of all graphs."""
        with App.open(folder, declarations=False, progress=tell) as app:
            return backup_project(app, target.resolve(), tell)

    def restore(
        self, folder: Path, source: Path, tell: Tell, *, force: bool
    ) -> dict[str, Path | None]:
        """Put back every graph of a backup."""
        with App.open(folder, declarations=False, progress=tell) as app:
            return restore_project(app, source, tell, force=force)

    def clients(self, folder: Path) -> list[ClientPlace]:
        """Programs that speak MCP, and where their configuration is."""
        return list_clients(folder)

    def install_client(self, folder: Path, request: InstallRequest, *, dry: bool) -> Installation:
        """Write a graph into a client's configuration."""
        return install_client(folder, request, dry=dry)

    def uninstall_client(self, folder: Path, request: InstallRequest) -> Installation:
        """Take a graph out of a client's configuration."""
        return uninstall_client(folder, request)


def _chosen(app: App, graph: str | None) -> str:
    """The named graph, the only one, or ``main``."""
    known = app.settings.graphs
    if graph is not None:
        return graph
    if len(known) == 1:
        return next(iter(known))
    if "main" in known:
        return "main"
    raise NotFoundError(
        f"this project has several graphs: {', '.join(known)}; say which with --graph"
    )
