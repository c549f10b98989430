"""The body of a commit: N-Quads removed and added, small or streamed.

A small delta is compressed into the commit's row. A large one streams into
compressed segment files, so that a commit of any size needs little memory.
Files are synced before the row that names them, and a file that no row names
is debris of a crash.
"""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import msgspec

from trails.errors import CorruptionError, StorageError
from trails.files import make_folder, private_opener, sync_folder
from trails.log.storage import storage_errors, zstd

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

INLINE_LIMIT: Final = 256 * 1024
_LEVEL: Final = 1
_small = zstd.ZstdCompressor(_LEVEL)
"""Kept, because making one takes longer than it takes to compress a small part."""


class DeltaPart(msgspec.Struct, frozen=True):
    """One half of a delta: how many statements, their digest, and where the text is."""

    count: int
    sha: str
    blob: bytes | None = None
    segment: str | None = None
    text: bytes | None = None
    """The statements themselves, while a small part is on its way."""


class Payload(msgspec.Struct, frozen=True):
    """Both halves, sealed."""

    removed: DeltaPart
    added: DeltaPart

    @property
    def digest(self) -> str:
        """SHA-256 over both texts."""
        return payload_digest(self.removed.sha, self.added.sha)

    @property
    def texts(self) -> tuple[bytes, bytes] | None:
        """Both texts, where both are still in memory."""
        removed, added = self.removed.text, self.added.text
        return None if removed is None or added is None else (removed, added)

    @property
    def empty(self) -> bool:
        """Whether nothing is removed or added."""
        return not self.removed.count and not self.added.count


def payload_digest(removed: str, added: str) -> str:
    """The digest that a commit carries for its delta."""
    return sha256(f"{removed} {added}".encode()).hexdigest()


class PartWriter:
    """Collects one half of a delta; moves to a file when it grows."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._count = 0
        self._hash = sha256()
        self._buffer: list[bytes] = []
        self._size = 0
        self._file: IO[bytes] | None = None
        self._compressor: zstd.ZstdCompressor | None = None
        self._path: Path | None = None

    def write(self, lines: bytes, count: int) -> None:
        """Take ``count`` statements as N-Quads text."""
        self._count += count
        self._hash.update(lines)
        self._size += len(lines)
        self._buffer.append(lines)
        if self._size > INLINE_LIMIT and self._folder is not None:
            self._spill()

    def _spill(self) -> None:
        with storage_errors("write a segment"):
            if self._file is None:
                assert self._folder is not None  # noqa: S101 - the caller checked
                make_folder(self._folder)
                self._path = self._folder / f"{secrets.token_hex(8)}.tmp"
                self._file = open(self._path, "xb", opener=private_opener)  # noqa: SIM115 - closed by seal
                self._compressor = zstd.ZstdCompressor(_LEVEL)
            assert self._compressor is not None  # noqa: S101 - made together with the file
            self._file.write(self._compressor.compress(b"".join(self._buffer)))
            self._buffer.clear()
            self._size = 0

    def seal(self) -> DeltaPart:
        """Finish; a file is durable under its final name when this returns."""
        sha = self._hash.hexdigest()
        if self._file is None:
            text = b"".join(self._buffer)
            blob = _small.compress(text, zstd.ZstdCompressor.FLUSH_FRAME) if text else b""
            return DeltaPart(self._count, sha, blob, text=text)
        self._spill()
        with storage_errors("write a segment"):
            assert self._compressor is not None  # noqa: S101 - made together with the file
            assert self._path is not None  # noqa: S101 - made together with the file
            self._file.write(self._compressor.flush())
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            name = f"{sha}.nq.zst"
            final = self._path.with_name(name)
            self._path.replace(final)
            sync_folder(final.parent)
        self._file = None
        return DeltaPart(self._count, sha, segment=name)

    def discard(self) -> None:
        """Forget everything."""
        if self._file is not None:
            # Closing writes what is still buffered, which a full disk refuses again.
            with suppress(OSError):
                self._file.close()
            self._file = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)


class PayloadWriter:
    """Collects a delta: statements removed, statements added."""

    def __init__(self, folder: Path | None) -> None:
        self.removed = PartWriter(folder)
        self.added = PartWriter(folder)

    def seal(self) -> Payload:
        """Finish both halves."""
        return Payload(self.removed.seal(), self.added.seal())

    def discard(self) -> None:
        """Forget everything."""
        self.removed.discard()
        self.added.discard()


def open_part(part: DeltaPart, folder: Path | None) -> IO[bytes]:
    """The N-Quads text of one half, as a stream that ends in CorruptionError if it is not whole.

    Whoever folds the stream must therefore read it to its end before the result counts.
    """
    if part.segment is not None and folder is not None:
        with _damage(part.segment):
            file = zstd.open(folder / part.segment, "rb")
            return io.BufferedReader(CheckedText(file, part.segment, part.sha), 1 << 16)
    with _damage("a commit's statements"):
        text = zstd.decompress(part.blob) if part.blob else b""
    _check(part.sha, sha256(text).hexdigest(), "a commit's statements")
    return io.BytesIO(text)


class CheckedText(io.RawIOBase):
    """The text of a large part; reaching its end compares its digest."""

    def __init__(self, text: zstd.ZstdFile, name: str, sha: str) -> None:
        """``name`` is what an error calls it; ``text`` is closed with it."""
        super().__init__()
        self._name = name
        self._sha = sha
        self._hash = sha256()
        self._file = text

    def readable(self) -> bool:
        """As every stream must say."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill a buffer; an empty answer is the end, where the digest must be right."""
        view = memoryview(buffer)
        with _damage(self._name):
            count = self._file.readinto(view)
        self._hash.update(view[:count])
        if not count:
            _check(self._sha, self._hash.hexdigest(), self._name)
        return count

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._file.close()
        super().close()


@contextmanager
def _damage(what: str) -> Iterator[None]:
    try:
        yield
    except (zstd.ZstdError, EOFError, FileNotFoundError, TypeError) as error:
        raise _damaged(what, str(error)) from error
    except OSError as error:
        raise StorageError(f"can't read {what}: {error}") from error


def _check(wanted: str, found: str, what: str) -> None:
    if wanted != found:
        raise _damaged(what, "its digest differs")


def _damaged(what: str, problem: str) -> CorruptionError:
    return CorruptionError(
        f"the log is damaged: {what} is not what was committed ({problem}); run 'trails verify' "
        "and restore the log from a backup"
    )
