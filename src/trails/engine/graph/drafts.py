"""DraftGraph: a graph as it is now, whose writes nobody else sees.

It has an overlay of the log and a draft of the node file, so everything that reads or writes a
graph works on it unchanged: a call that reads its own writes sees them, and nothing of it is in the
log, in the views or in the feed. The writer's lock of the graph is not held meanwhile.
``engine.write.write`` appends what a draft holds to the log, if that is wanted.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, TypeVar

import msgspec

from trails.engine.graph.ancestry import Ancestry, Containment
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.feed import ChangeScan, Feed
from trails.engine.graph.folding import Folding
from trails.engine.graph.graph import MAIN, Graph, ignore
from trails.engine.graph.node_indexes import NodeIndexes
from trails.engine.graph.stores import Stores
from trails.files import private_folder
from trails.imports import later
from trails.log.overlay import OverlayLog
from trails.log.payloads import Payload
from trails.log.protocol import LogEntry
from trails.model.fairness import FairQueue
from trails.model.history import Commit, Head, Position
from trails.views.nodes.file import DraftFile
from trails.views.nodes.index import DraftIndex

if TYPE_CHECKING:
    from trails.views.quads import view
    from trails.views.quads.staging import StagedLoad
    from trails.views.quads.view import QuadsView
else:
    view = later("trails.views.quads.view")

T = TypeVar("T")


@contextmanager
def drafted_graph(graph: Graph, source: Checkout, branch: str) -> Iterator[DraftGraph]:
    """A draft of a graph in which ``branch`` is where a branch or snapshot is now."""
    graph.check_writable()
    with ExitStack() as held:
        draft = DraftGraph(graph, held.enter_context(graph.file.draft()), source, branch)
        draft.held = held
        try:
            yield draft
        finally:
            draft.close()


class DraftGraph(Graph):
    """A graph above another one, for one call."""

    log: OverlayLog
    held: ExitStack
    """Keeps the node file open."""

    def __init__(self, base: Graph, file: DraftFile, source: Checkout, branch: str) -> None:
        self.base = base
        self.source = source
        """What the branch grows out of."""
        self.branch = branch
        folder = base.temporary()
        self._scratch = None if folder is None else folder / f"draft-{token_hex(8)}"
        self.named_blobs: set[str] = set()
        """The blobs that its commits name."""
        self._draft_file = file
        self.creates = branch != MAIN and base.log.head(branch) is None
        """Whether the graph has no such branch."""
        index = DraftIndex(file, branch)
        index.grow(source.name)
        at = index.position
        self.start = Head(at.commit, at.seq, base.ancestry.schema_at(at.commit))
        """Where the branch is before anything is written here."""
        self._take_over(base)
        self.log = OverlayLog(base.log, {branch: self.start}, self._segments())
        self.ancestry = Ancestry(self.log)
        self.containment = Containment(self.log, self.ancestry)
        self.folding = Folding(self.log, self.ancestry, self.compiled)
        self.change_scan = ChangeScan(
            self.feed, self.ancestry, self.folding, self.compiled, self.names
        )
        self.file = file
        self._checkouts: dict[str, Checkout] = {}
        self.drafted = self._checkouts[branch] = self._make_checkout(branch, self.start)
        self.main = (
            self.drafted if branch == MAIN else self._make_checkout(MAIN, self._head_in_file(MAIN))
        )
        self._checkouts[MAIN] = self.main
        self.nodes = _DraftNodes(
            file,
            self._checkouts,
            self.folding,
            self.log.branches,
            self.drop_checkouts,
            self.writing,
            ignore,
        )
        self.stores = _DraftStores(self)
        self.views = [self.nodes, self.stores]

    def _take_over(self, base: Graph) -> None:
        """What is the same for a draft."""
        self.name, self.names = base.name, base.names
        self.read_only, self.loss, self.folder = None, None, None
        self.blobs, self.activities = base.blobs, base.activities
        self.slow_queries, self.embedder = base.slow_queries, base.embedder
        self.is_current, self.blocking = base.is_current, base.blocking
        self.write_seconds, self.most_branches = base.write_seconds, base.most_branches
        self.most_blob, self.most_unnamed = base.most_blob, base.most_unnamed
        self.allow_bypass, self.keep_keys_days = base.allow_bypass, base.keep_keys_days
        makers = base.branch_makers
        self.branch_makers = None if makers is None else dict(makers)
        self._compiled = base._compiled  # noqa: SLF001 - schemas by digest are the same
        self.on_step, self.progress, self.feed = ignore, ignore, Feed()
        self._writers, self._owner, self._retry_at = FairQueue(1), None, 0.0
        self._group = None
        self.visible_counts, self.edge_ends = {}, {}
        self.before_closing = []

    def _segments(self) -> Path | None:
        """A folder for deltas that are too large for memory, beside those of the log."""
        return None if self._scratch is None else self._scratch / "segments"

    def _head_in_file(self, branch: str) -> Head:
        layers = self._draft_file.layers
        at = layers[layers.refs[branch]].position
        return Head(at.commit, at.seq, self.base.ancestry.schema_at(at.commit))

    def _make_checkout(self, name: str, head: Head) -> Checkout:
        checkout = Checkout(self.file, name, None, head)
        checkout.nodes = DraftIndex(self._draft_file, name)
        checkout.use(self.compiled(head.schema))
        return checkout

    def temporary(self) -> Path | None:
        """The folder of the graph for files of this process."""
        return self.base.temporary()

    def scratch(self) -> Path | None:
        """A folder for files of this draft alone; None for a graph in memory."""
        if self._scratch is not None:
            private_folder(self._scratch)
        return self._scratch

    def add_branch(self, name: str, near: Checkout | None) -> Checkout:
        """A branch that the overlay has got; it can be used if it begins where the draft does."""
        del near
        checkout = self._make_checkout(name, self.log_head(name))
        if self.drafted.nodes.position.commit == checkout.head.commit:
            DraftIndex(self._draft_file, name).grow(self.branch)
            self._checkouts[name] = checkout
        return checkout

    def drop_checkouts(self, names: Sequence[str]) -> None:
        """Keep what is there: others use it."""
        del names

    def keep_blobs(self, digests: Collection[str]) -> None:
        """Remember what a landing has to keep."""
        self.named_blobs.update(digests)

    def blobs_committed(self, digests: Collection[str]) -> None:
        """Nothing is committed yet."""
        del digests

    def renumbered(self, last: int) -> Iterator[LogEntry]:
        """What it holds, as it follows the commit at a place of the log."""
        for place, each in enumerate(self.log.entries, start=last + 1):
            commit = msgspec.structs.replace(each.commit, seq=place)
            yield LogEntry(commit, each.payload, each.schema, each.expected)

    def let_go(self) -> None:
        """Close the node file: what it holds is in the overlay of the log too.

        While it is open, nobody can replace the file of the graph, whatever is wrong with it.
        """
        self.held.close()

    def close(self) -> None:
        """Remove its other files."""
        self.stores.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)


class _DraftNodes(NodeIndexes):
    """The node indexes of a draft: they are where they have to be."""

    def check(self) -> None:
        """Nothing to do: the file below was checked."""

    def follow(self, ref: Checkout, head: Head) -> None:
        """Do nothing: only the drafted branch moves, with its own commits."""
        del ref, head

    def fork(self, ref: Checkout, head: Head, source: Checkout | None) -> None:
        """Do nothing."""
        del ref, head, source

    def drop(self, names: Sequence[str]) -> None:
        """Do nothing."""
        del names

    def land(self, commits: Sequence[tuple[Checkout, Commit, Payload]]) -> None:
        """Keep what the write has changed."""
        for ref, commit, _ in commits:
            ref.nodes.move(Position(commit.seq, commit.id))
        self.file.commit()

    def settle_later(self) -> None:
        """Do nothing: the root is never written here."""


class _DraftStores(Stores):
    """The store of the drafted branch, made when it is first asked."""

    def __init__(self, graph: DraftGraph) -> None:
        self._graph = graph
        self._lock = threading.RLock()
        self._quads: QuadsView | None = None

    def main(self) -> QuadsView:
        """The store of the branch: a draft has one."""
        return self.of(self._graph.drafted)

    def opened(self, checkout: Checkout) -> QuadsView | None:
        """The store, where it is open."""
        del checkout
        return self._quads

    def read_main(self, checkout: Checkout, read: Callable[[QuadsView], T]) -> tuple[T] | None:
        """Never: the branch has a store of its own."""
        del checkout, read
        return None

    def stage(self) -> StagedLoad | None:
        """Begin to load a commit that the draft does not have yet, if that is possible."""
        return self.main().stage()

    def of(self, checkout: Checkout) -> QuadsView:
        """The store at the head of the drafted branch."""
        graph = self._graph
        with self._lock:
            if self._quads is None:
                self._quads = self._make()
            at = self._quads.position.commit
            if at != checkout.head.commit:
                graph.folding.walk_quads(self._quads, graph.ancestry.path(at, checkout.head.commit))
            return self._quads

    def _make(self) -> QuadsView:
        """A copy of main's store, by hard links if it has files, taken to where the draft began."""
        base, folder = self._graph.base, self._graph.scratch()
        theirs = base.stores.main()
        if folder is not None and theirs.linkable:
            with theirs.reading():
                theirs.checkpoint(folder / "quads")
            made = view.QuadsView(folder / "quads")
        else:
            made = view.QuadsView(None)
            made.copy(theirs)
        path = base.ancestry.path(made.position.commit, self._graph.start.commit)
        base.folding.walk_quads(made, path)
        return made

    def follow(self, ref: Checkout, head: Head) -> None:
        """Do nothing: it follows when it is asked."""
        del ref, head

    def land(self, commits: Sequence[tuple[Checkout, Commit, Payload]]) -> None:
        """Do nothing: it follows when it is asked."""
        del commits

    def close(self) -> None:
        """Close it."""
        with self._lock:
            if self._quads is not None:
                self._quads.close()
                self._quads = None
