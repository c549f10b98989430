"""The nodes of a branch as a write leaves them, before anybody else can see them.

They are in the node index's open transaction. Whoever reads here reads as the write's
actor does, and what is not the actor's to change is refused here, whichever way it came.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final

from trails.engine.guards import Guard
from trails.engine.lines import Compiled, Line
from trails.engine.rules import Rules
from trails.engine.write.delta import Delta
from trails.engine.write.news import News
from trails.engine.write.touched import Touches
from trails.errors import ForbiddenError, TransactionError
from trails.model.nodes import NodeState
from trails.views.nodes.index import Replacement, Stored

CHUNK: Final = 2000
"""How many nodes are taken at once, where they are many."""


class PendingNodes:
    """What one write reads and changes."""

    def __init__(
        self,
        line: Line,
        db: sqlite3.Connection,
        seq: int,
        *,
        guard: Guard | None,
        delta: Delta,
        news: News,
        go_on: Callable[[], None],
    ) -> None:
        """``guard`` is None where the actor may see and change everything.

        ``go_on`` is called between many changes; it raises where there shall be no more.
        """
        self.go_on = go_on
        self.line = line
        self.index = line.nodes
        self.db = db
        """The connection that sees this write's changes."""
        self.seq = seq
        """The place in the log that the commit will have."""
        self.delta = delta
        self.news = news
        self.touches = Touches()
        self._broken = False
        self.use(guard)

    def use(self, guard: Guard | None) -> None:
        """Work with the types that the line has now."""
        self.guard = guard
        lens = None if guard is None else guard.lens
        self.rules = Rules(self.line.rules, self.index, self.db, lens)

    @property
    def changed(self) -> bool:
        """Whether a node was touched."""
        return bool(self.touches)

    # --- whole or spoilt -----------------------------------------------------------------

    def spoil(self) -> None:
        """Only a part of a change was made: this write can't be finished any more."""
        self._broken = True

    def check_whole(self) -> None:
        """Refuse to go on after a failed change, of which a part may have been made."""
        if self._broken:
            raise TransactionError(
                "a change in this transaction failed half-way, so none of it is written; "
                "begin it again"
            )

    # --- what the actor sees -------------------------------------------------------------

    @property
    def seen(self) -> Compiled:
        """The types as the actor sees them: what it puts is put in their terms."""
        return self.line.compiled if self.guard is None else self.guard.seen

    @property
    def sees_all(self) -> bool:
        """Whether nothing of these types is hidden from the actor."""
        return self.guard is None or self.guard.reads_all

    def find(self, handle: str) -> Stored | None:
        """One node, as the actor sees it."""
        return self.shown(self.index.find(self.db, handle))

    def found(self, handles: Sequence[str]) -> Mapping[str, Stored]:
        """Those of many nodes that exist, as the actor sees them."""
        there = self.index.find_all(self.db, handles)
        if self.guard is None:
            return there
        shown = {handle: self.guard.show(stored) for handle, stored in there.items()}
        return {handle: stored for handle, stored in shown.items() if stored is not None}

    def exist(self, handles: Sequence[str]) -> Collection[str]:
        """Those of some nodes that exist, as the actor sees them."""
        return self.found(handles).keys()

    def states(self, type_name: str) -> Iterator[NodeState]:
        """Every instance of exactly this type, as the actor sees them."""
        for stored in self.index.stored(self.db, (type_name,)):
            shown = self.shown(stored)
            if shown is not None:
                yield shown.state

    def shown(self, stored: Stored | None) -> Stored | None:
        """A node as the actor sees it; None where it does not."""
        return stored if self.guard is None else self.guard.show(stored)

    # --- what the actor may change -------------------------------------------------------

    def completed(self, before: Stored | None, state: NodeState) -> NodeState:
        """A node with those of its fields that the actor does not see."""
        return state if self.guard is None else self.guard.complete(before, state)

    def check_type(self, type_name: str) -> None:
        """Refuse nodes of a type that the actor may not change; then nothing here is written."""
        if self.guard is not None:
            with self._spoiling():
                self.guard.check_type(type_name)

    def check(self, before: NodeState | None, after: NodeState | None) -> None:
        """Refuse what is not the actor's to change; then nothing here is written."""
        if self.guard is not None:
            with self._spoiling():
                self.guard.check(before, after)

    @contextmanager
    def _spoiling(self) -> Iterator[None]:
        try:
            yield
        except ForbiddenError:
            self.spoil()
            raise

    # --- storing -------------------------------------------------------------------------

    def store(self, before: Stored | None, handle: str, after: NodeState | None) -> None:
        """Put a node with all its fields into the index, if the actor may."""
        self.check(None if before is None else before.state, after)
        self._store(before, handle, after)

    def release(self, before: Stored, handle: str, after: NodeState) -> None:
        """Put a node that only loses a reference that is seen, which nothing hidden can mind."""
        self.check_type(before.state.type)
        self._store(before, handle, after)

    def _store(self, before: Stored | None, handle: str, after: NodeState | None) -> None:
        touched = self.touches.note(handle, before, after)
        # A node that was deleted and comes back in the same write is the same node.
        nid = touched.before.nid if before is None and touched.before is not None else None
        self.check_whole()
        try:
            large = self.index.put_all(self.seq, [Replacement(before, handle, after, nid)])
        except BaseException:
            self.spoil()
            raise
        self.rules.watch(None if before is None else before.state, after)
        self.rules.weigh(large)

    def write_touched(self) -> None:
        """Give the net difference of every touched node to the delta."""
        # What is as it was before keeps its place in history, as it does in the log.
        self.index.restore(self.seq, self.touches.restored())
        changes = self.touches.changes()
        while some := list(islice(changes, CHUNK)):
            self.delta.write(some)
