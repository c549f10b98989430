"""Kernels: an App's graphs, as surfaces see them."""

from __future__ import annotations

from functools import partial

from trails import __version__
from trails.app.app import App
from trails.app.health import examine_served
from trails.request.admission import Budget
from trails.request.options import KernelOptions
from trails.request.pipeline import Kernel


def kernel_of(app: App, graph: str = "main") -> Kernel:
    """The kernel of one graph; the caller closes it before the app."""
    settings = app.settings
    mcp, budgets = settings.graphs[graph].mcp, settings.graphs[graph].budgets
    return Kernel(
        app.service(graph),
        KernelOptions(
            project=settings.project.name,
            version=__version__,
            env=settings.project.env,
            stored_query_mode=mcp.stored_query_mode,
            stored_query_threshold=mcp.stored_query_threshold,
            judge=app.policies.judge(graph),
            budget=Budget(budgets.in_flight, budgets.calls_per_minute),
            doctor=partial(examine_served, app, graph),
        ),
    )
