"""What untrusted text may use, with defaults that are safe."""

from __future__ import annotations

from typing import Final

import msgspec

MIB: Final = 1 << 20


class Limits(msgspec.Struct, frozen=True):
    """The limits of a sandbox, or of one call; a call can't have more memory than its worker."""

    seconds: float = 5.0
    """Wall clock of a query or update; of a file, between two signs of progress."""
    memory: int = 1024 * MIB
    """Address space of a worker."""
    rows: int = 10_000
    result_bytes: int = 8 * MIB
    effect_bytes: int = 64 * MIB
    """Statements that an update may remove and add, as text."""
    text_bytes: int = 64 * 1024
    depth: int = 32
    """Levels of nesting: of a text, checked by the caller; of triples within triples, here."""
    expansion: int = 200
    """Bytes that a parser may write for each byte that it reads, beyond the first 64 MiB."""
    per_caller: int = 2
    """Running queries of one caller."""
    per_minute: float = 0
    """Seconds that one caller's queries and updates may run within a minute; 0 is no limit."""
    patience: float = 10.0
    """Seconds that a query waits for its turn: for the caller's others, and for a worker."""
    followers: int = 2
    """Running queries on one line; one more worker is kept warm."""
    lines: int = 8
    """Lines with live workers; the least recently used are stopped."""
    parsers: int = 2
    """Running workers without a store, for parsing."""


DEFAULTS: Final = Limits()
