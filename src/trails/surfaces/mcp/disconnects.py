"""Work that ends when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from starlette.types import Receive


async def work_until_gone(receive: Receive, work: Awaitable[None]) -> None:
    """Do the work in this task; a client that leaves cancels it."""
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
        await work
    except asyncio.CancelledError:
        if not gone or task is None:
            raise
        task.uncancel()
    finally:
        watcher.cancel()
