"""Coroutines that are begun before anybody waits for them.

Most calls and most bodies are ready at once. Beginning a coroutine by hand tells so, and
what waiting needs (a watcher, a deadline) is set up for the others alone. The coroutine
stays in the task that began it, so that timeouts and cancellation inside it mean what
they say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator
from types import coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Begun(Generic[T]):
    """A coroutine after its first step."""

    __slots__ = ("_waits_for", "_work", "done", "value")

    value: T
    """What it gave, once it is done."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        try:
            self._waits_for = work.send(None)
        except StopIteration as end:
            self.done = True
            self.value = end.value
        else:
            self.done = False
            self._work = work

    def rest(self) -> Awaitable[T]:
        """Wait for what is left; must be awaited next in the same task."""
        return _go_on(self._work, self._waits_for)


@coroutine
def _go_on(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:  # noqa: ANN401 -- whatever the event loop takes
    """Hand on what a coroutine waits for, and what it is given."""
    while True:
        try:
            given = yield waits_for
        except BaseException as error:  # noqa: BLE001 -- it is the coroutine's
            try:
                waits_for = work.throw(error)
            except StopIteration as end:
                value: T = end.value
                return value
        else:
            try:
                waits_for = work.send(given)
            except StopIteration as end:
                value = end.value
                return value
