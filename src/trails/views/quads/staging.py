"""Load a large commit beside the live store, while it is still being checked.

The load goes into a checkpoint of the store (hard links) in a thread of its own:
Oxigraph works outside the interpreter's lock, so this takes no time from the
validation that feeds it. Nothing of it can be seen before the log has the commit
and the checkpoint takes the store's place; a refused commit leaves a folder to delete.
"""

from __future__ import annotations

import io
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import IO, Final

import pyoxigraph as ox

from trails.views.terms import load_statements, stored_form

PIECE: Final = 24 * 2**20
"""Bytes loaded at once: a quarter of a million statements, whose load takes 200 megabytes."""


class StagedLoad:
    """Statements on their way into a copy of a store."""

    def __init__(self, checkpoint: Callable[[Path], None], folder: Path) -> None:
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        checkpoint(folder)
        self._store: ox.Store | None = ox.Store(folder)
        self._buffer: list[bytes] = []
        self._size = 0
        self._error: Exception | None = None
        self._queue: Queue[tuple[bytes, bytes] | None] = Queue(maxsize=1)
        self._thread = threading.Thread(target=self._work, name="trails-load", daemon=True)
        self._thread.start()

    def feed(self, removed: bytes, added: bytes) -> None:
        """Take more statements; waits while the load is a piece behind."""
        if removed:
            self._queue.put((removed, b""))
        self._buffer.append(added)
        self._size += len(added)
        if self._size >= PIECE:
            self._hand_over()

    def _hand_over(self) -> None:
        self._queue.put((b"", b"".join(self._buffer)))
        self._buffer.clear()
        self._size = 0

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            if self._error is None:
                try:
                    self._load(*task)
                except Exception as error:  # noqa: BLE001 - handed to the thread that waits
                    self._error = error

    def _load(self, removed: bytes, added: bytes) -> None:
        assert self._store is not None  # noqa: S101 - closed only after the thread has ended
        for lines in batches(io.BytesIO(removed)):
            self._store.update(f"DELETE DATA {{ {lines} }}")
        if added:
            load_statements(self._store, added)

    def finish(self) -> None:
        """Load the rest; raises what went wrong on the way."""
        self._hand_over()
        self._end()
        if self._error is not None:
            raise self._error

    def seal(self, update: str) -> None:
        """One last update, which says how far the copy is; then let go of its files."""
        if self._store is not None:
            self._store.update(update)
            self._store.flush()
        self._store = None

    def discard(self) -> None:
        """Forget the copy."""
        self._error = self._error or InterruptedError("not wanted any more")
        self._end()
        self._store = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self) -> None:
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()


def batches(lines: IO[bytes], size: int = 5_000) -> Iterator[str]:
    """Statements in groups that one update can take."""
    batch: list[bytes] = []
    for line in lines:
        batch.append(line)
        if len(batch) >= size:
            yield stored_form(b"".join(batch)).decode()
            batch.clear()
    if batch:
        yield stored_form(b"".join(batch)).decode()


def pieces(lines: IO[bytes]) -> Iterator[bytes]:
    """Whole statements, in amounts that one load can take."""
    while piece := lines.read(PIECE):
        yield piece + lines.readline()
