"""Admission: whether an actor may begin another call, by what it has under way and did lately.

Asked once it is known that the actor may make the call at all, so that what an actor can't
see costs it nothing and tells it nothing. One for each graph, and one account for each
name, whatever credentials it comes with. Safe in threads.
"""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic
from typing import Final

import msgspec

from trails.errors import BudgetError
from trails.model.actors import OPERATOR, Actor
from trails.model.meters import Clock, Meter
from trails.model.outcomes import Failure
from trails.request.failures import failure_of

_SOON: Final = 1
"""Seconds after which a call that is under way may have ended."""


class Budget(msgspec.Struct, frozen=True):
    """What one actor may use of a graph; 0 is no limit."""

    in_flight: int = 0
    """Of those with a credential: without one, all callers have the same name."""
    calls_per_minute: int = 0


class Admission:
    """The accounts of all actors of one graph."""

    def __init__(self, budget: Budget, clock: Clock = monotonic) -> None:
        self._most = budget.in_flight
        self._calls = Meter(budget.calls_per_minute, clock)
        self._running: dict[str, int] = {}
        self._abandoned: deque[str] = deque()
        self._lock = threading.Lock()

    def refuse(self, actor: Actor) -> Failure | None:
        """Why an actor may not begin a call now; None when it may and has, until ``leave``."""
        name, credential = actor.name, actor.credential
        most = self._most if credential else 0
        with self._lock:
            self._collect()
            running = self._running.get(name, 0)
            if credential == OPERATOR.credential:  # whoever has the machine is not kept out
                self._running[name] = running + 1
                return None
            full = 0 < most <= running
            over = None if full else self._calls.take(name)
            if not full and over is None:
                self._running[name] = running + 1
                return None
        if over is None:
            return _failure(
                f"{name} has {running} calls under way, and {most} are allowed at the same time; "
                "wait for one to end, then try again",
                limit="in_flight",
                allowed=most,
                used=running,
                retry_after=_SOON,
            )
        allowed, used = int(self._calls.limit), int(over.used)
        return _failure(
            f"{name} has made {used} calls within a minute, and {allowed} are allowed; try again "
            f"in {over.retry_after} s",
            limit="calls_per_minute",
            allowed=allowed,
            used=used,
            retry_after=over.retry_after,
        )

    def leave(self, name: str) -> None:
        """A call of an actor has ended, however it did."""
        with self._lock:
            self._end(name)

    def hold(self, name: str) -> Slot:
        """Keep a place for a call that goes on after its answer; it was admitted before."""
        with self._lock:
            self._running[name] = self._running.get(name, 0) + 1
        return Slot(self, name)

    def abandon(self, name: str) -> None:
        """A call has ended that nobody told of; safe where the lock is held already."""
        self._abandoned.append(name)

    def running(self, name: str) -> int:
        """How many calls an actor has under way."""
        with self._lock:
            self._collect()
            return self._running.get(name, 0)

    def _collect(self) -> None:
        while self._abandoned:
            self._end(self._abandoned.popleft())

    def _end(self, name: str) -> None:
        left = self._running[name] - 1
        if left:
            self._running[name] = left
        else:
            del self._running[name]


class Slot:
    """The place of a call that goes on after its answer: of a file that is sent, of a thread.

    Given back once: when told so or, at the latest, when nobody has it any more.
    """

    __slots__ = ("_admission", "_held", "_name")

    def __init__(self, admission: Admission, name: str) -> None:
        self._admission = admission
        self._name = name
        self._held = True

    def release(self) -> None:
        """Give it back."""
        if self._held:
            self._held = False
            self._admission.leave(self._name)

    def __del__(self) -> None:
        """Whoever had it is gone: a stream, for example, that nobody began to read."""
        if self._held:
            self._admission.abandon(self._name)


UNLIMITED: Final = Admission(Budget())
"""Where nothing is counted."""


def _failure(message: str, **data: object) -> Failure:
    return failure_of(BudgetError(message, **data), "")
