"""What to read: a tree of conditions, an order, a page.

Values only; the engine compiles them, the authoring layer builds them.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

LOOKUPS: Final = frozenset(
    {"exact", "icontains", "startswith", "gt", "gte", "lt", "lte", "in", "isnull"}
)


class Condition(msgspec.Struct, frozen=True):
    """One test: a path of fields (hops over references), a lookup, a value."""

    path: tuple[str, ...]
    lookup: str
    value: object


class Group(msgspec.Struct, frozen=True):
    """Conditions joined by and, or; or one negated."""

    op: Literal["and", "or", "not"]
    parts: tuple[Condition | Group, ...]


class Order(msgspec.Struct, frozen=True):
    """One sort field; missing values come last either way."""

    field: str
    descending: bool = False


class Selection(msgspec.Struct, frozen=True):
    """Which instances of a type, in which order, how many."""

    type: str
    where: Condition | Group | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0
    after: str | None = None
    """A cursor that an earlier page returned."""
