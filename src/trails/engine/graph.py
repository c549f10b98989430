"""A Graph: one log, the views that follow it, and the lock that makes writers take turns.

Opening catches the views up with the log; a view that is missing, damaged or
of another history is rebuilt. Reading code asks for a view and gets one that
has reached the head.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

from trails.engine.rules import RuleBook
from trails.engine.validate import Validator
from trails.errors import CorruptionError, StorageError, TransactionError
from trails.log.protocol import Log
from trails.log.sqlite import SqliteLog
from trails.model.history import GENESIS, Commit, Head, Position
from trails.model.iris import Names
from trails.model.types import Schema
from trails.views.nodes.index import NodeIndex
from trails.views.quads import QuadsView
from trails.views.terms import Terms

MAIN = "main"
Step = Literal["before_append", "after_append", "mid_apply", "after_apply", "before_acknowledge"]
"""Moments of a write at which a process may die; tests stop there."""

_FOLD_BATCH = 50_000
T = TypeVar("T")


def _ignore(what: object) -> None:
    del what


def now() -> str:
    """The present, as the log writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Graph:
    """One versioned knowledge graph, in a folder or in memory."""

    def __init__(
        self,
        folder: Path | None,
        *,
        name: str,
        base_iri: str,
        allow_bypass: bool = False,
        on_step: Callable[[Step], None] = _ignore,
        progress: Callable[[str], None] = _ignore,
    ) -> None:
        self.name = name
        self.folder = folder
        self.allow_bypass = allow_bypass
        self.on_step = on_step
        self._progress = progress
        self.log: Log = SqliteLog(folder, name, base_iri, now())
        self.names = Names(self.log.header.base_iri)
        branch = None if folder is None else folder / "branches" / MAIN
        self.nodes = NodeIndex(None if branch is None else branch / "nodes.db")
        self.quads = QuadsView(None if branch is None else branch / "quads")
        self._terms: dict[str, Terms] = {}
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._quads_whole = threading.Event()
        self._quads_whole.set()
        head = self._visible = self.log_head()
        self.use_schema(Schema() if head.commit == GENESIS else self.schema_at(head.schema))
        self.catch_up()

    # --- where things are --------------------------------------------------------

    @property
    def head(self) -> Head:
        """Where the branch is, as far as readers can see it.

        It moves after the views have, so what is read later than a head is never older
        than it: a compare-and-swap against it can't miss a write.
        """
        return self._visible

    def log_head(self) -> Head:
        """Where the branch is in the log."""
        return self.log.head(MAIN) or Head(GENESIS, 0, Schema().digest)

    def show_head(self) -> None:
        """Let readers see the log's head; views that lag behind it catch up when read."""
        self._visible = self.log_head()

    def schema_at(self, digest: str) -> Schema:
        """A stored schema."""
        found = self.log.schema(digest)
        if found is None:
            raise CorruptionError(f"schema {digest} is named by a commit but is not in the log")
        return found

    def use_schema(self, schema: Schema) -> None:
        """Read and write with these types from now on."""
        self.schema = schema
        self.terms = self.terms_of(schema)
        self.validator = Validator(schema, self.names)
        self.rules = RuleBook(schema)
        self.nodes.follow(schema)

    def terms_of(self, schema: Schema) -> Terms:
        """The statements of a schema, compiled once."""
        found = self._terms.get(schema.digest)
        if found is None:
            found = self._terms[schema.digest] = Terms(schema, self.names)
        return found

    # --- one writer at a time ------------------------------------------------------

    @contextmanager
    def writing(self, timeout: float = 60.0) -> Iterator[None]:
        """Hold the writer's lock."""
        me = threading.get_ident()
        if self._owner == me:
            raise TransactionError(
                "another transaction is open on this thread; finish it first, or write through "
                "its own context"
            )
        if not self._lock.acquire(timeout=timeout):
            raise TransactionError(
                f"another writer has held this graph for {timeout:.0f} seconds; try again later"
            )
        self._owner = me
        try:
            yield
        finally:
            self._owner = None
            self._lock.release()

    # --- views follow the log ------------------------------------------------------

    def catch_up(self) -> None:
        """Bring both views to the head."""
        head = self.log_head()
        for view, rebuild in ((self.nodes, self._reset_nodes), (self.quads, self._reset_quads)):
            if not self._on_this_history(view.position):
                rebuild()
        if self.nodes.position.seq < head.seq:
            self._follow_nodes()
        if self.quads.position.seq < head.seq:
            self._follow_quads()
        self._visible = head

    def _on_this_history(self, position: Position) -> bool:
        if not position.seq:
            return True
        commit = self.log.commit(position.commit)
        return commit is not None and commit.seq == position.seq

    def _reset_nodes(self) -> None:
        self._progress("the node index belongs to another history; rebuilding it")
        self.nodes.clear()

    def _reset_quads(self) -> None:
        self._progress("the quads view belongs to another history; rebuilding it")
        self.quads.clear()

    def _follow_nodes(self) -> None:
        for commit in self.log.commits(after=self.nodes.position.seq):
            terms = self.terms_of(self.schema_at(commit.schema))
            self.nodes.follow(terms.schema)
            self.fold_nodes(self.nodes, terms, commit)
        self.nodes.follow(self.schema)

    def fold_nodes(self, nodes: NodeIndex, terms: Terms, commit: Commit) -> None:
        """Apply one commit's statements to a node index."""
        nodes.begin()
        try:
            with nodes.writer() as db:
                for removing, stream in (
                    (True, self.log.open_removed(commit)),
                    (False, self.log.open_added(commit)),
                ):
                    with stream:
                        for quads in _batched(terms.parse(stream), _FOLD_BATCH):
                            changes = terms.changes(
                                quads if removing else (), () if removing else quads
                            )
                            puts = []
                            for handle, change in changes.items():
                                stored = nodes.find(db, handle)
                                before = None if stored is None else stored.state
                                after = terms.state_after(handle, before, change)
                                if after is not None or stored is not None:
                                    puts.append((stored, handle, after, None))
                            nodes.put_all(commit.seq, puts)
        except BaseException:
            nodes.rollback()
            raise
        nodes.commit(Position(commit.seq, commit.id))

    def _follow_quads(self) -> None:
        for commit in self.log.commits(after=self.quads.position.seq):
            self.apply_quads(self.quads, commit)

    def apply_quads(self, quads: QuadsView, commit: Commit) -> None:
        """Apply one commit's statements to a quads view."""
        self._quads_whole.clear()
        try:
            with self.log.open_removed(commit) as removed, self.log.open_added(commit) as added:
                quads.apply_stream(
                    Position(commit.seq, commit.id), removed, added, commit.added + commit.removed
                )
        finally:
            self._quads_whole.set()

    def rebuild(self) -> None:
        """Forget both views and fold them from the log again."""
        with self.writing():
            self.nodes.clear()
            self.quads.clear()
            self.catch_up()

    # --- reading ---------------------------------------------------------------------

    def reading_nodes(self, read: Callable[[NodeIndex], T]) -> T:
        """Read from an index that has reached the head; a damaged one is rebuilt first."""
        if self.nodes.position.seq < self.head.seq:
            self._mend(damaged=False)
        try:
            return read(self.nodes)
        except CorruptionError:
            self._mend(damaged=True)
            return read(self.nodes)

    def _mend(self, *, damaged: bool) -> None:
        if self._owner == threading.get_ident():
            return  # the writer itself reads its own, newer state
        with self.writing():
            if damaged:
                self._progress("the node index is damaged; rebuilding it from the log")
                self.nodes.clear()
            try:
                self.catch_up()
            except StorageError:
                if damaged:
                    raise
                # Behind, but whole: reading goes on at the last applied commit.

    def reading_quads(self, read: Callable[[QuadsView], T]) -> T:
        """Read from a quads view that has reached the head; a damaged one is rebuilt first."""
        self._quads_whole.wait()
        if self.quads.position.seq < self.head.seq:
            self._mend(damaged=False)
        try:
            return read(self.quads)
        except OSError:
            with self.writing():
                self._progress("the quads view is damaged; rebuilding it from the log")
                self.quads.clear()
                self.catch_up()
            return read(self.quads)

    def close(self) -> None:
        """Let go of all files."""
        self.nodes.close()
        self.quads.close()
        self.log.close()


def _batched(items: Iterator[T], size: int) -> Iterator[list[T]]:
    batch: list[T] = []
    for item in items:
        batch.append(item)
        if len(batch) >= size:
            yield batch
            batch = []
    if batch:
        yield batch
