"""A Graph: one log, the views that follow it, and the lock that makes writers take turns.

Opening catches the views up with the log; a view that is missing, damaged or
of another history is rebuilt. Reading code asks for a view and gets one that
has reached the head.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from time import monotonic
from typing import IO, Literal, Protocol, TypeVar

from trails.engine.rules import RuleBook
from trails.engine.validate import Validator
from trails.errors import CorruptionError, StorageError, TransactionError
from trails.log.payloads import Payload
from trails.log.protocol import Log
from trails.log.sqlite import SqliteLog
from trails.model.history import GENESIS, Commit, Head, Position
from trails.model.iris import Names
from trails.model.nodes import NodeState
from trails.model.types import Schema
from trails.views.nodes.index import NodeIndex, Stored
from trails.views.quads import QuadsView
from trails.views.terms import Change, Terms

MAIN = "main"
Step = Literal["before_append", "after_append", "mid_apply", "after_apply", "before_acknowledge"]
"""Moments of a write at which a process may die; tests stop there."""

_FOLD_BATCH = 50_000
_READ_ATTEMPTS = 3
_RETRY_SECONDS = 1.0
"""How often reads try to bring up a view that the disk refused a commit."""
T = TypeVar("T")


class View(Protocol):
    """What a Graph needs to know of a view."""

    position: Position
    damaged: bool
    whole: bool

    def clear(self) -> None:
        """Forget everything; it is then not whole until it has followed the log again."""

    def reading(self) -> AbstractContextManager[None]:
        """Keep what is read in place."""


V = TypeVar("V", bound=View)


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
        with ExitStack() as opened:
            self.log: Log = SqliteLog(folder, name, base_iri, now())
            opened.callback(self.log.close)
            branch = None if folder is None else folder / "branches" / MAIN
            self.nodes = NodeIndex(None if branch is None else branch / "nodes.db")
            opened.callback(self.nodes.close)
            self.quads = QuadsView(None if branch is None else branch / "quads")
            opened.callback(self.quads.close)
            self.names = Names(self.log.header.base_iri)
            self._terms: dict[str, Terms] = {}
            self._lock = threading.Lock()
            self._owner: int | None = None
            self._retry_at = 0.0
            head = self._visible = self.log_head()
            self.use_schema(Schema() if head.commit == GENESIS else self.schema_at(head.schema))
            self.catch_up()
            opened.pop_all()

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
        """Let readers see the log's head, which the views have reached."""
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
        """Bring both views to the head; called by whoever holds the writer's lock."""
        head = self.log_head()
        self.quads.revive()
        self._bring(self.nodes, "the node index", self._follow_nodes)
        self._bring(self.quads, "the quads view", self._follow_quads)
        self._visible = head

    def _bring(self, view: View, name: str, follow: Callable[[], None]) -> None:
        if view.damaged:
            self._progress(f"{name} is damaged; rebuilding it from the log")
            view.clear()
        elif not self._on_this_history(view.position):
            self._progress(f"{name} belongs to another history; rebuilding it from the log")
            view.clear()
        if view.position.seq < self.log_head().seq:
            try:
                follow()
            except CorruptionError:
                if not view.damaged:
                    raise  # then it is the log
                self._progress(f"{name} is damaged; rebuilding it from the log")
                view.clear()
                follow()
        view.whole = True

    def _on_this_history(self, position: Position) -> bool:
        if not position.seq:
            return True
        commit = self.log.commit(position.commit)
        return commit is not None and commit.seq == position.seq

    def _follow_nodes(self) -> None:
        reached = self.log.commit(self.nodes.position.commit)
        self.nodes.follow(Schema() if reached is None else self.schema_at(reached.schema))
        for commit in self.log.commits(after=self.nodes.position.seq):
            self.fold_nodes(self.nodes, commit)

    def fold_nodes(self, nodes: NodeIndex, commit: Commit) -> None:
        """Apply one commit to a node index: its schema, if that is new, and its statements."""
        terms = self.terms_of(self.schema_at(commit.schema))
        nodes.begin()
        try:
            if nodes.schema.digest != commit.schema:
                nodes.adopt(terms.schema)
            with nodes.writer() as db, self._statements(commit) as (removed, added):
                for quads in _batched(terms.parse(removed), _FOLD_BATCH):
                    self._fold(nodes, db, commit, terms, terms.changes(quads, ()))
                for quads in _batched(terms.parse(added), _FOLD_BATCH):
                    self._fold(nodes, db, commit, terms, terms.changes((), quads))
            nodes.commit(Position(commit.seq, commit.id))
        except BaseException:
            nodes.rollback()
            raise

    @staticmethod
    def _fold(
        nodes: NodeIndex,
        db: sqlite3.Connection,
        commit: Commit,
        terms: Terms,
        changes: Mapping[str, Change],
    ) -> None:
        puts: list[tuple[Stored | None, str, NodeState | None, int | None]] = []
        for handle, change in changes.items():
            stored = nodes.find(db, handle)
            before = None if stored is None else stored.state
            after = terms.state_after(handle, before, change)
            if after is not None or stored is not None:
                puts.append((stored, handle, after, None))
        nodes.put_all(commit.seq, puts)

    def _follow_quads(self) -> None:
        try:
            self._apply_missing_quads()
        except StorageError:
            # RocksDB repeats an error until it is opened again, even if its cause is gone.
            self.quads.revive()
            self._apply_missing_quads()

    def _apply_missing_quads(self) -> None:
        for commit in self.log.commits(after=self.quads.position.seq):
            self.apply_quads(self.quads, commit)

    def apply_quads(self, quads: QuadsView, commit: Commit, payload: Payload | None = None) -> None:
        """Apply one commit's statements, still at hand or read from the log, to a quads view."""
        with self._statements(commit, payload) as (removed, added):
            quads.apply_stream(
                Position(commit.seq, commit.id), removed, added, commit.added + commit.removed
            )

    @contextmanager
    def _statements(
        self, commit: Commit, payload: Payload | None = None
    ) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """What a commit removed and added."""
        if payload is not None and (texts := payload.texts) is not None:
            yield BytesIO(texts[0]), BytesIO(texts[1])
            return
        try:
            with self.log.open_removed(commit) as removed, self.log.open_added(commit) as added:
                yield removed, added
        except (SyntaxError, UnicodeDecodeError) as error:
            raise CorruptionError(
                f"the log is damaged: the statements of commit {commit.id} can't be parsed "
                f"({error}); run 'trails verify' and restore the log from a backup"
            ) from error

    def rebuild(self) -> None:
        """Forget both views and fold them from the log again."""
        with self.writing():
            self.nodes.clear()
            self.quads.clear()
            self.catch_up()

    # --- reading ---------------------------------------------------------------------

    def reading_nodes(self, read: Callable[[NodeIndex], T]) -> T:
        """Read from the node index."""
        return self._reading(self.nodes, read)

    def reading_quads(self, read: Callable[[QuadsView], T]) -> T:
        """Read from the quads view."""
        return self._reading(self.quads, read)

    def _reading(self, view: V, read: Callable[[V], T]) -> T:
        """Read from a view that is whole; one that turns out to be damaged is rebuilt first."""
        mine = self._owner == threading.get_ident()
        attempts = 1 if mine else _READ_ATTEMPTS
        while True:
            attempts -= 1
            if not mine:
                self._bring_up(view)
            try:
                with view.reading():
                    if view.whole or mine:
                        return read(view)
            except CorruptionError:
                if not view.damaged or not attempts:
                    raise
            if not attempts:
                raise StorageError("a view is being rebuilt again and again; run 'trails verify'")

    def _bring_up(self, view: View) -> None:
        """See to it that a view can be read.

        One that only lags, because the disk refused it a commit, is read as it is when it
        still can't follow: the visible head lags with it.
        """
        if view.damaged or not view.whole:
            with self.writing():
                self.catch_up()
        elif view.position.seq < self.log_head().seq and monotonic() >= self._retry_at:
            # A writer at work is not waited for: its commit is not acknowledged yet.
            with suppress(StorageError, TransactionError), self.writing(timeout=0):
                self._retry_at = monotonic() + _RETRY_SECONDS
                self.catch_up()
                self._retry_at = 0.0

    def close(self) -> None:
        """Let go of all files."""
        with ExitStack() as stack:
            for each in (self.log, self.quads, self.nodes):
                stack.callback(each.close)


def _batched(items: Iterator[T], size: int) -> Iterator[list[T]]:
    batch: list[T] = []
    for item in items:
        batch.append(item)
        if len(batch) >= size:
            yield batch
            batch = []
    if batch:
        yield batch
