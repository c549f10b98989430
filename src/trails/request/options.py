"""What a kernel is told about the project it serves."""

from __future__ import annotations

from typing import Literal

import msgspec


class KernelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one graph, and names of the project around it."""

    project: str = "app"
    version: str = "0"
    env: Literal["development", "production"] = "development"
    stored_query_mode: Literal["auto", "per_query", "meta"] = "auto"
    stored_query_threshold: int = 24
