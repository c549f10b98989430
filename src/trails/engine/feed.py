"""The feed: which nodes of which branch changed, told once the change can be read.

A writer hands a ``Change`` to the listeners after its head has become visible. A listener
takes a note and wakes somebody; it never works, waits or fails on the writer's thread.
Whoever is told may be told too much, never too little.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

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
    kinds: frozenset[str] = frozenset()
    """Their types alone, where the nodes are too many."""
    fields: Mapping[str, frozenset[str]] = {}
    """Which fields changed, by node, of those that were there before and are; where it is asked."""


Listener = Callable[[Change], None]


class Feed:
    """Hands the changes of one graph to its listeners; without any, nothing is collected."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Listener, ...] = ()
        self.tells_fields = False
        """Whether somebody listens who does not see every field, and so has to know which."""

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

    __slots__ = ("_fields", "_handles", "_types")

    def __init__(self, *, fields: bool = False) -> None:
        """With ``fields``, which fields changed is counted too."""
        self._handles: set[str] | None = set()
        self._types: set[str] = set()
        self._fields: dict[str, frozenset[str] | None] | None = {} if fields else None

    def add(self, handles: Iterable[str]) -> None:
        """Count these nodes in."""
        named = list(handles)
        self._types.update(handle.partition("/")[0] for handle in named)
        if self._handles is not None:
            self._handles.update(named)
            if len(self._handles) > MANY:
                self._handles = None

    @property
    def wants_fields(self) -> bool:
        """Whether it counts fields, as long as nodes are few."""
        return self._fields is not None and self._handles is not None

    def compare(self, handle: str, before: NodeState | None, after: NodeState | None) -> None:
        """Count a node in as it was and as it is."""
        self.add((handle,))
        if self._fields is None or self._handles is None:
            return
        found: frozenset[str] | None = None
        if before is not None and after is not None:
            old, new = before.values, after.values
            names = (name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
            found = frozenset(names)
        known = self._fields.get(handle, frozenset())
        self._fields[handle] = None if found is None or known is None else known | found

    def change(self, branch: str, schema: Schema) -> Change:
        """What these nodes are a change of."""
        types = frozenset(each for name in self._types for each in schema.lineage(name))
        if self._handles is None:
            return Change(branch, None, types, frozenset(self._types))
        known = self._fields or {}
        fields = {handle: names for handle, names in known.items() if names is not None}
        return Change(branch, frozenset(self._handles), types, fields=fields)
