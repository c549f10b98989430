"""The quads view: Oxigraph holding one branch, for SPARQL.

The position in the log is a statement in a named graph of its own, moved in the same update as the
data: an apply is atomic or did not happen. A large commit is loaded in bulk instead: into a copy
that then takes the store's place (``staging``), or, when the log is folded, in place while no one
reads; loading it again after a crash adds the same statements and changes nothing.

RocksDB, as Oxigraph sets it up, writes a memtable to a file when it has a quarter of a gigabyte,
and a store has eleven. A server that takes small commits for days would keep all of them in memory,
so ``Memtables`` has them written to files long before.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Final, cast

import msgspec
import pyoxigraph as ox

from trails.errors import CorruptionError, ReadOnlyError, StorageError, UnwritableError
from trails.files import private_folder, private_opener, sync_folder
from trails.log.storage import files_below, full, says_full, storage_errors
from trails.model.history import Position
from trails.model.iris import TRAILS, Names
from trails.views.base import ReadWriteLock
from trails.views.quads.marks import AT, closed_mark, read_mark, sizes_of
from trails.views.quads.staging import StagedLoad, batches, pieces
from trails.views.sums import StatementSum
from trails.views.terms import load_statements, stored_form

MIB: Final = 1 << 20
_PER_UPDATE: Final = 1_500
"""Bytes that the position takes, which every update moves in all indexes."""
_PER_BYTE: Final = 4
"""Bytes that a byte of statements takes: in three indexes, with what they are found by."""
_LEAST, _MOST = 4 * MIB, 64 * MIB
_PART: Final = 8
"""A large store may hold this part of its files: each flush makes RocksDB merge them again."""


class Memtables:
    """Those of one store. ``flush`` writes them to files, in a thread of its own."""

    def __init__(self, folder: Path, flush: Callable[[], None]) -> None:
        self._folder = folder
        self._flush = flush
        self._held = 0
        self._limit = self._find_limit()
        self._flushing = False

    def add(self, statements: int) -> None:
        """Count an update with so many bytes of statements."""
        self._held += _PER_UPDATE + _PER_BYTE * statements
        if self._held > self._limit and not self._flushing:
            self._flushing = True
            self._held = 0
            threading.Thread(target=self._work, name="trails-flush", daemon=True).start()

    def _work(self) -> None:
        try:
            self._flush()
            self._limit = self._find_limit()
        finally:
            self._flushing = False

    def _find_limit(self) -> int:
        size = sum(
            facts.st_size for path, facts in files_below(self._folder) if path.suffix == ".sst"
        )
        return min(_MOST, max(_LEAST, size // _PART))


_META: Final = f"<{TRAILS}view>"
_POSITION: Final = f"<{TRAILS}position>"
BULK: Final = 20_000
"""Statements from which a bulk load beats one update."""

# RocksDB hands on the text of a failed system call, not its number.
_REFUSED: Final = ("lock hold", "While lock file", "Too many open files")
_UNWRITABLE: Final = ("Permission denied", "Read-only file system", "Operation not permitted")


class QuadsView:
    """One Oxigraph store, in a folder or in memory, and how far it has followed the log."""

    def __init__(self, folder: Path | None, *, read_only: bool = False) -> None:
        """``read_only``: use the files as they are; what can't be read is an error."""
        self._folder = folder
        self._read_only = read_only
        self._rw_lock = ReadWriteLock()
        # RocksDB waits for ever where two flushes of a store meet; a checkpoint flushes, too.
        self._flush_lock = threading.Lock()
        self._store: ox.Store | None = None
        self._stuck = False
        self.damaged = False
        """Whether something unreadable was found; only ``rebuild`` helps."""
        self.whole = True
        """Whether it is the graph as of its position, and not on the way there."""
        self.position = Position(0, "")
        if read_only:
            self._open_as_it_is()
        else:
            self._start()
        self._memtables: Memtables | None = None
        if folder is not None and not read_only:
            self._memtables = Memtables(folder, self._flush)

    # --- opening and closing ---------------------------------------------------

    def _start(self) -> None:
        """Open the store; one that can't be used stays until another can take its place."""
        try:
            self._open()
        except CorruptionError:
            self.damaged, self.whole = True, False
            self.position = Position(0, "")

    def _open_as_it_is(self) -> None:
        with self._errors("open the quads view"):
            self._store = ox.Store.read_only(str(self._folder))
            self.position = self.stored_position()

    def _open(self) -> None:
        if self._folder is None:
            self._store, self._stuck = ox.Store(), False
            return
        try:
            with self._errors("open the quads view"):
                private_folder(self._folder.parent)
                kept = self._kept(self._folder)
                if kept.is_dir() and not self._folder.exists():
                    kept.rename(self._folder)  # a crash came before its successor had the name
                self._check_files(self._folder)
                private_folder(self._folder)
                for beside in (kept, self._staged(self._folder), self._rebuilt(self._folder)):
                    shutil.rmtree(beside, ignore_errors=True)
                # Of a load that failed, and the messages of RocksDB from earlier openings.
                for debris in (*self._folder.glob("bulk-*.sst"), *self._folder.glob("LOG.old.*")):
                    debris.unlink()
                self._store = ox.Store(self._folder)
                self.position = self.stored_position()
        except BaseException:
            self._store = None
            raise
        self._stuck = False

    def stored_position(self) -> Position:
        """The position that the store itself holds."""
        found = position_of(self.store)
        if found is None:
            raise CorruptionError("the quads view does not say how far it is")
        return found

    def _check_files(self, folder: Path) -> None:
        """Compare with what ``close`` left: RocksDB accepts a shortened MANIFEST."""
        mark = closed_mark(folder)
        if read_mark(folder, mark) is None:
            return
        # Only now: while the view is not believed, the next opening must see that too.
        with storage_errors("open the quads view"):
            mark.unlink()

    def revive(self) -> None:
        """Open again after a failed write: RocksDB then takes no other until it is reopened.

        While the disk is still full that fails too, and reads go on from a read-only store.
        """
        if not self._stuck or self._folder is None or self._read_only:
            return
        with self._rw_lock.exclusive():
            self._store = None
            try:
                self._start()
            except StorageError:
                self._open_read_only()
                raise

    def _open_read_only(self) -> None:
        with suppress(OSError, RuntimeError):
            self._store = ox.Store.read_only(str(self._folder))

    @staticmethod
    def _kept(folder: Path) -> Path:
        """Where the state before a bulk load is, while it runs."""
        return folder.with_name("quads.kept")

    @staticmethod
    def _staged(folder: Path) -> Path:
        """Where the state after a large commit is made, before it takes this one's place."""
        return folder.with_name("quads.staged")

    @staticmethod
    def _rebuilt(folder: Path) -> Path:
        """Where the view is made anew: a place of its own for its marks and copies, too."""
        return folder.with_name("quads.rebuilt")

    def rebuild(self, fill: Callable[[QuadsView], None], start: QuadsView | None = None) -> None:
        """Make the view anew, from nothing or from another, and take its place when it is complete.

        What goes wrong on the way leaves everything as it was.
        """
        if self._folder is None:
            fresh = QuadsView(None)
            if start is not None:
                fresh.copy(start)
            fill(fresh)
            with self._rw_lock.exclusive():
                self._store, self.position = fresh.store, fresh.position
                self.damaged, self.whole = False, True
            return
        place = self._rebuilt(self._folder)
        shutil.rmtree(place, ignore_errors=True)
        try:
            with self._errors("rebuild the quads view", own=False):
                place.mkdir(parents=True)
                if start is not None:
                    with start.reading():
                        start.checkpoint(place / "quads")
            fresh = QuadsView(place / "quads")
            try:
                fill(fresh)
                fresh.flush()
            finally:
                fresh.close()
            self._take_over(self._folder, place / "quads")
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _take_over(self, folder: Path, beside: Path) -> None:
        """Let a complete view take the place of whatever is there, durably."""
        kept = self._kept(folder)
        with self._rw_lock.exclusive(), self._errors("rebuild the quads view"):
            self._store = None
            _remove(kept)
            if folder.exists():
                folder.rename(kept)
            beside.rename(folder)
            sync_folder(folder.parent)
            _remove(closed_mark(folder))
            self.damaged = False
            self._open()
            self.whole = True
        _remove(kept)

    def close(self) -> None:
        """Let go of the files."""
        with self._rw_lock.exclusive():
            if self._store is None or self._folder is None or self._read_only:
                self._store = None
                return
            mark = closed_mark(self._folder)
            position = str(self.position) if self.whole and not self.damaged else ""
            # What can't be flushed, or marked, is caught up or trusted when opened next.
            with suppress(OSError, RuntimeError):
                self.flush()
                self._store = None
                # Whole or not at all: a mark that can't be read counts as damage.
                beside = mark.with_name(f"{mark.name}.new")
                with open(beside, "wb", opener=private_opener) as file:
                    left = {AT: position, **sizes_of(self._folder)}
                    file.write(msgspec.json.encode(left))
                beside.replace(mark)
            self._store = None

    def flush(self) -> None:
        """Write what is in memory to files."""
        with self._flush_lock:
            self.store.flush()

    def checkpoint(self, folder: Path) -> None:
        """Make a copy of the store, by hard links to its files."""
        with self._flush_lock:
            self.store.backup(folder)

    def _flush(self) -> None:
        """Flush, if the store is open; the next writer reports what can't be written."""
        with self._rw_lock.shared(), suppress(OSError, RuntimeError):
            if self._store is not None:
                self.flush()

    @contextmanager
    def _errors(self, doing: str, *, own: bool = True) -> Iterator[None]:
        """What the store says, in our words; damage found in its ``own`` files is remembered."""
        try:
            yield
        except OSError as error:
            text = str(error)
            if says_full(text):
                raise full(doing) from error
            if any(words in text for words in _UNWRITABLE):
                raise UnwritableError(f"can't {doing}: {error}") from error
            if any(words in text for words in _REFUSED):
                raise StorageError(f"can't {doing}: {error}") from error
            raise self._damage(doing, error, own=own) from error
        except RuntimeError as error:
            if "orruption" not in str(error):
                raise
            raise self._damage(doing, error, own=own) from error

    def _damage(self, doing: str, error: Exception, *, own: bool) -> CorruptionError:
        self.damaged = self.damaged or own
        return CorruptionError(f"can't {doing}: {error}; it will be rebuilt from the log")

    # --- applying commits --------------------------------------------------------

    def apply(self, position: Position, removed: bytes, added: bytes) -> None:
        """Apply one commit atomically, position included."""
        self.apply_all(position, [(removed, added)])

    def apply_all(self, position: Position, deltas: Sequence[tuple[bytes, bytes]]) -> None:
        """Apply what commits have removed and added, in their order: all of them or none."""
        stored = [(stored_form(removed), stored_form(added)) for removed, added in deltas]
        with self._writing():
            self.store.update(
                self._move(position, *((gone.decode(), come.decode()) for gone, come in stored))
            )
        self.position = position
        if self._memtables is not None:
            self._memtables.add(sum(len(gone) + len(come) for gone, come in stored))

    def _move(self, position: Position, *deltas: tuple[str, str]) -> str:
        """The update that takes the store from its position to another."""
        before, after = (
            f"GRAPH {_META} {{ {_META} {_POSITION} {ox.Literal(str(each))} }}"
            for each in (self.position, position)
        )
        parts = [
            f"DELETE DATA {{ {gone} }} ;\nINSERT DATA {{ {come} }} ;\n"
            for gone, come in deltas[:-1]
        ]
        gone, come = deltas[-1]
        parts.append(f"DELETE DATA {{ {gone} {before} }} ;\nINSERT DATA {{ {come} {after} }}")
        return "".join(parts)

    def apply_stream(
        self, position: Position, removed: IO[bytes], added: IO[bytes], count: int
    ) -> None:
        """Apply one commit of any size; after a crash in the middle it can be applied again."""
        if count <= BULK:
            gone, come = stored_form(removed.read()), stored_form(added.read())
            if gone.count(b"\n") + come.count(b"\n") <= BULK:
                self.apply(position, gone, come)
                return
            removed, added = BytesIO(gone), BytesIO(come)  # it has long lists
        with self._rw_lock.exclusive(), self._whole_or_not():
            with self._writing():
                for lines in batches(removed):
                    self.store.update(f"DELETE DATA {{ {lines} }}")
                for piece in pieces(added):
                    load_statements(self.store, piece)
            self.apply(position, b"", b"")

    def optimize(self) -> None:
        """Compact the store; takes the files apart that it shares with others."""
        with self._writing():
            self.flush()  # so that compacting, which takes long, need not
            self.store.optimize()

    def copy(self, other: QuadsView) -> None:
        """Become what another view is; in memory, where there are no files to link."""
        with other.reading():
            self.store.bulk_extend(other.store)
            self.position = other.position

    def stage(self) -> StagedLoad | None:
        """Begin to load a commit that the log does not have yet; None for a view in memory."""
        if self._folder is None:
            return None
        with self._errors("stage a load"):
            return StagedLoad(self.checkpoint, self._staged(self._folder))

    def finish(self, staged: StagedLoad) -> None:
        """Wait for a staged load; after this only the swap is left."""
        with self._errors("stage a load"):
            staged.finish()

    def swap(self, staged: StagedLoad, position: Position) -> None:
        """Let a staged load, which the log has now, take the store's place."""
        folder = self._folder
        assert folder is not None  # noqa: S101 - nothing is staged for a view in memory
        try:
            with self._errors("update the quads view"):
                staged.seal(self._move(position, ("", "")))
        except BaseException:
            staged.discard()
            raise
        self._replace(folder, staged.folder, position)

    def adopt(self, other: QuadsView) -> None:
        """Become what another view is, by hard links to its files."""
        if self._folder is None:
            self._store = ox.Store()
            self.copy(other)
            return
        beside = self._staged(self._folder)
        shutil.rmtree(beside, ignore_errors=True)
        with other.reading(), self._errors("update the quads view"):
            other.checkpoint(beside)
            position = other.position
        self._replace(self._folder, beside, position)

    def _replace(self, folder: Path, beside: Path, position: Position) -> None:
        """Let a folder beside this one take its place."""
        kept = self._kept(folder)
        with self._rw_lock.exclusive(), self._writing():
            shutil.rmtree(kept, ignore_errors=True)
            self._store = None
            folder.rename(kept)
            beside.rename(folder)
            self.position = position
            try:
                self._store = ox.Store(folder)
            except BaseException:
                self._open_read_only()
                raise
        shutil.rmtree(kept, ignore_errors=True)

    @contextmanager
    def _whole_or_not(self) -> Iterator[None]:
        """Undo what fails in the middle: the store is replaced by a checkpoint (hard links)."""
        if self._folder is None:
            yield
            return
        kept = self._kept(self._folder)
        shutil.rmtree(kept, ignore_errors=True)
        with self._writing():
            self.checkpoint(kept)
        try:
            yield
        except BaseException:
            self._store, self._stuck = None, True
            shutil.rmtree(self._folder, ignore_errors=True)
            kept.rename(self._folder)
            self._open_read_only()
            raise
        shutil.rmtree(kept, ignore_errors=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write through ``self.store`` alone.

        RocksDB closes when the last reference goes, and a local variable would live on in
        the traceback of an error while the store is being replaced because of it.
        """
        if self._read_only:
            raise ReadOnlyError("the graph is open read-only; its quads view can't be changed")
        if self._stuck:
            raise StorageError("the quads view has to be opened again before it is written")
        try:
            with self._errors("update the quads view"):
                yield
        except StorageError:
            self._stuck = self._folder is not None
            raise

    # --- reading -----------------------------------------------------------------

    @property
    def store(self) -> ox.Store:
        """The store, for reading."""
        if self._store is None:
            raise StorageError("the quads view is closed")
        return self._store

    @property
    def linkable(self) -> bool:
        """Whether copies can be made by hard links to its files."""
        return self._folder is not None and not self._read_only

    @property
    def frozen(self) -> bool:
        """Whether the files are used as they are, and can't be changed."""
        return self._read_only

    @property
    def read(self) -> bool:
        """Whether a thread reads it at this moment."""
        return self._rw_lock.taken

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the store in place while it is read."""
        with self._rw_lock.shared(), self._errors("read the quads view"):
            yield

    def query(
        self, text: str, names: Names
    ) -> ox.QuerySolutions | ox.QueryBoolean | ox.QueryTriples:
        """Run SPARQL text; the default graph is the data, and there are no others."""
        return self.store.query(
            text, base_iri=names.nodes, prefixes=names.prefixes, named_graphs=[]
        )

    def data(self) -> Iterator[ox.Quad]:
        """Every statement of the branch, the view's own left out."""
        return self.store.quads_for_pattern(None, None, None, ox.DefaultGraph())


def sum_of(quads: QuadsView) -> tuple[Position, int, int]:
    """How far a store is, the sum of its statements and their number, all of one moment."""
    found = StatementSum(apart=_META.encode() + b" ")
    quads.store.dump(cast("IO[bytes]", found), format=ox.RdfFormat.N_QUADS)
    found.finish()
    if not found.others and not found.count:
        return Position(0, ""), 0, 0
    try:
        (own,) = ox.parse(b"\n".join(found.others), format=ox.RdfFormat.N_QUADS)
        return Position.parse(getattr(own.object, "value", "")), found.total, found.count
    except (ValueError, SyntaxError):
        raise CorruptionError("the quads view does not say how far it is") from None


def position_of(store: ox.Store) -> Position | None:
    """How far a store has followed the log, as it says itself; None if it does not say."""
    view = ox.NamedNode(TRAILS + "view")
    found = list(store.quads_for_pattern(view, ox.NamedNode(TRAILS + "position"), None, view))
    data = store.quads_for_pattern(None, None, None, ox.DefaultGraph())
    if not found and next(data, None) is None:
        return Position(0, "")
    try:
        (quad,) = found
        return Position.parse(getattr(quad.object, "value", ""))
    except ValueError:
        return None


def _remove(path: Path) -> None:
    """Remove a file or folder, if there is one."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
