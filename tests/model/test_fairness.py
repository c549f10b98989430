"""A queue in which actors take turns."""

from __future__ import annotations

import threading

from tests.worlds.processes import wait_until

from trails.model.fairness import FairQueue


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
