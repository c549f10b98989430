"""What the sandbox reads: a line of commits, offered by the engine.

A line is a branch or a snapshot. The sandbox makes a base from a checkpoint of it, and
its workers follow the line by the deltas that the engine hands over.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from trails.model.history import Position


class Delta(msgspec.Struct, frozen=True):
    """One commit: where it leads, and the statements it removes and adds, as N-Quads."""

    position: Position
    removed: bytes
    added: bytes


class Source(Protocol):
    """A branch or a snapshot."""

    @property
    def key(self) -> str:
        """What tells this line from others, for as long as the sandbox lives."""
        ...

    def head(self) -> Position:
        """Up to where a read must see the line."""
        ...

    def checkpoint(self, folder: Path) -> Position:
        """Make an Oxigraph store of the line in a folder that does not exist yet."""
        ...

    def deltas(self, after: Position, until: Position) -> Sequence[Delta] | None:
        """The commits between two positions; None if there is no way, or a very long one."""
        ...
