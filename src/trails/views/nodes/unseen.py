"""Unseen: the rows of a type that a lens takes out, as conditions in SQL.

A slot lists a type with everything that extends it, hidden types among them. Rows are left
out where they are found, so that pages are full and counts are right.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

import msgspec

from trails.model.lenses import Lens
from trails.model.types import TypeDescriptor
from trails.views.nodes.arms import Arm
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.keys import LONG, PRESENT, after_prefix, slot_name

Check = Callable[[Arm], str]


class Unseen(msgspec.Struct, frozen=True):
    """Conditions on a node ``k``, and their values; empty where everything is seen."""

    checks: tuple[Check, ...] = ()
    values: tuple[object, ...] = ()
    edges: bool = False
    """Whether single edges are out of sight, and not whole types alone."""

    def __bool__(self) -> bool:
        """Whether anything is left out."""
        return bool(self.checks)

    @classmethod
    def of(cls, index: NodeIndex, lens: Lens, descriptor: TypeDescriptor) -> Unseen:
        """What is left out of the lists of a type."""
        checks: list[Check] = []
        values: list[object] = []
        family = index.schema.family(descriptor.name)
        for low, high in index.file.ranges(lens.hidden.intersection(family)):
            checks.append(_outside)
            values += (low, high)
        partial = sorted(lens.partial_edges.intersection(family))
        for name in partial:
            for end in ("source", "target"):
                target = index.schema.by_name[name].by_name[end].target or ""
                sid = index.file.slot_number(slot_name(name, (end,)))
                for hidden in sorted(lens.hidden.intersection(index.schema.family(target))):
                    start = (PRESENT + f"{hidden}/".encode())[:LONG]
                    checks.append(_not_among)
                    values += (sid, start, after_prefix(start))
        return cls(tuple(checks), tuple(values), edges=bool(partial))


NOTHING: Final = Unseen()


def _outside(arm: Arm) -> str:
    del arm
    return "NOT (k.nid >= ? AND k.nid < ?)"


def _not_among(arm: Arm) -> str:
    return f"NOT {arm.among()}"


def first_handles(
    index: NodeIndex, db: sqlite3.Connection, start: str, limit: int, lens: Lens | None
) -> list[str]:
    """The first few handles that begin so, of nodes that are seen."""
    found = index.handles_from(db, start, limit)
    if lens is None or start.partition("/")[0] not in lens.partial_edges:
        return found
    seen: list[str] = []
    asked = limit
    while True:
        stored = index.find_all(db, found)
        seen = [each for each in found if each in stored and lens.see(stored[each].state)]
        if len(seen) >= limit or len(found) < asked:
            return seen[:limit]
        asked *= 4
        found = index.handles_from(db, start, asked)
