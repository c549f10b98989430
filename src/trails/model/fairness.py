"""Fair use of shared resources: a queue, meters, pauses of long work, threads for large bodies.

``FairQueue``: requests of one actor wait in order and actors take turns, so an actor that
queues a hundred times delays the others by one place. ``Meter``: usage per name over the last
sixty seconds, counted by the second; a name that is idle for a minute costs no memory.
``give_way``: long work pauses while short work is under way, because Python runs one thread at a
time. ``LargeBodies``: large request bodies are parsed in a thread, one at a time per actor.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from math import ceil, inf
from threading import Lock
from time import monotonic, sleep
from typing import Final, TypeVar

import msgspec

from trails.errors import LimitError

NO_ACTOR: Final = ""
"""The name for work that belongs to no actor."""


def _no_actor(actor: str) -> bool:
    del actor
    return False


class FairQueue:
    """A number of slots, limited per actor. Thread-safe."""

    def __init__(
        self, places: int, per_actor: int = 0, is_heavy: Callable[[str], bool] = _no_actor
    ) -> None:
        """``per_actor``: slots per actor; 0 means no limit.

        ``is_heavy``: whether an actor has used much lately. Heavy actors together may take all
        slots but one, so that the others do not wait only for them.
        """
        self._free = places
        self._per_actor = per_actor
        self._is_heavy = is_heavy
        self._for_heavy = max(1, places - 1)
        self._heavy: dict[str, int] = {}
        """Slots taken by heavy actors."""
        self._lock = threading.Lock()
        self._taken: dict[str, int] = {}
        self._waiting: OrderedDict[str, deque[threading.Lock]] = OrderedDict()

    def acquire(self, actor: str = NO_ACTOR, timeout: float = -1) -> bool:
        """Take a slot within ``timeout`` seconds; negative: wait without limit."""
        with self._lock:
            if self._free and actor not in self._waiting and self._may(actor):
                self._take(actor)
                return True
            if timeout == 0:
                return False
            gate = threading.Lock()
            gate.acquire()
            self._waiting.setdefault(actor, deque()).append(gate)
        try:
            if gate.acquire(timeout=timeout):
                return True
        except BaseException:  # an interrupt: nobody is there to take the slot
            if not self._withdraw(actor, gate):
                self.release(actor)
            raise
        return not self._withdraw(actor, gate)

    def _withdraw(self, actor: str, gate: threading.Lock) -> bool:
        """Wait no longer; False if the slot was handed over just before."""
        with self._lock:
            queue = self._waiting.get(actor)
            if queue is None or gate not in queue:
                return False
            queue.remove(gate)
            if not queue:
                del self._waiting[actor]
            return True

    @property
    def used(self) -> int:
        """Slots that are taken."""
        with self._lock:
            return sum(self._taken.values())

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def has_others(self, actor: str) -> bool:
        """Whether another actor is waiting."""
        with self._lock:
            return any(each != actor for each in self._waiting)

    def release(self, actor: str = NO_ACTOR) -> None:
        """Release a slot, to the next actor in turn that may have one."""
        with self._lock:
            self._release(actor)

    def hand_over(self, actor: str = NO_ACTOR) -> bool:
        """Release a slot if somebody waits for one and gets it; False if it is kept."""
        with self._lock:
            if not self._waiting:
                return False
            free = self._free
            self._release(actor)
            if self._free <= free:
                return True
            self._take(actor)  # those who wait may have no more of them
            return False

    def _release(self, actor: str) -> None:
        self._free += 1
        _count_down(self._taken, actor)
        if self._heavy:
            _count_down(self._heavy, actor)
        if self._waiting:
            self._hand_out()

    def _may(self, actor: str) -> bool:
        if self._per_actor and self._taken.get(actor, 0) >= self._per_actor:
            return False
        if not self._heavy:
            return True  # any actor may have the first place
        return sum(self._heavy.values()) < self._for_heavy or not self._is_heavy(actor)

    def _take(self, actor: str) -> None:
        self._free -= 1
        self._taken[actor] = self._taken.get(actor, 0) + 1
        if self._is_heavy(actor):
            self._heavy[actor] = self._heavy.get(actor, 0) + 1

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


def _count_down(counts: dict[str, int], name: str) -> None:
    """Count one less; a name without any is forgotten."""
    count = counts.get(name, 0)
    if count > 1:
        counts[name] = count - 1
    elif count:
        del counts[name]


Clock = Callable[[], float]
"""A monotonic clock, in seconds."""
_MINUTE: Final = 60
_FEW: Final = 1024
"""Up to this many names, idle ones are not searched for."""


class Excess(msgspec.Struct, frozen=True):
    """A limit that was reached."""

    used: float
    retry_after: int
    """Seconds until the next request can succeed."""


class _Minute:
    """The usage of one name, by the second."""

    __slots__ = ("_parts", "total")

    def __init__(self) -> None:
        self._parts: deque[list[float]] = deque()
        """Pairs of a second and the usage in it."""
        self.total = 0.0

    def add(self, now: float, amount: float) -> None:
        second, parts = int(now), self._parts
        if parts and parts[-1][0] == second:
            parts[-1][1] += amount
        else:
            self.forget(now)
            parts.append([second, amount])
        self.total += amount

    def take(self, now: float, limit: float) -> bool:
        """Add one use in a second that has some; False if that has to be looked at closely."""
        if self.total >= limit or not self._parts or self._parts[-1][0] != int(now):
            return False
        self._parts[-1][1] += 1
        self.total += 1
        return True

    def forget(self, now: float) -> None:
        """Drop usage older than a minute."""
        parts, gone = self._parts, int(now) - _MINUTE
        while parts and parts[0][0] < gone:
            self.total -= parts.popleft()[1]
        if not parts:
            self.total = 0.0  # the rest is rounding error

    def wait(self, now: float, limit: float) -> int:
        """Seconds until usage falls below the limit."""
        left = self.total
        for second, amount in self._parts:
            left -= amount
            if left < limit:
                return max(1, ceil(second + 1 + _MINUTE - now))
        return _MINUTE


class Meter:
    """Usage per name in the last minute, against a limit. Thread-safe."""

    def __init__(self, limit: float, clock: Clock = monotonic) -> None:
        """``limit``: allowed usage per name and minute; 0: no limit, and nothing is recorded."""
        self.limit = limit
        self._clock = clock
        self._minutes: dict[str, _Minute] = {}
        self._lock = threading.Lock()
        self._crowd = _FEW

    def __len__(self) -> int:
        """The number of names with recorded usage."""
        return len(self._minutes)

    def excess(self, name: str) -> Excess | None:
        """The excess of a name that has reached the limit, or None."""
        if not self.limit:
            return None
        with self._lock:
            return self._excess(name, self._clock())

    def add(self, name: str, amount: float) -> None:
        """Record usage."""
        if self.limit and amount > 0:
            with self._lock:
                self._add(name, self._clock(), amount)

    def take(self, name: str) -> Excess | None:
        """Record one use, unless the limit is reached."""
        if not self.limit:
            return None
        with self._lock:
            now = self._clock()
            minute = self._minutes.get(name)
            if minute is not None and minute.take(now, self.limit):
                return None
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
        """Drop idle names; done rarely, so the cost per call is negligible."""
        for minute in self._minutes.values():
            minute.forget(now)
        self._minutes = {name: each for name, each in self._minutes.items() if each.total}
        self._crowd = max(_FEW, 2 * len(self._minutes))


T = TypeVar("T")
_SHORT: Final = 0.05
"""Seconds for which a request counts as short work."""
_GRACE: Final = 0.003
"""Seconds that any request may take before it gives way."""
_SLICE: Final = 0.001
"""Seconds of long work between two pauses."""
_SHARE: Final = 4
"""How much longer a pause is: beside short work, long work gets a fifth of the time."""
_MIB: Final = 1 << 20
_PAUSE: Final = _SLICE * _SHARE
"""Seconds of a pause while a request is read."""


class WorkInProgress:
    """A request, or long work that belongs to no request; the current one of its context."""

    __slots__ = ("begun", "due", "resumed")

    begun: float
    due: float
    """When it pauses next, if short work is under way then."""
    resumed: float
    """When the last pause ended, or its grace."""

    def __init__(self, *, is_long: bool = False) -> None:
        self.begun = monotonic()
        self.due = self.resumed = self.begun + _GRACE
        if is_long:
            self.due = self.resumed = self.begun
            self.begun -= _SHORT
        _all_work[self] = None
        _current_work.set(self)

    def end(self) -> None:
        """The work has ended; does no harm if called again."""
        _all_work.pop(self, None)


@contextmanager
def short_work() -> Iterator[None]:
    """Let long work give way to this block; inside a request or long work nothing changes."""
    if _current_work.get() is not None:
        yield
        return
    work = WorkInProgress()
    try:
        yield
    finally:
        work.end()
        _current_work.set(None)


_all_work: Final[dict[WorkInProgress, None]] = {}
_current_work: ContextVar[WorkInProgress | None] = ContextVar("trails_work", default=None)


def give_way() -> None:
    """Pause if this is long work and short work is under way.

    Called between small steps of work that can take long. A thread that computes makes every
    other wait for the interpreter, some forty times in one small write.
    """
    work = _current_work.get()
    if work is None:
        return
    now = monotonic()
    if now < work.due:
        return
    if _is_short_work_beside(work, now):
        sleep(min(_SHORT, _SHARE * (now - work.resumed)))
        now = monotonic()
    work.resumed = now
    work.due = now + _SLICE


async def give_way_after(size: int, block: int) -> None:
    """Pause the reading of a request after every MiB of it, if short work is under way.

    ``size`` is how much was read, and ``block`` how much of that just now. Reading makes the event
    loop as busy as a sender likes.
    """
    if size // _MIB != (size - block) // _MIB and _is_short_work_beside(
        _current_work.get(), monotonic()
    ):
        await asyncio.sleep(_PAUSE)


async def give_way_to_writes() -> None:
    """Let a short write that is under way go on for a moment before a read begins.

    It holds the writer's lock and needs the interpreter some forty times, and each time it would
    wait for a caller that reads without a pause.
    """
    recent = monotonic() - _SHORT
    if any(each.due == inf and each.begun > recent for each in tuple(_all_work)):
        await asyncio.sleep(_SLICE)


def _is_short_work_beside(work: WorkInProgress | None, now: float) -> bool:
    recent = now - _SHORT
    return any(each.begun > recent and each is not work for each in tuple(_all_work))


class ReadDeadline(msgspec.Struct, frozen=True):
    """Until when reads may take, and how many seconds that was."""

    at: float
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return monotonic() > self.at

    @property
    def error(self) -> LimitError:
        """What to do instead."""
        return LimitError(
            f"the selection was stopped after {self.seconds:g} s; narrow it by a condition "
            "on one field with an exact value, or raise '[sandbox] seconds' in trails.toml",
            limit="seconds",
            value=self.seconds,
        )


_deadline: ContextVar[ReadDeadline | None] = ContextVar("trails_deadline", default=None)
_ROWS: Final = 256
"""Rows after which a bounded read looks at the clock."""


@contextmanager
def reading_within(seconds: float) -> Iterator[None]:
    """Stop reads in the block that take longer; they also give way to short work."""
    token = _deadline.set(ReadDeadline(monotonic() + seconds, seconds))
    try:
        yield
    finally:
        _deadline.reset(token)


def read_deadline() -> ReadDeadline | None:
    """Until when reads here may take."""
    return _deadline.get()


def paced(read: Callable[[str, bytes], T]) -> Callable[[str, bytes], T]:
    """The same read of a row, which looks at the clock now and then if reads are bounded here."""
    bound = _deadline.get()
    if bound is None:
        return read
    count = 0

    def read_in_time(handle: str, row: bytes) -> T:
        nonlocal count
        count += 1
        if count % _ROWS == 0:
            give_way()
            if bound.passed:
                raise bound.error
        return read(handle, row)

    return read_in_time


def with_pauses(items: Iterable[T]) -> Iterator[T]:
    """The same items; long work gives way between them."""
    for item in items:
        give_way()
        yield item


@contextmanager
def without_pauses() -> Iterator[None]:
    """Do not give way in this block: others wait for what is held here."""
    work = _current_work.get()
    if work is None:
        yield
        return
    due, work.due = work.due, inf
    try:
        yield
    finally:
        work.due = due


LARGE: Final = 256 << 10
"""Bytes above which a body is not parsed on the event loop."""
_MANY: Final = 4096
"""Arrays and objects above which a body counts as large."""
_THREADS: Final = 2


def is_large(body: bytes | bytearray) -> bool:
    """Whether parsing a body on the event loop would delay other requests noticeably."""
    size = len(body)
    return size > LARGE or (size > 2 * _MANY and body.count(b"[") + body.count(b"{") > _MANY)


class LargeBodies:
    """Parses large bodies in threads, one at a time per actor."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "trails-bodies")
        self._turns: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting calls by actor; an actor has an entry while one of its bodies is parsed."""

    async def run(self, actor: str, work: Callable[..., T], *arguments: object) -> T:
        """Run ``work`` in a thread when it is the actor's turn.

        A thread can't be stopped: if the caller is cancelled, the turn lasts until the work ends.
        """
        await self._begin(actor)
        loop = asyncio.get_running_loop()
        running = self._pool.submit(_uncollected, work, *arguments)
        try:
            found = await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            running.add_done_callback(lambda _: loop.call_soon_threadsafe(self._end, actor))
            raise
        except BaseException:  # whatever the work raised: the turn ends, the caller gets it
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
                self._end(actor)  # the turn was handed over, but the caller is gone
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
_running: Final[list[bool]] = []


@contextmanager
def without_collections() -> Iterator[None]:
    """Keep the garbage collector off in a block that makes many values without cycles.

    Collections while thousands of them are made would take most of the time, look at every other
    object of the process, find nothing, and block every thread.
    """
    with _collecting:
        _running.append(gc.isenabled() if not _running else _running[0])
        gc.disable()
    try:
        yield
    finally:
        with _collecting:
            was_enabled = _running.pop()
            if was_enabled and not _running:
                gc.enable()


def _uncollected(work: Callable[..., T], *arguments: object) -> T:
    """Run ``work`` as long work, with the garbage collector off: JSON values have no cycles."""
    progress = WorkInProgress(is_long=True)
    try:
        with without_collections():
            return work(*arguments)
    finally:
        progress.end()
