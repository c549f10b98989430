"""Work that ends when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from trails.surfaces.mcp.steps import Begun

T = TypeVar("T")


class Gone(Exception):  # noqa: N818 -- not an error: nobody is left to tell
    """The client left."""


async def until_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do the work in this task; a client that leaves cancels it, and ``Gone`` is raised."""
    begun = Begun(work)
    if begun.done:
        return begun.value
    task = asyncio.current_task()
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        if task is not None:
            task.cancel()

    watcher = asyncio.ensure_future(watch())
    try:
        return await begun.rest()
    except asyncio.CancelledError:
        if not gone or task is None:
            raise
        task.uncancel()
        raise Gone from None
    finally:
        watcher.cancel()
