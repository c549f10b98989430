"""A queue in which actors take turns, and long work that gives way."""

from __future__ import annotations

import asyncio
import threading
from contextvars import Context, copy_context
from functools import partial
from time import sleep

import pytest
from tests.worlds.processes import wait_until

from trails.model import fairness
from trails.model.fairness import FairQueue, WorkInProgress


class Crowd:
    """Threads that wait for a place, and the order in which they got one."""

    def __init__(self, queue: FairQueue) -> None:
        self.queue = queue
        self.served: list[str] = []
        self.threads: list[threading.Thread] = []

    def join(self, actor: str) -> None:
        """One more waits, behind those that do already."""
        before = self._waiting()
        thread = threading.Thread(target=self._wait, args=(actor,))
        thread.start()
        self.threads.append(thread)
        wait_until(lambda: self._waiting() > before)

    def _waiting(self) -> int:
        return sum(map(len, self.queue._waiting.values()))

    def _wait(self, actor: str) -> None:
        assert self.queue.acquire(actor)
        self.served.append(actor)
        self.queue.release(actor)

    def serve(self) -> list[str]:
        """Who was served, in order."""
        for thread in self.threads:
            thread.join()
        return self.served


def test_actors_take_turns() -> None:
    """One that queues often delays the others by one place."""
    queue = FairQueue(1)
    assert queue.acquire("ann")
    crowd = Crowd(queue)
    for actor in ("ann", "ann", "ann", "bob", "bob", "cid"):
        crowd.join(actor)
    queue.release("ann")
    assert crowd.serve() == ["ann", "bob", "cid", "ann", "bob", "ann"]


def test_one_actor_has_so_many_places() -> None:
    """Its next one waits although a place is free, which another actor gets."""
    queue = FairQueue(3, per_actor=2)
    assert queue.acquire("ann", 0)
    assert queue.acquire("ann", 0)
    assert not queue.acquire("ann", 0)
    assert not queue.acquire("ann", 0.01)
    assert queue.acquire("bob", 0)
    assert not queue.acquire("cid", 0)
    queue.release("ann")
    assert queue.acquire("cid", 0)


def test_who_gives_up_leaves_no_trace() -> None:
    """The place goes to the next one."""
    queue = FairQueue(1)
    assert queue.acquire("ann")
    assert not queue.acquire("bob", 0.01)
    queue.release("ann")
    assert not queue._waiting
    assert not queue._taken
    assert queue.acquire("bob", 0)


def test_those_who_used_much_leave_a_place() -> None:
    """Together they have every place but one; where there is one place only, they may have it."""
    queue = FairQueue(2, is_heavy={"eve", "mal"}.__contains__)
    assert queue.acquire("eve", 0)
    assert not queue.acquire("mal", 0)
    assert queue.acquire("ann", 0)
    queue.release("ann")
    assert not queue.acquire("mal", 0.01)
    queue.release("eve")
    assert queue.acquire("mal", 0)
    assert FairQueue(1, is_heavy={"eve"}.__contains__).acquire("eve", 0)


class Clock:
    """The time of ``fairness``, which goes on when it is told to, and by sleeping."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []
        monkeypatch.setattr(fairness, "monotonic", lambda: self.now)
        monkeypatch.setattr(fairness, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        """Time goes on."""
        self.pauses.append(seconds)
        self.now += seconds

    def work(self, seconds: float) -> None:
        """Time goes on in work, which gives way after it."""
        self.now += seconds
        fairness.give_way()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock, and no work that is left over."""
    monkeypatch.setattr(fairness, "_all_work", {})
    return Clock(monkeypatch)


def test_long_work_gives_way_to_short_work(clock: Clock) -> None:
    """It gets a fifth of the time while there is short work, and all of it otherwise."""
    short = copy_context().run(WorkInProgress)
    WorkInProgress(is_long=True)
    clock.work(0.001)
    clock.work(0.0005)
    clock.work(0.0005)
    clock.work(0.005)
    assert clock.pauses == pytest.approx([0.004, 0.004, 0.02])
    short.end()
    clock.work(0.5)
    assert len(clock.pauses) == 3


def test_a_pause_has_an_end(clock: Clock) -> None:
    """However long the work was that could not pause."""
    WorkInProgress(is_long=True)
    clock.now += 10
    copy_context().run(WorkInProgress)
    fairness.give_way()
    assert clock.pauses == [0.05]


def test_who_does_not_give_way(clock: Clock) -> None:
    """Short work, work beside long work alone, and work that holds what others wait for."""
    copy_context().run(lambda: WorkInProgress(is_long=True))
    mine = WorkInProgress()
    clock.work(0.002)
    assert clock.pauses == []
    clock.now += 1
    clock.work(0.001)
    assert clock.pauses == []
    copy_context().run(WorkInProgress)
    with fairness.without_pauses():
        clock.work(0.001)
    assert clock.pauses == []
    clock.work(0.001)
    assert len(clock.pauses) == 1
    mine.end()


def test_work_that_belongs_to_no_request_does_not_pause(clock: Clock) -> None:
    """A program's own, for example."""
    copy_context().run(WorkInProgress)
    Context().run(clock.work, 10.0)
    assert clock.pauses == []


def test_reading_a_request_gives_way(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every MiB, beside short work of others."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(fairness.asyncio, "sleep", sleep)
    mib = 1 << 20

    async def read(sizes: list[int]) -> None:
        size = 0
        for each in sizes:
            size += each
            await fairness.give_way_after(size, each)

    own = WorkInProgress()
    asyncio.run(read([mib, mib]))
    assert waited == []
    copy_context().run(WorkInProgress)
    asyncio.run(read([mib // 2] * 5))
    assert len(waited) == 2
    own.end()


def test_a_read_lets_a_short_write_go_on(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a moment; not one that takes long, and not one that has ended."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(fairness.asyncio, "sleep", sleep)
    write = WorkInProgress()
    asyncio.run(fairness.give_way_to_writes())
    assert waited == []
    with fairness.without_pauses():
        asyncio.run(fairness.give_way_to_writes())
        assert len(waited) == 1
        clock.now += 1
        asyncio.run(fairness.give_way_to_writes())
    asyncio.run(fairness.give_way_to_writes())
    assert len(waited) == 1
    write.end()


def test_a_slot_is_handed_over_only_to_somebody_who_takes_it():
    """Who keeps it is told so."""
    queue = FairQueue(1)
    assert queue.acquire("ann")
    assert not queue.hand_over("ann")
    assert queue.used == 1
    got = threading.Event()
    waiter = threading.Thread(target=lambda: queue.acquire("bob") and got.set())
    waiter.start()
    while not queue.waiting:
        sleep(0.001)
    assert queue.hand_over("ann")
    waiter.join(10)
    assert got.is_set()
    assert (queue.used, queue.waiting) == (1, 0)
    limited = FairQueue(2, per_actor=1)
    assert limited.acquire("ann")
    waiter = threading.Thread(target=lambda: limited.acquire("ann", timeout=0.2))
    waiter.start()
    while not limited.waiting:
        sleep(0.001)
    assert limited.acquire("bob")
    assert not limited.hand_over("bob")  # the one who waits may not have another
    waiter.join(10)
    assert limited.used == 2


class _InterruptedLock:
    """A lock whose second acquiring is interrupted, after ``before``."""

    def __init__(self, before):
        self._before = before
        self._acquired = False

    def acquire(self, timeout=-1):
        """Be interrupted."""
        if self._acquired:
            self._before()
            raise KeyboardInterrupt
        self._acquired = True
        return True

    def release(self):
        """As locks have it."""


@pytest.mark.parametrize("handed", [False, True])
def test_an_interrupted_waiter_holds_nothing(monkeypatch, handed):
    """Whether the slot was its own by then or not, the next one gets it."""
    queue = FairQueue(1)
    assert queue.acquire("ann")
    before = partial(queue.release, "ann") if handed else lambda: None
    with monkeypatch.context() as patch:
        patch.setattr("trails.model.fairness.threading.Lock", lambda: _InterruptedLock(before))
        with pytest.raises(KeyboardInterrupt):
            queue.acquire("bob")
    assert queue.waiting == 0
    if not handed:
        queue.release("ann")
    assert queue.used == 0
    assert queue.acquire("eve", timeout=0)
