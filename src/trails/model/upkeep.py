"""What upkeep of a graph did: cleaned, compacted, copied."""

from __future__ import annotations

import msgspec


class Cleaned(msgspec.Struct, frozen=True):
    """What a cleanup dropped."""

    snapshots: tuple[str, ...]
    folders: tuple[str, ...]
    rows: int
    bytes: int
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
