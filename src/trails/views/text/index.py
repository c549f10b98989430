"""TextIndex: the texts of one field of one concrete type, on disk or in memory.

Each text is one document of a tantivy index, keyed by the handle of its node; a list has one
document for each of its items. The index stores words, not texts: beside them only a digest, so
that ``entries`` can be compared with the truth.

One field of one type has an index of its own, because statistics are shared by what is in one
index: the score of a text never depends on texts that a reader may not see.

What ``put`` is given is found after ``flush``. A file that is damaged is noticed when the index is
opened (tantivy writes checksums and does not read them), and raised as ``CorruptionError``: delete
the folder and fill the index again. One thread writes; any number of threads read.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import tantivy

from trails.errors import CorruptionError, StorageError
from trails.files import make_folder, replace_file
from trails.model.caches import BoundedCache
from trails.views.text.analysis import Analyzer

Texts = str | tuple[str, ...] | None
"""What a node holds in a field: one text, the items of a list, or nothing."""

_FORMAT: Final = 1
_STAMP: Final = "stamp.json"
_HEAP: Final = 32_000_000
_BUILD_HEAP: Final = 256_000_000
"""Memory of the writer: a segment is written when it is used up."""
_DIGEST: Final = 16
_HANDLE: Final = _DIGEST + 4
"""Where digest and handle of an entry end and begin; the number of the item is between them."""
_FOOTER: Final = struct.Struct("<II")
_MAGIC: Final = 1337
_BLOCK: Final = 1 << 20
_REMEMBERED: Final = 20_000
"""How many words an index keeps the frequencies of."""
_DOCUMENTS: Final = re.compile(r'"value": ([0-9.e+]+),\s+"description": "N,')


class IndexedText(NamedTuple):
    """A document of an index."""

    handle: str
    item: int
    digest: bytes


def digest(text: str) -> bytes:
    """What an index stores of a text to recognise it by."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:_DIGEST]


def items(texts: Texts) -> tuple[str, ...]:
    if texts is None:
        return ()
    return (texts,) if isinstance(texts, str) else texts


class TextIndex:
    """The texts of one field. Without a folder it is kept in memory."""

    def __init__(self, folder: Path | None, analyzer: Analyzer) -> None:
        self.folder = folder
        self.analyzer = analyzer
        self._writer: tantivy.IndexWriter | None = None
        if folder is not None:
            make_folder(folder)
            self._stamp(folder)
            _check_files(folder)
        with guard(self):
            self._index = tantivy.Index(_schema(), path=None if folder is None else str(folder))
            whitespace = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
            self._index.register_tokenizer("words", whitespace)
            self._index.config_reader("manual")
            self.schema = self._index.schema
        self._load()

    def _stamp(self, folder: Path) -> None:
        """Write down how texts are analysed here, or compare with what was written."""
        stamp = json.dumps({"format": _FORMAT, "analyzer": self.analyzer.version})
        path = folder / _STAMP
        try:
            found = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            if (folder / "meta.json").exists():
                raise CorruptionError(f"{path} is missing; the index must be rebuilt") from None
            replace_file(path, stamp.encode())
            return
        if found != stamp:
            raise CorruptionError(
                f"{folder} was written with another analyzer; the index must be rebuilt"
            )

    def _load(self) -> None:
        with guard(self):
            self._index.reload()
            self.state = IndexState(self._index.searcher(), self.schema)
            if not self.state.whole:
                raise CorruptionError(
                    f"text index {self.folder}: its segments do not hold what it says; "
                    "it must be rebuilt"
                )

    @property
    def documents(self) -> int:
        return self.state.documents

    def put(self, texts: Mapping[str, Texts]) -> None:
        """Replace what these handles have; None removes it."""
        with guard(self):
            writer = self._open_writer(_HEAP)
            for handle, texts_ in texts.items():
                writer.delete_documents_by_term("handle", handle)
                self._add(writer, handle, texts_)

    def fill(self, texts: Iterable[tuple[str, Texts]]) -> None:
        """Add the texts of handles that the index does not have yet: faster than ``put``."""
        with guard(self):
            writer = self._open_writer(_BUILD_HEAP)
            for handle, texts_ in texts:
                self._add(writer, handle, texts_)

    def flush(self) -> None:
        """Make what was put durable and visible.

        It returns when segments are merged, so that the state depends on nothing but what was
        put, and in which order.
        """
        if self._writer is None:
            return
        with guard(self):
            writer, self._writer = self._writer, None
            writer.commit()
            writer.wait_merging_threads()
        self._load()

    def entries(self) -> Iterator[IndexedText]:
        """Every document, in no order."""
        searcher = self.state.searcher
        with guard(self):
            found = searcher.search(
                tantivy.Query.all_query(), limit=max(1, searcher.num_docs), count=False
            )
            for _, address in found.hits:
                yield self.entry(searcher, address)

    @staticmethod
    def entry(searcher: tantivy.Searcher, address: tantivy.DocAddress) -> IndexedText:
        stored = searcher.doc(address).get_first("entry") or b""
        item = int.from_bytes(stored[_DIGEST:_HANDLE], "big")
        return IndexedText(stored[_HANDLE:].decode(), item, stored[:_DIGEST])

    @staticmethod
    def handle_and_item(searcher: tantivy.Searcher, address: tantivy.DocAddress) -> tuple[str, int]:
        """The handle and the number of the item of a document."""
        stored = searcher.doc(address).get_first("entry") or b""
        return stored[_HANDLE:].decode(), int.from_bytes(stored[_DIGEST:_HANDLE], "big")

    def close(self) -> None:
        """Forget what was put and not flushed."""
        if self._writer is not None:
            with guard(self):
                writer, self._writer = self._writer, None
                writer.rollback()
                writer.wait_merging_threads()

    def _open_writer(self, heap: int) -> tantivy.IndexWriter:
        # One thread: with several, the order of documents and the segments would be a race.
        if self._writer is None:
            self._writer = self._index.writer(heap, 1)
        return self._writer

    def _add(self, writer: tantivy.IndexWriter, handle: str, texts: Texts) -> None:
        key = handle.encode()
        for item, text in enumerate(items(texts)):
            words = self.analyzer.words(text)
            document = tantivy.Document()
            document.add_text("handle", handle)
            document.add_text("words", " ".join(words))
            document.add_bytes("entry", digest(text) + item.to_bytes(4, "big") + key)
            document.add_unsigned("order", zlib.crc32(key, item))
            document.add_unsigned("length", len(words))
            writer.add_document(document)


class IndexState:
    """What an index holds after a flush, and its statistics. Never changes."""

    def __init__(self, searcher: tantivy.Searcher, schema: tantivy.Schema) -> None:
        self.searcher = searcher
        self._schema = schema
        self._stored: dict[str, int] = BoundedCache(_REMEMBERED)
        self._counted: dict[str, int] = BoundedCache(_REMEMBERED)
        every = tantivy.Query.all_query()
        sums = searcher.aggregate(every, {"length": {"stats": {"field": "length"}}})
        self.documents = searcher.num_docs
        self.whole = self.documents == sums["length"]["count"]
        self.words = int(sums["length"]["sum"] or 0)
        self.stored_documents = self._stored_documents()
        """How many texts the statistics of tantivy count: deleted ones until they are merged."""
        self.exact = self.stored_documents == self.documents
        """Whether nothing deleted is counted."""
        self.stored_average = self.words / self.documents if self.exact and self.words else None
        """Their average length; None where it is not known yet."""

    def _stored_documents(self) -> int:
        hits = self.searcher.search(tantivy.Query.all_query(), 1, count=False).hits
        if not hits:
            return 0
        address = hits[0][1]
        handle = TextIndex.entry(self.searcher, address).handle
        query = tantivy.Query.term_query(self._schema, "handle", handle, "basic")
        return int(number_in(_DOCUMENTS, query.explain(self.searcher, address).to_json()))

    def stored_frequency(self, term: str) -> int:
        """How many texts have a word for tantivy, which counts deleted ones."""
        known = self._stored.get(term)
        if known is None:
            known = self._stored[term] = self.searcher.doc_freq("words", term)
        return known

    def frequency(self, term: str) -> int:
        """How many texts have a word."""
        if self.exact:
            return self.stored_frequency(term)
        known = self._counted.get(term)
        if known is None:
            query = tantivy.Query.term_query(self._schema, "words", term, "basic")
            known = self._counted[term] = count(self.searcher, query)
        return known


def count(searcher: tantivy.Searcher, query: tantivy.Query) -> int:
    """How many documents match."""
    return int(searcher.search(query, 1, count=True).count)  # type: ignore[attr-defined]


def number_in(pattern: re.Pattern[str], explained: str) -> float:
    """A number of those from which tantivy computed a score."""
    found = pattern.search(explained)
    if found is None:
        raise RuntimeError(f"tantivy explains scores in another way: {explained}")
    return float(found[1])


def order(handle: str, item: int) -> int:
    """What decides between texts with equal scores: any order that depends on names alone."""
    return zlib.crc32(handle.encode(), item)


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("handle", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("words", tokenizer_name="words", index_option="position")
    builder.add_bytes_field("entry", stored=True)
    builder.add_unsigned_field("order", fast=True)
    builder.add_unsigned_field("length", fast=True)
    return builder.build()


_CORRUPT: Final = re.compile("corrupt", re.IGNORECASE)
"""How tantivy says that a file does not hold what it should."""


@contextmanager
def guard(index: TextIndex) -> Iterator[None]:
    """Raise what tantivy raises as errors of ours. A panic on damaged data is a BaseException."""
    try:
        yield
    except (ValueError, OSError) as error:
        if _CORRUPT.search(str(error)):
            raise _unreadable(index, error) from error
        raise StorageError(f"text index {index.folder or 'in memory'}: {error}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise _unreadable(index, error) from error


def _unreadable(index: TextIndex, error: BaseException) -> CorruptionError:
    return CorruptionError(
        f"text index {index.folder or 'in memory'} can't be read: {error}; it must be rebuilt"
    )


class _Deletes(msgspec.Struct, forbid_unknown_fields=True):
    num_deleted_docs: int
    opstamp: int


class _Segment(msgspec.Struct, forbid_unknown_fields=True):
    segment_id: str
    max_doc: int
    deletes: _Deletes | None

    def files(self) -> Iterator[str]:
        name = self.segment_id.replace("-", "")
        for suffix in ("fast", "fieldnorm", "idx", "pos", "store", "term"):
            yield f"{name}.{suffix}"
        if self.deletes is not None:
            yield f"{name}.{self.deletes.opstamp}.del"


class _Meta(msgspec.Struct, forbid_unknown_fields=True):
    """meta.json, every key of it: a damaged key is unknown, and the true one is missing."""

    index_settings: dict[str, object]
    segments: list[_Segment]
    schema: list[object]
    opstamp: int


def _check_files(folder: Path) -> None:
    """Compare each file of the index with the checksum at its end."""
    path = folder / "meta.json"
    try:
        meta = msgspec.json.decode(path.read_bytes(), type=_Meta)
    except FileNotFoundError:
        return
    except ValueError as error:
        raise CorruptionError(f"{path} can't be read: {error}") from error
    for segment in meta.segments:
        for name in segment.files():
            if not _intact(folder / name):
                raise CorruptionError(f"{folder / name} is damaged; the index must be rebuilt")


def _intact(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _FOOTER.size))
            length, magic = _FOOTER.unpack(file.read(_FOOTER.size))
            body = size - _FOOTER.size - length
            if magic != _MAGIC or body < 0:
                return False
            file.seek(body)
            wanted = json.loads(file.read(length))["crc"]
            file.seek(0)
            found = 0
            while body > 0:
                block = file.read(min(_BLOCK, body))
                if not block:
                    return False
                found = zlib.crc32(block, found)
                body -= len(block)
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return False
    return bool(found == wanted)
