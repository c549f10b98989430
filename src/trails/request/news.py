"""News: changes of one branch that nobody was told of yet, put together.

Whoever does not see everything is told of what it sees: of no instance of a hidden type, and
of no node of which only hidden fields changed. Where too much changed at once to say which
nodes did, it is told of the types that it sees.
"""

from __future__ import annotations

from trails.engine.feed import MANY, Change
from trails.model.lenses import Lens
from trails.model.types import Schema


class Note:
    """What changed on a branch."""

    __slots__ = ("_fields", "_heard", "_kinds", "crowded", "everything", "handles", "types")

    def __init__(self) -> None:
        self.everything = False
        self.types: set[str] = set()
        """Types of changed nodes and what these extend."""
        self.crowded: set[str] = set()
        """Those of which so many nodes changed that each may have."""
        self.handles: set[str] = set()
        self._kinds: set[str] = set()
        """The crowded ones, without what they extend."""
        self._fields: dict[str, frozenset[str] | None] = {}
        """By handle; None where it may be any field."""
        self._heard: dict[tuple[int, str], frozenset[str]] = {}

    def add(self, change: Change) -> None:
        """Put another change to it."""
        if change.types is None:
            self.everything = True
            return
        self.types |= change.types
        if change.handles is None:
            self.crowded |= change.types
            self._kinds |= change.kinds
            return
        self.handles |= change.handles
        for handle in change.handles:
            known, more = self._fields.get(handle, frozenset()), change.fields.get(handle)
            self._fields[handle] = None if known is None or more is None else known | more
        if len(self.handles) > MANY:
            self.crowded |= self.types
            self._kinds |= {handle.partition("/")[0] for handle in self.handles}
            self.handles.clear()
            self._fields.clear()

    def shows(self, lens: Lens, schema: Schema, type_name: str, segment: str | None) -> bool:
        """Whether somebody who looks through a lens sees a change of a type, or of one node."""
        if self.everything:
            return True
        family = lens.schema.by_name.keys() & set(schema.family(type_name))
        if not self._kinds.isdisjoint(family):
            return True
        if segment is not None:
            return any(self._is_seen(lens, f"{name}/{segment}") for name in family)
        key = id(lens), type_name
        found = self._heard.get(key)
        if found is None:
            seen = (each for each in self.handles if self._is_seen(lens, each))
            found = self._heard[key] = frozenset(each.partition("/")[0] for each in seen)
        return not found.isdisjoint(family)

    def _is_seen(self, lens: Lens, handle: str) -> bool:
        if handle not in self.handles:
            return False
        fields = self._fields.get(handle)
        hidden = lens.hidden_fields.get(handle.partition("/")[0], frozenset())
        return fields is None or not fields <= hidden
