"""Blobs: binary content beside the log, named by its SHA-256.

    blobs/pending/<digest>    synced, and named by no commit yet
    blobs/ab/<digest>         named by a commit: it stays as long as the history does
    blobs/ab/<digest>.sums    a checksum for each block, so that a part is checked when it is read
    blobs/new/<digest>        while a commit that names it is being written: the log's last place

A blob moves to its final place before the commit that names it is appended. If the process dies
in between, the file in ``new`` says from which place on the log has to be searched for the digest.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Final
from zlib import crc32

from trails.errors import CorruptionError, LimitError
from trails.files import create_file, digest_file, make_folder, replace_file, sync_file, sync_folder
from trails.log.storage import storage_errors
from trails.model.caches import LRUCache
from trails.model.values.blobs import is_digest

BLOBS: Final = "blobs"
"""The folder of a graph."""
KEPT_SECONDS: Final = 24 * 3600
"""For how long content is kept that no commit names."""
_PENDING: Final = "pending"
_NEW: Final = "new"
_SUMS: Final = ".sums"
_BLOCK: Final = 64 << 10
_COPIED: Final = 1 << 20
_SUM: Final = 4
_KNOWN: Final = 64


class BlobStore:
    """The blobs of one graph, in a folder or in memory."""

    def __init__(self, folder: Path | None, temporary: Callable[[], Path | None]) -> None:
        """``temporary``: where files are written before they have their names."""
        self._folder = folder
        self._temporary = temporary
        self._memory: dict[str, bytes] = {}
        self._sums: LRUCache[str, bytes] = LRUCache(_KNOWN)
        self._lock = threading.Lock()
        self._puts: dict[tuple[str, str], tuple[float, int]] = {}
        """(actor, digest) → when it was put, and its size, until a commit names it."""

    @property
    def folder(self) -> Path | None:
        """Where they are; None in memory."""
        return self._folder

    # --- putting -----------------------------------------------------------------------

    def put(self, data: bytes | IO[bytes], most: int = 0) -> tuple[str, int]:
        """Keep content, durably; (digest, size). ``most``: how many bytes it may have, or 0."""
        with _spooled(data, self._temporary(), most) as path:
            return self.take(path)

    def take(self, path: Path) -> tuple[str, int]:
        """Keep the content of a file, which may be moved; (digest, size)."""
        with storage_errors("keep a blob"):
            digest, size = digest_file(path), path.stat().st_size
            if self._folder is None:
                self._memory[digest] = path.read_bytes()
                return digest, size
            with self._lock:
                place = self._pending(digest)
                if self._place(digest).exists():
                    return digest, size
                make_folder(place.parent)
                if place.exists():
                    os.utime(place)
                    return digest, size
                sync_file(path)
                _move(path, place)
            return digest, size

    def note_put(self, actor: str, digest: str, size: int) -> None:
        """Remember who put it: an actor with partial access may name only what it has itself."""
        with self._lock:
            self._forget_old()
            self._puts[actor, digest] = time.monotonic(), size

    def was_put_by(self, actor: str, digest: str) -> bool:
        """Whether an actor has put it lately."""
        with self._lock:
            self._forget_old()
            return (actor, digest) in self._puts

    def unnamed_bytes(self, actor: str) -> int:
        """Bytes that an actor has put lately and no commit names."""
        with self._lock:
            self._forget_old()
            return sum(size for (name, _), (_, size) in self._puts.items() if name == actor)

    def _forget_old(self) -> None:
        limit = time.monotonic() - KEPT_SECONDS
        for key in [key for key, (at, _) in self._puts.items() if at < limit]:
            del self._puts[key]

    # --- reading -----------------------------------------------------------------------

    def size_of(self, digest: str) -> int | None:
        """How many bytes it has; None if it is not kept."""
        if self._folder is None:
            content = self._memory.get(digest)
            return None if content is None else len(content)
        path = self._find(digest)
        return None if path is None else path.stat().st_size

    def _find(self, digest: str) -> Path | None:
        if not is_digest(digest):
            return None
        return next((each for each in self._places(digest) if each.is_file()), None)

    def _places(self, digest: str) -> tuple[Path, Path]:
        return self._place(digest), self._pending(digest)

    def blocks(
        self, digest: str, size: int, start: int = 0, length: int | None = None
    ) -> Generator[bytes, None, None]:
        """A part of it in blocks, each checked before it is given out; ``size`` is what it has."""
        found = self.size_of(digest)
        if found is None:
            raise CorruptionError(
                f"blob {digest} is missing; put its file back from a backup ({BLOBS}/{digest[:2]})"
            )
        if found != size:
            raise _changed(digest)
        start = min(max(start, 0), size)
        end = size if length is None else min(size, start + max(length, 0))
        if self._folder is None:
            yield self._memory[digest][start:end]
            return
        path = self._find(digest)
        assert path is not None  # noqa: S101 - it has a size
        with storage_errors("read a blob"), path.open("rb") as file:
            sums = self._sums.get(digest, lambda: self._read_sums(digest, path))
            file.seek(start // _BLOCK * _BLOCK)
            at = start // _BLOCK
            while at * _BLOCK < end:
                block = file.read(_BLOCK)
                if _sum(block) != sums[at * _SUM : (at + 1) * _SUM]:
                    raise _changed(digest)
                yield block[max(start - at * _BLOCK, 0) : end - at * _BLOCK]
                at += 1

    def _read_sums(self, digest: str, path: Path) -> bytes:
        """The checksums of its blocks; made, after a check of the whole, if there are none."""
        beside = path.with_name(digest + _SUMS)
        with suppress(FileNotFoundError):
            found = beside.read_bytes()
            if (
                len(found) == _SUM * _blocks_of(path) + _SUM
                and _sum(found[:-_SUM]) == found[-_SUM:]
            ):
                return found[:-_SUM]
        made, whole = bytearray(), sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                whole.update(block)
                made += _sum(block)
        if whole.hexdigest() != digest:
            raise _changed(digest)
        if path.parent.name != _PENDING:
            with suppress(OSError):  # a graph that can't be written is read without them
                replace_file(beside, bytes(made) + _sum(made))
        return bytes(made)

    # --- commits -----------------------------------------------------------------------

    def keep(self, digests: Collection[str], seq: int) -> None:
        """Move blobs to their final place; ``seq`` is the last place of the log."""
        if self._folder is None or not digests:
            return
        with storage_errors("keep a blob"), self._lock:
            for digest in sorted(digests):
                place, pending = self._places(digest)
                if place.exists() or not pending.exists():
                    continue
                make_folder(place.parent)
                make_folder(self._folder / _NEW)
                replace_file(self._folder / _NEW / digest, str(seq).encode())
                _move(pending, place)

    def committed(self, digests: Collection[str]) -> None:
        """The commit that names them is in the log."""
        if not digests:
            return
        with self._lock:
            for key in [key for key in self._puts if key[1] in digests]:
                del self._puts[key]
        if self._folder is not None:
            for digest in digests:
                with suppress(OSError):  # the next cleanup finds that a commit names it
                    (self._folder / _NEW / digest).unlink(missing_ok=True)

    # --- upkeep ------------------------------------------------------------------------

    def clean(self, named_since: Callable[[int], Collection[str]], *, dry_run: bool = False) -> int:
        """Remove what no commit names; bytes. Called with the writer's lock.

        ``named_since`` searches the commits after a place for digests.
        """
        if self._folder is None:
            return 0
        with self._lock, storage_errors("remove blobs"):
            if not dry_run:
                self._settle(named_since)
            freed = 0
            for path in _files(self._folder / _PENDING):
                facts = path.stat()
                if time.time() - facts.st_mtime > KEPT_SECONDS:
                    freed += facts.st_size
                    if not dry_run:
                        path.unlink()
                        path.with_name(path.name + _SUMS).unlink(missing_ok=True)
            return freed

    def _settle(self, named_since: Callable[[int], Collection[str]]) -> None:
        """Decide about blobs whose commit may not have been written."""
        assert self._folder is not None  # noqa: S101 - checked by the caller
        marks = {path: path.read_bytes() for path in _files(self._folder / _NEW)}
        if not marks:
            return
        since = min(int(text) if text.isdigit() else 0 for text in marks.values())
        named = named_since(since)
        for mark in marks:
            place, pending = self._places(mark.name)
            if mark.name not in named and place.exists():
                make_folder(pending.parent)
                os.utime(place)
                _move(place, pending)
            mark.unlink()
        sync_folder(self._folder / _NEW)

    def doubt(self) -> None:
        """Let the next cleanup search the whole log for each blob, after some commits were cut."""
        if self._folder is not None:
            for digest in self.digests():
                make_folder(self._folder / _NEW)
                create_file(self._folder / _NEW / digest, b"0")

    def digests(self) -> list[str]:
        """Those that commits name."""
        if self._folder is None:
            return sorted(self._memory)
        return sorted(path.name for path in blob_files(self._folder))

    def is_whole(self, digest: str) -> bool:
        """Whether its content has that digest."""
        if self._folder is None:
            return digest in self._memory
        path = self._find(digest)
        with storage_errors("read a blob"):
            return path is not None and digest_file(path) == digest

    def size(self) -> int:
        """Bytes of everything that is kept."""
        if self._folder is None:
            return sum(map(len, self._memory.values()))
        return sum(each.stat().st_size for each in self._folder.rglob("*") if each.is_file())

    # --- places ------------------------------------------------------------------------

    def _place(self, digest: str) -> Path:
        assert self._folder is not None  # noqa: S101 - not asked for in memory
        return self._folder / digest[:2] / digest

    def _pending(self, digest: str) -> Path:
        assert self._folder is not None  # noqa: S101 - not asked for in memory
        return self._folder / _PENDING / digest


def blob_files(folder: Path) -> Iterator[Path]:
    """The blobs in their final places, below a folder ``blobs``."""
    for each in sorted(folder.glob("[0-9a-f][0-9a-f]")):
        yield from _files(each)


def _files(folder: Path) -> list[Path]:
    """The files of a folder that are called like digests."""
    if not folder.is_dir():
        return []
    return sorted(each for each in folder.iterdir() if is_digest(each.name))


def _move(path: Path, place: Path) -> None:
    """Give a synced file its place, durably; to another disk by a copy."""
    try:
        path.replace(place)
    except OSError:
        beside = place.with_name(f".{place.name}.part")
        shutil.copyfile(path, beside)
        sync_file(beside)
        beside.replace(place)
        path.unlink(missing_ok=True)
    sync_folder(place.parent)
    if path.parent.is_dir():
        sync_folder(path.parent)


@contextmanager
def _spooled(
    data: bytes | IO[bytes], folder: Path | None, most: int
) -> Generator[Path, None, None]:
    """Content in a file that is removed afterwards."""
    with storage_errors("keep a blob"):
        handle, name = tempfile.mkstemp(prefix="trails-", suffix=".blob", dir=folder)
    path, size = Path(name), 0
    try:
        with storage_errors("keep a blob"), os.fdopen(handle, "wb") as file:
            for block in [data] if isinstance(data, bytes) else _read(data):
                size += len(block)
                if 0 < most < size:
                    raise too_large(most)
                file.write(block)
        yield path
    finally:
        path.unlink(missing_ok=True)


def _read(data: IO[bytes]) -> Iterable[bytes]:
    while block := data.read(_COPIED):
        yield block


def too_large(most: int) -> LimitError:
    """The error for content above the limit."""
    return LimitError(
        f"the blob has more than {most >> 20:,} MiB, the limit (blob_mb in "
        "[graphs.<id>.budgets]); nothing was kept. Split it, or store it elsewhere",
        limit="blob_mb",
        value=most >> 20,
    )


def _blocks_of(path: Path) -> int:
    return -(-path.stat().st_size // _BLOCK)


def _sum(block: bytes | bytearray) -> bytes:
    return crc32(block).to_bytes(_SUM, "little")


def _changed(digest: str) -> CorruptionError:
    return CorruptionError(
        f"blob {digest} was changed after it was stored; put its file back from a backup "
        f"({BLOBS}/{digest[:2]})"
    )
