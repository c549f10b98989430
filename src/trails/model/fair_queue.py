"""A queue for a few places, in which actors take turns.

Whoever waits gets a place in the order of arrival among its own, and actors are served in
turn: one that queues a hundred times delays the others by one place, not by a hundred.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from typing import Final

ANYBODY: Final = ""
"""The name of what is done for no actor in particular."""


class FairQueue:
    """Some places, of which one actor may have a number at a time; safe in threads."""

    def __init__(self, places: int, per_actor: int = 0) -> None:
        """``per_actor`` 0 is no limit."""
        self._free = places
        self._per_actor = per_actor
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[threading.Lock]] = OrderedDict()

    def acquire(self, actor: str = ANYBODY, timeout: float = -1) -> bool:
        """Take a place, within so many seconds; below zero is for ever."""
        with self._lock:
            if self._free and actor not in self._waiting and self._may(actor):
                self._free -= 1
                self._taken[actor] += 1
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

    def release(self, actor: str = ANYBODY) -> None:
        """Give a place back: to the next actor in turn that may have one."""
        with self._lock:
            self._free += 1
            self._taken[actor] -= 1
            if not self._taken[actor]:
                del self._taken[actor]
            self._hand_out()

    def _may(self, actor: str) -> bool:
        return not self._per_actor or self._taken[actor] < self._per_actor

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
            self._free -= 1
            self._taken[actor] += 1
            gate.release()
