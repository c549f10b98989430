"""A queue for a few places, in which actors take turns.

Requests of one actor wait in the order of their arrival, and actors are served in turn: one that
queues a hundred times delays the others by one place, not by a hundred.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Final

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
