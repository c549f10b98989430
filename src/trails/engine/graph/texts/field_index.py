"""FieldIndex: the texts of one field of one type: those that are indexed, and the tail.

A *tail* is a set of nodes whose text may be another one than the index has. Searching takes their
texts from the node index instead, so a node that is in the tail without need costs time and
changes no result. That is what everything else relies on: writes only mark nodes, marks are
removed after the index has the texts durably, and a commit may be marked again at any time.

Others write while an index is built or flushed. ``work`` is held meanwhile, by whoever does that;
the lock of the view only for moments.
"""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.texts.fields import Text, TextField
from trails.engine.graph.texts.source import Texts, TextSource, length_of
from trails.errors import CorruptionError, StorageError
from trails.imports import later
from trails.log.storage import storage_errors
from trails.views.text.manifest import IndexRecord, link_index, operations_of

if TYPE_CHECKING:
    from trails.views.text import index as text_index
    from trails.views.text.index import TextIndex
else:
    text_index = later("trails.views.text.index")

FOLDER: Final = "text"
"""Where the indexes of ``main`` are in a graph's folder, and those of a branch in its own."""
LARGE_TAIL: Final = 1_000
"""Nodes in a tail from which they are indexed."""
LARGE_BYTES: Final = 4 << 20
"""The same for the bytes of their texts."""
SCANNED: Final = 4_000
"""Nodes of a tail that a search looks through; more are indexed first."""
LONG_BYTES: Final = 16 << 20
"""The same for the bytes of their texts."""
_ATTEMPTS: Final = 3


class Looked(NamedTuple):
    """What a tail was at one moment."""

    texts: Texts | None
    """All its texts, where they are known."""
    marks: Mapping[str, int]
    missing: Sequence[str]
    """Nodes whose text has to be read."""


class TextTail:
    """Nodes whose text may differ from that in an index; called with the lock of its owner."""

    def __init__(self, handles: Iterable[str] = ()) -> None:
        self._marks: dict[str, int] = dict.fromkeys(handles, 0)
        self._texts: dict[str, Text | None] = {}
        self._clock = 0
        self._shown: Texts | None = None
        self.bytes = 0
        """Of the statements that were marked."""

    def __len__(self) -> int:
        """How many nodes."""
        return len(self._marks)

    @property
    def is_large(self) -> bool:
        """Whether it is time to index its texts."""
        return len(self._marks) > LARGE_TAIL or self.bytes > LARGE_BYTES

    @property
    def is_long(self) -> bool:
        """Whether a search should not look through it."""
        return len(self._marks) > SCANNED or self.bytes > LONG_BYTES

    def mark(self, handle: str, size: int = 0) -> None:
        """The text of a node may have changed."""
        self._clock += 1
        self._marks[handle] = self._clock
        self._texts.pop(handle, None)
        self._shown = None
        self.bytes += size

    def include(self, handles: Iterable[str]) -> None:
        """Have nodes in it whose text did not change."""
        for handle in handles:
            if handle not in self._marks:
                self.mark(handle)

    def remove(self, marks: Mapping[str, int]) -> None:
        """Remove nodes that were not marked again since."""
        before = len(self._marks)
        for handle, mark in marks.items():
            if self._marks.get(handle) == mark:
                del self._marks[handle]
                self._texts.pop(handle, None)
        self._shown = None
        if before:
            self.bytes = self.bytes * len(self._marks) // before

    def clear(self) -> None:
        """Remove all nodes."""
        self.remove(dict(self._marks))

    @property
    def marks(self) -> dict[str, int]:
        """Its nodes, as they are marked now."""
        return dict(self._marks)

    def look(self) -> Looked:
        """Its nodes as they are now."""
        if self._shown is not None:
            return Looked(self._shown, {}, ())
        missing = [each for each in self._marks if each not in self._texts]
        return Looked(None, dict(self._marks), missing)

    def show(self, marks: Mapping[str, int], read: Texts) -> Texts:
        """All its texts as they were when it was looked at, some of which were just read."""
        for handle, text in read.items():
            if self._marks.get(handle) == marks[handle]:
                self._texts[handle] = text
        if self._marks == marks:
            self._shown = dict(self._texts)
            return self._shown
        known = self._texts
        return {each: read[each] if each in read else known.get(each) for each in marks}


class Workplace(NamedTuple):
    """Where the indexes of a branch are, and what they are made of."""

    folder: Path | None
    """None: in memory."""
    checkout: Checkout
    source: TextSource
    lock: threading.Lock
    """Held while a tail is changed or looked at."""
    stop: Callable[[], None]
    """Raises an error if work has to end, because the graph is closed."""
    cover: Callable[[FieldIndex], None]
    """Marks the nodes whose texts may have been read too early, from a commit on its way."""
    forwards: Callable[[], int]
    """How often branches were put where another one is."""
    progress: Callable[[str], None]

    def numbering(self) -> object:
        """Changes whenever nodes may have got other numbers, so that pages of them do not fit."""
        nodes = self.checkout.nodes
        lineage = nodes.file.layers.lineage(nodes.layer.number)
        return nodes.file.epoch, self.forwards(), lineage


class FieldIndex:
    """The index of one field on one branch, and its tail."""

    def __init__(
        self, field: TextField, place: Workplace, record: IndexRecord | None = None
    ) -> None:
        """``record`` is what is there already."""
        self.field = field
        self.work = threading.RLock()
        self.tail = TextTail(record.tail if record else ())
        self.built = record is not None
        """Whether all texts are in the index or in the tail."""
        self._building = False
        self._doubts = 0
        """How often it was distrusted."""
        self._place = place
        self._lock = place.lock
        self._folder = record.folder if record else ""
        self._operations = record.operations if record else 0
        self._index: TextIndex | None = None
        self._pinned: TextIndex | None = None
        self.documents = record.documents if record else 0
        self.making = ""
        """The folder in which it is being made."""

    @property
    def record(self) -> IndexRecord:
        """What a manifest says of it; called with the lock."""
        return IndexRecord(
            *self.field.key,
            self.field.stamp,
            self._folder,
            self._operations,
            self.documents,
            tuple(self.tail.marks),
        )

    @property
    def files(self) -> tuple[str, int]:
        """Its folder, and how many operations the files there have seen."""
        return self._folder, self._operations

    @property
    def is_due(self) -> bool:
        """Whether it should be built or flushed."""
        return not self.built or self.tail.is_large

    @property
    def follows(self) -> bool:
        """Whether it has to know what commits touch; one that is not built reads all texts."""
        return self.built or self._building

    def mark(self, handle: str, size: int = 0) -> None:
        """A commit touched the text of a node; called with the lock."""
        if self.follows:
            self.tail.mark(handle, size)

    def distrust(self) -> None:
        """Have it built anew."""
        with self._lock:
            self.built = False
            self._doubts += 1
            if not self._building:
                self.tail.clear()

    # --- reading ---------------------------------------------------------------------------

    def texts(self) -> tuple[TextIndex, Texts]:
        """The index, and the texts that replace what it has of these nodes."""
        while True:
            self.bring()
            with self._lock:
                pinned, looked = self.pinned(), self.tail.look()
            if pinned is not None:
                return pinned, complete(self.tail, looked, self.field, self._place)

    def pinned(self) -> TextIndex | None:
        """The index as it is now, if it can be used, whatever comes later; called with the lock."""
        index = self._index
        if index is None or not self.built:
            return None
        if self._pinned is None or self._pinned.state is not index.state:
            self._pinned = copy(index)
        return self._pinned

    def opened(self) -> TextIndex:
        """The index; CorruptionError if its files are not what was written."""
        found = self._index
        if found is not None:
            return found  # while others flush it, too
        with self.work:
            if self._index is None:
                self._index = self.open_anew()
            return self._index

    def open_anew(self) -> TextIndex:
        """The index, with its files checked."""
        with self.work, storage_errors("open a text index"):
            path = self._path(self._folder)
            if path is not None and operations_of(path) < self._operations:
                raise CorruptionError("its files are older than its position, or can't be read")
            index = text_index.TextIndex(path, self.field.analyzer)
            # tantivy believes the numbers of texts in its list of segments, which has no checksum.
            is_same = path is not None and operations_of(path) == self._operations
            if is_same and index.documents != self.documents:
                raise CorruptionError("it has another number of texts than was written")
            return index

    def _path(self, name: str) -> Path | None:
        return self._place.folder / name if self._place.folder is not None and name else None

    # --- writing ---------------------------------------------------------------------------

    def bring(self) -> None:
        """Have what a search can use: whole, sound, and with a tail of no great length."""
        for _ in range(_ATTEMPTS):
            if not self.built:
                self.build()
            try:
                self.opened()
                if self.tail.is_long:
                    self._flush_if_possible()
            except CorruptionError as error:
                name = f"{self.field.type}.{self.field.field}"
                self._place.progress(f"the text index of {name} is built anew: {error.message}")
                self.distrust()
            else:
                return
        raise StorageError("a text index is damaged again and again; run 'trails verify --repair'")

    def _flush_if_possible(self) -> None:
        try:
            self.flush()
        except CorruptionError:
            raise
        except StorageError:
            return  # the search looks through all of the tail, which takes longer

    def build(self) -> None:
        """Make it of all texts, beside the one that is there; few of them stay in the tail."""
        with self._alone(), self.work, storage_errors("build a text index"):
            while not self.built:
                self._build()

    def _build(self) -> None:
        """Build it once; it is not built afterwards if nodes were renumbered meanwhile."""
        with self._lock:
            self.tail.clear()
            self._building, self.making = True, secrets.token_hex(8)
            doubts, numbering = self._doubts, self._place.numbering()
        fresh: TextIndex | None = None
        try:
            fresh = self._fill()
            self._take(fresh)
            self._place.cover(self)
            with self._lock:
                self.built = (doubts, numbering) == (self._doubts, self._place.numbering())
        except BaseException:
            self._abandon(fresh)
            with self._lock:
                self.tail.clear()
            raise
        finally:
            with self._lock:
                self._building, self.making = False, ""

    def _fill(self) -> TextIndex | None:
        """A new index with all texts; None, and all of them in the tail, where they are few."""
        place, fresh = self._place, None
        numbering, length = place.numbering(), 0
        waiting: dict[str, Text] = {}
        for page in place.source.pages(place.checkout.nodes, self.field):
            place.stop()
            if place.numbering() != numbering:
                break  # it is begun again
            waiting.update(page)
            length += length_of(page)
            if fresh is not None or len(waiting) > LARGE_TAIL or length > LARGE_BYTES:
                fresh = fresh or text_index.TextIndex(self._path(self.making), self.field.analyzer)
                fresh.fill(waiting.items())
                waiting = {}
        if fresh is None:
            with self._lock:
                self.tail.include(waiting)
            return None
        fresh.fill(waiting.items())
        fresh.flush()
        return fresh

    def _take(self, fresh: TextIndex | None) -> None:
        """Use an index that was flushed."""
        path = None if fresh is None else self._path(self.making)
        operations = 0 if path is None else operations_of(path)
        before = self._index
        with self._lock:
            self._index = fresh
            self._folder = "" if path is None else self.making
            self._operations = operations
            self.documents = 0 if fresh is None else fresh.documents
        if before is not None:
            before.close()

    def flush(self) -> None:
        """Index the texts of the tail, and remove from it those that were not marked meanwhile."""
        with self._alone(), self.work, storage_errors("write a text index"):
            with self._lock:
                marks = self.tail.marks
                if marks and not self._folder and self._place.folder is not None:
                    self.making = secrets.token_hex(8)
            if not marks:
                return
            index = (
                text_index.TextIndex(self._path(self.making), self.field.analyzer)
                if self.making
                else self.opened()
            )
            try:
                self._put(index, list(marks))
                if self.making:
                    self._take(index)
                else:
                    self._note(index)
            except BaseException:
                self._abandon(index)
                raise
            finally:
                self.making = ""
            self._place.cover(self)
            with self._lock:
                self.tail.remove(marks)

    def _put(self, index: TextIndex, handles: list[str]) -> None:
        place = self._place
        for some in place.source.read_parts(place.checkout.nodes, self.field, handles):
            place.stop()
            index.put(some)
        index.flush()

    def _note(self, index: TextIndex) -> None:
        path = self._path(self._folder)
        operations = 0 if path is None else operations_of(path)
        with self._lock:
            self._operations, self.documents = operations, index.documents

    def _abandon(self, index: TextIndex | None) -> None:
        """Let go of an index with texts that were not flushed: they go with its writer."""
        if index is not None:
            index.close()
        path = self._path(self.making)
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)

    def _alone(self) -> AbstractContextManager[object]:
        """In memory there is one connection, which is to be had before the work on an index."""
        file = self._place.checkout.nodes.file
        return file.reader() if file.in_memory else nullcontext()

    def fork(self, place: Workplace, handles: Iterable[str], *, symbolic: bool) -> FieldIndex:
        """An index of another branch that begins with the same files, if there are any.

        ``handles``: the nodes whose text may be another one there.
        """
        made = FieldIndex(self.field, place)
        with self.work:
            self.opened()  # checks its files
            source = self._path(self._folder)
            if source is not None and place.folder is not None:
                made._folder, made._operations = secrets.token_hex(8), self._operations
                made.documents = self.documents
                link_index(source, place.folder / made._folder, symbolic=symbolic)
                made.tail.include(handles)
                made.built = True
        return made

    def close(self) -> None:
        """Let go of its files."""
        with self.work:
            if self._index is not None:
                self._index.close()
                self._index = None


def complete(tail: TextTail, looked: Looked, field: TextField, place: Workplace) -> Texts:
    """The texts of a tail as it was when it was looked at; those that are not known are read."""
    if looked.texts is not None:
        return looked.texts
    read = place.source.read(place.checkout.nodes, field, looked.missing)
    with place.lock:
        return tail.show(looked.marks, read)
