"""A node as a value, and a selection of nodes: conditions, order and page.

A *handle* is ``Type/id`` with the id percent-encoded: the part of a node's IRI after the
base. References between nodes are stored as handles. Selections are values only: the
authoring layer builds them, the views compile them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from trails.model.iris import decode_id, edge_id, encode_id, normal_id
from trails.model.types import TypeDescriptor

MAX_NODE: Final = 16_000_000
"""The most bytes that the values of a node may take, each in its longest form.

The RDF parser takes no token of more than 16 MiB, so a longer value could not be loaded again.
"""
LARGE_NODE: Final = MAX_NODE // 6
"""Bytes of JSON below which no form can exceed ``MAX_NODE``."""


def make_handle(type_name: str, identifier: str) -> str:
    """``Type/id`` with the id as one path segment."""
    return f"{type_name}/{encode_id(identifier)}"


def split_handle(handle: str) -> tuple[str, str]:
    """``(type, id)`` of a handle."""
    type_name, _, segment = handle.partition("/")
    return type_name, decode_id(segment) if "%" in segment else segment


def derive_id(descriptor: TypeDescriptor, values: Mapping[str, object]) -> str | None:
    """The id that checked values give: by the key, or by the ends of an edge and its key.

    None if one of them is missing, or if the type has none.
    """
    key = descriptor.key
    text: str | None = None
    if key is not None:
        value, row = values.get(key.name), key.type.row
        if value is None or row is None:
            return None
        text = row.lexical(value)
    if descriptor.edge is None:
        return None if text is None else normal_id(text)
    source, target = values.get("source"), values.get("target")
    if source is None or target is None:
        return None
    return edge_id(str(source), str(target), text)


class NodeState(msgspec.Struct, frozen=True, gc=False):
    """One node at one moment. Missing fields are absent; sets are sorted tuples.

    It holds plain values only, so the garbage collector need not track it.
    """

    type: str
    id: str
    values: Mapping[str, object]

    @property
    def handle(self) -> str:
        """``Type/id``."""
        return make_handle(self.type, self.id)


LOOKUPS: Final = frozenset(
    {"exact", "icontains", "startswith", "gt", "gte", "lt", "lte", "in", "isnull"}
)


class Condition(msgspec.Struct, frozen=True):
    """One test: a path of fields (hops over references), a lookup, a value."""

    path: tuple[str, ...]
    lookup: str
    value: object


class Group(msgspec.Struct, frozen=True):
    """Conditions joined by AND or OR, or one negated."""

    op: Literal["and", "or", "not"]
    parts: tuple[Condition | Group, ...]


class Order(msgspec.Struct, frozen=True):
    """One sort field; missing values come last either way."""

    field: str
    descending: bool = False


class PageEnd(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ended: the sort key and the number of its last node."""

    key: bytes
    node: int
    numbering: str
    """Which numbers: those of a node index, until it is built anew."""


class Selection(msgspec.Struct, frozen=True):
    """Which instances of a type, in which order, how many."""

    type: str
    where: Condition | Group | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0
    after: PageEnd | None = None
    """Where an earlier page ended."""


class Near(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A vector, or a text that the project's function makes one of, to be near to in a field."""

    field: str
    vector: tuple[float, ...] | None = None
    text: str | None = None
