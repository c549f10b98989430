"""Graph: one log, the views that follow it, and the lock that makes writers take turns.

Opening brings the views to the heads of the log; one that is missing, damaged or of another history
is rebuilt. Views are treated alike (``views.base``); ``nodes`` and ``stores`` are handles for
writes, which are checked in the node index, and for SPARQL. A reader gets a view that has reached
the head of its branch. ``engine.graph.open`` makes graphs.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from trails.engine.graph.activities import Activities
from trails.engine.graph.ancestry import Ancestry, Containment
from trails.engine.graph.checkouts import MAIN as MAIN  # noqa: PLC0414 - those who import Graph need it
from trails.engine.graph.checkouts import SNAPSHOT, Checkout, CompiledSchema, unknown_branch
from trails.engine.graph.declarations import DeclarationKeeper
from trails.engine.graph.embeddings import Embedder
from trails.engine.graph.feed import BranchChange, ChangeIndex, ChangeScan, Feed
from trails.engine.graph.folding import Folding
from trails.engine.graph.following import Follower
from trails.engine.graph.groups import WriteGroup
from trails.engine.graph.node_indexes import NodeIndexes
from trails.engine.graph.slow_queries import SlowQueries
from trails.engine.graph.stores import Stores
from trails.engine.graph.texts.indexes import TextIndexes
from trails.engine.graph.texts.source import TextSource
from trails.errors import (
    CorruptionError,
    LogUnavailableError,
    NotFoundError,
    StorageError,
    TransactionError,
)
from trails.files import private_folder
from trails.log.blobs import BLOBS, BlobStore
from trails.log.protocol import Log, Missed
from trails.log.recovery import schemas_of
from trails.log.tail import read_tail
from trails.model.actors import Actor
from trails.model.caches import BoundedCache
from trails.model.fairness import NO_ACTOR, FairQueue, Meter, short_work, without_pauses
from trails.model.history import GENESIS, Head, Move
from trails.model.iris import Names
from trails.model.names import branch_folder
from trails.model.results import Loss, ReadOnly, Status
from trails.model.types import Schema
from trails.model.upkeep import KEEP_ALL, Retention
from trails.model.writes import KEEP_DAYS
from trails.views.base import Readable, View
from trails.views.nodes.file import NodeFile
from trails.views.nodes.index import NodeIndex

if TYPE_CHECKING:
    from trails.engine.graph.vector_tables import VectorTables
    from trails.views.quads.view import QuadsView

TEMPORARY: Final = "tmp"
"""The folder of a graph for files that are useless after the process that made them."""
Step = Literal[
    "before_append",
    "after_append",
    "mid_apply",
    "after_apply",
    "mid_declare",
    "after_declare",
    "before_acknowledge",
]
"""Moments of a write at which a process may die; tests stop there."""

_READ_ATTEMPTS = 3
_SHORT = 0.1
"""Seconds that a write may take without being counted: those who wait take turns."""
_COUNTED = 1_000
"""Pairs of commits of which the number of changed nodes is remembered."""
_RETRY_SECONDS = 1.0
"""How often reads try to bring up a view that the disk refused a commit."""
_PAUSE: Final = 0.05
"""Seconds between two attempts to follow a log that does not answer."""
_FOLLOWER: Final = "/following"
"""In whose name the writer's lock is taken, so that actors and following take turns."""
T = TypeVar("T")


K = TypeVar("K")
V = TypeVar("V", bound=Readable)
MakeView = Callable[["Graph"], View[Checkout]]


def ignore(what: object) -> None:
    """Report nothing."""
    del what


def everybody(actor: Actor) -> bool:
    """Where credentials never end."""
    del actor
    return True


def _nothing() -> None:
    """Nobody has to know."""


def note_maker(makers: dict[str, str], move: Move) -> None:
    """Note who made a branch, or that it is gone."""
    if move.action == "create":
        makers[move.branch] = move.actor
    elif move.action == "delete":
        makers.pop(move.branch, None)


def _gone(checkout: Checkout) -> NotFoundError:
    return NotFoundError(
        f"branch {checkout.name!r} was deleted; its commits can still be read as snapshots",
        branch=checkout.name,
    )


def now() -> str:
    """The present, as the log writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Graph:
    """One versioned knowledge graph, in a folder or in memory."""

    write_seconds: float = 0.0
    """Seconds that a write of an actor with a credential may keep others waiting; 0: no limit."""
    most_branches: int = 0
    """How many branches such an actor may have; 0: no limit."""
    most_blob: int = 0
    """Bytes that one blob may have; 0: no limit."""
    most_unnamed: int = 0
    """Bytes of blobs that an actor with a credential may keep without naming them; 0: no limit."""
    allow_bypass: bool = False
    """Whether a write may skip validation, if it asks for that."""
    keep_keys_days: int = KEEP_DAYS
    """For how long idempotency keys are kept."""
    embedder: Embedder | None = None
    """Makes vectors of texts; None if the settings name no function."""
    declarations: DeclarationKeeper | None = None
    """Declares what changes of the types of ``main`` need; None if types are declared elsewhere."""
    list_migrations: Callable[[], Sequence[str]] = tuple
    """The names of the project's migrations, in their order; set by the project."""
    branch_makers: dict[str, str] | None = None
    """Branch → who made it, once that was needed."""
    types_changed: Callable[[], None] = staticmethod(_nothing)
    """Called when another server has changed the types of ``main``, with the writer's lock."""

    def __init__(
        self,
        log: Log,
        views: Sequence[MakeView],
        folder: Path | None,
        *,
        name: str,
        retention: Retention = KEEP_ALL,
        read_only: ReadOnly | None = None,
        loss: Loss | None = None,
        progress: Callable[[str], None] = ignore,
    ) -> None:
        """Views have their files in ``folder``; they and the log are closed with the graph."""
        self.name = name
        self.log = log
        self.read_only = read_only
        """Why nothing can be written; None where that is not so."""
        self.loss = loss
        """What the log has lost, where that is why."""
        self.folder = folder
        self.blobs = BlobStore(None if folder is None else folder / BLOBS, self.temporary)
        """Binary content that nodes name."""
        self.on_step: Callable[[Step], None] = ignore
        self.is_current: Callable[[Actor], bool] = everybody
        """Whether a caller's credential is still good; set by the server."""
        self.slow_queries = SlowQueries()
        """Logs queries that take long; set by the server."""
        self.feed = Feed()
        self.progress = progress
        self._writers = FairQueue(1)
        self.migrating = threading.Lock()
        """Held while migrations are applied or rolled back."""
        self.migrations_follow = False
        """Whether others follow the one that is under way; declarations may be ahead of it."""
        self.blocking = Meter(0)
        """Seconds for which each actor's long writes have kept others waiting."""
        self._owner: int | None = None
        self._group: WriteGroup | None = None
        self._retry_at = 0.0
        self._compiled: dict[str, CompiledSchema] = {}
        self._checkouts: dict[str, Checkout] = {}
        self.visible_counts: dict[tuple[str, str], tuple[int, int]] = {}
        """(commit, visible schema) → numbers of added and removed statements that are visible."""
        self.edge_ends: dict[str, tuple[str, ...]] = {}
        """Edge → what it joins, where that had to be looked up."""
        self.views: list[View[Checkout]] = []
        self.before_closing: list[Callable[[], None]] = []
        """Ends work that reads this graph in threads of its own."""
        with ExitStack() as opened:
            self.activities = Activities(
                self.log,
                retention,
                lambda text: progress(f"graph {name}: {text}"),
                kept=self.read_only is None,
            )
            self.names = Names(self.log.header.base_iri)
            self.ancestry = Ancestry(self.log)
            self.containment = Containment(self.log, self.ancestry)
            self.folding = Folding(self.log, self.ancestry, self.compiled)
            self.change_scan = ChangeScan(
                self.feed, self.ancestry, self.folding, self.compiled, self.names
            )
            for make in views:
                self.views.append(view := make(self))
                opened.callback(view.close)
            self._checkouts[MAIN] = self.main
            # A log that has lost commits can't say how to get to where an index is.
            if self.loss is None or not self.file.frozen:
                self.catch_up()
            opened.pop_all()
        self.follower = None if self.read_only is not None else Follower(self)

    def _only(self, kind: type[K]) -> K:
        return next(view for view in self.views if isinstance(view, kind))

    @cached_property
    def nodes(self) -> NodeIndexes:
        """The view that writes are checked in."""
        return self._only(NodeIndexes)

    @cached_property
    def stores(self) -> Stores:
        """The view that answers SPARQL."""
        return self._only(Stores)

    @cached_property
    def texts(self) -> TextIndexes:
        """The view that searches texts."""
        return self._only(TextIndexes)

    @cached_property
    def vectors(self) -> VectorTables:
        """The vectors that were searched, in memory."""
        # numpy takes 100 ms to import, and most processes compare no vectors.
        from trails.engine.graph.vector_tables import VectorTables  # noqa: PLC0415

        return VectorTables(TextSource(self.folding, self.names))

    @cached_property
    def net_counts(self) -> dict[tuple[str, str], tuple[int, int, int]]:
        """Two commits → how many nodes are created, updated and deleted from one to the other."""
        return BoundedCache(_COUNTED)

    @cached_property
    def file(self) -> NodeFile:
        """The file of the node indexes."""
        return self.nodes.file

    @cached_property
    def main(self) -> Checkout:
        """The branch that every graph has."""
        return self._make_checkout(MAIN, self.log_head(MAIN))

    @property
    def status(self) -> Status:
        """How it is, in a word."""
        if self.read_only is None:
            return "ok"
        return "behind" if self.read_only.cause == "behind" else "read_only"

    def check_writable(self) -> None:
        """Raise why nothing can be written, where that is so."""
        if self.read_only is not None:
            raise self.read_only.error()

    # --- where things are --------------------------------------------------------

    def temporary(self) -> Path | None:
        """A folder for files of this process alone; the next owner removes what is left there.

        None for a graph in memory or read-only, whose files are where the system has such files.
        """
        if self.folder is None or self.read_only is not None:
            return None
        folder = self.folder / TEMPORARY
        private_folder(folder)
        return folder

    def log_head(self, branch: str) -> Head:
        """Where a branch is in the log; of a log that has lost it, where the index is."""
        if self.loss is not None and self.file.frozen and branch in self.file.layers.refs:
            layer = self.file.layers[self.file.layers.refs[branch]]
            return Head(layer.position.commit, layer.position.seq, layer.schema)
        return self.log.head(branch) or Head(GENESIS, 0, Schema().digest)

    def committed_schema(self, branch: str) -> Schema:
        """The types of a branch in the log; its checkout has others while a write changes them."""
        return self.compiled(self.log_head(branch).schema).schema

    def compiled(self, digest: str) -> CompiledSchema:
        """What a stored schema means, compiled once."""
        found = self._compiled.get(digest)
        if found is None:
            schema = Schema() if digest == Schema().digest else self.find_schema(digest)
            if schema is None:
                raise CorruptionError(f"schema {digest} is named by a commit but not in the log")
            found = self._compiled[digest] = CompiledSchema(schema, self.names)
        return found

    def find_schema(self, digest: str) -> Schema | None:
        """A stored schema; one that the log has lost may be in its tail."""
        found = self.log.schema(digest)
        if found is None and self.loss is not None and self.folder is not None:
            found = schemas_of(read_tail(self.folder)).get(digest)
        return found

    def compile(self, schema: Schema) -> CompiledSchema:
        """What a schema means that may not be stored yet."""
        found = self._compiled.get(schema.digest)
        if found is None:
            found = self._compiled.setdefault(schema.digest, CompiledSchema(schema, self.names))
        return found

    def checkout(self, branch: str) -> Checkout:
        """A branch; on its first use here its index is made or brought up."""
        found = self._checkouts.get(branch)
        if found is not None and not found.fixed:
            return found
        head = self.log.head(branch) if not branch.startswith(SNAPSHOT) else None
        if head is None:
            raise unknown_branch(branch, {MAIN, *self.log.branches()})
        with self.writing():
            return self._checkouts.get(branch) or self.bring_to_head(
                self._make_checkout(branch, head)
            )

    def has_checkout(self, name: str) -> bool:
        """Whether it is in use, so that getting it waits for nothing."""
        return name in self._checkouts

    def add_branch(self, name: str, near: Checkout | None) -> Checkout:
        """A branch that the log has got; called with the writer's lock."""
        head = self.log_head(name)
        checkout = self._make_checkout(name, head)
        if checkout.folder is not None:
            shutil.rmtree(checkout.folder, ignore_errors=True)  # of a namesake that is gone
        return self._begin_with(checkout, near)

    def add_snapshot(self, name: str, head: Head) -> Checkout:
        """The graph as of a commit; called with the writer's lock."""
        return self._begin_with(self._make_checkout(name, head), None)

    def _begin_with(self, checkout: Checkout, near: Checkout | None) -> Checkout:
        for view in self.views:
            view.fork(checkout, checkout.head, near)
        self._checkouts[checkout.name] = checkout
        return checkout

    @property
    def checkouts(self) -> Mapping[str, Checkout]:
        """The branches and snapshots in use, by name; it changes with them."""
        return self._checkouts

    def _make_checkout(self, name: str, head: Head) -> Checkout:
        checkout = Checkout(self.file, name, self._folder_of(name), head)
        checkout.use(self.compiled(head.schema))
        return checkout

    def _folder_of(self, name: str) -> Path | None:
        if self.folder is None:
            return None
        if name.startswith(SNAPSHOT):
            return self.folder / "snapshots" / name.removeprefix(SNAPSHOT)
        return self.folder / "branches" / branch_folder(name)

    # --- one writer at a time ------------------------------------------------------

    def writers(self) -> tuple[int, int]:
        """How many write, none or one, and how many wait for that."""
        return self._writers.used, self._writers.waiting

    @contextmanager
    def appending(self, actor: str = NO_ACTOR, *, joins: bool = False) -> Iterator[None]:
        """Hold the writer's lock, and keep other servers from writing the log."""
        with self.writing(actor, joins=joins):
            self.take_turn()
            yield

    def take_turn(self) -> None:
        """Keep other servers from writing; called with the writer's lock.

        The views are where the log is then. It ends with what is appended, or with the lock. Writes
        that are not durable yet belong to the turn; if that was lost, they are ended before the
        views follow what others have written since.
        """
        if self._group is not None and self._group.tickets:
            if self.log.in_turn:
                return
            self.end_group()
        self._follow(self.log.begin_turn())

    @contextmanager
    def writing(
        self, actor: str = NO_ACTOR, timeout: float = 60.0, *, joins: bool = False
    ) -> Iterator[None]:
        """Hold the writer's lock, to change the views; the actors who wait for it take turns.

        ``joins``: what is done can be a part of the group of writes that is not durable yet.
        """
        me = threading.get_ident()
        if self._owner == me:
            raise TransactionError(
                "another transaction is open on this thread; finish it first, or write through "
                "its own context"
            )
        with short_work():
            try:
                acquired = self._writers.acquire(actor, timeout)
            except BaseException:  # an interrupt, maybe just when the lock was handed over
                self._end_abandoned_group()
                raise
            if not acquired:
                raise TransactionError(
                    f"other writers have kept this graph busy for {timeout:.0f} s; try again later"
                )
            self._owner = me
            begun = monotonic()
            try:
                with without_pauses():
                    if not joins:
                        self.end_group()
                    yield
            finally:
                held = monotonic() - begun
                if held > _SHORT and self._writers.has_others(actor):
                    self.blocking.add(actor, held)
                self._give_back(actor)

    def _give_back(self, actor: str) -> None:
        """Release the writer's lock: to the next writer, or when no write is pending."""
        group = self._group
        if group is None or not group.tickets:
            self._group, self._owner = None, None
            self.log.end_turn()
            self._writers.release(actor)
            return
        me, self._owner = self._owner, None
        if not group.full and self._writers.hand_over(actor):
            return
        self._owner = me
        try:
            with without_pauses():
                group.land()
        finally:
            self._group, self._owner = None, None
            self.log.end_turn()
            self._writers.release(actor)
            group.publish()

    def group(self) -> WriteGroup:
        """The writes that are not durable yet; called with the writer's lock."""
        if self._group is None:
            self._group = WriteGroup(self)
        return self._group

    def end_group(self) -> None:
        """Make writes durable that others have left to this one; called with the lock."""
        group, self._group = self._group, None
        if group is not None and group.tickets:
            try:
                group.land()
            finally:
                group.publish()

    def _end_abandoned_group(self) -> None:
        """Make pending writes durable that nobody holds the lock for; a holder does it itself."""
        if self._group is not None and self._writers.acquire(NO_ACTOR, 0):
            try:
                with without_pauses():
                    self.end_group()
            finally:
                self.log.end_turn()
                self._writers.release(NO_ACTOR)

    def is_prepared(self, checkout: Checkout) -> bool:
        """Whether ``prepare`` would change nothing; called with the writer's lock."""
        return (
            all(view.ready for view in self.views)
            and self._checkouts.get(checkout.name) is checkout
            and checkout.nodes.known
            and checkout.nodes.position.commit == self.log_head(checkout.name).commit
            and checkout.nodes.schema.digest == self.log_head(checkout.name).schema
        )

    def prepare(self, checkout: Checkout, *, settled: bool = True) -> None:
        """Make a checkout ready to be written, or moved; called with the writer's lock."""
        self.check_writable()
        for view in self.views:
            if not view.ready:
                self.catch_up()
                break
        if self._checkouts.get(checkout.name) is not checkout:
            raise _gone(checkout)
        self.bring_to_head(checkout)
        if checkout is self.main and settled:
            self.nodes.settle_later()

    def keep_blobs(self, digests: Collection[str]) -> None:
        """Make blobs durable before the log names them; called with the writer's lock."""
        self.blobs.keep(digests, self.log.last_seq())

    def blobs_committed(self, digests: Collection[str]) -> None:
        """The log names these blobs now."""
        self.blobs.committed(digests)

    # --- views follow the log ------------------------------------------------------

    def catch_up(self) -> None:
        """Bring every view to the heads of the log; called with the writer's lock."""
        for view in self.views:
            view.check()
        self._forget_deleted()
        checkouts = [checkout for checkout in list(self._checkouts.values()) if not checkout.fixed]
        heads = {checkout: self.log_head(checkout.name) for checkout in checkouts}
        for view in self.views:
            for checkout, head in heads.items():
                view.follow(checkout, head)
        for checkout, head in heads.items():
            self._show(checkout, head)

    def follow(self, timeout: float = 60.0) -> None:
        """Bring the views to what other servers have written."""
        if not self.log.behind() and self._shows_log():
            return
        with self.writing(_FOLLOWER, timeout):
            self._follow(self.log.refresh())

    def _shows_log(self) -> bool:
        """Whether readers see the heads that are known of the log."""
        heads = self.log.branches()
        none = Head(GENESIS, 0, "")
        return all(
            checkout.fixed or checkout.head.commit == heads.get(name, none).commit
            for name, checkout in list(self._checkouts.items())
        )

    def shows(self, commit: str, branch: str) -> bool:
        """Whether readers of a branch see a commit, or what came after it."""
        checkout = self._checkouts.get(branch)
        if checkout is None or checkout.head.commit == commit:
            return checkout is not None
        found = self.log.commit(commit)
        return found is not None and self.containment.has(branch, checkout.head, found)

    def reach(self, seconds: float) -> bool:
        """Follow the log to where it is now; False if that takes too long."""
        until = monotonic() + seconds
        while True:
            try:
                self.follow(timeout=max(0.0, until - monotonic()))
            except (LogUnavailableError, TransactionError):
                if monotonic() >= until:
                    return False
                sleep(_PAUSE)
            else:
                return True

    def _follow(self, missed: Missed | None) -> None:
        """Bring the views to where other servers have brought the log."""
        if missed is None:
            return
        types = self.main.schema.digest
        for move in missed.moves:
            self._follow_move(move)
        if not all(view.ready for view in self.views):
            self.catch_up()
        for name in sorted(missed.branches):
            checkout = self._checkouts.get(name)
            if checkout is not None:
                self.bring_to_head(checkout)
            elif self.feed.listened and self.log.head(name) is not None:
                self.feed.publish(BranchChange(name))
        if self.main.schema.digest != types:
            self.types_changed()

    def _follow_move(self, move: Move) -> None:
        """A branch was made, moved or deleted by another server."""
        if self.branch_makers is not None:
            note_maker(self.branch_makers, move)
        if move.action == "fast_forward":
            return
        if move.action == "delete" and move.branch != MAIN:
            self.drop_checkouts([move.branch])
        schema = self.ancestry.schema_at(move.commit)
        change = (None, schema) if move.action == "create" else (schema, None)
        self.feed.publish(BranchChange(move.branch, index=ChangeIndex(), schema_change=change))

    def open_views(self) -> None:
        """Open what views leave closed until it is first used."""
        for view in self.views:
            view.open()

    def caught_up(self) -> bool:
        """Whether every view has reached the head of main; a commit under way is not waited for."""
        for _ in range(2):  # a commit may have ended between two of these questions
            head = self.log_head(MAIN).seq
            found = [view.position(self.main) for view in self.views]
            lags = any(head > (0 if each is None else each.seq) for each in found)
            if not lags or self._writers.used:
                return True
        return False

    def _forget_deleted(self) -> None:
        """Drop branches of which the log knows nothing any more."""
        branches = {MAIN, *self.log.branches()}
        found = {name for view in self.views for name in view.names()} - branches
        gone = [name for name in found if not name.startswith(SNAPSHOT)]
        if gone:
            self.drop_checkouts(gone)

    def bring_to_head(self, checkout: Checkout) -> Checkout:
        """Bring a branch to its head in every view; called with the writer's lock."""
        head = self.log_head(checkout.name)
        for view in self.views:
            view.follow(checkout, head)
        self._checkouts[checkout.name] = checkout
        self._show(checkout, head)
        return checkout

    def _show(self, checkout: Checkout, head: Head) -> None:
        """Let readers see a head, and publish the change if that was not done yet."""
        before, checkout.head = checkout.head, head
        if before.commit != head.commit:
            change = BranchChange(checkout.name)
            self.feed.publish(
                self.change_scan.complete(change, checkout, before.commit, head.commit)
            )

    def drop_checkouts(self, names: Sequence[str]) -> None:
        """Drop what the views and the disk hold for branches and snapshots that are gone."""
        for view in self.views:
            view.drop(names)
        for name in names:
            if name == MAIN:
                continue
            self._checkouts.pop(name, None)
            folder = self._folder_of(name)
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    def forward(self, checkout: Checkout, source: Checkout) -> None:
        """Let a branch, whose head the log has moved, be where another one is."""
        head = self.log_head(checkout.name)
        for view in self.views:
            view.forward(checkout, head, source)
        checkout.head = head

    def rebuild(self) -> None:
        """Make all views anew from the log; each is replaced when its successor is complete."""
        self.check_writable()
        with self.writing():
            for view in self.views:
                view.rebuild(self._with_files())
                self.catch_up()

    def _with_files(self) -> Iterator[Checkout]:
        """The branches that may have files of their own, each brought to its head."""
        for name, head in self.log.branches().items():
            if self._may_have_files(name):
                yield self._checkouts.get(name) or self.bring_to_head(
                    self._make_checkout(name, head)
                )

    def held_checkouts(self) -> list[Checkout]:
        """``main`` and the branches of which a view may hold something, brought to their heads.

        Those of near commits are next to each other.
        """
        with self.writing():
            held = {name for view in self.views for name in view.names()}
        found = sorted(
            (head.seq, name)
            for name, head in self.log.branches().items()
            if name != MAIN and (name in held or self._may_have_files(name))
        )
        checkouts = [self.main, *(self.checkout(name) for _, name in found)]
        if not self.file.frozen:
            with self.writing():
                self.catch_up()
        return checkouts

    # --- reading ---------------------------------------------------------------------

    def reading_nodes(self, checkout: Checkout, read: Callable[[NodeIndex], T]) -> T:
        """Read from a checkout's node index."""
        self._ensure_usable(checkout)
        return self._reading(checkout, lambda: self.file, lambda _: read(checkout.nodes))

    def reading_quads(self, checkout: Checkout, read: Callable[[QuadsView], T]) -> T:
        """Read from a checkout's quads view."""
        self._ensure_usable(checkout)
        if checkout is not self.main and self.stores.opened(checkout) is None:
            found = self.stores.read_main(checkout, read)
            if found is not None:
                return found[0]
        return self._reading(checkout, lambda: self.stores.of(checkout), read)

    def reading_store(self, checkout: Checkout, read: Callable[[QuadsView], T]) -> T:
        """Read from a checkout's own store, which stays open meanwhile."""
        self._ensure_usable(checkout)
        return self._reading(checkout, lambda: self.stores.of(checkout), read)

    def _may_have_files(self, name: str) -> bool:
        folder = self._folder_of(name)
        return name in self._checkouts or (folder is not None and folder.is_dir())

    def _ensure_usable(self, checkout: Checkout) -> None:
        """Make a snapshot again that was dropped; refuse a branch that was deleted."""
        if checkout is self.main or self._checkouts.get(checkout.name) is checkout:
            return
        if not checkout.fixed:
            raise _gone(checkout)
        with self.writing():
            if self._checkouts.get(checkout.name) is None:
                self._begin_with(checkout, None)

    def _reading(self, checkout: Checkout, view_of: Callable[[], V], read: Callable[[V], T]) -> T:
        """Read from a view that is whole; one that turns out to be damaged is rebuilt first."""
        mine = self._owner == threading.get_ident()
        attempts = 1 if mine else _READ_ATTEMPTS
        while True:
            attempts -= 1
            view = view_of()
            if not mine and (checkout is self.main or view is self.file):
                self._bring_up(checkout, view)
            try:
                with view.reading():
                    if view.whole or mine:
                        return read(view)
            except CorruptionError:
                if not view.damaged or not attempts:
                    raise
            if not attempts:
                raise StorageError("a view is being rebuilt again and again; run 'trails verify'")

    def _bring_up(self, checkout: Checkout, view: Readable) -> None:
        """Make sure that a view can be read.

        One that only lags, because the disk refused it a commit, is read as it is when it
        still can't follow: the visible head lags with it.
        """
        if self.file.frozen:
            return
        if view.damaged or not view.whole:
            with self.writing():
                self.catch_up()
        elif (
            checkout is self.main
            and checkout.head.seq < self.log_head(MAIN).seq
            and monotonic() >= self._retry_at
        ):
            # A writer at work is not waited for: its commit is not acknowledged yet.
            with suppress(StorageError, TransactionError), self.writing(timeout=0):
                self._retry_at = monotonic() + _RETRY_SECONDS
                self.catch_up()
                self._retry_at = 0.0

    def close(self) -> None:
        """Let go of all files."""
        with ExitStack() as stack:
            stack.callback(self.log.close)
            for view in self.views:
                stack.callback(view.close)  # the last first: it may read those before it
            stack.callback(self.activities.close)
            if self.follower is not None:
                stack.callback(self.follower.close)
            for end in self.before_closing:
                stack.callback(end)
