"""Large bodies: read in a thread, one at a time for each actor, so that nobody else waits."""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Final, TypeVar

T = TypeVar("T")
LARGE: Final = 256 << 10
"""Bytes of a body that is not read on the event loop."""
_MANY: Final = 4096
"""Arrays and objects in a body that is as good as a large one."""
_THREADS: Final = 2


def is_large(body: bytes) -> bool:
    """Whether reading a body takes long enough that others would notice."""
    size = len(body)
    return size > LARGE or (size > 2 * _MANY and body.count(b"[") + body.count(b"{") > _MANY)


class LargeBodies:
    """Whose turn it is."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "trails-bodies")
        self._turns: dict[str, deque[asyncio.Future[None]]] = {}
        """Those who wait, by actor; there is an entry while one of the actor's bodies is read."""

    async def run(self, actor: str, work: Callable[..., T], *arguments: object) -> T:
        """Do some work in a thread when it is the actor's turn.

        A thread can't be stopped: if nobody waits for it any more, the turn lasts until it ends.
        """
        await self._begin(actor)
        loop = asyncio.get_running_loop()
        running = self._pool.submit(_uncollected, work, *arguments)
        try:
            found = await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            running.add_done_callback(lambda _: loop.call_soon_threadsafe(self._end, actor))
            raise
        except BaseException:
            self._end(actor)
            raise
        self._end(actor)
        return found

    async def _begin(self, actor: str) -> None:
        waiting = self._turns.get(actor)
        if waiting is None:
            self._turns[actor] = deque()
            return
        turn = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end(actor)  # it was given the turn, and leaves
            raise

    def _end(self, actor: str) -> None:
        waiting = self._turns[actor]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._turns[actor]


_collecting: Final = Lock()
_running: Final[list[None]] = []


def _uncollected(work: Callable[..., T], *arguments: object) -> T:
    """Do some work without looking for garbage.

    Values of JSON make no cycles, and every look at some hundred thousand new ones, and at all
    that there are, would keep everybody waiting for most of the time that they take to make.
    """
    with _collecting:
        _running.append(None)
        gc.disable()
    try:
        return work(*arguments)
    finally:
        with _collecting:
            _running.pop()
            if not _running:
                gc.enable()
