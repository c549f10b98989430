"""Fair use of shared resources: a queue, meters, and threads for large bodies.

``FairQueue``: requests of one actor wait in order and actors take turns, so an actor that
queues a hundred times delays the others by one place. ``Meter``: usage per name over the last
sixty seconds, counted by the second; a name that is idle for a minute costs no memory.
``LargeBodies``: large request bodies are parsed in a thread, one at a time per actor.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from threading import Lock
from time import monotonic
from typing import Final, TypeVar

import msgspec

ANYBODY: Final = ""
"""The name of what is done for no actor in particular."""


def _nobody(actor: str) -> bool:
    del actor
    return False


class FairQueue:
    """Some places, of which one actor may have a number at a time; safe in threads."""

    def __init__(
        self, places: int, per_actor: int = 0, is_heavy: Callable[[str], bool] = _nobody
    ) -> None:
        """``per_actor`` 0 is no limit.

        ``is_heavy`` says who has used much lately. All of those together may have every place
        but one, so that the others never wait behind them alone.
        """
        self._free = places
        self._per_actor = per_actor
        self._is_heavy = is_heavy
        self._for_heavy = max(1, places - 1)
        self._heavy: Counter[str] = Counter()
        """Places that were taken by those who had used much."""
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[threading.Lock]] = OrderedDict()

    def acquire(self, actor: str = ANYBODY, timeout: float = -1) -> bool:
        """Take a place, within so many seconds; below zero is for ever."""
        with self._lock:
            if self._free and actor not in self._waiting and self._may(actor):
                self._take(actor)
                return True
            if timeout == 0:
                return False
            gate = threading.Lock()
            gate.acquire()
            self._waiting.setdefault(actor, deque()).append(gate)
        if gate.acquire(timeout=timeout):
            return True
        with self._lock:
            queue = self._waiting.get(actor)
            if queue is None or gate not in queue:
                return True  # it was given the place at the last moment
            queue.remove(gate)
            if not queue:
                del self._waiting[actor]
            return False

    def has_others(self, actor: str) -> bool:
        """Whether somebody other than an actor waits."""
        with self._lock:
            return any(each != actor for each in self._waiting)

    def release(self, actor: str = ANYBODY) -> None:
        """Give a place back: to the next actor in turn that may have one."""
        with self._lock:
            self._free += 1
            for taken in (self._taken, self._heavy):
                if taken[actor] <= 1:
                    del taken[actor]
                else:
                    taken[actor] -= 1
            self._hand_out()

    def _may(self, actor: str) -> bool:
        if self._per_actor and self._taken[actor] >= self._per_actor:
            return False
        return self._heavy.total() < self._for_heavy or not self._is_heavy(actor)

    def _take(self, actor: str) -> None:
        self._free -= 1
        self._taken[actor] += 1
        if self._is_heavy(actor):
            self._heavy[actor] += 1

    def _hand_out(self) -> None:
        while self._free:
            actor = next((each for each in self._waiting if self._may(each)), None)
            if actor is None:
                return
            queue = self._waiting[actor]
            gate = queue.popleft()
            if queue:
                self._waiting.move_to_end(actor)
            else:
                del self._waiting[actor]
            self._take(actor)
            gate.release()


Clock = Callable[[], float]
"""Seconds that only go forward."""
_MINUTE: Final = 60
_FEW: Final = 1024
"""Names that are kept without looking for those that rest."""


class Excess(msgspec.Struct, frozen=True):
    """A limit that is reached."""

    used: float
    retry_after: int
    """Seconds after which there is more."""


class _Minute:
    """What one name used, by the second."""

    __slots__ = ("_parts", "total")

    def __init__(self) -> None:
        self._parts: deque[tuple[int, float]] = deque()
        self.total = 0.0

    def add(self, now: float, amount: float) -> None:
        second, parts = int(now), self._parts
        if parts and parts[-1][0] == second:
            parts[-1] = (second, parts[-1][1] + amount)
        else:
            self.forget(now)
            parts.append((second, amount))
        self.total += amount

    def forget(self, now: float) -> None:
        """Drop what is over a minute old."""
        parts, gone = self._parts, int(now) - _MINUTE
        while parts and parts[0][0] < gone:
            self.total -= parts.popleft()[1]
        if not parts:
            self.total = 0.0  # what rounding has left

    def wait(self, now: float, limit: float) -> int:
        """Seconds until less than the limit is used."""
        left = self.total
        for second, amount in self._parts:
            left -= amount
            if left < limit:
                return max(1, ceil(second + 1 + _MINUTE - now))
        return _MINUTE


class Meter:
    """What every name used of one thing, and whether that is too much; safe in threads."""

    def __init__(self, limit: float, clock: Clock = monotonic) -> None:
        """``limit`` is what a name may use in a minute; 0 is no limit, and nothing is kept."""
        self.limit = limit
        self._clock = clock
        self._minutes: dict[str, _Minute] = {}
        self._lock = threading.Lock()
        self._crowd = _FEW

    def __len__(self) -> int:
        """How many names something is kept of."""
        return len(self._minutes)

    def excess(self, name: str) -> Excess | None:
        """Whether a name has used up what it may use."""
        if not self.limit:
            return None
        with self._lock:
            return self._excess(name, self._clock())

    def add(self, name: str, amount: float) -> None:
        """Count what was used."""
        if self.limit and amount > 0:
            with self._lock:
                self._add(name, self._clock(), amount)

    def take(self, name: str) -> Excess | None:
        """Use one, unless that is too much: then nothing is counted."""
        if not self.limit:
            return None
        with self._lock:
            now = self._clock()
            over = self._excess(name, now)
            if over is None:
                self._add(name, now, 1)
        return over

    def _excess(self, name: str, now: float) -> Excess | None:
        minute = self._minutes.get(name)
        if minute is None:
            return None
        minute.forget(now)
        if minute.total < self.limit:
            return None
        return Excess(minute.total, minute.wait(now, self.limit))

    def _add(self, name: str, now: float, amount: float) -> None:
        minute = self._minutes.get(name)
        if minute is None:
            if len(self._minutes) >= self._crowd:
                self._sweep(now)
            minute = self._minutes[name] = _Minute()
        minute.add(now, amount)

    def _sweep(self, now: float) -> None:
        """Let go of names that rest; seldom, so that it costs each call next to nothing."""
        for minute in self._minutes.values():
            minute.forget(now)
        self._minutes = {name: each for name, each in self._minutes.items() if each.total}
        self._crowd = max(_FEW, 2 * len(self._minutes))


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
