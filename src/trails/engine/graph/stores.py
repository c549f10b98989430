"""Stores: the quads views of a graph's lines.

That of ``main`` is always open and follows every commit. Another line's is made of it by
hard links when somebody first asks, follows when it is asked again, and is closed when
nobody does any more, or too many are open.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from trails.engine.graph.ancestry import Ancestry
from trails.engine.graph.checkouts import SNAPSHOT, Checkout
from trails.engine.graph.folding import Folding, left_as_it_was
from trails.errors import CorruptionError, StorageError
from trails.files import private_folder
from trails.model.history import Head
from trails.views.quads.view import BULK, QuadsView

_OPEN: Final = 16
"""Stores that are open beside that of ``main``; each has some twenty files open."""
_IDLE: Final = 5.0
"""Seconds after which a store is closed that nobody asks: it takes some five megabytes, and most
are asked once, for a copy that the sandbox works on."""
_SNAPSHOTS: Final = 24
"""Stores of snapshots on disk, open ones included."""
_STEP: Final = 50
"""What applying one more commit costs, in statements."""


class Stores:
    """Opens, follows and closes the stores of lines."""

    def __init__(
        self,
        lines: Mapping[str, Checkout],
        main: Checkout,
        ancestry: Ancestry,
        folding: Folding,
        progress: Callable[[str], None],
        *,
        read_only: bool = False,
    ) -> None:
        self._lines = lines
        self._main = main
        self._ancestry = ancestry
        self._folding = folding
        self._progress = progress
        self._timer: threading.Timer | None = None
        self._timer_lock = threading.Lock()
        self._ended = False
        self._read_only = read_only
        main.quads = self._find(_folder(main)) if read_only else QuadsView(_folder(main))

    def _find(self, folder: Path | None) -> QuadsView:
        """A store as it is; where there is none that can be read, an empty one in memory."""
        if folder is not None and folder.is_dir():
            with suppress(StorageError):
                return QuadsView(folder, read_only=True)
        return QuadsView(None)

    # --- asking ------------------------------------------------------------------------

    def main(self) -> QuadsView:
        """The store of ``main``."""
        assert self._main.quads is not None  # noqa: S101 - opened with the graph
        return self._main.quads

    def exists(self, line: Checkout) -> bool:
        """Whether a line has a store of its own."""
        folder = _folder(line)
        return line.quads is not None or (folder is not None and folder.is_dir())

    def of(self, line: Checkout) -> QuadsView:
        """A line's store at the head that readers see, made on its first use."""
        if line is self._main:
            return self.main()
        with line.quads_lock:
            if line.quads is None:
                line.quads = self._open(_folder(line))
            line.quads_used = monotonic()
            if self._read_only:
                line.quads = self._followed(line.quads, line.head)
            else:
                self._bring(line, line.quads, line.head)
            found = line.quads
        self._close_surplus(line)
        self._look_later()
        if line.fixed and line.folder is not None:
            self._drop_idle(line.folder.parent)
        return found

    def _open(self, folder: Path | None) -> QuadsView:
        """A store that begins as a checkpoint of main's."""
        if self._read_only:
            return self._open_read_only(folder)
        if folder is not None and not folder.exists():
            private_folder(folder.parent)
            with self.main().reading():
                self.main().checkpoint(folder)
        made = QuadsView(folder)
        if folder is None:
            made.copy(self.main())
        return made

    def _open_read_only(self, folder: Path | None) -> QuadsView:
        found = self._find(folder)
        if not found.position.commit:
            found.copy(self.main())
        return found

    # --- following ---------------------------------------------------------------------

    def bring_main(self, head: Head) -> None:
        """Bring the store of ``main`` to a head; called with the writer's lock."""
        self.main().revive()
        if self._read_only:
            self._main.quads = self._followed(self.main(), head)
        else:
            self._bring(self._main, self.main(), head)

    def _followed(self, quads: QuadsView, head: Head) -> QuadsView:
        """A store at a head; one that can't be changed is copied to memory first."""
        if quads.position.commit == head.commit:
            return quads
        memory = quads
        if quads.frozen:
            memory = QuadsView(None)
            if self._ancestry.has(quads.position):
                memory.copy(quads)
            quads.close()
        self._follow(memory, head)
        return memory

    def _bring(self, line: Checkout, quads: QuadsView, head: Head) -> None:
        """Bring a store to a head, from wherever it is."""
        if quads.position.commit == head.commit and quads.whole and not quads.damaged:
            return
        if quads.damaged:
            why = "is damaged"
        elif not self._ancestry.has(quads.position):
            why = "belongs to another history"
        else:
            why = self._try_to_follow(quads, head)
        if why:
            self._rebuild(line, quads, head, why)
        quads.whole = True

    def _try_to_follow(self, quads: QuadsView, head: Head) -> str:
        """Bring a store to a head; why it has to be made anew instead, where it has."""
        try:
            if quads.position.commit != head.commit:
                self._follow(quads, head)
        except CorruptionError:
            if not quads.damaged:
                raise  # then it is the log
            return "is damaged"
        return ""

    def _rebuild(self, line: Checkout, quads: QuadsView, head: Head, why: str) -> None:
        """Make a store anew beside the one that is there, which stays if that can't be done."""
        name = "the quads view" if line is self._main else f"the quads view of {line.name}"
        self._progress(f"{name} {why}; rebuilding it from the log")
        start = None if line is self._main or self.main().damaged else self.main()
        with left_as_it_was(name, why):
            quads.rebuild(lambda fresh: self._follow(fresh, head), start)

    def _follow(self, quads: QuadsView, head: Head) -> None:
        try:
            self._folding.walk_quads(quads, self._ancestry.path(quads.position.commit, head.commit))
        except StorageError:
            # RocksDB repeats an error until it is opened again, even if its cause is gone.
            quads.revive()
            self._folding.walk_quads(quads, self._ancestry.path(quads.position.commit, head.commit))

    def forward(self, source: Checkout, head: Head) -> None:
        """Bring ``main`` to where another line is, by its commits or by its files."""
        quads = self.main()
        path = self._ancestry.path(quads.position.commit, head.commit)
        work = sum(commit.added + commit.removed + _STEP for commit in (*path.undo, *path.redo))
        if work > BULK and source.folder is not None:
            quads.adopt(self.of(source))
        else:
            self._follow(quads, head)

    # --- letting go --------------------------------------------------------------------

    def rebuild(self, line: Checkout, head: Head) -> None:
        """Make a line's store anew from the log."""
        if line is self._main:
            self._rebuild(line, self.main(), head, "is to be rebuilt")
            return
        with line.quads_lock:
            if line.quads is None:
                line.quads = self._open(_folder(line))
            line.quads_used = monotonic()
            self._rebuild(line, line.quads, head, "is to be rebuilt")

    def close(self, line: Checkout) -> None:
        """Close a line's store; whoever holds it asks for another."""
        with line.quads_lock:
            if line.quads is not None:
                quads, line.quads = line.quads, None
                quads.whole = False
                quads.close()

    def _others(self) -> list[Checkout]:
        """Lines beside ``main`` whose stores are open and have files, longest unused first."""
        found = [
            line
            for line in list(self._lines.values())
            if line.quads is not None and line.folder is not None and line is not self._main
        ]
        return sorted(found, key=lambda line: line.quads_used)

    def _close_surplus(self, used: Checkout) -> None:
        """Let go of the stores that were used longest ago, where there are too many."""
        others = [line for line in self._others() if line is not used]
        for line in others[: max(0, len(others) + 1 - _OPEN)]:
            self._try_close(line)

    def _try_close(self, line: Checkout) -> None:
        if line.quads_lock.acquire(blocking=False):
            try:
                self.close(line)
            finally:
                line.quads_lock.release()

    def _look_later(self) -> None:
        """See to it that stores are closed when nobody asks them any more."""
        with self._timer_lock:
            if self._timer is None and not self._ended and self._others():
                self._timer = threading.Timer(_IDLE / 2, self._close_idle)
                self._timer.daemon = True
                self._timer.start()

    def _close_idle(self) -> None:
        """Let go of the stores that nobody asks any more."""
        since = monotonic() - _IDLE
        for line in self._others():
            if line.quads_used < since and line.quads is not None and not line.quads.read:
                self._try_close(line)
        with self._timer_lock:
            self._timer = None
        self._look_later()

    def end(self) -> None:
        """Look after them no longer, because all are about to be closed."""
        with self._timer_lock:
            self._ended, timer = True, self._timer
        if timer is not None:
            timer.cancel()
            timer.join()  # it may be in the middle of closing one

    def _drop_idle(self, snapshots: Path) -> None:
        """Keep few stores of snapshots on disk: what they share with others grows apart."""
        in_use = {
            line.name.removeprefix(SNAPSHOT)
            for line in list(self._lines.values())
            if line.fixed and line.quads is not None
        }
        used: dict[Path, float] = {}
        for folder in snapshots.glob("*"):
            if folder.name not in in_use:
                with suppress(FileNotFoundError):  # another thread may be at the same
                    used[folder] = folder.stat().st_mtime
        surplus = max(0, len(used) + len(in_use) - _SNAPSHOTS)
        for folder in sorted(used, key=used.__getitem__)[:surplus]:
            shutil.rmtree(folder, ignore_errors=True)


def _folder(line: Checkout) -> Path | None:
    return None if line.folder is None else line.folder / "quads"
