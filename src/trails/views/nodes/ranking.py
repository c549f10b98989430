"""Ranking: the place of a node in an order by any fields, each up or down."""

from __future__ import annotations

from collections.abc import Sequence

from trails.model.selections import Order
from trails.model.types import TypeDescriptor
from trails.views.nodes.conditions import Values
from trails.views.nodes.keys import MISSING, encoder, escape


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
        """Where a node stands; smaller comes first."""
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
