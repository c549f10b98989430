"""Nearest neighbours: the nodes of a selection whose vectors are nearest to a given one.

Exact. The nodes are those that the session sees, its own unfinished writes included. The vectors
of a type are kept for the next search (``engine.graph.vector_tables``), unless some of its nodes
are hidden, or not committed yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import merge
from itertools import islice
from math import isfinite
from typing import Final

import msgspec

from trails.engine.graph.vector_tables import VectorTables, vector_field, vector_in
from trails.errors import EmbeddingError, FieldError, QueryError, ValidationError
from trails.model.constraints import shorten
from trails.model.iris import Names
from trails.model.kinds import KINDS, KindError
from trails.model.names import suggest
from trails.model.nodes import Near, NodeState, PageEnd, Selection
from trails.model.types import PredicateDescriptor, Schema
from trails.model.visibility import SchemaFilter
from trails.views.nodes.select import Selector
from trails.views.vectors import Numbers, VectorTable, make_matrix

MOST_NEAREST: Final = 1000
MOST_TEXT: Final = 4096
"""Characters of a text to search for."""
_PAGE: Final = 1000
_FIRST: Final = 4
_NEXT: Final = 16
_MOST_TRIED: Final = 4_000
"""Nodes of the ranking that are looked at until enough match: four for each that is wanted, then
sixteen times as many, up to this number. After that, all that match are collected first."""


class NearestSearch(msgspec.Struct, frozen=True, eq=False):
    """What is searched: one state of a graph, as an actor sees it."""

    selector: Selector
    schema: Schema
    """The types of the state."""
    schema_filter: SchemaFilter | None
    names: Names
    tables: VectorTables | None
    """None if there are changes that are not committed."""

    @property
    def visible(self) -> Schema:
        """The types that the actor sees."""
        return self.schema if self.schema_filter is None else self.schema_filter.schema

    def vectors(self, type_name: str, declared: PredicateDescriptor) -> VectorTable:
        """The vectors of nodes of exactly one type."""
        partial = self.schema_filter is not None and type_name in self.schema_filter.partial_edges
        if self.tables is not None and not partial:
            field = vector_field(self.schema, self.names, type_name, declared.name)
            selector = self.selector
            return self.tables.table(field, selector.index, selector.db, selector.commit)
        rows = (
            (each.handle, vector)
            for each in self.select(Selection(type_name))
            if each.type == type_name
            and (vector := vector_in(each.values.get(declared.name))) is not None
        )
        return VectorTable(make_matrix(declared.type.dimension or 0, rows))

    def select(self, selection: Selection) -> Iterator[NodeState]:
        """All nodes of a selection."""
        after: PageEnd | None = None
        while True:
            page = msgspec.structs.replace(selection, limit=_PAGE, after=after)
            found = self.selector.select(page)
            yield from found.rows
            after = found.next
            if after is None:
                return


def find_nearest(
    search: NearestSearch, selection: Selection, field: str, vector: Numbers, k: int, start: int = 0
) -> list[tuple[NodeState, float]]:
    """The k nodes of a selection that are nearest in a ``Vector`` field, with scores.

    Best first, ties by handle; higher scores are nearer. ``where`` of the selection is applied
    before ranking; its order, limit and offset are not used. Nodes without a value are not found.
    ``start`` skips the first few.
    """
    ranking = _Ranking(search, selection.type, field, vector)
    selector, most = search.selector, start + k
    if selection.where is None:
        ranked = ranking.first(most)[start:]
        states = selector.all_of([handle for handle, _ in ranked])
        return [(states[handle], score) for handle, score in ranked]
    plain, depth = Selection(selection.type, selection.where), _FIRST * most
    while depth <= _MOST_TRIED:
        ranked = ranking.first(depth)
        states = selector.matching(plain, [handle for handle, _ in ranked])
        found = [(states[handle], score) for handle, score in ranked if handle in states]
        if len(found) >= most or len(ranked) < depth:
            return found[start:most]
        depth *= _NEXT
    among = {each.handle: each for each in search.select(plain)}
    return [(among[handle], score) for handle, score in ranking.first(most, among)[start:]]


class _Ranking:
    """The nodes of a type, and of types that extend it, by how near they are."""

    def __init__(self, search: NearestSearch, type_name: str, field: str, vector: Numbers) -> None:
        schema = search.visible
        declared = vector_declared(schema, type_name, field)
        self._selector = search.selector
        self._field = field
        self._metric = declared.metric
        self._vector = vector
        types = {name: schema.by_name[name].by_name for name in schema.family(type_name)}
        self._tables = [
            search.vectors(name, fields[field])
            for name, fields in types.items()
            # It may be hidden there, or be another field of that name.
            if field in fields and fields[field].type.dimension == declared.type.dimension
        ]

    def first(self, k: int, among: Collection[str] | None = None) -> list[tuple[str, float]]:
        """The handles of the k nearest, with scores."""
        found = [
            table.nearest(self._vector, k, self._metric, self._read, among)
            for table in self._tables
        ]
        return list(islice(merge(*found, key=lambda each: (-each[1], each[0])), k))

    def _read(self, handles: Sequence[str]) -> dict[str, Numbers]:
        found = self._selector.index.find_all(self._selector.db, handles)
        vectors = {
            handle: vector_in(each.state.values.get(self._field)) for handle, each in found.items()
        }
        return {handle: vector for handle, vector in vectors.items() if vector is not None}


def check_count(k: object) -> None:
    """Refuse a number of neighbours that can't be searched for."""
    if type(k) is not int or not 1 <= k <= MOST_NEAREST:
        raise QueryError(f"k must be from 1 to {MOST_NEAREST}, not {shorten(k)}")


def vector_declared(schema: Schema, type_name: str, field: str) -> PredicateDescriptor:
    """A Vector field of a type; an error names those that there are."""
    descriptor = schema.by_name.get(type_name)
    if descriptor is None:
        raise QueryError(
            f"there is no type {type_name[:100]!r}; {suggest(type_name, schema.by_name)}"
        )
    vectors = {each.name: each for each in descriptor.fields if each.type.kind == "Vector"}
    if field not in vectors:
        listed = ", ".join(vectors) or "none"
        raise QueryError(
            f"{shorten(field)} is not a Vector field of {type_name}; it has {listed}",
            field=shorten(field),
        )
    return vectors[field]


def vector_near(
    schema: Schema, type_name: str, near: Near, embed: Callable[[str], Numbers]
) -> Numbers:
    """The vector that is asked for, which can be compared with those of the field."""
    declared = vector_declared(schema, type_name, near.field)
    if (near.vector is None) == (near.text is None):
        said = "needs a vector or a text, and not both"
        raise ValidationError([FieldError(near.field, "missing", f"{near.field}: near {said}")])
    if near.text is None:
        return _checked(declared, near.vector)
    vector = embed(_checked_text(declared, near.text))
    try:
        return _checked(declared, vector)
    except ValidationError as error:
        raise EmbeddingError(
            f"the function for embeddings does not fit this field: {error.fields[0].message}"
        ) from None


def _checked_text(declared: PredicateDescriptor, text: object) -> str:
    name = declared.name
    try:
        found = str(KINDS["String"].coerce(text))
    except KindError as error:
        said = f"{name}: the text is not valid: {str(error) or 'it must be a string'}"
        raise ValidationError([FieldError(name, "datatype", said)]) from None
    if not 0 < len(found) <= MOST_TEXT:
        said = f"{name}: the text must have 1 to {MOST_TEXT} characters, not {len(found)}"
        raise ValidationError([FieldError(name, "max_length", said, constraint=MOST_TEXT)])
    return found


def _checked(declared: PredicateDescriptor, vector: object) -> Numbers:
    name, dimension = declared.name, declared.type.dimension
    try:
        found = tuple(float(each) for each in vector)  # type: ignore[attr-defined]
    except (TypeError, ValueError, OverflowError):
        raise _wrong(name, "datatype", "must be a list of numbers") from None
    if dimension is not None and len(found) != dimension:
        said = f"must have {dimension} numbers, not {len(found)}"
        raise _wrong(name, "dimension", said)
    if not all(map(isfinite, found)):
        raise _wrong(name, "datatype", "must have finite numbers only, and has NaN or infinity")
    if declared.metric == "cosine" and not any(found):
        said = "has only zeros, which have no direction to compare by cosine; use another vector"
        raise _wrong(name, "datatype", said)
    return found


def _wrong(name: str, code: str, said: str) -> ValidationError:
    return ValidationError([FieldError(name, code, f"{name}: the vector {said}")])
