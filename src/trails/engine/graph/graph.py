"""A Graph: one log, the lines that follow it, and the lock that makes writers take turns.

Opening catches the views up with the log; a view that is missing, damaged or
of another history is rebuilt. Reading code asks for a view and gets one that
has reached the head of its line.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Final, Literal, Protocol, TypeVar

from trails.engine.graph.activities import Activities
from trails.engine.graph.ancestry import Ancestry, Containment
from trails.engine.graph.ancestry import Path as CommitPath
from trails.engine.graph.checkouts import SNAPSHOT, Checkout, CompiledSchema, unknown_branch
from trails.engine.graph.feed import BranchChange, ChangeScan, Feed
from trails.engine.graph.folding import Folding, Refold, left_as_it_was
from trails.engine.graph.settling import Settling
from trails.engine.graph.stores import Stores
from trails.errors import CorruptionError, NotFoundError, StorageError, TransactionError
from trails.files import private_folder
from trails.log.protocol import Log
from trails.log.recovery import schemas_of
from trails.log.tail import read_tail
from trails.model.actors import Actor
from trails.model.fairness import NO_ACTOR, FairQueue, Meter
from trails.model.history import GENESIS, Head, Position
from trails.model.iris import Names
from trails.model.names import branch_folder
from trails.model.results import Loss, ReadOnly, Status
from trails.model.types import Schema
from trails.model.upkeep import KEEP_ALL, Retention
from trails.model.writes import KEEP_DAYS
from trails.views.nodes.file import NodeFile
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.layers import ROOT, ROOT_NAME, UNFINISHED
from trails.views.quads.view import QuadsView

MAIN: Final = "main"
TEMPORARY: Final = "tmp"
"""The folder of a graph with what nobody needs after the process that made it."""
Step = Literal["before_append", "after_append", "mid_apply", "after_apply", "before_acknowledge"]
"""Moments of a write at which a process may die; tests stop there."""

_READ_ATTEMPTS = 3
_SHORT = 0.1
"""Seconds that a write may take without being counted: those who wait take turns."""
_RETRY_SECONDS = 1.0
"""How often reads try to bring up a view that the disk refused a commit."""
_DEEP: Final = 6
"""Layers above the root from which ``main`` is folded back into it at once, if that is quick."""
_DEEPEST: Final = 24
"""The same, however long it takes: reads look into every layer."""
_NEAR: Final = 8
"""Snapshots, of those used last, from which another one may be made."""
T = TypeVar("T")


class View(Protocol):
    """What a Graph needs to know of a view."""

    damaged: bool
    whole: bool

    def reading(self) -> AbstractContextManager[None]:
        """Keep what is read in place."""


V = TypeVar("V", bound=View)


def ignore(what: object) -> None:
    """Report nothing."""
    del what


def everybody(actor: Actor) -> bool:
    """Where nobody's credential can end."""
    del actor
    return True


def _gone(line: Checkout) -> NotFoundError:
    return NotFoundError(
        f"branch {line.name!r} was deleted; its commits can still be read as snapshots",
        branch=line.name,
    )


def now() -> str:
    """The present, as the log writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Graph:
    """One versioned knowledge graph, in a folder or in memory."""

    write_seconds: float = 0.0
    """How long one write of an actor with a credential may keep others waiting; 0 is no limit."""
    most_branches: int = 0
    """How many branches such an actor may have; 0 is no limit."""
    allow_bypass: bool = False
    """Whether a write may skip validation, if it asks for that."""
    keep_keys_days: int = KEEP_DAYS
    """For how long idempotency keys are kept."""
    branch_makers: dict[str, str] | None = None
    """Branch → who made it, once somebody asked."""

    def __init__(
        self,
        log: Log,
        folder: Path | None,
        *,
        name: str,
        retention: Retention = KEEP_ALL,
        read_only: ReadOnly | None = None,
        loss: Loss | None = None,
        progress: Callable[[str], None] = ignore,
    ) -> None:
        """The log is closed with the graph; ``folder`` is where its views have their files."""
        self.name = name
        self.log = log
        self.read_only = read_only
        """Why nothing can be written; None where that is not so."""
        self.loss = loss
        """What the log has lost, where that is why."""
        self.folder = folder
        self.on_step: Callable[[Step], None] = ignore
        self.is_current: Callable[[Actor], bool] = everybody
        """Whether a caller's credential is still good; whoever serves the graph knows."""
        self.feed = Feed()
        self._progress = progress
        self._writers = FairQueue(1)
        self.building = threading.Lock()
        """Held while a layer is built part by part, which is done one at a time."""
        self.blocking = Meter(0)
        """Seconds for which each actor's long writes have kept others waiting."""
        self._owner: int | None = None
        self._retry_at = 0.0
        self._compiled: dict[str, CompiledSchema] = {}
        self._lines: dict[str, Checkout] = {}
        self.glimpsed: dict[tuple[str, str], tuple[int, int]] = {}
        """Commit and types that are seen → statements added and removed that are."""
        self.edge_ends: dict[str, tuple[str, ...]] = {}
        """Edge → what it joins, where that had to be looked up."""
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
            self.tracing = ChangeScan(
                self.feed, self.ancestry, self.folding, self.compiled, self.names
            )
            self.file = self._open_file()
            opened.callback(self.file.close)
            opened.callback(self._close_quads)
            self.main = self._add_line(MAIN, self.log_head(MAIN))
            self.stores = Stores(
                self._lines,
                self.main,
                self.ancestry,
                self.folding,
                progress,
                read_only=self.read_only is not None,
            )
            opened.callback(self.stores.end)
            self.settling = Settling(
                self.main,
                self.file,
                self.ancestry,
                self.folding,
                lambda commit: self.compiled(self.schema_at(commit)).schema,
                self.writing,
                self.settle,
                progress,
            )
            opened.callback(self.settling.end)
            if not self.file.frozen:
                self.catch_up()
            elif self.loss is None:
                self.stores.bring_main(self.log_head(MAIN))
            opened.pop_all()

    def _open_file(self) -> NodeFile:
        """The node index: the file itself or, where it can't be used as it is, a copy in memory."""
        path = None if self.folder is None else self.folder / "nodes.db"
        whose = f"{self.name} {self.names.base}"

        def schema_of(digest: str) -> Schema:
            return self.compiled(digest).schema

        if path is None or self.read_only is None:
            return NodeFile(path, schema_of, whose)
        try:
            found = NodeFile(path, schema_of, whose, read_only=True)
        except StorageError:
            self._progress("the node index can't be read; making one in memory")
            return NodeFile(None, schema_of, whose)
        if self._usable(found):
            return found
        found.close()
        self._progress("the node index is not at the head of every branch; copying it to memory")
        return NodeFile(None, schema_of, whose, source=path)

    def _usable(self, file: NodeFile) -> bool:
        """Whether an index that can't be changed says all that there is to say."""
        layers = file.layers
        if self.loss is not None:
            return MAIN in layers.refs and all(
                not each.schema or self._schema(each.schema) is not None for each in layers
            )
        heads = {MAIN: self.log_head(MAIN), **self.log.branches()}
        return all(
            name in layers.refs and layers[layers.refs[name]].position.commit == head.commit
            for name, head in heads.items()
        )

    @property
    def refold(self) -> Refold:
        """What makes node files anew."""
        return Refold(self.ancestry, self.folding, self.compiled)

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

    def compiled(self, digest: str) -> CompiledSchema:
        """What a stored schema means, compiled once."""
        found = self._compiled.get(digest)
        if found is None:
            schema = Schema() if digest == Schema().digest else self._schema(digest)
            if schema is None:
                raise CorruptionError(f"schema {digest} is named by a commit but not in the log")
            found = self._compiled[digest] = CompiledSchema(schema, self.names)
        return found

    def _schema(self, digest: str) -> Schema | None:
        """A stored schema; one that the log has lost may be in its tail."""
        found = self.log.schema(digest)
        if found is None and self.loss is not None and self.folder is not None:
            found = schemas_of(read_tail(self.folder)).get(digest)
        return found

    def compile(self, schema: Schema) -> CompiledSchema:
        """What a schema means that may not be stored yet."""
        return self._compiled.setdefault(schema.digest, CompiledSchema(schema, self.names))

    def line(self, branch: str) -> Checkout:
        """A branch; on its first use here its index is made or brought up."""
        found = self._lines.get(branch)
        if found is not None and not found.fixed:
            return found
        head = self.log.head(branch) if not branch.startswith(SNAPSHOT) else None
        if head is None:
            raise unknown_branch(branch, {MAIN, *self.log.branches()})
        with self.writing():
            return self._lines.get(branch) or self.bring_line(self._add_line(branch, head))

    def has_line(self, name: str) -> bool:
        """Whether a line is in use, so that asking for it waits for nothing."""
        return name in self._lines

    def add_branch(self, name: str, near: Checkout | None) -> Checkout:
        """A branch that the log has got; called with the writer's lock."""
        head = self.log_head(name)
        line = self._add_line(name, head)
        if line.folder is not None:
            shutil.rmtree(line.folder, ignore_errors=True)  # of a namesake that is gone
        self.stand(line, head, near)
        self._lines[name] = line
        return line

    def add_snapshot(self, name: str, head: Head) -> Checkout:
        """The graph as of a commit; called with the writer's lock."""
        line = self._add_line(name, head)
        if not line.nodes.known:
            self.stand(line, head)
        self._lines[name] = line
        return line

    @property
    def lines(self) -> dict[str, Checkout]:
        """The lines in use, by name."""
        return dict(self._lines)

    def _add_line(self, name: str, head: Head) -> Checkout:
        line = Checkout(self.file, name, self._line_folder(name), head)
        line.use(self.compiled(head.schema))
        if name == MAIN:
            self._lines[name] = line
        return line

    def _line_folder(self, name: str) -> Path | None:
        if self.folder is None:
            return None
        if name.startswith(SNAPSHOT):
            return self.folder / "snapshots" / name.removeprefix(SNAPSHOT)
        return self.folder / "branches" / branch_folder(name)

    # --- one writer at a time ------------------------------------------------------

    @contextmanager
    def writing(self, actor: str = NO_ACTOR, timeout: float = 60.0) -> Iterator[None]:
        """Hold the writer's lock; the actors who wait for it take turns."""
        me = threading.get_ident()
        if self._owner == me:
            raise TransactionError(
                "another transaction is open on this thread; finish it first, or write through "
                "its own context"
            )
        if not self._writers.acquire(actor, timeout):
            raise TransactionError(
                f"other writers have kept this graph busy for {timeout:.0f} s; try again later"
            )
        self._owner = me
        begun = monotonic()
        try:
            yield
        finally:
            self._owner = None
            held = monotonic() - begun
            if held > _SHORT and self._writers.has_others(actor):
                self.blocking.add(actor, held)
            self._writers.release(actor)

    def prepare(self, line: Checkout, *, settled: bool = True) -> None:
        """Make a line ready to be written, or moved; called with the writer's lock."""
        self.check_writable()
        if self.file.damaged or not self.file.whole:
            self.catch_up()
        if self._lines.get(line.name) is not line:
            raise _gone(line)
        self.bring_line(line)
        if line is self.main:
            self.stores.bring_main(self.log_head(MAIN))
            self._show(line, self.log_head(MAIN))
            if settled:
                self._settle_now_or_beside()

    # --- views follow the log ------------------------------------------------------

    def catch_up(self) -> None:
        """Bring every view to its head; called by whoever holds the writer's lock."""
        self._bring_file()
        for line in list(self._lines.values()):
            if not line.fixed:
                self.bring_line(line)
        self.stores.bring_main(self.log_head(MAIN))
        self.file.whole = True
        self._show(self.main, self.log_head(MAIN))

    def _bring_file(self) -> None:
        """See to it that the node file is sound and of this history."""
        main = self.main.nodes
        if self.file.damaged:
            self._rebuild_file("is damaged")
        elif main.known and not all(self.ancestry.has(each.position) for each in self.file.layers):
            self._rebuild_file("belongs to another history")
        if not main.known:
            with self.file.transaction():
                self.file.layers.point(self.file.db, MAIN, ROOT)
        branches = {*self.log.branches(), MAIN, ROOT_NAME}
        others = (SNAPSHOT, UNFINISHED) if self.building.locked() else SNAPSHOT
        gone = [
            name
            for name in self.file.layers.refs
            if name not in branches and not name.startswith(others)
        ]
        if gone:
            self.forget_lines(gone)

    def _rebuild_file(self, why: str) -> None:
        """Make the node index anew beside the one that is there, which stays if that fails.

        All branches are folded before it is replaced, also those that nobody uses now: what the
        log can't give any more must not be lost with the old index.
        """
        self._progress(f"the node index {why}; rebuilding it from the log")
        heads = {name: head.commit for name, head in self.log.branches().items()}
        trunk = heads.pop(MAIN, GENESIS)
        with left_as_it_was("the node index", why):
            fresh = self.file.beside()
            try:
                self.refold.fold(fresh, trunk, heads, self._progress)
                with fresh.transaction():
                    fresh.layers.point(fresh.db, MAIN, ROOT)
                self.file.replace(fresh)
            except BaseException:
                fresh.discard()
                raise
        for name in [name for name, line in self._lines.items() if line.fixed]:
            del self._lines[name]

    def bring_line(self, line: Checkout) -> Checkout:
        """Bring a branch's node index to its head; called with the writer's lock."""
        head = self.log_head(line.name)
        try:
            self._bring_nodes(line, head)
        except CorruptionError:
            if not self.file.damaged:
                raise  # then it is the log
            self._bring_file()
            self._bring_nodes(self.main, self.log_head(MAIN))
            self._bring_nodes(line, head)
        self._lines[line.name] = line
        if line is not self.main:
            self._show(line, head)
        return line

    def _show(self, line: Checkout, head: Head) -> None:
        """Let readers see a head; one that a view could not follow at once was not told yet."""
        before, line.head = line.head, head
        if before.commit != head.commit:
            change = BranchChange(line.name)
            self.feed.tell(self.tracing.complete(change, line, before.commit, head.commit))

    def _bring_nodes(self, line: Checkout, head: Head) -> None:
        nodes = line.nodes
        if nodes.known and nodes.position.commit == head.commit:
            if nodes.schema.digest != head.schema:
                line.use(self.compiled(head.schema))
            return
        if not nodes.known:
            self.stand(line, head)
            return
        at = nodes.position.commit
        line.use(self.compiled(self.schema_at(at)))
        path = self.ancestry.path(at, head.commit)
        if path.undo:
            self._move_anew(line, head)
            return
        for commit in path.redo:
            with self.file.step():
                self.folding.walk_nodes(nodes, self.ancestry.path(commit.first_parent, commit.id))
                nodes.commit(Position(commit.seq, commit.id))
        line.use(self.compiled(head.schema))

    def _move_anew(self, line: Checkout, head: Head) -> None:
        """Bring a line to a head that does not follow from where it stands."""
        if line is self.main:
            self._into_root(head)
        else:
            self.forget_lines([line.name])
            self.stand(line, head)
        line.use(self.compiled(head.schema))

    def schema_at(self, commit: str) -> str:
        """The digest of the schema with which a commit is read."""
        return Schema().digest if commit == GENESIS else self.ancestry.commit(commit).schema

    # --- where lines stand in the node file ------------------------------------------

    def stand(self, line: Checkout, head: Head, near: Checkout | None = None) -> None:
        """Give a line a layer of its own: the nearest state, changed into the wanted one."""
        base = near if near is not None else self._nearest(head.commit)
        at = base.nodes.position.commit
        with self.file.turns.exclusive(), self.file.step():
            self.file.layers.stand(self.file.db, line.name, base.nodes.layer.number)
            line.use(self.compiled(self.schema_at(at)))
            self.folding.walk_nodes(line.nodes, self.ancestry.path(at, head.commit))
            self.file.layers.sweep(self.file.db)
            line.nodes.commit(Position(head.seq, head.commit))
        line.use(self.compiled(head.schema))

    def path_to(self, head: Head) -> tuple[Checkout, CommitPath]:
        """The nearest line in use, and the way from there; called with the writer's lock."""
        base = self._nearest(head.commit)
        return base, self.ancestry.path(base.nodes.position.commit, head.commit)

    def _nearest(self, commit: str) -> Checkout:
        """A line in use from which a commit is reached with the least work.

        A node is looked for in every layer of a line, and may be hidden by any above it: going back
        commit by commit would else put each snapshot on top of all that were made before.
        """
        candidates = [self.main]
        if commit != GENESIS:
            own = self._lines.get(self.ancestry.commit(commit).branch)
            candidates += [line for line in (own, self._lines.get(SNAPSHOT + commit)) if line]
        recent = self.file.layers.oldest([name for name, line in self._lines.items() if line.fixed])
        candidates += [self._lines[name] for name in recent[-_NEAR:]]

        def work(line: Checkout) -> int:
            depth = len(self.file.layers.lineage(line.nodes.layer.number))
            return self.ancestry.distance(line.nodes.position.commit, commit) * depth**2

        return min((line for line in candidates if line.nodes.known), key=work)

    def forget_lines(self, names: list[str]) -> None:
        """Lines are gone: drop what the node file and the disk hold for them alone."""
        with self.file.turns.exclusive(), self.file.transaction():
            for name in names:
                self.file.layers.forget(self.file.db, name)
            self.file.layers.sweep(self.file.db)
        for name in names:
            line = self._lines.pop(name, None) if name != MAIN else None
            if line is not None:
                self.stores.close(line)
            folder = self._line_folder(name)
            if folder is not None and name != MAIN:
                shutil.rmtree(folder, ignore_errors=True)

    def _settle_now_or_beside(self) -> None:
        """Before ``main`` is written: what takes long is left to a thread."""
        if self.settling.is_due():
            self.settling.begin()
        else:
            self.settle()

    def settle(self) -> None:
        """Fold what a fast-forward put above the root into it; called with the writer's lock."""
        layer = self.main.nodes.layer
        if layer.number != ROOT:
            position = layer.position
            self._into_root(Head(position.commit, position.seq, layer.schema))
            self.main.use(self.main.compiled)

    def _into_root(self, head: Head) -> None:
        """Take the root to a commit, and let ``main`` stand on it."""
        root = NodeIndex(self.file, ROOT_NAME)
        root.follow(self.compiled(self.schema_at(root.position.commit)).schema)
        with self.file.turns.exclusive(), self.file.step():
            at = self._complete_half_folded(root)
            path = self.ancestry.path(at, head.commit)
            # Going back, no commit's own place in the log is later than all that was there.
            self.folding.walk_nodes(root, path, head.seq if path.undo else None)
            self.file.layers.point(self.file.db, MAIN, ROOT)
            self.file.layers.sweep(self.file.db)
            root.commit(Position(head.seq, head.commit))

    def _complete_half_folded(self, root: NodeIndex) -> str:
        """Fold the rest of what settling began; the commit at which the root is then."""
        commit = self.file.half_folded
        if not commit:
            return root.position.commit
        self.folding.walk_nodes(root, self.ancestry.path(root.position.commit, commit))
        self.file.mark_half_folded("")
        return commit

    def forward(self, line: Checkout, source: Checkout) -> None:
        """Let a branch, whose head the log has moved, be where another line is."""
        head = self.log_head(line.name)
        self.stand(line, head, near=source)
        if line is self.main:
            depth = len(self.file.layers.lineage(line.nodes.layer.number))
            if depth > _DEEPEST or (depth > _DEEP and not self.settling.is_due()):
                self.settle()
            self.stores.forward(source, head)
        line.head = head
        if line is self.main and self.settling.is_due():
            self.settling.begin()

    def rebuild(self) -> None:
        """Make all views anew from the log; each is replaced when its successor is complete."""
        self.check_writable()
        with self.writing():
            self._rebuild_file("is to be rebuilt")
            self.catch_up()
            self.stores.rebuild(self.main, self.log_head(MAIN))
            for name, head in self.log.branches().items():
                line = self._lines.get(name) or self._add_line(name, head)
                if line is not self.main and self.stores.exists(line):
                    self.stores.rebuild(self.bring_line(line), head)

    # --- reading ---------------------------------------------------------------------

    def reading_nodes(self, line: Checkout, read: Callable[[NodeIndex], T]) -> T:
        """Read from a line's node index."""
        self._see_to(line)
        return self._reading(line, lambda: self.file, lambda _: read(line.nodes))

    def reading_quads(self, line: Checkout, read: Callable[[QuadsView], T]) -> T:
        """Read from a line's quads view."""
        self._see_to(line)
        if line is not self.main and line.quads is None:
            found = self._reading_mains(line, read)
            if found is not None:
                return found[0]
        return self._reading(line, lambda: self.stores.of(line), read)

    def reading_store(self, line: Checkout, read: Callable[[QuadsView], T]) -> T:
        """Read from a line's own store, which stays open meanwhile."""
        self._see_to(line)
        return self._reading(line, lambda: self.stores.of(line), read)

    def with_stores(self) -> list[str]:
        """Main, and the branches that have a store of their own, those of near commits together."""
        found = [
            (head.seq, name)
            for name, head in self.log.branches().items()
            if name != MAIN and self._may_have_store(name) and self.stores.exists(self.line(name))
        ]
        return [MAIN, *(name for _, name in sorted(found))]

    def _may_have_store(self, name: str) -> bool:
        folder = self._line_folder(name)
        return name in self._lines or (folder is not None and folder.is_dir())

    def _reading_mains(self, line: Checkout, read: Callable[[QuadsView], T]) -> tuple[T] | None:
        """Read from main's store, where main is at the same commit; None where it is not.

        A branch that was just made needs no store of its own yet.
        """
        quads, wanted = self.stores.main(), line.head.commit
        if quads.position.commit != wanted or quads.damaged or not quads.whole:
            return None
        with suppress(CorruptionError), quads.reading():
            found = read(quads)
            # The store itself tells: a commit can be in it before its position is known here.
            if quads.stored_position().commit == wanted:
                return (found,)
        return None

    def _see_to(self, line: Checkout) -> None:
        """A snapshot that had to make room is made again; a branch that was deleted is gone."""
        if line is self.main or self._lines.get(line.name) is line:
            return
        if not line.fixed:
            raise _gone(line)
        with self.writing():
            if self._lines.get(line.name) is None:
                if not line.nodes.known:
                    self.stand(line, line.head)
                self._lines[line.name] = line

    def _reading(self, line: Checkout, view_of: Callable[[], V], read: Callable[[V], T]) -> T:
        """Read from a view that is whole; one that turns out to be damaged is rebuilt first."""
        mine = self._owner == threading.get_ident()
        attempts = 1 if mine else _READ_ATTEMPTS
        while True:
            attempts -= 1
            view = view_of()
            if not mine and (line is self.main or view is self.file):
                self._bring_up(line, view)
            try:
                with view.reading():
                    if view.whole or mine:
                        return read(view)
            except CorruptionError:
                if not view.damaged or not attempts:
                    raise
            if not attempts:
                raise StorageError("a view is being rebuilt again and again; run 'trails verify'")

    def _bring_up(self, line: Checkout, view: View) -> None:
        """See to it that a view can be read.

        One that only lags, because the disk refused it a commit, is read as it is when it
        still can't follow: the visible head lags with it.
        """
        if self.file.frozen:
            return
        if view.damaged or not view.whole:
            with self.writing():
                self.catch_up()
        elif (
            line is self.main
            and line.head.seq < self.log_head(MAIN).seq
            and monotonic() >= self._retry_at
        ):
            # A writer at work is not waited for: its commit is not acknowledged yet.
            with suppress(StorageError, TransactionError), self.writing(timeout=0):
                self._retry_at = monotonic() + _RETRY_SECONDS
                self.catch_up()
                self._retry_at = 0.0

    def _close_quads(self) -> None:
        with ExitStack() as stack:
            for line in self._lines.values():
                if line.quads is not None:
                    stack.callback(line.quads.close)

    def close(self) -> None:
        """Let go of all files."""
        with ExitStack() as stack:
            stack.callback(self.log.close)
            stack.callback(self._close_quads)
            stack.callback(self.stores.end)
            stack.callback(self.file.close)
            stack.callback(self.settling.end)
            stack.callback(self.activities.close)
