"""Large compressed texts as rows of pieces, written and read as streams."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

from trails.log.payloads import INLINE_LIMIT, CheckedText, DeltaPart
from trails.log.postgres.connections import Connection, Connections
from trails.log.storage import storage_errors, zstd

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK: Final = 1 << 20
"""Bytes of one piece."""
Half = tuple[int, int, str]
"""Graph, place and half of a commit: ``removed`` or ``added``."""


def insert_chunks(connection: Connection, half: Half, part: DeltaPart, folder: Path | None) -> int:
    """Add the pieces of a large part to the open transaction; return how many, or 0."""
    if part.segment is None or folder is None:
        blob = part.blob or b""
        return 0 if len(blob) <= INLINE_LIMIT else _insert(connection, half, io.BytesIO(blob))
    with storage_errors("read a segment"), (folder / part.segment).open("rb") as file:
        return _insert(connection, half, file)


def _insert(connection: Connection, half: Half, file: IO[bytes]) -> int:
    number = 0
    while body := file.read(CHUNK):
        connection.execute(
            "INSERT INTO trails_chunks VALUES (%s, %s, %s, %s, %b)", (*half, number, body)
        )
        number += 1
    return number


def open_chunks(connections: Connections, half: Half, chunks: int, sha: str) -> IO[bytes]:
    """The text of a part, as a stream that ends in CorruptionError if it is not whole."""
    pieces = io.BufferedReader(_Pieces(connections, half, chunks), CHUNK)
    text = zstd.open(pieces, "rb")
    return io.BufferedReader(CheckedText(text, f"a part of commit {half[1]}", sha), 1 << 16)


class _Pieces(io.RawIOBase):
    """One piece after the other; each is asked for when it is needed, and kept no longer."""

    def __init__(self, connections: Connections, half: Half, chunks: int) -> None:
        super().__init__()
        self._connections = connections
        self._half = half
        self._chunks = chunks
        self._next = 0
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        """As every stream must say."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill a buffer; a piece that is missing ends the stream early, which zstd notices."""
        if not self._piece and self._next < self._chunks:
            self._piece = memoryview(self._connections.read("read the log", self._read))
            self._next += 1
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._piece))
        view[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        return count

    def _read(self, connection: Connection) -> bytes:
        row = connection.execute(
            "SELECT body FROM trails_chunks "
            "WHERE graph = %s AND seq = %s AND half = %s AND part = %s",
            (*self._half, self._next),
            binary=True,
        ).fetchone()
        return b"" if row is None else cast(bytes, row[0])
