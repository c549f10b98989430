"""The threads of one graph, so that a slow disk delays no other graph.

Actors take turns: the queued work of one actor does not delay that of others. A thread that has
nothing more to do waits a moment for new work, which is quicker than to begin in another one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, TypeVar, cast

from trails.request.admission import UNLIMITED, Admission, AdmissionSlot

T = TypeVar("T")
_MOST: Final = 64
_EACH: Final = 16
"""Threads that one actor can use at the same time; its other work is queued."""
_LINGER: Final = 0.2
"""Seconds that a thread waits for new work; a process that ends waits for it."""


class _Work:
    """A function to call, and the future of its result, which belongs to the event loop."""

    __slots__ = ("_claims", "_loop", "actor", "future", "has_ended", "is_dropped", "job", "slot")

    def __init__(self, actor: str, job: Callable[[], object]) -> None:
        self.actor = actor
        self.job = job
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[object] = self._loop.create_future()
        self.slot: AdmissionSlot | None = None
        """Held for work that goes on without its caller."""
        self.has_ended = self.is_dropped = False
        self._claims = [None]

    def claim(self) -> bool:
        """Whether it had not begun and was not dropped; then it is the caller's. Thread-safe."""
        try:
            self._claims.pop()
        except IndexError:
            return False
        return True

    def do(self) -> None:
        """Call it, unless it was dropped."""
        if not self.claim():
            return
        found, error = None, None
        try:
            found = self.job()
        except BaseException as raised:  # noqa: BLE001 - it is the waiter's
            error = raised
        self._tell(self._end, found, error)

    def _end(self, found: object, error: BaseException | None) -> None:
        self.has_ended = True
        if self.slot is not None:
            self.slot.release()
        if self.future.done():
            return
        if error is None:
            self.future.set_result(found)
        else:
            self.future.set_exception(error)

    def drop(self) -> None:
        """Cancel it, unless it has begun."""
        if self.claim():
            self.is_dropped = True
            self._tell(self.future.cancel)

    def _tell(self, what: Callable[..., object], *given: object) -> None:
        with suppress(RuntimeError):  # the event loop has ended, and the waiter with it
            self._loop.call_soon_threadsafe(what, *given)


class _Turns:
    """The queue of each actor."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._busy = 0
        self._running: dict[str, int] = {}
        self._waiting: OrderedDict[str, deque[_Work]] = OrderedDict()
        self._closed = False
        self._lingering = 0
        """Threads that wait for new work and have not been promised any."""
        self._new: SimpleQueue[_Work | None] = SimpleQueue()

    def add(self, work: _Work) -> None:
        """Start work now, or queue it for its actor."""
        actor = work.actor
        with self._lock:
            if actor in self._waiting or not self._room(actor):
                self._waiting.setdefault(actor, deque()).append(work)
                return
            self._begin(actor)
            if self._lingering:
                self._lingering -= 1
                self._new.put(work)
                return
        self._pool.submit(self._do, work)

    def _room(self, actor: str) -> bool:
        return self._running.get(actor, 0) < _EACH and self._busy < _MOST

    def _begin(self, actor: str) -> None:
        self._busy += 1
        self._running[actor] = self._running.get(actor, 0) + 1

    def _do(self, work: _Work | None) -> None:
        while work is not None:
            work.do()
            work = self._next(work.actor) or self._linger()

    def _next(self, actor: str) -> _Work | None:
        """The next work for a thread that has finished some of this actor."""
        with self._lock:
            self._busy -= 1
            left = self._running[actor] - 1
            if left:
                self._running[actor] = left
            else:
                del self._running[actor]
            following = next((each for each in self._waiting if self._room(each)), None)
            if following is None:
                if self._closed:
                    self._new.put(None)
                else:
                    self._lingering += 1
                return None
            queue = self._waiting[following]
            work = queue.popleft()
            if queue:
                self._waiting.move_to_end(following)
            else:
                del self._waiting[following]
            self._begin(following)
            return work

    def _linger(self) -> _Work | None:
        """New work that comes soon."""
        try:
            return self._new.get(timeout=_LINGER)
        except Empty:
            with self._lock:
                if self._lingering:
                    self._lingering -= 1
                    return None
            return self._new.get()  # it was promised just now

    def load(self) -> tuple[int, int]:
        """How many threads work, and how much work waits for one."""
        with self._lock:
            return self._busy, sum(map(len, self._waiting.values()))

    def drop(self) -> None:
        """Cancel all queued work, and let waiting threads end."""
        with self._lock:
            dropped = [work for queue in self._waiting.values() for work in queue]
            self._waiting.clear()
            self._closed = True
            idle, self._lingering = self._lingering, 0
            for _ in range(idle):
                self._new.put(None)
        for work in dropped:
            work.drop()


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
        self._turns.add(begun)
        try:
            return cast(T, await begun.future)
        except asyncio.CancelledError:
            if begun.is_dropped or begun.claim():
                if dropped is not None:
                    dropped()
            elif not begun.has_ended:
                begun.slot = self._admission.hold(actor)
            raise

    def load(self) -> tuple[int, int]:
        """How many threads work, and how much work waits for one."""
        return self._turns.load()

    def close(self) -> None:
        """Wait for running work, cancel queued work, and stop the threads."""
        self._turns.drop()
        self._pool.shutdown(cancel_futures=True)
