"""Limits for untrusted SPARQL and RDF, with safe defaults."""

from __future__ import annotations

from typing import Final

import msgspec

MIB: Final = 1 << 20


class Limits(msgspec.Struct, frozen=True):
    """Limits of a sandbox, or of one call; a call can't get more memory than its worker has."""

    seconds: float = 5.0
    """Wall-clock time of a query or update; for a file, time without progress."""
    memory: int = 1024 * MIB
    """Address space of a worker."""
    rows: int = 10_000
    result_bytes: int = 8 * MIB
    effect_bytes: int = 64 * MIB
    """Bytes of statements that an update may remove and add."""
    text_bytes: int = 64 * 1024
    depth: int = 32
    """Nesting depth: of the text (checked by the caller) and of triples within triples."""
    expansion: int = 200
    """Bytes that a parser may write for each byte it reads, beyond the first 64 MiB."""
    per_caller: int = 2
    """Queries that one caller may run at the same time."""
    per_minute: float = 0
    """Seconds per minute that one caller's queries and updates may run; 0 means no limit."""
    patience: float = 10.0
    """Seconds that a query waits for the caller's other queries and for a free worker."""
    followers: int = 2
    """Queries that may run on one branch or snapshot; one more worker is kept warm."""
    lines: int = 8
    """Branches and snapshots with live workers; the least recently used are stopped."""
    parsers: int = 2
    """Workers without a store, used for parsing."""


DEFAULTS: Final = Limits()
