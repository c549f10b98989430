"""Make the keys of many nodes of one type at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from trails.views.nodes.rows import Extract, KeyColumn, Values

COLUMN: Final = 8
"""Nodes from which it pays to make the keys of a field together."""
_Place = TypeVar("_Place")


class KeyPlan(msgspec.Struct, frozen=True):
    """How some keys of a type's nodes are made: each key once, for all the slots that hold it."""

    extract: Extract
    column: KeyColumn | None
    fields: tuple[str, ...]
    sids: tuple[int, ...]


def keys_in(
    plan: KeyPlan, places: Sequence[_Place], values: Sequence[Values | None]
) -> list[tuple[bytes, _Place]]:
    """The keys of nodes, each with the place of its node; None is a node that is not there."""
    if plan.column is None or len(values) < COLUMN:
        return [
            (key, place)
            for place, held in zip(places, values, strict=True)
            if held is not None
            for key in plan.extract(held)
        ]
    given = [held for held in values if held is not None]
    if len(given) < len(values):
        pairs = zip(places, values, strict=True)
        places = [place for place, held in pairs if held is not None]
    return list(zip(plan.column(given), places, strict=True))


def same_fields(
    plans: Iterable[KeyPlan], olds: Sequence[Values | None], news: Sequence[Values | None]
) -> set[str]:
    """The fields that have the same value in each node before and after."""
    if None in olds or None in news:
        return set()
    return {
        name
        for name in {name for plan in plans for name in plan.fields}
        if [old and old.get(name) for old in olds] == [new and new.get(name) for new in news]
    }
