"""Long texts of nodes: kept beside the documents, in chunks that can be read one by one.

A window of a text of 10 MB would otherwise decode all of it. The document of such a node has a
mark in place of the text: its digest, and how many code points it has. All chunks but the last have
the same number of code points, so an offset says which chunk to read; each has a checksum. Equal
texts are stored once, whatever nodes, branches and snapshots have them.

A text that no document names any more is removed at the next collection after an hour, because a
reader may have seen the document and not yet the chunks; at once where nobody reads.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Final
from zlib import crc32

import msgspec

LONG_TEXT: Final = 65_536
"""Code points above which a text is stored beside the document."""
CHUNK: Final = 4_096
"""Code points of a chunk."""
MARK: Final = 0
"""The byte with which a document begins that has such texts; every other is a JSON object."""
LONG_TABLES: Final = """
CREATE TABLE IF NOT EXISTS texts (
    tid INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, idle INTEGER
);
CREATE TABLE IF NOT EXISTS chunks (cid INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS long_nodes ON nodes (nid) WHERE substr(doc, 1, 1) = x'00';
CREATE INDEX IF NOT EXISTS long_rows ON rows (layer, nid, seq) WHERE substr(doc, 1, 1) = x'00';
"""
LONG_DRAFT_TABLES: Final = """
CREATE TEMP TABLE texts (tid INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, idle INTEGER);
CREATE TEMP TABLE chunks (cid INTEGER PRIMARY KEY, data BLOB NOT NULL);
"""
_BITS: Final = 20
"""A chunk's number is that of its text, then a counter."""
_SUM: Final = 4
_GRACE: Final = 3600
"""Seconds for which a text stays after its last document is gone."""
_MUCH: Final = 64 * 1024 * 1024
"""Code points that are written between two collections."""


class LongText(msgspec.Struct, frozen=True, array_like=True):
    """What a document says of a long text."""

    digest: str
    """SHA-256 of its UTF-8, in hex."""
    total: int
    """Code points."""


class LongDocument(msgspec.Struct, frozen=True):
    """A document without its long texts, and what it says of them."""

    long: dict[str, LongText]
    rest: msgspec.Raw

    def encode(self) -> bytes:
        """As a row holds it."""
        return bytes([MARK]) + msgspec.json.encode(self, order="deterministic")


_DECODE: Final = msgspec.json.Decoder(LongDocument).decode


def read_document(doc: bytes) -> LongDocument:
    """A document that begins with the mark."""
    return _DECODE(doc[1:])


class LongTexts:
    """The long texts of one node file; a draft has its own in temporary tables."""

    def __init__(self, places: Iterable[str] = ("main.",)) -> None:
        """``places``: the databases in which a text may be, as prefixes; the first is written."""
        self._places = tuple(places)
        self._written = 0

    # --- reading -----------------------------------------------------------------------

    def read(self, db: sqlite3.Connection, text: LongText) -> str:
        """All of a text; ValueError if it is not what was stored."""
        whole = self.part(db, text, 0, text.total)
        if len(whole) != text.total:
            raise ValueError("a long text is incomplete")
        return whole

    def part(self, db: sqlite3.Connection, text: LongText, start: int, end: int) -> str:
        """A part of a text; ValueError if it is not what was stored."""
        start, end = max(start, 0), min(end, text.total)
        if start >= end:
            return ""
        first, last = start // CHUNK, (end - 1) // CHUNK
        parts = [
            _unsealed(text.digest, at, data) for at, data in self._chunks(db, text, first, last)
        ]
        if len(parts) != last - first + 1:
            raise ValueError("a chunk of a long text is missing")
        offset = first * CHUNK
        return "".join(parts)[start - offset : end - offset]

    def _chunks(
        self, db: sqlite3.Connection, text: LongText, first: int, last: int
    ) -> Iterator[tuple[int, bytes]]:
        for place in self._places:
            row = db.execute(
                f"SELECT tid FROM {place}texts WHERE digest = ?",  # noqa: S608
                (text.digest,),
            ).fetchone()
            if row is not None:
                start = row[0] << _BITS
                rows = db.execute(
                    f"SELECT cid, data FROM {place}chunks WHERE cid BETWEEN ? AND ? ORDER BY cid",  # noqa: S608
                    (start + first, start + last),
                ).fetchall()  # an open cursor would keep tables locked when a chunk is wrong
                return ((cid - start, data) for cid, data in rows)
        return iter(())

    # --- writing -----------------------------------------------------------------------

    def store(self, db: sqlite3.Connection, text: str) -> LongText:
        """Store a text, unless it is there already."""
        place, found = self._places[0], LongText(sha256(text.encode()).hexdigest(), len(text))
        row = db.execute(
            f"SELECT tid, idle FROM {place}texts WHERE digest = ?",  # noqa: S608
            (found.digest,),
        ).fetchone()
        if row is not None:
            if row[1] is not None:
                db.execute(f"UPDATE {place}texts SET idle = NULL WHERE tid = ?", row[:1])  # noqa: S608
            return found
        tid = db.execute(f"INSERT INTO {place}texts (digest) VALUES (?)", (found.digest,)).lastrowid  # noqa: S608
        assert tid is not None  # noqa: S101 - a row was inserted
        db.executemany(
            f"INSERT INTO {place}chunks VALUES (?, ?)",  # noqa: S608
            (
                ((tid << _BITS) + number, _sealed(found.digest, number, text[at : at + CHUNK]))
                for number, at in enumerate(range(0, len(text), CHUNK))
            ),
        )
        self._written += len(text)
        return found

    def collect_sometimes(self, db: sqlite3.Connection) -> None:
        """Collect, if much was written since that was done last."""
        if self._written > _MUCH and len(self._places) == 1:
            self.collect(db)

    def collect(self, db: sqlite3.Connection, grace: int = _GRACE) -> int:
        """Remove texts that no document names; how many.

        ``grace``: for how many seconds a text has to have been found unused; 0 where nobody reads.
        """
        self._written, now = 0, int(time.time())
        used = {each.digest for each in self._named(db)}
        gone: list[int] = []
        for tid, digest, idle in db.execute("SELECT tid, digest, idle FROM texts").fetchall():
            if digest in used:
                if idle is not None:
                    db.execute("UPDATE texts SET idle = NULL WHERE tid = ?", (tid,))
            elif not grace or (idle is not None and not 0 <= now - idle < grace):
                gone.append(tid)
            elif idle is None:
                db.execute("UPDATE texts SET idle = ? WHERE tid = ?", (now, tid))
        for tid in gone:
            bounds = tid << _BITS, (tid + 1) << _BITS
            db.execute("DELETE FROM chunks WHERE cid >= ? AND cid < ?", bounds)
            db.execute("DELETE FROM texts WHERE tid = ?", (tid,))
        return len(gone)

    def _named(self, db: sqlite3.Connection) -> Iterator[LongText]:
        """What documents name; partial indexes know which have long texts."""
        for table in ("nodes", "rows"):
            query = f"SELECT doc FROM {table} WHERE substr(doc, 1, 1) = x'00'"  # noqa: S608
            for (doc,) in db.execute(query):
                yield from read_document(doc[:-_SUM]).long.values()

    # --- checking ----------------------------------------------------------------------

    def wrong(self, db: sqlite3.Connection) -> int:
        """How many texts are not what their digests say, or are missing."""
        totals: Mapping[str, int] = {each.digest: each.total for each in self._named(db)}
        return sum(
            not self._is_whole(db, LongText(digest, total)) for digest, total in totals.items()
        )

    def _is_whole(self, db: sqlite3.Connection, text: LongText) -> bool:
        try:
            return sha256(self.read(db, text).encode()).hexdigest() == text.digest
        except ValueError:
            return False


class StoredText:
    """A long text of which parts are read when they are asked for.

    The chunks that were read last are at hand: a window looks at its edges before it is read.
    """

    __slots__ = ("_at", "_mark", "_near", "_read")

    def __init__(self, mark: LongText, read: Callable[[int, int], str]) -> None:
        self._mark = mark
        self._read = read
        self._at, self._near = 0, ""

    @property
    def digest(self) -> str:
        """SHA-256 of its UTF-8, in hex."""
        return self._mark.digest

    def __len__(self) -> int:
        """How many code points it has."""
        return self._mark.total

    def __getitem__(self, part: slice, /) -> str:
        """A part of it, without steps."""
        start, end, _ = part.indices(self._mark.total)
        if not self._at <= start <= end <= self._at + len(self._near):
            self._at = start // CHUNK * CHUNK
            self._near = self._read(self._at, -(-end // CHUNK) * CHUNK)
        return self._near[start - self._at : max(end - self._at, 0)]


def _sealed(digest: str, number: int, text: str) -> bytes:
    data = text.encode()
    return data + _checksum(digest, number, data)


def _unsealed(digest: str, number: int, sealed: bytes) -> str:
    data = sealed[:-_SUM]
    if _checksum(digest, number, data) != sealed[-_SUM:]:
        raise ValueError("the checksum of a long text is wrong")
    return data.decode()


def _checksum(digest: str, number: int, data: bytes) -> bytes:
    return crc32(data, crc32(f"{digest} {number}".encode())).to_bytes(_SUM, "little")
