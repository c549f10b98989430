"""Memtables: what a store holds in memory because its files do not have it yet.

RocksDB, as Oxigraph sets it up, writes a memtable to a file when it has a quarter of a
gigabyte, and a store has eleven. A server that takes small commits for days would keep
all of them in memory, so they are written to files here, long before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trails.log.storage import files_below

MIB: Final = 1 << 20
_PER_UPDATE: Final = 1_500
"""Bytes that the position takes, which every update moves in all indexes."""
_PER_BYTE: Final = 4
"""Bytes that a byte of statements takes: in three indexes, with what they are found by."""
_LEAST, _MOST = 4 * MIB, 64 * MIB
_PART: Final = 8
"""A large store may hold this part of its files: each flush makes RocksDB merge them again."""


class Memtables:
    """Those of one store. ``flush`` writes them to files, in a thread that nobody waits for."""

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
