"""The nodes of a branch inside a write or a draft, before readers see them.

``PendingNodes`` reads the node index's open transaction as the write's actor sees it, and refuses
every change that the actor may not make. ``NodeEdits`` has each changed node before and after the
write, ``ChangeReport`` collects what the feed publishes if it has listeners. ``WriteDelta`` streams
the statements that the write removes and adds into the log's payload; if there are many, it also
loads them next to main's store while the rest of the write is still being checked.

``DraftWrite`` works out a write without the writer's lock: it reads a fixed state of the node
index and keeps its changes in temporary tables. A write takes over the result if the branch has
not moved.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Final

import msgspec

from trails.engine.graph.activities import CallRecord
from trails.engine.graph.checkouts import Checkout, CompiledSchema
from trails.engine.graph.feed import ChangeCollector
from trails.engine.graph.graph import Graph
from trails.engine.validation.blob_names import BlobNames
from trails.engine.validation.rules import Rules
from trails.engine.visibility.access import OPEN, Access, WriteGuard, check_wanted, guard_of
from trails.errors import ForbiddenError, TransactionError
from trails.log.payloads import Payload, PayloadWriter
from trails.model.fairness import with_pauses
from trails.model.history import Head
from trails.model.nodes import NodeState
from trails.model.types import Schema
from trails.views.nodes.file import DraftFile
from trails.views.nodes.index import DraftIndex, Replacement, Stored
from trails.views.quads.staging import StagedLoad
from trails.views.quads.view import BULK
from trails.views.terms import Terms


class WriteDelta:
    """The statements of one write."""

    def __init__(self, graph: Graph, checkout: Checkout) -> None:
        self._graph = graph
        self._checkout = checkout
        self._payload: PayloadWriter | None = None
        self._former: Terms | None = None
        self._unstaged: list[tuple[bytes, bytes, int]] = []
        self.staged: StagedLoad | None = None
        """The load next to main's store, if any."""

    def change_types(self, former: Terms) -> None:
        """Note that the schema changed; ``former`` reads the values from before."""
        self._former = former

    def write(
        self, changes: Iterable[tuple[NodeState | None, NodeState | None]]
    ) -> tuple[bytes, bytes, int]:
        """Add the difference between states; return (removed, added, count)."""
        removed: list[str] = []
        added: list[str] = []
        for before, after in changes:
            lost, won = self._checkout.terms.difference(before, after, self._former)
            removed += lost
            added += won
        return self._write_lines(removed, added)

    def _write_lines(self, removed: list[str], added: list[str]) -> tuple[bytes, bytes, int]:
        return self._write("".join(removed), "".join(added), (len(removed), len(added)))

    def _write(self, removed: str, added: str, counts: tuple[int, int]) -> tuple[bytes, bytes, int]:
        payload = self._writer()
        gone, come = removed.encode(), added.encode()
        for part, text, count in zip(
            (payload.removed, payload.added), (gone, come), counts, strict=True
        ):
            if count:
                part.write(text, count)
        return gone, come, sum(counts)

    def stream(self, changes: Iterable[tuple[NodeState | None, NodeState | None]]) -> None:
        """Add the difference between states, of which many more may follow."""
        self._stage(*self.write(changes))

    def stream_new(self, nodes: Mapping[str, NodeState]) -> None:
        """Add all statements of new nodes, by handle, of which many more may follow."""
        added, count = self._checkout.terms.new_statements(nodes)
        self._stage(*self._write("", added, (0, count)))

    def stream_lines(self, removed: list[str], added: list[str]) -> None:
        """Add statements that are worked out, of which many more may follow."""
        self._stage(*self._write_lines(removed, added))

    def write_raw(self, removed: bytes, added: bytes, counts: tuple[int, int]) -> None:
        """Add raw statements."""
        payload = self._writer()
        payload.removed.write(removed, counts[0])
        payload.added.write(added, counts[1])

    def _writer(self) -> PayloadWriter:
        if self._payload is None:
            self._payload = self._graph.log.new_payload()
        return self._payload

    def _stage(self, removed: bytes, added: bytes, count: int) -> None:
        """Start to load a large commit while the rest of it is being checked."""
        if self.staged is None:
            self._unstaged.append((removed, added, count))
            if sum(each[2] for each in self._unstaged) <= BULK:
                return
            if self._checkout is self._graph.main:
                self.staged = self._graph.stores.stage()
            if self.staged is None:
                self._unstaged.clear()
                return
            for earlier in self._unstaged[:-1]:
                self.staged.feed(earlier[0], earlier[1])
            self._unstaged.clear()
        self.staged.feed(removed, added)

    def seal(self) -> Payload:
        """Close the delta and return the payload for the log."""
        return self._writer().seal()

    def finish_load(self, payload: Payload) -> None:
        """Wait for the load, if any; readers do not see it yet."""
        if self.staged is not None:
            self._graph.file.put_waiting()  # while the rest of the statements is being loaded
            self._graph.stores.finish(self.staged, payload)

    def discard(self) -> None:
        """Drop the payload and the load."""
        if self._payload is not None:
            self._payload.discard()
        if self.staged is not None:
            self.staged.discard()


class NodeEdit(msgspec.Struct):
    """One node before and after the write."""

    before: Stored | None
    after: NodeState | None

    @property
    def change(self) -> tuple[NodeState | None, NodeState | None]:
        """Its state before and after."""
        return None if self.before is None else self.before.state, self.after


class NodeEdits:
    """The nodes that a write changed one by one, each listed once."""

    def __init__(self) -> None:
        self._edits: dict[str, NodeEdit] = {}

    def __bool__(self) -> bool:
        return bool(self._edits)

    def note(self, handle: str, before: Stored | None, after: NodeState | None) -> NodeEdit:
        """Record a change; the first one of a node has its state before the write."""
        edit = self._edits.get(handle)
        if edit is None:
            edit = self._edits[handle] = NodeEdit(before, after)
        edit.after = after
        return edit

    def before(self, handle: str, now_there: NodeState | None) -> NodeState | None:
        """The state of a node before this write."""
        edit = self._edits.get(handle)
        return now_there if edit is None else edit.change[0]

    def restored(self) -> list[Stored]:
        """The nodes that have their old state again."""
        return [
            each.before
            for each in self._edits.values()
            if each.before is not None and each.before.state == each.after
        ]

    def changes(self) -> Iterator[tuple[NodeState | None, NodeState | None]]:
        """The state of each node before and after."""
        return (each.change for each in self._edits.values())

    def differences(self) -> Iterator[tuple[str, NodeState | None, NodeState | None]]:
        """Handle, old and new state of each node that differs."""
        for handle, each in self._edits.items():
            before, after = each.change
            if before != after:
                yield handle, before, after

    def clear(self) -> None:
        """Forget all nodes."""
        self._edits.clear()


class ChangeReport:
    """Collects the changes of one write for the graph's feed."""

    def __init__(self, graph: Graph, checkout: Checkout) -> None:
        self._graph = graph
        self._checkout = checkout
        feed = graph.feed
        self._collector = (
            ChangeCollector(indexed=feed.needs_index(checkout.name)) if feed.listened else None
        )
        """None if the feed had no listener when the write began."""

    def add_puts(self, puts: Sequence[Replacement]) -> None:
        """Add nodes that were put or deleted."""
        if self._collector is not None:
            states = (
                (put.handle, None if put.before is None else put.before.state, put.after)
                for put in puts
            )
            self._collector.compare(self._checkout.schema, states)

    def add_edits(self, edits: NodeEdits) -> None:
        """Add nodes that were changed one by one."""
        if self._collector is not None:
            self._collector.compare(self._checkout.schema, edits.differences())

    def add_everything(self) -> None:
        """Report that any node may have changed."""
        if self._collector is not None:
            self._collector.everything = True

    def publish(self, edits: NodeEdits, before: str, after: str) -> None:
        """Send the changes between two commits to the feed, including these edits."""
        graph, checkout = self._graph, self._checkout
        if not graph.feed.listened:
            return
        if self._collector is None:
            self._collector = ChangeCollector()
            self._collector.everything = True
        self.add_edits(edits)
        change = self._collector.change(checkout.name, checkout.schema)
        graph.feed.publish(graph.change_scan.complete(change, checkout, before, after))


CHUNK: Final = 2000
"""Nodes per chunk of a stream."""


class PendingNodes:
    """The nodes that one write reads and changes."""

    def __init__(
        self,
        checkout: Checkout,
        db: sqlite3.Connection,
        seq: int,
        *,
        guard: WriteGuard | None,
        delta: WriteDelta,
        changes: ChangeReport,
        go_on: Callable[[], None],
        blobs: BlobNames | None = None,
    ) -> None:
        """``guard`` is None if the actor may see and change everything.

        ``go_on`` is called between chunks; it raises to stop the write. ``blobs`` checks the blobs
        that nodes name.
        """
        self._blobs = blobs
        self.go_on = go_on
        self.checkout = checkout
        self.index = checkout.nodes
        self.db = db
        """The connection that sees this write's changes."""
        self.seq = seq
        """The sequence number that the commit will have."""
        self.delta = delta
        self.changes = changes
        self.edits = NodeEdits()
        self._broken = False
        self.use(guard)

    def use(self, guard: WriteGuard | None) -> None:
        """Use the current types of the checkout."""
        self.guard = guard
        schema_filter = None if guard is None else guard.schema_filter
        self.rules = Rules(
            self.checkout.rules, self.index, self.db, schema_filter, self._blobs, self.seq
        )

    @property
    def changed(self) -> bool:
        """Whether any node was changed one by one."""
        return bool(self.edits)

    # --- failed changes ------------------------------------------------------------------

    def spoil(self) -> None:
        """Mark a change as partly applied: the write can no longer be finished."""
        self._broken = True

    def check_whole(self) -> None:
        """Refuse to continue after a change that may be partly applied."""
        if self._broken:
            raise TransactionError(
                "transaction rolled back because a change in it failed; nothing was written: retry"
            )

    # --- what the actor sees -------------------------------------------------------------

    @property
    def visible(self) -> CompiledSchema:
        """The types visible to the actor; its puts are checked against them."""
        return self.checkout.compiled if self.guard is None else self.guard.visible

    @property
    def sees_all(self) -> bool:
        """Whether nothing of these types is hidden from the actor."""
        return self.guard is None or self.guard.reads_all

    def find(self, handle: str) -> Stored | None:
        """The visible part of one node."""
        return self.shown(self.index.find(self.db, handle))

    def found(self, handles: Sequence[str]) -> Mapping[str, Stored]:
        """Handle → visible part of each node that exists."""
        there = self.index.find_all(self.db, handles)
        if self.guard is None:
            return there
        shown = {handle: self.guard.show(stored) for handle, stored in there.items()}
        return {handle: stored for handle, stored in shown.items() if stored is not None}

    def exist(self, handles: Sequence[str]) -> Collection[str]:
        """The handles of the nodes that exist for the actor."""
        return self.found(handles).keys()

    def states(self, type_name: str) -> Iterator[NodeState]:
        """The visible part of every instance of exactly this type."""
        for stored in self.index.stored(self.db, (type_name,)):
            shown = self.shown(stored)
            if shown is not None:
                yield shown.state

    def shown(self, stored: Stored | None) -> Stored | None:
        """The visible part of a node; None if it is hidden."""
        return stored if self.guard is None else self.guard.show(stored)

    # --- what the actor may change -------------------------------------------------------

    def completed(self, before: Stored | None, state: NodeState) -> NodeState:
        """A node with its hidden values added."""
        return state if self.guard is None else self.guard.complete(before, state)

    def check_type(self, type_name: str) -> None:
        """Refuse a type that the actor may not change; the whole write then fails."""
        if self.guard is not None:
            with self._spoiling():
                self.guard.check_type(type_name)

    def check(self, before: NodeState | None, after: NodeState | None) -> None:
        """Refuse a change that the actor may not make; the whole write then fails."""
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
        """Put a node with all its fields into the index, if the actor may change it."""
        self.check(None if before is None else before.state, after)
        self._store(before, handle, after)

    def store_all(self, changes: Sequence[Replacement]) -> None:
        """Put many nodes, each of them once, as ``store`` puts one."""
        for change in changes if self.guard is not None else ():
            self.check(None if change.before is None else change.before.state, change.after)
        self._store_all(changes)

    def release(self, before: Stored, handle: str, after: NodeState) -> None:
        """Put a node that only loses a visible reference; no hidden rule can depend on that."""
        self.check_type(before.state.type)
        self._store(before, handle, after)

    def _store(self, before: Stored | None, handle: str, after: NodeState | None) -> None:
        self._store_all((Replacement(before, handle, after),))

    def _store_all(self, changes: Iterable[Replacement]) -> None:
        puts: list[Replacement] = []
        for change in changes:
            before = change.before
            edit = self.edits.note(change.handle, before, change.after)
            if before is None and edit.before is not None:
                # A node that is deleted and created again in one write keeps its identity.
                puts.append(msgspec.structs.replace(change, nid=edit.before.nid))
            else:
                puts.append(change)
        self.check_whole()
        try:
            large = self.index.put_all(self.seq, puts)
        except BaseException:
            self.spoil()
            raise
        for change in with_pauses(puts):
            before = change.before
            self.rules.watch(None if before is None else before.state, change.after)
        self.rules.weigh(large)

    def write_edits(self) -> None:
        """Write the net difference of every edited node to the delta."""
        # A node with its old state keeps its place in history, as it does in the log.
        restored = self.edits.restored()
        if restored:
            self.index.restore(self.seq, restored)
        changes = self.edits.changes()
        while some := list(islice(changes, CHUNK)):
            self.delta.stream(some)


@contextmanager
def drafting(
    graph: Graph, checkout: Checkout, access: Access, call: CallRecord | None = None
) -> Iterator[DraftWrite]:
    """Draft a write of one actor on a branch; not available for graphs in memory."""
    with graph.file.draft() as file:
        draft = DraftWrite(graph, file, checkout, access, call)
        try:
            yield draft
        finally:
            draft.nodes.delta.discard()


class DraftWrite:
    """A write that is worked out and not committed."""

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
        """The draft's own checkout of the branch."""
        self.schema: Schema | None = None
        """The new types of the branch, if they change."""
        index.grow()
        self.nodes = PendingNodes(
            self.checkout,
            file.db,
            graph.log.last_seq() + 1,
            guard=guard_of(access, checkout.name, self.checkout.compiled),
            delta=WriteDelta(graph, self.checkout),
            changes=ChangeReport(graph, self.checkout),
            go_on=partial(check_wanted, call),
        )

    def read(self, checkout: Checkout) -> Checkout:
        """Another branch or snapshot at the same point in time."""
        return self._copy(checkout, DraftIndex(self._file, checkout.name))

    def beside(self, checkout: Checkout) -> DraftWrite:
        """A draft of another branch or snapshot at the same point in time; nothing limits it."""
        return DraftWrite(self._graph, self._file, checkout, OPEN, None)

    def _copy(self, checkout: Checkout, index: DraftIndex) -> Checkout:
        at = index.position
        found = Checkout(
            self._file,
            checkout.name,
            None,
            Head(at.commit, at.seq, self._graph.ancestry.schema_at(at.commit)),
        )
        found.nodes = index
        found.use(self._graph.compiled(found.head.schema))
        return found

    def change_schema(self, schema: Schema) -> None:
        """Switch to these types; call it before any other change."""
        self.checkout.nodes.adopt(schema)
        self.checkout.use(self._graph.compile(schema))
        self.nodes.use(guard_of(self._access, self.checkout.name, self.checkout.compiled))
        self.schema = schema

    @property
    def states(self) -> dict[str, NodeState | None]:
        """Handle → new state of each node that would change."""
        return {handle: after for handle, _, after in self.nodes.edits.differences()}
