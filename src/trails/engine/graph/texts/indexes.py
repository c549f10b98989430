"""TextIndexes: the view that searches texts.

``main`` has an index for each searched field (``field_index``). They follow a commit by marking
the nodes that it touches; a thread indexes them when a field has many. What a fast-forward touches
is marked by a backlog. Other branches and snapshots are differences from main's indexes
(``overlays``).

Neither a write nor a catch-up waits for an index; a search waits where it must. The manifest says
how far the files are. It is written after them, so it may be behind them, and may be lost.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from trails.engine.graph.backlog import Backlog, head_at
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.texts.field_index import FOLDER, FieldIndex, Workplace
from trails.engine.graph.texts.fields import Key, Predicates, Text, TextField, by_predicate
from trails.engine.graph.texts.overlays import Overlays, is_flooded
from trails.engine.graph.texts.source import Texts, TextSource
from trails.errors import CorruptionError, NotFoundError, StorageError, TrailsError
from trails.imports import later
from trails.log.payloads import Payload
from trails.log.storage import bytes_of, storage_errors
from trails.model.fairness import WorkInProgress, give_way, with_pauses
from trails.model.history import GENESIS, Commit, Head, Position
from trails.model.texts import count
from trails.views.base import Comparison, Reference
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.layers import ROOT_NAME
from trails.views.sums import MODULUS, sum_of_lines
from trails.views.text.manifest import (
    MANIFEST,
    IndexRecord,
    TextManifest,
    link_index,
    make_manifest,
    read_manifest,
    write_manifest,
)

if TYPE_CHECKING:
    from trails.views.text import index as text_index
    from trails.views.text.index import IndexedText, TextIndex
else:
    text_index = later("trails.views.text.index")

_MANY: Final = 10_000
"""Texts that are added up at once."""
_UNSAVED: Final = 1_000
"""Commits that a catch-up after a crash has to look at, at most."""
_DELAY: Final = 1.0
"""Seconds before indexing begins: a command that ends at once leaves it to the next process."""
_RETRY: Final = 30.0
"""Seconds before indexing is tried again that the disk refused."""
T = TypeVar("T")


class NodeReading(Protocol):
    """Reads the node index of a checkout, which is repaired where it is damaged."""

    def __call__(self, checkout: Checkout, read: Callable[[NodeIndex], T], /) -> T: ...


class TextIndexes:
    """The text indexes of a graph's checkouts."""

    name = "text index"
    ready = True
    """An index is repaired when it is used."""

    def __init__(
        self,
        main: Checkout,
        folder: Path | None,
        source: TextSource,
        owner: str,
        reading: NodeReading,
        progress: Callable[[str], None],
        *,
        read_only: bool = False,
    ) -> None:
        """``folder`` is the graph's; None in memory. ``owner`` names the graph."""
        self._main = main
        self._source = source
        self._owner = owner
        self._reading = reading
        self._progress = progress
        self._read_only = read_only
        self._stored = None if folder is None else folder / FOLDER
        root = self._stored
        if root is not None and read_only:
            root = Path(tempfile.mkdtemp(prefix="trails-text-"))
        self._lock = threading.Lock()
        self._forwards = 0
        self._place = Workplace(
            root,
            main,
            source,
            self._lock,
            self._stop,
            self._cover,
            lambda: self._forwards,
            progress,
        )
        self._overlays = Overlays(
            self._place,
            lambda: self._at,
            self._index_of,
            self._folder_of,
            owner=owner,
            read_only=read_only,
        )
        self._backlog = Backlog(self.name, self._follow_main, progress)
        self._position: Position | None = None
        """None before the indexes in the manifest were looked at."""
        self._deferred: Position | None = None
        """Where they are, as far as the manifest says; they are looked at when they are used."""
        self._schema = ""
        self._indexes: dict[Key, FieldIndex] = {}
        self._wanted: Predicates = {}
        self._saving = threading.Lock()
        self._saved: TextManifest | None = None
        self._unsaved = 0
        self._due = False
        """Whether a field is to be built or flushed."""
        self._ended = threading.Event()
        self._starting = threading.RLock()
        self._thread: threading.Thread | None = None
        self._retry_at = 0.0

    @property
    def _at(self) -> str:
        """The commit at which main's indexes are."""
        return GENESIS if self._position is None else self._position.commit

    def _index_of(self, key: Key) -> FieldIndex | None:
        return self._indexes.get(key)

    def _folder_of(self, checkout: Checkout) -> Path | None:
        if self._read_only and self._place.folder is not None:
            return self._place.folder / f"of-{checkout.born}"
        return None if checkout.folder is None else checkout.folder / FOLDER

    # --- searching -------------------------------------------------------------------------

    def of(self, checkout: Checkout, type_name: str, field: str) -> tuple[TextIndex, Texts]:
        """The index of a field, and the texts that replace what it has of these nodes.

        Together they are the texts of the field as of the checkout's head; None in the overlay
        means that a node has no text there. Both stay as they are while others write. Inside a
        transaction they are those before it, but for a graph in memory.
        """
        found = self._source.fields(checkout.schema).get((type_name, field))
        if found is None:
            raise NotFoundError(
                f"{type_name}.{field} is not searched; declare it with search=True",
                type=type_name,
                field=field,
            )
        if self._position is None:
            with self._starting:
                if self._deferred is None:  # nobody brought this graph up: it has lost commits
                    self.follow(self._main, self._main.head)
                self._start()
        self._backlog.complete()
        if checkout is not self._main:
            self._reading(checkout, _nothing)  # a snapshot that was dropped is made again
        try:
            return self._of(checkout, found)
        except CorruptionError:
            self._reading(checkout, _nothing)  # a node index that is damaged is repaired
            return self._of(checkout, found)

    def _of(self, checkout: Checkout, field: TextField) -> tuple[TextIndex, Texts]:
        file = checkout.nodes.file
        if file.in_memory:
            with file.reader() as db:
                if db.in_transaction:
                    return self._source.index_once(checkout.nodes, field), {}
                return self._committed(checkout, field)
        return self._committed(checkout, field)

    def _committed(self, checkout: Checkout, field: TextField) -> tuple[TextIndex, Texts]:
        if checkout is not self._main:
            return self._overlays.texts(checkout, field)
        index = self._indexes.get(field.key)
        if index is None or index.field.stamp != field.stamp:
            # A commit that changes the types is on its way.
            return self._source.index_once(checkout.nodes, field), {}
        return index.texts()

    def distrust(self, checkout: Checkout, type_name: str, field: str) -> None:
        """Have an index built anew that turned out to be damaged."""
        key = type_name, field
        if not self._overlays.distrust(checkout, key) and key in self._indexes:
            self._indexes[key].distrust()

    def _stop(self) -> None:
        give_way()
        if self._ended.is_set():
            raise StorageError("the graph is being closed")

    def _cover(self, index: FieldIndex) -> None:
        """Mark what commits did that the node index has, and that this view has not met yet.

        Their texts may be in the index already; readers of other checkouts must not find them.
        """
        start, end = self._at, self._main.nodes.position.commit
        if start != end:
            for touch in self._source.touched_between(start, end, by_predicate([index.field])):
                with self._lock:
                    index.mark(touch.handle, touch.size)

    # --- following -------------------------------------------------------------------------

    def check(self) -> None:
        """Nothing is to be done before it is used."""

    def _start(self) -> None:
        """Look at the manifest, once; an index that is not in it is built when it is needed."""
        with self._starting:
            if self._position is None:
                self._read_manifest()

    def _read_manifest(self) -> None:
        position, schema = Position(0, GENESIS), ""
        found = None if self._stored is None else read_manifest(self._stored)
        if found is not None and self._is_ours(found):
            position, schema = found.position, found.schema
            fields = self._source.fields_at(schema)
            for record in found.indexes:
                field = fields.get((record.type, record.field))
                if field is not None and field.stamp == record.stamp and self._has_files(record):
                    self._indexes[field.key] = FieldIndex(field, self._place, record)
            self._use(fields)
        elif self._stored is not None and self._stored.exists():
            self._progress("the text index can't be used; building it from the node index")
            if not self._read_only and not self._stored.is_dir():
                with storage_errors("replace the text index"):
                    self._stored.unlink()
        self._position, self._schema = position, schema

    def _is_ours(self, manifest: TextManifest) -> bool:
        """Whether indexes are of this graph, and at a commit that it has."""
        return manifest.owner == self._owner and (
            manifest.position == self._main.nodes.position
            or self._source.ancestry.has(manifest.position)
        )

    def _has_files(self, record: IndexRecord) -> bool:
        """Whether an index is there; one that can't be changed is used through links."""
        if not record.folder:
            return True
        root = self._place.folder
        if self._stored is None or root is None or "/" in record.folder:
            return False
        source = self._stored / record.folder
        if self._read_only and source.is_dir():
            link_index(source, root / record.folder, symbolic=True)
        return source.is_dir()

    def _use(self, fields: Mapping[Key, TextField]) -> None:
        """Have an index for each of these fields, and no others."""
        with self._lock:
            before = self._indexes
            self._indexes = {
                key: before[key]
                if key in before and before[key].field.stamp == field.stamp
                else FieldIndex(field, self._place)
                for key, field in fields.items()
            }
            gone = [each for key, each in before.items() if self._indexes.get(key) is not each]
            self._wanted = by_predicate(fields.values())
            self._due = self._due or any(map(_is_due, self._indexes.values()))
        for each in gone:
            each.close()

    def open(self) -> None:
        """Look at the manifest; where it is of another commit, ``follow`` has done so already."""
        if self._deferred is not None:
            self._start()

    def names(self) -> Collection[str]:
        """None: what is left of a branch is its folder, which the graph removes."""
        return ()

    def position(self, ref: Checkout) -> Position | None:
        """How far main's indexes are, tails included; those of others follow when asked."""
        if ref is not self._main:
            return None
        return self._backlog.position or self._position or self._deferred

    def _is_at(self, head: Head) -> bool:
        """Whether the manifest has an index of every searched field, at a head.

        Then nothing is to be done, and the libraries that analyze texts need not be imported.
        """
        found = None if self._stored is None else read_manifest(self._stored)
        if found is None or not self._is_ours(found) or found.schema != head.schema:
            return False
        known = {(each.type, each.field) for each in found.indexes}
        if found.position.commit != head.commit or known != self._source.keys_at(head.schema):
            return False
        self._deferred = found.position
        return True

    def follow(self, ref: Checkout, head: Head) -> None:
        """Mark what lies between here and a head of ``main``; others follow when they are asked."""
        if ref is not self._main or (self._position is None and self._is_at(head)):
            return
        if not self._backlog.extend(head):
            self._follow_main(head)

    def _follow_main(self, head: Head) -> bool:
        self._start()
        if self._at != head.commit:
            if any(each.built for each in self._indexes.values()):
                path = self._source.ancestry.path(self._at, head.commit)
                for commit in (*path.undo, *path.redo):
                    self._mark(commit)
            self._move(Position(head.seq, head.commit), head.schema)
        elif self._schema != head.schema:
            self._move(Position(head.seq, head.commit), head.schema)
        self._index_later()
        return True

    def fork(self, ref: Checkout, head: Head, source: Checkout | None) -> None:
        """Do nothing: an overlay is made when it is first asked for."""

    def forward(self, ref: Checkout, head: Head, source: Checkout) -> None:
        """Leave ``main`` to the backlog; others follow when they are asked."""
        del source
        self._forwards += 1
        if ref is self._main:
            self._backlog.begin(head)

    def land(self, commits: Sequence[tuple[Checkout, Commit, Payload]]) -> None:
        """Mark what commits to ``main`` touch; others follow when they are asked."""
        for ref, commit, payload in commits:
            if ref is self._main and not self._backlog.extend(head_at(commit)):
                self._start()
                self._mark(commit, payload)
                self._move(Position(commit.seq, commit.id), commit.schema)
                self._index_later()

    def _mark(self, commit: Commit, payload: Payload | None = None) -> None:
        """Mark what a commit touches, while an index is left that needs to know.

        One whose building begins meanwhile covers the commit itself.
        """
        indexes, lock = self._indexes, self._lock
        follows = any(each.follows for each in indexes.values())
        touched = self._source.touched_by(commit, self._wanted, payload) if follows else ()
        for touch in with_pauses(touched):
            index = indexes[touch.key]
            with lock:
                index.mark(touch.handle, touch.size)
                floods = index.built and is_flooded(index.tail, index)
            if floods:
                index.distrust()
                if not any(each.follows for each in indexes.values()):
                    break
        self._due = self._due or any(map(_is_due, indexes.values()))

    def _move(self, position: Position, schema: str) -> None:
        with self._lock:
            self._position = position
            self._unsaved += 1
        if self._schema != schema:
            self._use(self._source.fields_at(schema))
            self._schema = schema

    def drop(self, names: Sequence[str]) -> None:
        """Forget the overlays of checkouts that are gone."""
        self._overlays.drop(names)

    # --- indexing beside writers -----------------------------------------------------------

    def _index_later(self) -> None:
        """Begin to index in a thread, where something is due."""
        if self._unsaved < _UNSAVED and not self._due:
            return
        if self._stored is None or self._read_only:
            return  # a search does it
        if self._ended.is_set() or monotonic() < self._retry_at:
            return
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._index_due, name="trails-text", daemon=True
                )
                self._thread.start()

    def _index_due(self) -> None:
        if self._ended.wait(_DELAY):
            return
        work = WorkInProgress(is_long=True)
        try:
            self._due = False
            while (index := next(filter(_is_due, self._indexes.values()), None)) is not None:
                index.bring()
                index.flush()
            self._save()
        except TrailsError as error:
            self._due = True
            self._retry_at = monotonic() + _RETRY
            if not self._ended.is_set():
                self._progress(f"the text index could not be brought up yet: {error.message}")
        finally:
            work.end()

    def _save(self) -> None:
        """Write the manifest, then remove the folders that it does not name."""
        root = self._place.folder
        if root is None or self._read_only:
            return
        with self._saving:
            with self._lock:
                if self._position is None:
                    return
                records = tuple(each.record for each in self._indexes.values() if each.built)
                manifest = make_manifest(self._owner, self._position, self._schema, records)
                self._unsaved = 0
            if manifest != self._saved:
                write_manifest(root, manifest)
                self._saved = manifest
                self._sweep(root, {each.folder for each in records})

    def _sweep(self, root: Path, kept: set[str]) -> None:
        with storage_errors("look into the folder of the text index"):
            found = [each for each in root.iterdir() if each.name != MANIFEST]
        with self._lock:
            kept |= {each.making for each in self._indexes.values()}
        for path in found:
            if path.name in kept:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    path.unlink()

    # --- upkeep ----------------------------------------------------------------------------

    def rebuild(self, refs: Iterable[Checkout]) -> None:
        """Make the indexes of ``main`` anew, and others when they are asked for."""
        self._progress("the text index is to be rebuilt; building it from the node index")
        self._start()
        self.compact()
        self._overlays.drop()
        for ref in refs:
            folder = None if ref is self._main else self._folder_of(ref)
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    def verify(
        self, refs: Iterable[Checkout], reference: Reference, progress: Callable[[str], None]
    ) -> Comparison:
        """Compare every text of ``main``, and of branches with an index of their own."""
        self._start()
        self._backlog.complete()
        problems, total = [], 0
        with self._source.as_logged(reference, self._main.nodes, progress) as fresh:
            for checkout in refs:
                name = checkout.name if checkout.name in fresh.layers.refs else ROOT_NAME
                nodes = NodeIndex(fresh, name)
                self._source.use_own_schema(nodes)
                for index in self._indexes_of(checkout):
                    where = f"{index.field.type}.{index.field.field} of {checkout.name}"
                    try:
                        texts, differing = self._compare(index, checkout, nodes)
                    except CorruptionError as error:
                        problems.append(f"{where}: {error.message}")
                        continue
                    total += texts
                    if differing:
                        differ = count(differing, "text")
                        problems.append(f"{differ} of {where} differ from the log")
        progress(f"compared {count(total, 'text')}")
        return Comparison(count(total, "text"), problems)

    def _indexes_of(self, checkout: Checkout) -> list[FieldIndex]:
        if checkout is self._main:
            return list(self._indexes.values())
        return list(self._overlays.stored(checkout))

    def _compare(self, index: FieldIndex, checkout: Checkout, fresh: NodeIndex) -> tuple[int, int]:
        """(texts, differing ones) of a field; what commits touched since the fold is left out."""
        field = index.field
        if self._source.fields(fresh.schema).get(field.key) != field:
            return 0, 0  # the types were changed meanwhile
        if index.built:
            index.open_anew().close()  # checks its files
        # Looked at first: what was written until then is among what was touched.
        pinned, tail = self._of(checkout, field)
        start, end = fresh.position.commit, checkout.nodes.position.commit
        touched = self._source.touched_between(start, end, by_predicate([field]))
        since = {touch.handle for touch in touched}

        def ours() -> Iterator[IndexedText]:
            yield from (each for each in pinned.entries() if each.handle not in tail)
            yield from _entries(tail)

        def theirs() -> Iterator[IndexedText]:
            for page in self._source.pages(fresh, field):
                yield from _entries(page)

        one, other = _summed(ours(), since), _summed(theirs(), since)
        if one == other:
            return one[1], 0
        left, right = (
            Counter(each for each in some if each.handle not in since)
            for some in (ours(), theirs())
        )
        return one[1], len({each.handle for each in (left - right) + (right - left)})

    def size(self) -> int:
        """The bytes of all indexes; branches share files with ``main`` by hard links."""
        if self._stored is None:
            return 0
        return bytes_of((self._stored, *self._stored.parent.glob(f"*/*/{FOLDER}")))

    def is_open(self, ref: Checkout) -> bool:
        """Whether a checkout has an index of its own."""
        return bool(self._overlays.own(ref))

    def clean(self) -> int:
        """Remove files that no index needs; there are no rows."""
        self._start()
        self._saved = None
        self._save()
        return 0

    def compact(self) -> None:
        """Build the indexes of ``main`` anew, which leaves nothing of texts that are gone."""
        self._start()
        self._backlog.complete()
        for index in list(self._indexes.values()):
            index.distrust()
            index.build()
        self._save()

    def close(self) -> None:
        """End the threads, and write how far the indexes are."""
        self._backlog.end()
        self._ended.set()
        with self._starting:
            thread = self._thread
        if thread is not None:
            thread.join()
        try:
            self._save()
        except StorageError as error:
            self._progress(f"the position of the text index was not written: {error.message}")
        self._overlays.close()
        for index in self._indexes.values():
            index.close()
        if self._read_only and self._place.folder is not None:
            shutil.rmtree(self._place.folder, ignore_errors=True)


def _nothing(nodes: NodeIndex) -> None:
    del nodes


def _is_due(index: FieldIndex) -> bool:
    return index.is_due


def _entries(texts: Mapping[str, Text | None]) -> Iterator[IndexedText]:
    for handle, text in texts.items():
        for item, each in enumerate(text_index.items(text)):
            yield text_index.IndexedText(handle, item, text_index.digest(each))


def _summed(entries: Iterable[IndexedText], without: Container[str]) -> tuple[int, int]:
    """A sum that does not depend on the order of texts, and their number."""
    total = number = 0
    kept = (each for each in entries if each.handle not in without)
    while some := list(islice(kept, _MANY)):
        total += sum_of_lines(f"{each.handle} {each.item} ".encode() + each.digest for each in some)
        number += len(some)
    return total % MODULUS, number
