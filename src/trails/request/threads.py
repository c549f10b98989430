"""The threads of one graph, so that a slow disk delays no other graph.

Actors take turns: the queued work of one actor does not delay that of others.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVar, cast

from trails.request.admission import UNLIMITED, Admission

T = TypeVar("T")
_MOST: Final = 64
_EACH: Final = 16
"""Threads that one actor can use at the same time; its other work is queued."""


class _Work:
    """A function to call, and the future of its result."""

    __slots__ = ("actor", "future", "job")

    def __init__(self, actor: str, job: Callable[[], object]) -> None:
        self.actor = actor
        self.job = job
        self.future: Future[object] = Future()

    def do(self) -> None:
        """Call it, unless it was cancelled."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            found = self.job()
        except BaseException as error:  # noqa: BLE001 - it is the waiter's
            self.future.set_exception(error)
        else:
            self.future.set_result(found)


class _Turns:
    """The queue of each actor."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._busy = 0
        self._running: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[_Work]] = OrderedDict()

    def add(self, work: _Work) -> None:
        """Start work now, or queue it for its actor."""
        actor = work.actor
        with self._lock:
            if actor in self._waiting or not self._room(actor):
                self._waiting.setdefault(actor, deque()).append(work)
                return
            self._begin(actor)
        self._pool.submit(self._do, work)

    def _room(self, actor: str) -> bool:
        return self._running[actor] < _EACH and self._busy < _MOST

    def _begin(self, actor: str) -> None:
        self._busy += 1
        self._running[actor] += 1

    def _do(self, work: _Work | None) -> None:
        while work is not None:
            work.do()
            work = self._next(work.actor)

    def _next(self, actor: str) -> _Work | None:
        """The next work for a thread that has finished some of this actor."""
        with self._lock:
            self._busy -= 1
            self._running[actor] -= 1
            if not self._running[actor]:
                del self._running[actor]
            following = next((each for each in self._waiting if self._room(each)), None)
            if following is None:
                return None
            queue = self._waiting[following]
            work = queue.popleft()
            if queue:
                self._waiting.move_to_end(following)
            else:
                del self._waiting[following]
            self._begin(following)
            return work

    def load(self) -> tuple[int, int]:
        """How many threads work, and how much work waits for one."""
        with self._lock:
            return self._busy, sum(map(len, self._waiting.values()))

    def drop(self) -> None:
        """Cancel all queued work."""
        with self._lock:
            dropped = [work for queue in self._waiting.values() for work in queue]
            self._waiting.clear()
        for work in dropped:
            work.future.cancel()


class Threads:
    """The threads of one graph, started when first needed."""

    def __init__(self, graph: str, admission: Admission = UNLIMITED) -> None:
        self._pool = ThreadPoolExecutor(_MOST, f"trails-{graph}")
        self._turns = _Turns(self._pool)
        self._admission = admission

    async def run(
        self,
        actor: str,
        work: Callable[..., T],
        *arguments: object,
        dropped: Callable[[], None] | None = None,
    ) -> T:
        """Run work for an actor; ``dropped`` is called if it was cancelled before it began.

        A thread can't be stopped: after a cancellation it counts until it ends.
        """
        begun = _Work(actor, partial(copy_context().run, work, *arguments))
        running = begun.future
        self._turns.add(begun)
        try:
            return cast(T, await asyncio.wrap_future(running))
        except asyncio.CancelledError:
            if not running.cancelled():
                slot = self._admission.hold(actor)
                running.add_done_callback(lambda _: slot.release())
            elif dropped is not None:
                dropped()
            raise

    def load(self) -> tuple[int, int]:
        """How many threads work, and how much work waits for one."""
        return self._turns.load()

    def close(self) -> None:
        """Wait for running work, cancel queued work, and stop the threads."""
        self._turns.drop()
        self._pool.shutdown(cancel_futures=True)
