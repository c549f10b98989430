"""What upkeep of a graph did: cleaned, compacted, copied."""

from __future__ import annotations

from typing import Final

import msgspec


class Retention(msgspec.Struct, frozen=True):
    """How many activities stay in the log before the oldest are archived; None is no limit."""

    days: int | None = None
    rows: int | None = None


KEEP_ALL: Final = Retention()


class Cleaned(msgspec.Struct, frozen=True):
    """What a cleanup dropped."""

    snapshots: tuple[str, ...]
    folders: tuple[str, ...]
    rows: int
    bytes: int
    activities: int = 0
    """Those that moved into archives."""
    archives: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    """Scratch space of sandboxes that did not end in order."""
    dry_run: bool = False


class Optimized(msgspec.Struct, frozen=True):
    """Bytes on disk before and after."""

    before: int
    after: int


class Manifest(msgspec.Struct, frozen=True):
    """What a backup holds."""

    format: int
    graph: str
    base_iri: str
    made: str
    heads: dict[str, str]
    files: dict[str, str]
    """Path → SHA-256."""
