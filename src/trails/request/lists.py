"""Lists: be told, on the event loop, when what is listed may have changed.

Tools follow from the registry. Types follow from the schema of ``main``, which takes over
what was registered a moment later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from trails.engine.feed import Change
from trails.engine.graph import MAIN
from trails.engine.service import GraphService
from trails.registry.registry import Registry


def listen_to_lists(service: GraphService, changed: Callable[[], None]) -> Callable[[], None]:
    """Call ``changed`` on this event loop after every such change; the result ends that."""
    loop = asyncio.get_running_loop()

    def hear(what: Registry | Change) -> None:
        if isinstance(what, Change) and (what.branch != MAIN or what.types is not None):
            return
        with suppress(RuntimeError):  # the loop has ended, and with it whoever listened
            loop.call_soon_threadsafe(changed)

    stops = (service.cell.listen(hear), service.graph.feed.listen(hear))

    def stop() -> None:
        for each in stops:
            each()

    return stop
