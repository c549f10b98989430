"""Settling: fold what a fast-forward put above the root into it, beside the writers.

After a fast-forward ``main`` is a layer above the root. It can be read and written there, only
less directly than on the root. So the root follows in a thread of its own, a small part at a time;
between parts, writers have their turn. States that were forked before see nothing of it: what
they need of the root is kept, as it is whenever ``main`` is written.

A commit that is folded half-way is marked. Folding it again from its start changes nothing that
was done already, so the next fold, after a crash or in a hurry, begins with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from typing import Final

from trails.engine.graph.ancestry import Path
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.folding import Folding
from trails.errors import TrailsError
from trails.model.fairness import WorkInProgress, give_way
from trails.model.history import Commit, Position
from trails.model.types import Schema
from trails.views.nodes.file import NodeFile
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.layers import ROOT, ROOT_NAME

AT_ONCE: Final = 1_000
"""Statements that are folded in one part; as many as a writer may be kept waiting for."""
ACTOR: Final = "/settling"
"""In whose name the writer's lock is taken, so that actors and settling take turns."""


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
        self._starting = threading.Lock()
        self._running = threading.Lock()
        self._ended = False

    @property
    def _main(self) -> NodeIndex:
        return self._find_main().nodes

    def _schema_at(self, commit: str) -> Schema:
        return self._folding.compiled(self._ancestry.schema_at(commit)).schema

    def is_due(self) -> bool:
        """Whether so much lies between root and main that a writer should not wait for it."""
        return self._work_left() > AT_ONCE

    def _work_left(self) -> int:
        if not self._main.known or self._main.layer.number == ROOT:
            return 0
        path = self._ancestry.path(self._root().commit, self._main.position.commit)
        return sum(_work(each) for each in (*path.undo, *path.redo))

    def _root(self) -> Position:
        return self._file.layers[ROOT].position

    def begin(self) -> None:
        """Settle in a thread, if none does already."""
        with self._starting:
            if self._ended or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self._work, name="trails-settle", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Stop, because the files are about to be closed."""
        with self._starting:
            self._ended, thread = True, self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        work = WorkInProgress(is_long=True)
        try:
            self.run()
        except TrailsError as error:
            self._progress(f"the node index of main could not be folded yet: {error.message}")
        finally:
            work.end()

    def run(self) -> None:
        """Settle in this thread; the writer's lock is taken and given back part by part."""
        with self._running:
            while not self._ended and self.is_due():
                start = self._root()
                path = self._ancestry.path(start.commit, self._main.position.commit)
                if path.undo:
                    break  # the root has to go back, which is rare, and done at once
                for commits in _grouped(path.redo):
                    if not self._follow(start, commits):
                        break  # another thread has moved the root or main
                    start = self._root()
            if not self._ended:
                with self._writing(ACTOR):
                    self._finish()

    def _follow(self, start: Position, commits: list[Commit]) -> bool:
        """Take the root from where it is over some small commits, or a large one."""
        last = commits[-1]

        def fold(root: NodeIndex) -> None:
            self._folding.walk_nodes(root, Path((), tuple(commits)))

        if len(commits) == 1 and _work(last) > AT_ONCE:
            with closing(self._folding.parts(last, AT_ONCE)) as parts:
                if not all(self._step(start, last, part, done=False) for part in parts):
                    return False
            fold = _nothing
        return self._step(start, last, fold, done=True)

    def _step(
        self, start: Position, commit: Commit, part: Callable[[NodeIndex], None], *, done: bool
    ) -> bool:
        """Do one part; False, and nothing done, when another thread has moved the root or main."""
        with self._writing(ACTOR):
            if self._ended or self._root() != start or self._main.layer.number == ROOT:
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
        give_way()
        return True


def _nothing(root: NodeIndex) -> None:
    """All parts are done."""


def _work(commit: Commit) -> int:
    return commit.added + commit.removed + 1


def _grouped(commits: Iterable[Commit]) -> Iterator[list[Commit]]:
    """Commits in groups of which each is little work, a large one alone."""
    group: list[Commit] = []
    work = 0
    for commit in commits:
        if group and work + _work(commit) > AT_ONCE:
            yield group
            group, work = [], 0
        group.append(commit)
        work += _work(commit)
    if group:
        yield group
