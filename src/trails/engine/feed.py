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

from trails.engine.traces import Traces
from trails.model.facets import facets_between
from trails.model.nodes import NodeState
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
    traces: Traces | None = None
    """What changed, for those who do not see everything; None where nobody asked."""
    turn: tuple[str | None, str | None] | None = None
    """The schemas before and after where they differ; None for a branch that is not there."""


Listener = Callable[[Change], None]
Asks = Callable[[str], bool]
"""Whether a listener has to know what exactly changes on a branch."""


def _never(branch: str) -> bool:
    del branch
    return False


class Feed:
    """Hands the changes of one graph to its listeners; without any, nothing is collected."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[tuple[Listener, Asks], ...] = ()

    @property
    def listened(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    def traced(self, branch: str) -> bool:
        """Whether somebody listens who does not see everything on a branch."""
        return any(asks(branch) for _, asks in self._listeners)

    def listen(self, listener: Listener, asks: Asks = _never) -> Callable[[], None]:
        """Call ``listener`` with every change from now on; the returned function stops that.

        It is called on the thread of whoever wrote.
        """
        entry = listener, asks
        with self._lock:
            self._listeners = (*self._listeners, entry)

        def stop() -> None:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not entry)

        return stop

    def tell(self, change: Change) -> None:
        """Hand a change on; what a listener does wrong is not the writer's concern."""
        for listener, _ in self._listeners:
            try:
                listener(change)
            except Exception:  # noqa: BLE001 - it must never reach a writer
                _log.exception("a listener of the feed failed")


class Tally:
    """The nodes that a write touches: by handle while they are few, their types always."""

    __slots__ = ("_handles", "_types", "everything", "traces")

    def __init__(self, *, traced: bool = False) -> None:
        """``traced``: what exactly changes is counted too."""
        self._handles: set[str] | None = set()
        self._types: set[str] = set()
        self.traces = Traces() if traced else None
        self.everything = False
        """Whether any node may be seen differently, counted or not."""

    def add(self, handles: Iterable[str]) -> None:
        """Count these nodes in."""
        named = list(handles)
        self._types.update(handle.partition("/")[0] for handle in named)
        if self._handles is not None:
            self._handles.update(named)
            if len(self._handles) > MANY:
                self._handles = None

    def compare(
        self, schema: Schema, changes: Iterable[tuple[str, NodeState | None, NodeState | None]]
    ) -> None:
        """Count nodes in, each as it was and as it is."""
        traces = self.traces
        if traces is None:
            self.add(handle for handle, _, _ in changes)
            return
        for handle, before, after in changes:
            self.add((handle,))
            for facet in facets_between(schema, before, after):
                traces.add(facet, handle)

    def change(self, branch: str, schema: Schema) -> Change:
        """What these nodes are a change of."""
        if self.everything:
            return Change(branch, traces=self.traces)
        types = frozenset(each for name in self._types for each in schema.lineage(name))
        handles = None if self._handles is None else frozenset(self._handles)
        return Change(branch, handles, types, self.traces)
