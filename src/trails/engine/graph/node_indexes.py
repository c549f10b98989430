"""NodeIndexes: the view that validation reads, one node index for each branch and snapshot.

All of them are layers of one file. ``main`` is on the root layer; a branch or snapshot gets a
layer above the nearest state that is in use. After a fast-forward ``main`` is above the root as
well. It can be read and written there, only less directly, until ``settle`` folds that into the
root at once, or ``Settling`` does it in a thread, a small part at a time, so that writers get
their turn in between. States that were forked before see nothing of it. The rows of layers that
nobody needs any more are removed by the same thread.

A commit that is folded half-way is marked. Folding it again from its start changes nothing that
was done already, so the next fold, after a crash or in a hurry, begins with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final

from trails.engine.graph.ancestry import Path as CommitPath
from trails.engine.graph.checkouts import MAIN, SNAPSHOT, Checkout
from trails.engine.graph.folding import Folding, Refold, left_as_it_was
from trails.errors import CorruptionError, StorageError, TrailsError
from trails.imports import later
from trails.log.payloads import Payload
from trails.model.fairness import NO_ACTOR, WorkInProgress, give_way
from trails.model.history import GENESIS, Commit, Head, Position
from trails.model.texts import count
from trails.model.types import Schema
from trails.views.base import Comparison, Reference
from trails.views.nodes.chains import add_commit
from trails.views.nodes.compare import States, compare
from trails.views.nodes.file import NodeFile
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.layers import ROOT, ROOT_NAME, UNFINISHED

if TYPE_CHECKING:
    from trails.views.nodes import sums
    from trails.views.terms import Terms
else:
    sums = later("trails.views.nodes.sums")

AT_ONCE: Final = 20
"""Statements that are folded in one part: a writer may have to wait for so many."""
_SWEPT: Final = 200
"""Rows of layers that nobody needs any more that are removed at once."""
_DELAY: Final = 0.02
"""Seconds before the thread begins: the call that moved ``main`` is answered first."""
_SETTLER: Final = "/settling"
"""In whose name the writer's lock is taken, so that actors and settling take turns."""
_PATIENCE: Final = 10.0
"""Seconds after which parts are twice as large, because writes come as fast as they are folded."""
_LARGEST: Final = 5
"""How often parts become twice as large."""


class Settling:
    """Brings the root to where ``main`` is."""

    def __init__(
        self,
        file: NodeFile,
        folding: Folding,
        main: Callable[[], Checkout],
        writing: Callable[[str], AbstractContextManager[None]],
        finish: Callable[[], None],
        progress: Callable[[str], None],
    ) -> None:
        """``finish`` settles what little is left, with the writer's lock."""
        self._file = file
        self._folding = folding
        self._ancestry = folding.ancestry
        self._find_main = main
        self._writing = writing
        self._finish = finish
        self._progress = progress
        self._thread: threading.Thread | None = None
        self._begun = False
        """Whether the thread will look for work again."""
        self._starting = threading.Lock()
        self._running = threading.Lock()
        self._ending = threading.Event()

    @property
    def _main(self) -> NodeIndex:
        return self._find_main().nodes

    def _schema_at(self, commit: str) -> Schema:
        return self._folding.compiled(self._ancestry.schema_at(commit)).schema

    def _work_left(self) -> int:
        """Statements between the root and ``main``, and one for each commit."""
        if self._is_settled:
            return 0
        path = self._ancestry.path(self._root().commit, self._main.position.commit)
        return sum(_work(each) for each in (*path.undo, *path.redo))

    @property
    def _is_settled(self) -> bool:
        return not self._main.known or self._main.layer.number == ROOT

    def _root(self) -> Position:
        return self._file.layers[ROOT].position

    def begin(self) -> None:
        """Settle in a thread, if none does already."""
        with self._starting:
            if self._ended or self._begun:
                return
            self._begun = True
            self._thread = threading.Thread(target=self._work, name="trails-settle", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Stop, because the files are about to be closed."""
        with self._starting:
            self._ending.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    @property
    def _ended(self) -> bool:
        return self._ending.is_set()

    def _work(self) -> None:
        self._ending.wait(_DELAY)
        work = WorkInProgress(is_long=True)
        try:
            while self._is_needed():
                self.run()
        except BaseException as error:
            with self._starting:
                self._begun = False
            if not isinstance(error, TrailsError):
                raise
            self._progress(f"the node index of main could not be folded yet: {error.message}")
        finally:
            work.end()

    def _is_needed(self) -> bool:
        """Whether there is work; otherwise the thread ends, and more begins another one."""
        with self._starting:
            self._begun = not self._ended and (
                not self._is_settled or bool(self._file.layers.unused)
            )
            return self._begun

    def run(self) -> None:
        """Settle in this thread; the writer's lock is taken and given back part by part."""
        with self._running:
            begun = monotonic()
            while not self._ended and not self._is_settled:
                size = AT_ONCE << min(_LARGEST, int((monotonic() - begun) / _PATIENCE))
                if self._go_on(size):
                    self._end(size)
            while not self._ended and self._sweep():
                pass

    def _go_on(self, size: int) -> bool:
        """Take the root nearer to ``main``; whether no more than the end is left."""
        start = self._root()
        path = self._ancestry.path(start.commit, self._main.position.commit)
        if path.undo:
            return True  # the root has to go back, which is rare, and done at once
        for commits in _grouped(path.redo, size):
            if not self._follow(start, commits, size):
                return False  # another thread has moved the root or main
            start = self._root()
        return True

    def _end(self, size: int) -> None:
        """Put ``main`` back on the root, if not too much was written meanwhile."""
        with self._writing(_SETTLER):
            main = self._main.position.commit
            path = self._ancestry.path(self._root().commit, main)
            if not self._ended and (path.undo or self._work_left() <= size):
                self._finish()

    def _sweep(self) -> bool:
        """Remove some rows that nobody needs; whether there may be more."""
        layers = self._file.layers
        if not layers.unused:
            return False
        with self._writing(_SETTLER), self._file.transaction():
            layers = self._file.layers
            layers.sweep(self._file.db, _SWEPT)
        self._file.checkpoint_sometimes()
        give_way()
        return True

    def _follow(self, start: Position, commits: list[Commit], size: int) -> bool:
        """Take the root from where it is over some small commits, or a large one."""
        last = commits[-1]

        def fold(root: NodeIndex) -> None:
            self._folding.walk_nodes(root, CommitPath((), tuple(commits)))

        if len(commits) == 1 and _work(last) > size:
            with closing(self._folding.parts(last, size)) as parts:
                if not all(self._step(start, last, part, done=False) for part in parts):
                    return False
            fold = _nothing
        return self._step(start, last, fold, done=True)

    def _step(
        self, start: Position, commit: Commit, part: Callable[[NodeIndex], None], *, done: bool
    ) -> bool:
        """Do one part; False, and nothing done, when another thread has moved the root or main."""
        with self._writing(_SETTLER):
            if self._ended or self._root() != start or self._is_settled:
                return False
            root = NodeIndex(self._file, ROOT_NAME)
            root.follow(self._schema_at(start.commit))
            with self._file.step():
                part(root)
                self._file.mark_half_folded("" if done else commit.id)
                if done:
                    root.follow(self._schema_at(commit.id))
                    root.commit(Position(commit.seq, commit.id))
                else:
                    self._file.commit()
        self._file.checkpoint_sometimes()
        give_way()
        return True


def _nothing(root: NodeIndex) -> None:
    """All parts are done."""


def _work(commit: Commit) -> int:
    return commit.added + commit.removed + 1


def _grouped(commits: Iterable[Commit], size: int) -> Iterator[list[Commit]]:
    """Commits in groups of which each is little work, a large one alone."""
    group: list[Commit] = []
    work = 0
    for commit in commits:
        if group and work + _work(commit) > size:
            yield group
            group, work = [], 0
        group.append(commit)
        work += _work(commit)
    if group:
        yield group


def _fold_in(reference: Reference, file: NodeFile) -> NodeFile:
    """The file that the log is folded into where a node index is not what the log says."""
    return NodeFile(reference.folder / "nodes.db", file.schema_of)


_DEEPEST: Final = 64
"""Layers above the root from which ``main`` is folded back into it at once: reads look into all."""
_NEAR: Final = 8
"""Snapshots, of those used last, from which another one may be made."""


class NodeIndexes:
    """The node indexes of a graph's checkouts."""

    name = "node index"

    def __init__(
        self,
        file: NodeFile,
        checkouts: Mapping[str, Checkout],
        folding: Folding,
        heads: Callable[[], Mapping[str, Head]],
        forget: Callable[[list[str]], None],
        writing: Callable[[str], AbstractContextManager[None]],
        progress: Callable[[str], None],
    ) -> None:
        """``heads`` gives the branches of the log; ``forget`` drops checkouts from all views."""
        self.file = file
        self.building = threading.Lock()
        """Held while a layer is built part by part, which is done one at a time."""
        self._checkouts = checkouts
        self._folding = folding
        self._ancestry = folding.ancestry
        self._heads = heads
        self._forget = forget
        self._writing = writing
        self._progress = progress
        self.settling = Settling(
            file, folding, lambda: checkouts[MAIN], writing, self.settle, progress
        )

    @property
    def refold(self) -> Refold:
        """What makes node files anew."""
        return Refold(self._ancestry, self._folding, self._folding.compiled)

    @property
    def _main(self) -> Checkout:
        return self._checkouts[MAIN]

    # --- the file as a whole -------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the file is sound."""
        return self.file.whole and not self.file.damaged

    def check(self) -> None:
        """Rebuild the file if it is damaged or of another history; give ``main`` its place."""
        if self.file.frozen:
            return
        main = self._main.nodes
        if self.file.damaged:
            self._rebuild("is damaged")
        elif main.known and not all(self._ancestry.has(each.position) for each in self.file.layers):
            self._rebuild("belongs to another history")
        if not main.known:
            with self.file.transaction():
                self.file.layers.point(self.file.db, MAIN, ROOT)

    def open(self) -> None:
        """Do nothing: it is never left closed."""

    def names(self) -> Collection[str]:
        """The checkouts with layers; one that is being built counts only if that was given up."""
        if self.file.frozen:
            return ()
        hidden = (ROOT_NAME, UNFINISHED) if self.building.locked() else ROOT_NAME
        return [name for name in self.file.layers.refs if not name.startswith(hidden)]

    def rebuild(self, refs: Iterable[Checkout]) -> None:
        """Make the file anew; it has all branches, whichever are in use."""
        del refs
        self._rebuild("is to be rebuilt")

    def _rebuild(self, why: str) -> None:
        """Make the node index anew beside the one that is there, which stays if that fails.

        All branches are folded before it is replaced, also those that are not in use: what the
        log can't give any more must not be lost with the old index.
        """
        self._progress(f"the node index {why}; rebuilding it from the log")
        heads = {name: head.commit for name, head in self._heads().items()}
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
        snapshots = [name for name, checkout in self._checkouts.items() if checkout.fixed]
        if snapshots:
            self._forget(snapshots)

    # --- upkeep --------------------------------------------------------------------------

    def verify(
        self, refs: Iterable[Checkout], reference: Reference, progress: Callable[[str], None]
    ) -> Comparison:
        """Compare every state in the file by sums; where they differ, fold the log and look."""
        del refs  # the file has them all
        if not self.file.frozen:
            self.settling.run()
        with ExitStack() as stack:
            with self._writing(NO_ACTOR):
                if not self.file.frozen:
                    self.settle()
                heads = {name: head.commit for name, head in self._heads().items()}
                pinned = stack.enter_context(self.file.pinned())
            ours = States(pinned.db, self.file.schema_of)
            stack.callback(ours.close)
            rows = None
            if heads.keys() <= ours.layers.refs.keys():
                rows = sums.rows_as_logged(
                    ours, self._terms, lambda at: reference.sums.at(at).logged, progress
                )
            if rows is not None:
                reference.nodes_proven = True
                return Comparison(count(rows, "row"))
            progress("folding the log again to see what differs")
            fresh = stack.enter_context(closing(_fold_in(reference, self.file)))
            held = {name: ours.layers[at].position.commit for name, at in ours.layers.refs.items()}
            trunk = held.pop(ROOT_NAME, held[MAIN])
            folded = self.refold.fold(fresh, trunk, heads | held, progress)
            progress(f"folded {count(folded, 'commit')}; comparing the {self.name}")
            found = compare(ours, States(fresh.db, fresh.schema_of))
        return Comparison(count(found.rows, "row"), found.problems)

    def _terms(self, schema: Schema) -> Terms:
        return self._folding.compiled(schema.digest).terms

    @contextmanager
    def as_logged(self, reference: Reference) -> Iterator[NodeFile]:
        """Every branch as the log says it is: this file, if it has been proven, or a fold."""
        if reference.nodes_proven:
            with self.file.pinned() as pinned:
                yield pinned
        else:
            with closing(_fold_in(reference, self.file)) as fresh:
                yield fresh

    def size(self) -> int:
        """The bytes of the file."""
        return self.file.size()

    def is_open(self, ref: Checkout) -> bool:
        """Never: it has no files in the folder of a checkout."""
        del ref
        return False

    def clean(self) -> int:
        """Drop versions that no layer shows."""
        rows = self.file.purge()
        self.file.give_back_space()
        return rows

    def compact(self) -> None:
        """Rewrite the file, with ``main`` on the root."""
        self.settle()
        self.file.purge()
        self.file.compact()

    def close(self) -> None:
        """End the thread that settles, and close the file."""
        try:
            self.settling.end()
        finally:
            self.file.close()

    # --- following -----------------------------------------------------------------------

    def position(self, ref: Checkout) -> Position | None:
        """How far a checkout's layer has followed the log."""
        return ref.nodes.position if ref.nodes.known else None

    def follow(self, ref: Checkout, head: Head) -> None:
        """Bring a branch to its head; a file that turns out to be damaged is rebuilt."""
        try:
            self._bring(ref, head)
        except CorruptionError:
            if not self.file.damaged:
                raise  # then it is the log
            self.check()
            if ref is not self._main:
                self._bring(self._main, self._heads()[MAIN])
            self._bring(ref, head)

    def _bring(self, checkout: Checkout, head: Head) -> None:
        nodes, compiled = checkout.nodes, self._folding.compiled
        if nodes.known and nodes.position.commit == head.commit:
            if nodes.schema.digest != head.schema:
                checkout.use(compiled(head.schema))
            return
        if not nodes.known:
            self._put_layer(checkout, head)
            return
        at = nodes.position.commit
        checkout.use(compiled(self._ancestry.schema_at(at)))
        path = self._ancestry.path(at, head.commit)
        if path.undo:
            self._move_anew(checkout, head)
            return
        for commit in path.redo:
            with self.file.step():
                self._folding.walk_nodes(nodes, self._ancestry.path(commit.first_parent, commit.id))
                nodes.commit(Position(commit.seq, commit.id))
        checkout.use(compiled(head.schema))

    def _move_anew(self, checkout: Checkout, head: Head) -> None:
        """Bring a checkout to a head that does not follow from its own."""
        if checkout is self._main:
            self._into_root(head)
        else:
            self.drop([checkout.name])
            self._put_layer(checkout, head)
        checkout.use(self._folding.compiled(head.schema))

    def land(self, commits: Sequence[tuple[Checkout, Commit, Payload]]) -> None:
        """Commit the transaction in which the writes were checked: it has their changes."""
        if not self.file.in_transaction:  # SQLite has rolled it back, for lack of space
            raise StorageError("the changes of the node index are lost")
        with self.file.errors("write the node index"):
            for ref, commit, _ in commits:
                at, parent = ref.nodes.position, commit.first_parent
                first = at.seq if at.commit == parent else self._ancestry.place(parent)
                add_commit(self.file.db, commit.seq, first)
                ref.nodes.move(Position(commit.seq, commit.id))
        self.file.commit()

    # --- layers --------------------------------------------------------------------------

    def fork(self, ref: Checkout, head: Head, source: Checkout | None) -> None:
        """Give a branch or snapshot a layer of its own."""
        if not (ref.fixed and ref.nodes.known):
            self._put_layer(ref, head, source)

    def _put_layer(self, checkout: Checkout, head: Head, near: Checkout | None = None) -> None:
        """Put a layer above the nearest state, and change it into the wanted one."""
        base = near if near is not None else self._nearest(head.commit)
        at = base.nodes.position.commit
        with self.file.rw_lock.exclusive(), self.file.step():
            self.file.layers.fork(self.file.db, checkout.name, base.nodes.layer.number)
            checkout.use(self._folding.compiled(self._ancestry.schema_at(at)))
            self._folding.walk_nodes(checkout.nodes, self._ancestry.path(at, head.commit))
            checkout.nodes.commit(Position(head.seq, head.commit))
        checkout.use(self._folding.compiled(head.schema))
        self._sweep_later()

    def _sweep_later(self) -> None:
        """Remove what no layer needs any more, a little at a time."""
        if self.file.layers.release():
            self.settling.begin()

    def path_to(self, head: Head) -> tuple[Checkout, CommitPath]:
        """The nearest checkout in use, and the way from there; called with the writer's lock."""
        base = self._nearest(head.commit)
        return base, self._ancestry.path(base.nodes.position.commit, head.commit)

    def _nearest(self, commit: str) -> Checkout:
        """The checkout in use from which a commit is reached with the least work.

        A node is looked for in every layer of a checkout, and may be hidden by any above it: going
        back commit by commit would else put each snapshot on top of all that were made before.
        """
        checkouts = self._checkouts
        candidates = [self._main]
        if commit != GENESIS:
            own = checkouts.get(self._ancestry.commit(commit).branch)
            candidates += [each for each in (own, checkouts.get(SNAPSHOT + commit)) if each]
        recent = self.file.layers.oldest([name for name, each in checkouts.items() if each.fixed])
        candidates += [checkouts[name] for name in recent[-_NEAR:]]

        def work(checkout: Checkout) -> int:
            depth = len(self.file.layers.lineage(checkout.nodes.layer.number))
            return self._ancestry.distance(checkout.nodes.position.commit, commit) * depth**2

        return min((each for each in candidates if each.nodes.known), key=work)

    def drop(self, names: Sequence[str]) -> None:
        """Remove layers that are not used any more."""
        with self.file.rw_lock.exclusive(), self.file.transaction():
            for name in names:
                self.file.layers.forget(self.file.db, name)
        self._sweep_later()

    # --- fast-forwards, and main above the root --------------------------------------------

    def forward(self, ref: Checkout, head: Head, source: Checkout) -> None:
        """Put a branch above another one; ``main`` goes back to the root soon after."""
        self._put_layer(ref, head, near=source)
        if ref is not self._main:
            return
        if len(self.file.layers.lineage(ref.nodes.layer.number)) > _DEEPEST:
            self.settle()
        self.settling.begin()

    @property
    def settled(self) -> bool:
        """Whether ``main`` is on the root."""
        return self._main.nodes.layer.number == ROOT

    def settle_later(self) -> None:
        """Before ``main`` is written: it goes back to the root in a thread, if it is not there."""
        if not self.settled:
            self.settling.begin()

    def settle(self) -> None:
        """Fold what a fast-forward put above the root into it; called with the writer's lock."""
        main = self._main
        layer = main.nodes.layer
        if layer.number != ROOT:
            position = layer.position
            self._into_root(Head(position.commit, position.seq, layer.schema))
            main.use(main.compiled)

    def _into_root(self, head: Head) -> None:
        """Take the root to a commit, and ``main`` back to the root."""
        root = NodeIndex(self.file, ROOT_NAME)
        schema = self._ancestry.schema_at(root.position.commit)
        root.follow(self._folding.compiled(schema).schema)
        with self.file.rw_lock.exclusive(), self.file.step():
            at = self._complete_half_folded(root)
            path = self._ancestry.path(at, head.commit)
            # Going back, no commit's own place in the log is later than all that was there.
            self._folding.walk_nodes(root, path, head.seq if path.undo else None)
            self.file.layers.point(self.file.db, MAIN, ROOT)
            self.file.layers.release()
            root.commit(Position(head.seq, head.commit))

    def _complete_half_folded(self, root: NodeIndex) -> str:
        """Fold the rest of what settling began; the commit at which the root is then."""
        commit = self.file.half_folded
        if not commit:
            return root.position.commit
        self._folding.walk_nodes(root, self._ancestry.path(root.position.commit, commit))
        self.file.mark_half_folded("")
        return commit
