"""Scans: a walk over one slot in key order, and where it starts or goes on.

A position is the end of a page. A ranking is the place of a node in an order by any fields, each
ascending or descending.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trails.model.nodes import Order, PageEnd
from trails.model.types import TypeDescriptor
from trails.views.nodes.conditions import Values
from trails.views.nodes.rows import MISSING, encoder, escape


class Scan(msgspec.Struct, frozen=True):
    """A walk over one slot (or, with sid 0, over the nodes themselves) in key order."""

    sid: int
    spans: tuple[tuple[bytes, bytes], ...]
    descending: bool = False
    prefix: bytes = b""
    """For a slot of two fields: what the keys start with, the first field being given."""
    given: str = ""
    """For a slot of two fields: the slot of the first field."""
    by_node: bool = False
    """Whether the wanted order is that of the nodes, whatever slot is walked."""

    def full(self, key: bytes) -> bytes:
        """The slot's key for the ordered field's own, which is what a position has."""
        return self.prefix + escape(key) if self.prefix else key


class Keys(msgspec.Struct, frozen=True):
    """Where a walk goes along, in SQL."""

    of_nodes: bool
    """Whether it goes along the nodes themselves and not along keys."""
    where: str
    descending: bool
    bounds: tuple[object, ...]

    @property
    def order(self) -> str:
        """The order of the walk."""
        if self.of_nodes:
            return "k.nid"
        return "k.key DESC, k.nid DESC" if self.descending else "k.key, k.nid"


def keys_from(scan: Scan, span: tuple[bytes, bytes], place: tuple[bytes, int]) -> Keys:
    """The keys of a span from a place on.

    The place is the only bound on its side: of two, SQLite might take the other one to
    start from, and walk all that lies between.
    """
    low, high = span
    if not scan.sid:
        start, end = int.from_bytes(low, "big"), int.from_bytes(high, "big")
        bounds = (max(place[1], start - 1), end)
        return Keys(True, "k.nid > ? AND k.nid < ?", False, bounds)
    if scan.descending:
        where = "k.sid = ? AND (k.key, k.nid) < (?, ?) AND k.key >= ?"
        return Keys(False, where, True, (scan.sid, *place, low))
    where = "k.sid = ? AND (k.key, k.nid) > (?, ?) AND k.key < ?"
    return Keys(False, where, False, (scan.sid, *place, high))


def resume(
    scan: Scan, position: PageEnd | None, low: bytes, high: bytes
) -> tuple[bytes, int] | None:
    """Where to go on in a span: its start, after the position, or None when it is behind."""
    start = (high, -1) if scan.descending else (low, -1)
    if position is None:
        return start
    if scan.by_node:
        # Of a walk over one key the node alone determines the place.
        key = low if scan.sid else position.node.to_bytes(9, "big")
    else:
        key = scan.full(position.key)
    if not scan.descending:
        if key >= high:
            return None
        return (key, position.node) if key >= low else start
    missing = scan.prefix + MISSING
    if key >= missing:
        # The walk is among the missing values, which come last: all others are behind.
        return (key, position.node) if low >= missing else None
    if low >= missing or key >= high:
        return start
    return (key, position.node) if key >= low else None


class Ranker:
    """Keys that sort nodes by several fields, each up or down."""

    def __init__(self, descriptor: TypeDescriptor, order: Sequence[Order]) -> None:
        self._single_descending = len(order) == 1 and order[0].descending
        self._fields = [
            (each.field, encode, each.descending)
            for each in order
            if (encode := encoder(descriptor.by_name[each.field])) is not None
        ]

    def key(self, values: Values) -> bytes:
        """The key of a node: of one field as the slot has it, of several joined."""
        if len(self._fields) == 1:
            name, encode, _ = self._fields[0]
            value = values.get(name)
            return MISSING if value is None else encode(value)
        parts = []
        for name, encode, descending in self._fields:
            value = values.get(name)
            part = escape(MISSING if value is None else encode(value))
            if descending and value is not None:
                part = bytes(255 - byte for byte in part)
                part = b"\x01" + part  # before missing values, as ascending ones are
            parts.append(part)
        return b"".join(parts)

    def place(self, key: bytes, nid: int) -> tuple[object, ...]:
        """The place of a node; smaller comes first."""
        if not self._single_descending:
            return key, nid
        if key >= MISSING:
            return 1, _Reversed((key, nid))
        return 0, _Reversed((key, nid))


class _Reversed:
    """Sorts the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: tuple[bytes, int]) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return other.value < self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and other.value == self.value

    def __gt__(self, other: _Reversed) -> bool:
        return other.value > self.value

    __hash__ = None  # type: ignore[assignment]
