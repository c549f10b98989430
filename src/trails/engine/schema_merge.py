"""Merge two schemas type by type, as three_way does fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from trails.model.types import Schema, ShapeDescriptor, TypeDescriptor

D = TypeVar("D", TypeDescriptor, ShapeDescriptor)


def merge_schemas(base: Schema, ours: Schema, theirs: Schema) -> tuple[Schema, list[str]]:
    """The merged schema, and the names on which the two sides disagree."""
    if theirs.digest in {ours.digest, base.digest}:
        return ours, []
    if ours.digest == base.digest:
        return theirs, []
    types, torn_types = _merge(base.types, ours.types, theirs.types)
    shapes, torn_shapes = _merge(base.shapes, ours.shapes, theirs.shapes)
    return Schema(tuple(types), tuple(shapes)), torn_types + torn_shapes


def _merge(base: Iterable[D], ours: Iterable[D], theirs: Iterable[D]) -> tuple[list[D], list[str]]:
    before: dict[str, D] = {each.name: each for each in base}
    mine: dict[str, D] = {each.name: each for each in ours}
    other: dict[str, D] = {each.name: each for each in theirs}
    merged: list[D] = []
    torn: list[str] = []
    for name in sorted({*mine, *other}):
        was, here, there = before.get(name), mine.get(name), other.get(name)
        if here != there and was not in (here, there):
            torn.append(name)
        chosen = there if here == was else here
        if chosen is not None:
            merged.append(chosen)
    return merged, torn
