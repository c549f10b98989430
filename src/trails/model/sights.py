"""Sight: what of a graph's types one actor may read and change.

The engine is handed a sight and keeps to it; who has which is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property, partial
from typing import Final

import msgspec

from trails.model.kept import Kept
from trails.model.lenses import Lens, make_lens
from trails.model.types import Schema


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
        return not self.hidden and not any(self.hidden_fields.values())

    @cached_property
    def key(self) -> Hashable:
        """Equal for sights that hide the same; what is made for a sight is kept under it."""
        fields = ((name, frozenset(hidden)) for name, hidden in self.hidden_fields.items())
        return self.hidden, frozenset(fields)

    def lens(self, schema: Schema) -> Lens:
        """How nodes of some types are seen; made once."""
        make = partial(make_lens, schema, self.hidden, self.hidden_fields)
        return _lenses.get((schema.digest, self.key), make)

    def restrict(self, schema: Schema) -> Schema:
        """The types as if what is hidden had never been declared."""
        return schema if self.reads_all else self.lens(schema).schema


FULL: Final = Sight()

_lenses: Final[Kept[tuple[str, Hashable], Lens]] = Kept(256)
