"""Facets: the kinds of statements that a lens can tell apart.

Whether somebody sees a change follows from its facets alone, and there are no more of them
than types and fields, however many nodes change: so changes are told by them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from trails.model.nodes import NodeState
from trails.model.types import Schema

ENDS: Final = ("source", "target")
"""The fields of an edge that say what it joins."""


class Facet(NamedTuple):
    """What a statement is about: that a node is there, or one of its fields."""

    type: str
    field: str = ""
    """Empty for the node itself."""
    target: str = ""
    """The type of what a reference leads to."""
    ends: tuple[str, ...] = ()
    """The types of what an edge joins."""


def facets_between(
    schema: Schema, before: NodeState | None, after: NodeState | None
) -> Iterator[Facet]:
    """In what a node changed; it was made or deleted where one of its states is None."""
    state = before if after is None else after
    if state is None:
        return
    descriptor = schema.by_name.get(state.type)
    ends: tuple[str, ...] = ()
    if descriptor is not None and descriptor.edge is not None:
        ends = tuple(type_of(state.values.get(end)) for end in ENDS)
    if before is None or after is None:
        yield Facet(state.type, ends=ends)
        return
    fields = {} if descriptor is None else descriptor.by_name
    old, new = before.values, after.values
    for name in old.keys() | new.keys():
        was, now = old.get(name), new.get(name)
        if was == now:
            continue
        field = fields.get(name)
        if field is None or field.target is None:
            yield Facet(state.type, name, "", ends)
        else:
            for target in {type_of(each) for each in _members(was) ^ _members(now)}:
                yield Facet(state.type, name, target, ends)


def type_of(handle: object) -> str:
    """The type of the node that a reference leads to."""
    return str(handle).partition("/")[0]


def _members(value: object) -> frozenset[object]:
    if value is None:
        return frozenset()
    return frozenset(value) if isinstance(value, tuple) else frozenset((value,))
