"""The feed: which nodes of which branch changed, told once the change can be read.

A writer hands a ``Change`` to the listeners after its head has become visible. A listener
takes a note and wakes somebody; it never works, waits or fails on the writer's thread.
Whoever is told may be told too much, never too little.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from trails.model.types import Schema

MANY: Final = 2_000
"""Above so many nodes a change names their types only."""

_log = logging.getLogger(__name__)


class Change(msgspec.Struct, frozen=True):
    """What a new head of a branch differs in from the one before."""

    branch: str
    handles: frozenset[str] | None = None
    """The nodes that were made, changed or deleted; None where they are too many."""
    types: frozenset[str] | None = None
    """Their types and what these extend; None where it may be any type."""


Listener = Callable[[Change], None]


class Feed:
    """Hands the changes of one graph to its listeners; without any, nothing is collected."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Listener, ...] = ()

    @property
    def listened(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with every change from now on; the returned function stops that.

        It is called on the thread of whoever wrote.
        """
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def stop() -> None:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not listener)

        return stop

    def tell(self, change: Change) -> None:
        """Hand a change on; what a listener does wrong is not the writer's concern."""
        for listener in self._listeners:
            try:
                listener(change)
            except Exception:  # noqa: BLE001 - it must never reach a writer
                _log.exception("a listener of the feed failed")


class Tally:
    """The nodes that a write touches: by handle while they are few, their types always."""

    __slots__ = ("_handles", "_types")

    def __init__(self) -> None:
        self._handles: set[str] | None = set()
        self._types: set[str] = set()

    def add(self, handles: Iterable[str]) -> None:
        """Count these nodes in."""
        named = list(handles)
        self._types.update(handle.partition("/")[0] for handle in named)
        if self._handles is not None:
            self._handles.update(named)
            if len(self._handles) > MANY:
                self._handles = None

    def change(self, branch: str, schema: Schema) -> Change:
        """What these nodes are a change of."""
        types = frozenset(each for name in self._types for each in schema.lineage(name))
        handles = None if self._handles is None else frozenset(self._handles)
        return Change(branch, handles, types)
