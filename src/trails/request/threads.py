"""Threads: where the work of one graph waits for its disk, so that no other graph's does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final, TypeVar

from trails.request.admission import UNLIMITED, Admission

T = TypeVar("T")
_MOST: Final = 32
"""More than one actor may have calls under way, so that nobody takes all of them."""


class Threads:
    """The threads of one graph, started when first needed."""

    def __init__(self, graph: str, admission: Admission = UNLIMITED) -> None:
        self._pool = ThreadPoolExecutor(_MOST, f"trails-{graph}")
        self._admission = admission

    async def run(
        self,
        actor: str,
        work: Callable[..., T],
        *arguments: object,
        dropped: Callable[[], None] | None = None,
    ) -> T:
        """Do some work for an actor; ``dropped`` is told when it was cancelled before it began.

        A thread can't be stopped: if nobody waits for it any more, its place is taken all the same
        until it ends by itself.
        """
        running = self._pool.submit(copy_context().run, work, *arguments)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if not running.cancelled():
                slot = self._admission.hold(actor)
                running.add_done_callback(lambda _: slot.release())
            elif dropped is not None:
                dropped()
            raise

    def close(self) -> None:
        """Wait for what runs, drop what has not begun, and let the threads end."""
        self._pool.shutdown(cancel_futures=True)
