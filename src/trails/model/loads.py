"""What is loaded, how, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final, Literal

import msgspec

Mode = Literal["merge", "append", "overwrite"]


class LoadLimits(msgspec.Struct, frozen=True):
    """How much a file may be, beyond what is sent."""

    expanded: int = 16 << 30
    """Bytes of a file, decompressed."""
    ratio: int = 200
    """Bytes for each byte of a compressed file, beyond the first 64 MiB."""
    blank_lines: int = 100_000


LOAD_LIMITS: Final = LoadLimits()


class LoadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Files that become one commit on one branch."""

    files: tuple[Path | IO[bytes] | Iterable[bytes], ...]
    format: str | None = None
    """Where None, the files' names tell."""
    mode: Mode = "merge"
    type_name: str | None = None
    """For CSV: the type of the rows."""
    separator: str = "|"
    """For CSV: what stands between the values of a list."""
    branch: str = "main"
    source: str | None = None
    """A branch or commit; given, ``branch`` is forked from it where it does not exist."""
    message: str = ""
    expected_head: str | None = None
    idempotency_key: str | None = None


class LoadResult(msgspec.Struct, frozen=True):
    """What a load did."""

    branch: str
    commit: str | None
    """None when nothing changed."""
    nodes: int = 0
    """How many nodes the files gave, edges among them."""
    deleted: int = 0
    forked: bool = False
    """Whether the branch was made for it."""
    replayed: bool = False
    """The idempotency key was known: the commit is the earlier one, nothing was done now."""
