"""Kernels: an App's graphs, as surfaces see them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trails import __version__
from trails.app.app import App
from trails.app.health import examine_served
from trails.engine.graph import everybody
from trails.model.actors import Actor
from trails.request.admission import Budget
from trails.request.options import KernelOptions
from trails.request.pipeline import Kernel


def kernel_of(
    app: App, graph: str = "main", is_current: Callable[[Actor], bool] = everybody
) -> Kernel:
    """The kernel of one graph; the caller closes it before the app.

    ``is_current`` says whether the credential that an actor came with is still good.
    """
    settings, service = app.settings, app.service(graph)
    service.graph.is_current = is_current
    service.graph.write_seconds = settings.graphs[graph].budgets.write_seconds
    service.graph.blocking.limit = settings.graphs[graph].budgets.write_seconds_per_minute
    service.graph.most_branches = settings.graphs[graph].budgets.branches
    mcp, budgets = settings.graphs[graph].mcp, settings.graphs[graph].budgets
    return Kernel(
        service,
        KernelOptions(
            project=settings.project.name,
            version=__version__,
            env=settings.project.env,
            stored_query_mode=mcp.stored_query_mode,
            stored_query_threshold=mcp.stored_query_threshold,
            judge=app.policies.judge(graph),
            budget=Budget(
                budgets.in_flight,
                budgets.calls_per_minute,
                settings.server.max_calls,
                watches=budgets.watches,
                spool=budgets.spool_mb << 20,
            ),
            doctor=partial(examine_served, app, graph),
        ),
    )
