"""The mark that a store leaves when it is closed: how far it is, and the sizes of its files.

RocksDB accepts files that were shortened while it was closed; the mark shows that. It also says
where a store is without opening it, so it is apart from what needs Oxigraph.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from trails.errors import CorruptionError, StorageError
from trails.log.storage import storage_errors
from trails.model.history import Position

AT: Final = "position"
"""Beside the names of files in the mark of a closed store."""


def closed_mark(folder: Path) -> Path:
    """What ``close`` leaves beside a store: how far it is, and the sizes of its files."""
    return folder.with_name("quads.closed")


def read_mark(folder: Path, mark: Path) -> str | None:
    """How far a store was when it was closed, empty if that is not known; None without a mark."""
    if not mark.exists():
        return None
    if mark.is_dir():
        raise CorruptionError(f"{mark} is a folder, and should be a file")
    with storage_errors("open the quads view"):
        left = mark.read_bytes()
    try:
        # A power cut can leave it empty, and then it says nothing.
        known = (
            msgspec.json.decode(left, type=dict[str, int | str]) if left else {**sizes_of(folder)}
        )
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise CorruptionError(f"{mark} can't be read") from None
    position = known.pop(AT, "")
    if left and known != sizes_of(folder):
        raise CorruptionError("the quads view was changed while it was closed")
    return str(position)


def closed_at(folder: Path) -> Position | None:
    """How far a store is whose files are as they were left; None if it has to be opened to know."""
    with suppress(OSError, StorageError, ValueError):
        position = read_mark(folder, closed_mark(folder))
        return Position.parse(position) if position else None
    return None


def sizes_of(folder: Path) -> dict[str, int]:
    """The files that never change once RocksDB has let go of them."""
    return {
        path.name: path.stat().st_size
        for pattern in ("CURRENT", "MANIFEST-*", "*.sst")
        for path in folder.glob(pattern)
        if not path.name.startswith("bulk-")
    }
