"""A client that leaves before it is answered: the work for it ends."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.types import Message, Receive

_SOON: Final = 0.5
"""Seconds after which a call is long enough to be watched; most are answered before."""


class Leaving:
    """Watches a client once all of its request is read, and cancels the task that answers it."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task = asyncio.current_task()
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def receive(self) -> Message:
        """What comes next of the request."""
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self._timer = asyncio.get_running_loop().call_later(_SOON, self._begin)
        return message

    def _begin(self) -> None:
        self._watcher = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._task is not None:
            self._task.cancel()

    def end(self) -> None:
        """Watch no longer: the answer is there."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
