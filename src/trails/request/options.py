"""What a kernel is told about the project it serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from trails.model.decisions import EVERYTHING, Judge
from trails.model.reports import Report
from trails.request.admission import Budget


class KernelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one graph, and names of the project around it."""

    project: str = "app"
    version: str = "0"
    env: Literal["development", "production"] = "development"
    stored_query_mode: Literal["auto", "per_query", "meta"] = "auto"
    stored_query_threshold: int = 24
    judge: Judge = EVERYTHING
    """Decides what each actor may do on the graph."""
    budget: Budget = Budget()
    """What each actor may use."""
    doctor: Callable[[], Report] | None = None
    """Examines the graph; without one, what can be seen from the graph itself is examined."""
