"""The source of a load: bytes that are read in blocks, repeatedly, and decompressed.

A file is read in place. Anything else (a request body, a pipe) is copied to a temporary file
first, because edges are read before nodes.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import IO, Final, Protocol

from trails.errors import FieldError, LimitError, NotFoundError, StorageError, ValidationError
from trails.log.storage import zstd
from trails.model.writes import LOAD_LIMITS, LoadLimits

BLOCK: Final = 1 << 20
_INTERVAL: Final = 0.1
_FREE: Final = 64 << 20
"""The expanded size that is allowed for any file, however small."""

Progress = Callable[[int, int | None], None]
"""Called with (bytes done, total bytes if known), at most ten times a second."""


def no_progress(done: int, total: int | None) -> None:
    """Ignore progress."""
    del done, total


class Readable(Protocol):
    """Bytes that can be read."""

    def read(self, size: int, /) -> bytes:
        """At most this many bytes; none at the end."""


class LoadSource:
    """A file or stream of bytes. Close it to drop the copy that was made of a stream."""

    def __init__(
        self,
        given: Path | IO[bytes] | Iterable[bytes],
        progress: Progress = no_progress,
        limits: LoadLimits = LOAD_LIMITS,
    ) -> None:
        self._progress = progress
        self.limits = limits
        self._told = monotonic()
        self._stack = ExitStack()
        self._path = given if isinstance(given, Path) else None
        self.total: int | None = None
        if isinstance(given, Path):
            try:
                self.total = given.stat().st_size
            except OSError as error:
                raise NotFoundError(f"{given} can't be read: {error.strerror}") from None
        else:
            self._copy = self._stack.enter_context(TemporaryFile())  # noqa: SIM115 - closed with self
            self._fill(given)

    def _fill(self, given: IO[bytes] | Iterable[bytes]) -> None:
        done = 0
        try:
            for block in blocks_of(given):
                self._copy.write(block)
                done += len(block)
                self._tell(done, None)
            self._copy.flush()
        except OSError as error:
            self.close()
            raise StorageError(f"the stream can't be copied: {error.strerror}") from error
        except BaseException:
            self.close()
            raise
        self.total = done

    def blocks(self) -> Iterator[bytes]:
        """All blocks from the start; reports progress."""
        with ExitStack() as stack:
            raw = self._copy if self._path is None else stack.enter_context(self._path.open("rb"))
            raw.seek(0)
            try:
                opened, size = self._decompressed(raw, stack), 0
                while block := opened.read(BLOCK):
                    size += len(block)
                    self._check_size(size, raw)
                    self._tell(raw.tell(), self.total)
                    yield block
            except (OSError, EOFError, zlib.error, zstd.ZstdError) as error:
                message = f"the file can't be read or decompressed: {error}"
                raise ValidationError([FieldError("source", "syntax", message)]) from None
        self._told = 0.0
        self._tell(self.total or 0, self.total)

    def _check_size(self, size: int, raw: IO[bytes]) -> None:
        """Refuse a file that is too large, or whose compression ratio is too high."""
        limits = self.limits
        if size > limits.expanded:
            raise LimitError(
                f"the decompressed file has more than {limits.expanded >> 20} MiB; "
                "split it, or raise '[loads] expanded_mb' in trails.toml",
                limit="expanded_mb",
                value=limits.expanded >> 20,
            )
        if size > _FREE and size > limits.ratio * raw.tell():
            raise LimitError(
                f"the file grows to more than {limits.ratio} times its size by being decompressed; "
                "load it without compression, or raise '[loads] ratio' in trails.toml",
                limit="ratio",
                value=limits.ratio,
            )

    def _decompressed(self, raw: IO[bytes], stack: ExitStack) -> Readable:
        suffix = "" if self._path is None else self._path.suffix
        if suffix == ".gz":
            return stack.enter_context(gzip.GzipFile(fileobj=raw))
        if suffix == ".zst":
            return stack.enter_context(zstd.ZstdFile(raw))
        return raw

    def _tell(self, done: int, total: int | None) -> None:
        now = monotonic()
        if now - self._told >= _INTERVAL:
            self._told = now
            self._progress(done, total)

    def close(self) -> None:
        """Delete the copy."""
        self._stack.close()


def blocks_of(given: IO[bytes] | Iterable[bytes]) -> Iterator[bytes]:
    """A stream in blocks."""
    read = getattr(given, "read", None)
    if read is None:
        yield from given
        return
    while block := read(BLOCK):
        yield block
