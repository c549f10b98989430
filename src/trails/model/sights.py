"""Sight: what of a graph's types one actor may read and change.

The engine is handed a sight and keeps to it; who has which is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec


class Sight(msgspec.Struct, frozen=True, dict=True):
    """What is out of sight. Nothing is, unless it is said."""

    hidden: frozenset[str] = frozenset()
    """Types that do not exist for this actor; every type where it may read nothing."""
    hidden_fields: Mapping[str, frozenset[str]] = {}
    """Fields of visible types that do not exist for it, inherited ones under each type."""
    fixed: frozenset[str] = frozenset()
    """Types that it may not change, though it may see them."""

    @property
    def reads_all(self) -> bool:
        """Whether nothing is out of sight."""
        return not self.hidden and not self.hidden_fields


FULL: Final = Sight()
