"""Stores: the quads views of a graph's checkouts, for SPARQL.

The store of ``main`` is always open and follows every commit; a fast-forward is left to a backlog,
which a query works off if it comes first. The store of another checkout is made of it by hard links
on its first query, follows at the next ones, and is closed when it is idle or too many are open.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from trails.engine.graph.backlog import Backlog, head_at
from trails.engine.graph.checkouts import SNAPSHOT, Checkout
from trails.engine.graph.folding import Folding, left_as_it_was
from trails.errors import (
    CorruptionError,
    NotFoundError,
    StorageError,
    StorageFullError,
    UnwritableError,
)
from trails.files import private_folder
from trails.imports import later
from trails.log.payloads import Payload
from trails.log.storage import bytes_of
from trails.model.history import Commit, Head, Position
from trails.model.texts import count
from trails.views.base import Comparison, Reference
from trails.views.quads.marks import closed_at

if TYPE_CHECKING:
    from trails.views.quads import view
    from trails.views.quads.staging import StagedLoad
    from trails.views.quads.view import QuadsView
else:
    view = later("trails.views.quads.view")

_OPEN: Final = 16
"""Stores that are open beside that of ``main``; each has some twenty files open."""
_IDLE: Final = 5.0
"""Seconds after which an idle store is closed: it takes some five megabytes, and most
are asked once, for a copy that the sandbox works on."""
_SNAPSHOTS: Final = 24
"""Stores of snapshots on disk, open ones included."""
_STEP: Final = 50
"""What applying one more commit costs, in statements."""


T = TypeVar("T")


class Reading(Protocol):
    """Reads the store of a checkout, which stays open and is repaired where it is damaged."""

    def __call__(self, checkout: Checkout, read: Callable[[QuadsView], T], /) -> T: ...


class _Store:
    """What is known of the store of one checkout."""

    __slots__ = ("lock", "quads", "used")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.quads: QuadsView | None = None
        """None while it is closed."""
        self.used = 0.0


class Stores:
    """Opens, follows and closes the stores of checkouts."""

    name = "quads view"
    ready = True
    """Each store is repaired when it is followed."""

    def __init__(
        self,
        main: Checkout,
        folding: Folding,
        reading: Reading,
        writing: Callable[[], AbstractContextManager[None]],
        progress: Callable[[str], None],
        *,
        read_only: bool = False,
    ) -> None:
        self._main = main
        self._folding = folding
        self._ancestry = folding.ancestry
        self._reading = reading
        self._writing = writing
        self._progress = progress
        self._timer: threading.Timer | None = None
        self._timer_lock = threading.Lock()
        self._ended = False
        self._read_only = read_only
        self._finished: tuple[Payload, StagedLoad] | None = None
        self._stores: dict[Checkout, _Store] = {}
        """By checkout and not by name: a new branch may have the name of a deleted one."""
        self._deferred: Position | None = None
        """Where main's store is, as far as its files say; it is opened when it is used."""
        self._backlog = Backlog(self.name, self._follow_main, progress)
        self._of(main)

    def _find(self, folder: Path | None) -> QuadsView:
        """A store as it is; where there is none that can be read, an empty one in memory."""
        if folder is not None and folder.is_dir():
            try:
                return view.QuadsView(folder, read_only=True)
            except StorageError as error:
                self._progress(f"making a quads view in memory, because {error.message}")
        return view.QuadsView(None)

    # --- asking ------------------------------------------------------------------------

    def main(self) -> QuadsView:
        """The store of ``main``."""
        store = self._stores[self._main]
        quads = store.quads
        return self._open_main(store) if quads is None else quads

    def _open_main(self, store: _Store) -> QuadsView:
        with store.lock:
            if store.quads is None:
                folder = _folder(self._main)
                store.quads = found = (
                    self._find(folder) if self._read_only else view.QuadsView(folder)
                )
                if self._deferred not in {None, found.position}:
                    found.whole = False  # its files were exchanged meanwhile
            return store.quads

    def _main_as_it_is(self) -> QuadsView:
        """The same, used as it is where the disk is too full to open it for writing."""
        try:
            return self.main()
        except (StorageFullError, UnwritableError):
            return self._find(_folder(self._main))

    def _of(self, checkout: Checkout) -> _Store:
        found = self._stores.get(checkout)
        return self._stores.setdefault(checkout, _Store()) if found is None else found

    def opened(self, checkout: Checkout) -> QuadsView | None:
        """A checkout's store, where it is open."""
        found = self._stores.get(checkout)
        return None if found is None else found.quads

    def exists(self, checkout: Checkout) -> bool:
        """Whether a checkout has a store of its own."""
        folder = _folder(checkout)
        return self.opened(checkout) is not None or (folder is not None and folder.is_dir())

    def of(self, checkout: Checkout) -> QuadsView:
        """A checkout's store at the head that readers see, made on its first use."""
        if checkout is self._main:
            self._backlog.complete()
            return self._main_as_it_is()
        store = self._of(checkout)
        with store.lock:
            found = self._use(checkout, store)
            if self._read_only:
                store.quads = found = self._followed(found, checkout.head)
            else:
                self._bring(checkout, found, checkout.head)
        self._close_surplus(store)
        self._look_later()
        if checkout.fixed and checkout.folder is not None:
            self._drop_idle(checkout.folder.parent)
        return found

    def _use(self, checkout: Checkout, store: _Store) -> QuadsView:
        """A store that is open from now on; called with its lock."""
        if store.quads is None:
            store.quads = self._open(_folder(checkout))
        store.used = monotonic()
        return store.quads

    def read_main(self, checkout: Checkout, read: Callable[[QuadsView], T]) -> tuple[T] | None:
        """Read from main's store, where main is at the same commit; None where it is not.

        A branch that was just made needs no store of its own yet.
        """
        quads, wanted = self._main_as_it_is(), checkout.head.commit
        if quads.position.commit != wanted or quads.damaged or not quads.whole:
            return None
        with suppress(CorruptionError), quads.reading():
            found = read(quads)
            # Ask the store itself: a commit can be in it before its position is known here.
            if quads.stored_position().commit == wanted:
                return (found,)
        return None

    def _open(self, folder: Path | None) -> QuadsView:
        """A store that begins as a checkpoint of main's."""
        if self._read_only:
            return self._open_read_only(folder)
        if folder is not None and not folder.exists():
            private_folder(folder.parent)
            with self.main().reading():
                self.main().checkpoint(folder)
        made = view.QuadsView(folder)
        if folder is None:
            made.copy(self.main())
        return made

    def _open_read_only(self, folder: Path | None) -> QuadsView:
        found = self._find(folder)
        if not found.position.commit:
            found.copy(self.main())
        return found

    # --- following ---------------------------------------------------------------------

    def check(self) -> None:
        """Nothing is to be done for all stores together."""

    def open(self) -> None:
        """Open main's store; one that can't be opened now is tried again when it is used."""
        with suppress(StorageError):
            self.main()

    def names(self) -> Collection[str]:
        """None: what is left of a branch is its folder, which the graph removes."""
        return ()

    def position(self, ref: Checkout) -> Position | None:
        """How far an open store is, and main's."""
        quads = self.opened(ref)
        if ref is self._main and (soon := self._backlog.position) is not None:
            return soon
        if quads is None:
            return self._deferred if ref is self._main else None
        return quads.position

    def follow(self, ref: Checkout, head: Head) -> None:
        """Bring the store of ``main`` to a head; others follow when they are asked."""
        if ref is not self._main or self._may_wait(head):
            return
        if self._is_sound() and self._backlog.extend(head):
            return
        with self._backlog.replaced():
            self.main().revive()
            if self._read_only:
                self._of(ref).quads = self._followed(self.main(), head)
            else:
                self._bring(ref, self.main(), head)

    def _is_sound(self) -> bool:
        """Whether main's store needs no repair, as far as that is known."""
        quads = self.opened(self._main)
        return quads is None or (quads.whole and not quads.damaged)

    def _may_wait(self, head: Head) -> bool:
        """Whether main's store, which nobody used yet, was closed in order at a head."""
        store, folder = self._stores[self._main], _folder(self._main)
        with store.lock:
            if store.quads is not None or folder is None or self._read_only:
                return False
            self._deferred = closed_at(folder)
            return self._deferred == Position(head.seq, head.commit)

    def fork(self, ref: Checkout, head: Head, source: Checkout | None) -> None:
        """Do nothing: a store is made when it is first asked."""

    def stage(self) -> StagedLoad | None:
        """Begin to load a commit to ``main`` that the log does not have yet, if that is possible.

        What follows a fast-forward is loaded after it.
        """
        return self.main().stage() if self._backlog.is_empty else None

    def finish(self, staged: StagedLoad, payload: Payload) -> None:
        """Wait until a payload is loaded beside main's store; landing it puts the load in place."""
        self.main().finish(staged)
        self._finished = payload, staged

    def land(self, commits: Sequence[tuple[Checkout, Commit, Payload]]) -> None:
        """Apply commits to main's store; others follow when they are asked: many never are."""
        mine = [(commit, payload) for ref, commit, payload in commits if ref is self._main]
        if mine and self._backlog.extend(head_at(mine[-1][0])):
            return
        if len(mine) == 1 or sum(each.added + each.removed for each, _ in mine) > view.BULK:
            for commit, payload in mine:
                self._land(commit, payload)
        elif mine:  # the position is moved once
            deltas = []
            for commit, payload in mine:
                with self._folding.step(commit, payload) as step:
                    deltas.append((step.removed.read(), step.added.read()))
            last = mine[-1][0]
            self.main().apply_all(Position(last.seq, last.id), deltas)

    def _land(self, commit: Commit, payload: Payload) -> None:
        finished, self._finished = self._finished, None
        if finished is not None and finished[0] is payload:
            self.main().swap(finished[1], Position(commit.seq, commit.id))
            return
        with self._folding.step(commit, payload) as step:
            self.main().apply_stream(step.position, step.removed, step.added, step.count)

    def _followed(self, quads: QuadsView, head: Head) -> QuadsView:
        """A store at a head; one that can't be changed is copied to memory first."""
        if quads.position.commit == head.commit:
            return quads
        memory = quads
        if quads.frozen:
            memory = view.QuadsView(None)
            if self._ancestry.has(quads.position):
                memory.copy(quads)
            quads.close()
        self._follow(memory, head)
        return memory

    def _bring(self, checkout: Checkout, quads: QuadsView, head: Head) -> None:
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
            self._rebuild(checkout, quads, head, why)
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

    def _rebuild(self, checkout: Checkout, quads: QuadsView, head: Head, why: str) -> None:
        """Make a store anew beside the one that is there, which stays if that can't be done."""
        name = "the quads view" if checkout is self._main else f"the quads view of {checkout.name}"
        self._progress(f"{name} {why}; rebuilding it from the log")
        start = None if checkout is self._main or self.main().damaged else self.main()
        with left_as_it_was(name, why):
            quads.rebuild(lambda fresh: self._follow(fresh, head), start)

    def _follow(self, quads: QuadsView, head: Head) -> None:
        try:
            self._walk(quads, head.commit)
        except StorageError:
            # RocksDB repeats an error until it is opened again, even if its cause is gone.
            quads.revive()
            self._walk(quads, head.commit)

    def forward(self, ref: Checkout, head: Head, source: Checkout) -> None:
        """Leave ``main`` to the backlog; others follow when they are asked."""
        del source
        if ref is self._main:
            self._backlog.begin(head)

    def _follow_main(self, head: Head) -> bool:
        """Bring main's store to a head, by its commits or by the files of a store that is there."""
        quads = self.main()
        if not self._is_sound():
            return False
        path = self._ancestry.path(quads.position.commit, head.commit)
        work = sum(commit.added + commit.removed + _STEP for commit in (*path.undo, *path.redo))
        try:
            if work <= view.BULK or not self._adopt(quads, head):
                self._follow(quads, head)
        except CorruptionError:
            if not quads.damaged:
                raise  # then it is the log
            return False
        return True

    def _adopt(self, quads: QuadsView, head: Head) -> bool:
        """Take over the files of another store that is at a head, if one is open."""
        for store in self._others():
            with store.lock:
                other = store.quads
                if other is not None and other.whole and other.position.commit == head.commit:
                    quads.adopt(other)
                    return True
        return False

    # --- upkeep ------------------------------------------------------------------------

    def verify(
        self, refs: Iterable[Checkout], reference: Reference, progress: Callable[[str], None]
    ) -> Comparison:
        """Compare the statements of ``main`` and of the branches that have a store."""
        problems, total = [], 0
        for checkout in refs:
            if not self.exists(checkout):
                continue
            with suppress(NotFoundError):  # the branch is deleted meanwhile
                statements, differing = self._compare(reference, checkout)
                total += statements
                progress(f"compared {count(statements, 'statement')} of {checkout.name}")
                if differing:
                    differ = count(differing, "statement")
                    problems.append(f"{differ} of {checkout.name} differ from the log")
        return Comparison(count(total, "statement"), problems)

    def _compare(self, reference: Reference, checkout: Checkout) -> tuple[int, int]:
        """(statements, differing ones) of a branch; where sums differ, the log is folded."""
        position, ours, number = self._reading(checkout, view.sum_of)
        if ours == reference.sums.at(position.commit).stored:
            return number, 0
        with closing(view.QuadsView(reference.folder / "quads")) as fresh:
            self._walk(fresh, position.commit)
            with self._writing():  # the store stays as it is while it is looked through
                return self._reading(checkout, lambda quads: self._count_differences(fresh, quads))

    def _count_differences(self, fresh: QuadsView, quads: QuadsView) -> tuple[int, int]:
        self._walk(fresh, quads.position.commit)
        total, missing = 0, 0
        for quad in fresh.data():
            total += 1
            missing += quad not in quads.store
        added = sum(quad not in fresh.store for quad in quads.data())
        return total, missing + added

    def _walk(self, quads: QuadsView, commit: str) -> None:
        self._folding.walk_quads(quads, self._ancestry.path(quads.position.commit, commit))

    def size(self) -> int:
        """The bytes of all stores; branches share files with ``main`` by hard links."""
        folder = self._main.folder
        return 0 if folder is None else bytes_of(folder.parents[1].glob("*/*/quads*"))

    def is_open(self, ref: Checkout) -> bool:
        """Whether a checkout's store is open."""
        return self.opened(ref) is not None

    def clean(self) -> int:
        """Nothing is to be done: stores of branches that are gone went with their folders."""
        return 0

    def compact(self) -> None:
        """Compact the store of ``main``, whose files the others share."""
        self._backlog.complete()
        self.main().optimize()

    # --- letting go --------------------------------------------------------------------

    def rebuild(self, refs: Iterable[Checkout]) -> None:
        """Make the stores that exist anew from the log, that of ``main`` first."""
        with self._backlog.replaced():
            self._rebuild(self._main, self.main(), self._main.head, "is to be rebuilt")
        for checkout in refs:
            if checkout is not self._main and self.exists(checkout):
                store = self._of(checkout)
                with store.lock:
                    self._rebuild(
                        checkout, self._use(checkout, store), checkout.head, "is to be rebuilt"
                    )

    def drop(self, names: Sequence[str]) -> None:
        """Close the stores of checkouts that are gone; the graph removes their folders."""
        for checkout in [each for each in list(self._stores) if each.name in names]:
            if checkout is not self._main:
                self._close(self._stores[checkout])
                del self._stores[checkout]

    def _close(self, store: _Store) -> None:
        """Close a store; a reader who holds it asks for another."""
        with store.lock:
            if store.quads is not None:
                quads, store.quads = store.quads, None
                quads.whole = False
                quads.close()

    def _others(self) -> list[_Store]:
        """Stores beside that of ``main`` that are open and have files, longest unused first."""
        found = [
            store
            for checkout, store in list(self._stores.items())
            if store.quads is not None
            and checkout.folder is not None
            and checkout is not self._main
        ]
        return sorted(found, key=lambda store: store.used)

    def _close_surplus(self, used: _Store) -> None:
        """Let go of the stores that were used longest ago, where there are too many."""
        others = [store for store in self._others() if store is not used]
        for store in others[: max(0, len(others) + 1 - _OPEN)]:
            self._try_close(store)

    def _try_close(self, store: _Store) -> None:
        if store.lock.acquire(blocking=False):
            try:
                self._close(store)
            finally:
                store.lock.release()

    def _look_later(self) -> None:
        """Close idle stores after a while."""
        with self._timer_lock:
            if self._timer is None and not self._ended and self._others():
                self._timer = threading.Timer(_IDLE / 2, self._close_idle)
                self._timer.daemon = True
                self._timer.start()

    def _close_idle(self) -> None:
        """Close idle stores."""
        since = monotonic() - _IDLE
        for store in self._others():
            if store.used < since and store.quads is not None and not store.quads.read:
                self._try_close(store)
        with self._timer_lock:
            self._timer = None
        self._look_later()

    def close(self) -> None:
        """Close all stores; nothing looks after them any more."""
        self._backlog.end()
        with self._timer_lock:
            self._ended, timer = True, self._timer
        if timer is not None:
            timer.cancel()
            timer.join()  # it may be in the middle of closing one
        with ExitStack() as stack:
            for store in self._stores.values():
                if store.quads is not None:
                    stack.callback(store.quads.close)

    def _drop_idle(self, snapshots: Path) -> None:
        """Keep few stores of snapshots on disk: what they share with others grows apart."""
        in_use = {
            checkout.name.removeprefix(SNAPSHOT)
            for checkout, store in list(self._stores.items())
            if checkout.fixed and store.quads is not None
        }
        used: dict[Path, float] = {}
        for folder in snapshots.glob("*"):
            if folder.name not in in_use:
                with suppress(FileNotFoundError):  # another thread may be at the same
                    used[folder] = folder.stat().st_mtime
        surplus = max(0, len(used) + len(in_use) - _SNAPSHOTS)
        for folder in sorted(used, key=used.__getitem__)[:surplus]:
            shutil.rmtree(folder, ignore_errors=True)


def _folder(checkout: Checkout) -> Path | None:
    return None if checkout.folder is None else checkout.folder / "quads"
