"""Nearest neighbours: the nodes of a selection whose vectors are nearest to a given one.

Exact. The nodes are those that the session sees, its own unfinished writes included. The vectors
of a type are kept for the commit that they were read at, if nothing of it is hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Final, Protocol

import msgspec

from trails.errors import FieldError, QueryError, ValidationError
from trails.model.constraints import shorten
from trails.model.history import Head
from trails.model.names import suggest
from trails.model.nodes import Metric, NodeState, PageEnd, Selection, split_handle
from trails.model.types import PredicateDescriptor, Schema
from trails.model.visibility import SchemaFilter
from trails.views.nodes.select import Found
from trails.views.vectors import METRICS, VectorCache, VectorTable, score

MOST_NEAREST: Final = 1000
_PAGE: Final = 1000
_kept: Final = VectorCache(512 << 20)


class Reading(Protocol):
    """The part of a session that is needed."""

    @property
    def schema(self) -> Schema: ...

    @property
    def schema_filter(self) -> SchemaFilter | None: ...

    @property
    def head(self) -> Head: ...

    @property
    def is_writing(self) -> bool: ...

    def select(self, selection: Selection) -> Found: ...

    def find_by_id(self, type_name: str, identifier: str) -> NodeState | None: ...


def find_nearest(
    kg: Reading,
    selection: Selection,
    field: str,
    vector: Sequence[float],
    k: int = 10,
    metric: Metric = "cosine",
) -> list[tuple[NodeState, float]]:
    """The k nodes of a selection that are nearest in a ``Vector`` field, with scores.

    Best first; higher scores are nearer. ``where`` of the selection is applied before ranking;
    its order, limit and offset are not used. Nodes without a value are not found.
    """
    if type(k) is not int or not 1 <= k <= MOST_NEAREST:
        raise QueryError(f"k must be from 1 to {MOST_NEAREST}, not {k!r}")
    if metric not in METRICS:
        raise QueryError(f"metric must be one of {', '.join(METRICS)}, not {shorten(metric)}")
    declared = _declared(kg.schema, selection.type, field)
    wanted = _checked(declared, vector, metric)
    plain = Selection(selection.type)
    before = kg.head.commit
    key = before, kg.schema.digest, selection.type, field
    shared = kg.schema_filter is None and not kg.is_writing
    table = _kept.get(key) if shared else None
    if table is None:
        rows = ((each.handle, each.values.get(field)) for each in _every(kg, plain))
        table = VectorTable(
            len(wanted),
            ((handle, value) for handle, value in rows if isinstance(value, tuple)),
        )
        if shared and kg.head.commit == before:
            _kept.put(key, table)
    among = None
    if selection.where is not None:
        filtered = Selection(selection.type, selection.where)
        among = {each.handle for each in _every(kg, filtered)}
    states = (
        kg.find_by_id(*split_handle(each)) for each in table.candidates(wanted, k, metric, among)
    )
    found = [
        (each, score(wanted, value, metric))
        for each in states
        # It may have changed a moment ago.
        if each is not None and isinstance(value := each.values.get(field), tuple)
    ]
    return sorted(found, key=lambda each: (-each[1], each[0].handle))[:k]


def _every(kg: Reading, selection: Selection) -> Iterator[NodeState]:
    after: PageEnd | None = None
    while True:
        found = kg.select(msgspec.structs.replace(selection, limit=_PAGE, after=after))
        yield from found.rows
        after = found.next
        if after is None:
            return


def _declared(schema: Schema, type_name: str, field: str) -> PredicateDescriptor:
    descriptor = schema.by_name.get(type_name)
    if descriptor is None:
        raise QueryError(
            f"there is no type {type_name[:100]!r}; {suggest(type_name, schema.by_name)}"
        )
    vectors = {each.name: each for each in descriptor.fields if each.type.kind == "Vector"}
    if field not in vectors:
        listed = ", ".join(vectors) or "none"
        raise QueryError(
            f"{shorten(field)} is not a Vector field of {type_name}; it has {listed}", field=field
        )
    return vectors[field]


def _checked(
    declared: PredicateDescriptor, vector: Sequence[float], metric: Metric
) -> tuple[float, ...]:
    """A vector that can be compared with those of a field."""
    name, dimension = declared.name, declared.type.dimension
    try:
        found = tuple(float(each) for each in vector)
    except (TypeError, ValueError, OverflowError):
        raise _wrong(name, "datatype", "must be a list of numbers") from None
    if dimension is not None and len(found) != dimension:
        said = f"must have {dimension} numbers, not {len(found)}"
        raise _wrong(name, "dimension", said)
    if not all(map(isfinite, found)):
        raise _wrong(name, "datatype", "must have finite numbers only, and has NaN or infinity")
    if metric == "cosine" and not any(found):
        said = "has only zeros, which have no direction; use another vector, or metric euclidean"
        raise _wrong(name, "datatype", said)
    return found


def _wrong(name: str, code: str, said: str) -> ValidationError:
    return ValidationError([FieldError(name, code, f"{name}: the vector {said}")])
