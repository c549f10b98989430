"""Lists: be told, on the event loop, when what is listed may have changed.

Tools follow from the registry. Types follow from the schema of ``main``, which takes over
what was registered a moment later. For those whose rights are decided, both follow from the
policies and from which branches there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from trails.engine.feed import Change
from trails.engine.graph import MAIN
from trails.engine.service import GraphService
from trails.registry.registry import Registry
from trails.request.authorize import Authority

_PATIENCE: Final = 1.0
"""Seconds between two looks at the policies, which nobody tells of."""


def listen_to_lists(
    service: GraphService, authority: Authority, changed: Callable[[], None]
) -> Callable[[], None]:
    """Call ``changed`` on this event loop after every such change; the result ends that."""
    loop = asyncio.get_running_loop()

    def hear(what: Registry | Change) -> None:
        if isinstance(what, Change) and (
            what.types is not None or (what.branch != MAIN and authority.is_open)
        ):
            return
        with suppress(RuntimeError):  # the loop has ended, and with it whoever listened
            loop.call_soon_threadsafe(changed)

    looking = _Looking(loop, authority, changed)
    stops = (service.cell.listen(hear), service.graph.feed.listen(hear), looking.stop)

    def stop() -> None:
        for each in stops:
            each()

    return stop


class _Looking:
    """Looks at the version of the policies, again and again."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, authority: Authority, changed: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._authority = authority
        self._changed = changed
        self._version = authority.version
        self._timer = loop.call_later(_PATIENCE, self._look)

    def _look(self) -> None:
        self._timer = self._loop.call_later(_PATIENCE, self._look)
        version = self._authority.version
        if version != self._version:
            self._version = version
            self._changed()

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()
