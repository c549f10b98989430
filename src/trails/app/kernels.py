"""The kernels of an App's graphs, as surfaces use them; or why a graph is not served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from trails import __version__
from trails.app.app import App
from trails.app.policies import ServedPolicies
from trails.app.settings import LogSettings
from trails.app.workspace import ProjectWorkspace
from trails.engine.graph.graph import Graph, everybody
from trails.errors import TrailsError
from trails.imports import later
from trails.model.actors import Actor
from trails.model.changes.proposals import WriteModes
from trails.model.results import Failure
from trails.model.upkeep import ExportLimits
from trails.request.admission import Budget, KernelOptions
from trails.request.pipeline import Kernel
from trails.request.workspace import WebhookSubject

if TYPE_CHECKING:  # OpenTelemetry is optional
    from trails.app import doctor
    from trails.app.telemetry import logs
    from trails.app.telemetry.otel import Telemetry
    from trails.engine.evidence import exports
else:
    doctor = later("trails.app.doctor")
    logs = later("trails.app.telemetry.logs")
    exports = later("trails.engine.evidence.exports")


def kernel_of(
    app: App,
    graph: str = "main",
    is_current: Callable[[Actor], bool] = everybody,
    telemetry: Telemetry | None = None,
) -> Kernel:
    """Return the kernel of one graph; the caller closes it before the app.

    ``is_current`` says whether an actor's credential is still valid.
    """
    settings, service = app.settings, app.service(graph)
    service.graph.is_current = is_current
    _observe(service.graph, settings.log, telemetry)
    service.graph.write_seconds = settings.graphs[graph].budgets.write_seconds
    service.graph.blocking.limit = settings.graphs[graph].budgets.write_seconds_per_minute
    service.graph.most_blob = settings.graphs[graph].budgets.blob_mb << 20
    service.graph.most_unnamed = settings.graphs[graph].budgets.spool_mb << 20
    service.graph.most_branches = settings.graphs[graph].budgets.branches
    mcp, budgets = settings.graphs[graph].mcp, settings.graphs[graph].budgets
    return Kernel(
        service,
        KernelOptions(
            project=settings.project.name,
            version=__version__,
            env=settings.project.env,
            writes=WriteModes(mcp.writes, mcp.writers),
            stored_query_mode=mcp.stored_query_mode,
            stored_query_threshold=mcp.stored_query_threshold,
            max_chars=mcp.max_chars,
            judge=app.policies.judge(graph),
            budget=Budget(
                budgets.in_flight,
                budgets.calls_per_minute,
                settings.server.max_calls,
                watches=budgets.watches,
                spool=budgets.spool_mb << 20,
            ),
            exports=ExportLimits(
                settings.graphs[graph].export_hours, budgets.exports, budgets.export_mb << 20
            ),
            doctor=lambda: doctor.examine_served(app, graph),
            resources=app.plugins.resources,
            workspace=None if app.folder is None else ProjectWorkspace(app, graph),
            webhooks=tuple(
                WebhookSubject(each.name, each.types, each.query)
                for each in settings.graphs[graph].webhooks
            ),
            policies=None
            if app.folder is None
            else ServedPolicies(app.folder, graph, app.registry),
            wait_seconds=settings.graphs[graph].log.wait_seconds,
            trace=None if telemetry is None else telemetry.trace,
        ),
    )


def _observe(graph: Graph, log: LogSettings, telemetry: Telemetry | None) -> None:
    """Log and count calls and queries as the settings say."""
    slow, observers = graph.slow_queries, graph.activities.observers
    if log.slow_query_ms:
        slow.threshold, slow.texts = log.slow_query_ms * 1_000_000, log.texts
    if log.calls:
        observers.append(partial(logs.log_call, graph.name))
    if telemetry is not None:
        observers.append(partial(telemetry.count, graph.name))
        graph.slow_queries = telemetry.time_queries(slow)


class ServedGraphs(Mapping[str, Kernel | Failure]):
    """Every graph by its id, opened on first use."""

    def __init__(
        self,
        app: App,
        is_current: Callable[[Actor], bool] = everybody,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._app = app
        self._is_current = is_current
        self._telemetry = telemetry
        self._opened: dict[str, Kernel | Failure] = {}

    def __getitem__(self, graph: str) -> Kernel | Failure:
        """Return a graph's kernel, or why it is not served."""
        if graph not in self._app.settings.graphs:
            raise KeyError(graph)
        found = self._opened.get(graph)
        if found is None:
            found = self._open(graph)
            if graph not in self._app.quarantined:  # a reload may end that
                self._opened[graph] = found
        return found

    def _open(self, graph: str) -> Kernel | Failure:
        try:
            kernel = kernel_of(self._app, graph, self._is_current, self._telemetry)
            exports.exports_of(self._app.graph(graph)).resume()
            return kernel
        except TrailsError as error:
            return Failure("semantic", error.code, error.message, error.data)

    def __iter__(self) -> Iterator[str]:
        return iter(self._app.settings.graphs)

    def __len__(self) -> int:
        return len(self._app.settings.graphs)

    def under_way(self) -> Counter[str]:
        """Count the active calls on all graphs, by name."""
        kernels = [each for each in self._opened.values() if not isinstance(each, Failure)]
        return sum((each.under_way() for each in kernels), Counter())

    def close(self) -> None:
        """Wait for active calls, and end the threads of all graphs."""
        for kernel in self._opened.values():
            if not isinstance(kernel, Failure):
                kernel.close()
