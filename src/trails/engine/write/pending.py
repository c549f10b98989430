"""The nodes of a branch as a write leaves them, before anybody else can see them.

They are in the node index's open transaction. Whoever reads here reads as the write's
actor does, and what is not the actor's to change is refused here, whichever way it came.

The nodes that a write touched one by one: as they were before it, and as they are now.

What a write tells those who listen to the graph; without any, nothing is collected.

A draft: what a write would make of a branch, worked out without the writer's lock.

It reads a fixed state of the node index and keeps its changes in temporary tables. Nobody
waits for it, and nobody sees anything of it. A write may take over its result if the branch
is still where the draft found it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Final

import msgspec

from trails.engine.graph.activities import CallRecord
from trails.engine.graph.checkouts import Checkout, CompiledSchema
from trails.engine.graph.feed import ChangeCollector
from trails.engine.graph.graph import Graph
from trails.engine.validation.rules import Rules
from trails.engine.visibility.access import Access, WriteGuard, check_wanted, guard_of
from trails.engine.write.delta import WriteDelta
from trails.errors import ForbiddenError, TransactionError
from trails.model.history import Head
from trails.model.nodes import NodeState
from trails.model.types import Schema
from trails.views.nodes.file import DraftFile
from trails.views.nodes.index import DraftIndex, Replacement, Stored


class Touched(msgspec.Struct):
    """A node as it was before this write, and as it is now."""

    before: Stored | None
    after: NodeState | None

    @property
    def change(self) -> tuple[NodeState | None, NodeState | None]:
        """Its values before, and now."""
        return None if self.before is None else self.before.state, self.after


class Touches:
    """Every node that was touched, once each, however often that was."""

    def __init__(self) -> None:
        self._touched: dict[str, Touched] = {}

    def __bool__(self) -> bool:
        return bool(self._touched)

    def note(self, handle: str, before: Stored | None, after: NodeState | None) -> Touched:
        """Take down a change; what was before the write is what the first one says."""
        touched = self._touched.get(handle)
        if touched is None:
            touched = self._touched[handle] = Touched(before, after)
        touched.after = after
        return touched

    def before(self, handle: str, now_there: NodeState | None) -> NodeState | None:
        """A node as it was before this write."""
        touched = self._touched.get(handle)
        return now_there if touched is None else touched.change[0]

    def restored(self) -> list[Stored]:
        """Those that are again as they were."""
        return [
            each.before
            for each in self._touched.values()
            if each.before is not None and each.before.state == each.after
        ]

    def changes(self) -> Iterator[tuple[NodeState | None, NodeState | None]]:
        """Each node's values before, and now."""
        return (each.change for each in self._touched.values())

    def differences(self) -> Iterator[tuple[str, NodeState | None, NodeState | None]]:
        """The handles of those that are not as they were, with their values before, and now."""
        for handle, each in self._touched.items():
            before, after = each.change
            if before != after:
                yield handle, before, after

    def clear(self) -> None:
        """Forget them all."""
        self._touched.clear()


class ChangeReport:
    """What readers of a branch will see differently."""

    def __init__(self, graph: Graph, checkout: Checkout) -> None:
        self._graph = graph
        self._checkout = checkout
        feed = graph.feed
        self._collector = (
            ChangeCollector(traced=feed.traced(checkout.name)) if feed.listened else None
        )
        """None where nobody listened in time."""

    def add_puts(self, puts: Sequence[Replacement]) -> None:
        """These nodes were put or deleted."""
        if self._collector is not None:
            states = (
                (put.handle, None if put.before is None else put.before.state, put.after)
                for put in puts
            )
            self._collector.compare(self._checkout.schema, states)

    def add_touched(self, touches: Touches) -> None:
        """These nodes were touched one by one."""
        if self._collector is not None:
            self._collector.compare(self._checkout.schema, touches.differences())

    def add_everything(self) -> None:
        """Any node may be seen differently."""
        if self._collector is not None:
            self._collector.everything = True

    def tell(self, touches: Touches, before: str, after: str) -> None:
        """Hand everything to whoever listens now, these touched nodes included.

        The write led from one commit to another.
        """
        graph, checkout = self._graph, self._checkout
        if not graph.feed.listened:
            return
        if self._collector is None:
            self._collector = ChangeCollector()
            self._collector.everything = True
        self.add_touched(touches)
        change = self._collector.change(checkout.name, checkout.schema)
        graph.feed.tell(graph.tracing.complete(change, checkout, before, after))


CHUNK: Final = 2000
"""How many nodes are taken at once, where they are many."""


class PendingNodes:
    """What one write reads and changes."""

    def __init__(
        self,
        checkout: Checkout,
        db: sqlite3.Connection,
        seq: int,
        *,
        guard: WriteGuard | None,
        delta: WriteDelta,
        news: ChangeReport,
        go_on: Callable[[], None],
    ) -> None:
        """``guard`` is None where the actor may see and change everything.

        ``go_on`` is called between many changes; it raises where there shall be no more.
        """
        self.go_on = go_on
        self.checkout = checkout
        self.index = checkout.nodes
        self.db = db
        """The connection that sees this write's changes."""
        self.seq = seq
        """The place in the log that the commit will have."""
        self.delta = delta
        self.news = news
        self.touches = Touches()
        self._broken = False
        self.use(guard)

    def use(self, guard: WriteGuard | None) -> None:
        """Work with the types that the line has now."""
        self.guard = guard
        schema_filter = None if guard is None else guard.schema_filter
        self.rules = Rules(self.checkout.rules, self.index, self.db, schema_filter)

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
                "Transaction rolled back because a change in it failed; nothing was written. Retry."
            )

    # --- what the actor sees -------------------------------------------------------------

    @property
    def visible(self) -> CompiledSchema:
        """The types as the actor sees them: what it puts is put in their terms."""
        return self.checkout.compiled if self.guard is None else self.guard.visible

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


@contextmanager
def drafting(
    graph: Graph, checkout: Checkout, access: Access, call: CallRecord | None = None
) -> Iterator[DraftWrite]:
    """Draft a write of a branch, as one actor may write it; not for graphs in memory."""
    with graph.file.draft() as file:
        draft = DraftWrite(graph, file, checkout, access, call)
        try:
            yield draft
        finally:
            draft.nodes.delta.discard()


class DraftWrite:
    """A write that only says what it would do."""

    def __init__(
        self,
        graph: Graph,
        file: DraftFile,
        checkout: Checkout,
        access: Access,
        call: CallRecord | None,
    ) -> None:
        self._graph = graph
        self._file = file
        self._access = access
        index = DraftIndex(file, checkout.name)
        self.checkout = self._copy(checkout, index)
        """The branch that would be written, in the draft."""
        self.schema: Schema | None = None
        """The types that the branch would get, where they are others."""
        index.grow()
        self.nodes = PendingNodes(
            self.checkout,
            file.db,
            graph.log.last_seq() + 1,
            guard=guard_of(access, checkout.name, self.checkout.compiled),
            delta=WriteDelta(graph, self.checkout),
            news=ChangeReport(graph, self.checkout),
            go_on=partial(check_wanted, call),
        )

    def read(self, checkout: Checkout) -> Checkout:
        """Another branch or snapshot, at the same moment."""
        return self._copy(checkout, DraftIndex(self._file, checkout.name))

    def _copy(self, checkout: Checkout, index: DraftIndex) -> Checkout:
        at = index.position
        found = Checkout(
            self._file,
            checkout.name,
            None,
            Head(at.commit, at.seq, self._graph.schema_at(at.commit)),
        )
        found.nodes = index
        found.use(self._graph.compiled(found.head.schema))
        return found

    def change_schema(self, schema: Schema) -> None:
        """Go on with these types; call it before any other change."""
        self.checkout.nodes.adopt(schema)
        self.checkout.use(self._graph.compile(schema))
        self.nodes.use(guard_of(self._access, self.checkout.name, self.checkout.compiled))
        self.schema = schema

    @property
    def states(self) -> dict[str, NodeState | None]:
        """The nodes that would change, as they would be."""
        return {handle: after for handle, _, after in self.nodes.touches.differences()}
