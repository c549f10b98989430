"""News: changes of one branch that nobody was told of yet, put together.

Whoever does not see everything is told of what it sees, and by that alone: changes of types,
fields and nodes that are hidden from it are not heard, however many they are.
"""

from __future__ import annotations

from trails.engine.feed import MANY, Change
from trails.engine.traces import Traces
from trails.model.facets import Facet
from trails.model.lenses import Lens
from trails.model.types import Schema


class Note:
    """What changed on a branch."""

    __slots__ = ("_seen", "_vague", "crowded", "everything", "handles", "traces", "turns", "types")

    def __init__(self) -> None:
        self.everything = False
        self.types: set[str] = set()
        """Types of changed nodes and what these extend."""
        self.crowded: set[str] = set()
        """Those of which so many nodes changed that each may have."""
        self.handles: set[str] = set()
        self.traces = Traces()
        """The changes, for those who do not see everything."""
        self.turns: set[tuple[str | None, str | None]] = set()
        """Schemas that followed on each other."""
        self._vague = False
        """Whether nobody asked what exactly changed: rights are decided since a moment ago."""
        self._seen: dict[tuple[int, str], tuple[Lens, list[Facet]]] = {}

    def add(self, change: Change) -> None:
        """Put another change to it."""
        if change.turn is not None:
            self.turns.add(change.turn)
        if change.traces is None:
            self._vague = True
        else:
            self.traces.update(change.traces)
        if change.types is None:
            self.everything = True
            return
        self.types |= change.types
        if change.handles is None:
            self.crowded |= change.types
            return
        self.handles |= change.handles
        if len(self.handles) > MANY:
            self.crowded |= self.types
            self.handles.clear()

    def shows(self, lens: Lens, schema: Schema, type_name: str, segment: str | None) -> bool:
        """Whether somebody who looks through a lens sees a change of a type, or of one node."""
        if self._vague:
            return True
        key = id(lens), type_name
        found = self._seen.get(key)
        if found is None:
            family = set(schema.family(type_name))
            facets = [each for each in self.traces if each.type in family and lens.shows(each)]
            found = self._seen[key] = lens, facets
        if segment is None:
            return bool(found[1])
        return any(self.traces.may_be_at(each, f"{each.type}/{segment}") for each in found[1])
