"""VectorTables: the vectors of a graph's fields in memory, one table for each type and field.

A table is of one commit, and is made when it is first asked for. That of another commit is made
from the nearest one that is kept: the log says which vectors differ. Branches and snapshots share
the matrix of the state that they come from.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import msgspec

from trails.engine.graph.texts.source import TextSource
from trails.errors import CorruptionError, NotFoundError
from trails.model.fairness import give_way
from trails.model.iris import Names
from trails.model.types import Schema
from trails.views.nodes.index import NodeIndex
from trails.views.vectors import Numbers, VectorTable, make_matrix, rows_at_once

MOST_BYTES: Final = 1 << 30
"""Memory for tables; the one that was used last is kept even if it alone has more."""
_STATES: Final = 8
"""Commits for which a field's tables are kept."""
_FAR: Final = 2_000
"""Commits between two states from which a table is made anew."""
_PAGE: Final = 1_000


class VectorField(msgspec.Struct, frozen=True):
    """A field of a type that has nodes of its own."""

    type: str
    field: str
    dimension: int
    predicate: bytes
    """As statements have it."""
    schema: str
    """The digest of the types that it is one of."""


def vector_field(schema: Schema, names: Names, type_name: str, field: str) -> VectorField:
    """A field of a type; it is a Vector."""
    declared = schema.by_name[type_name].by_name[field]
    iri = f"<{names.term(declared.iri)}>".encode()
    return VectorField(type_name, field, declared.type.dimension or 0, iri, schema.digest)


def vector_in(values: object) -> Numbers | None:
    """A value of a Vector field; None where a node has none."""
    return values if isinstance(values, tuple) else None


class _Tables:
    """The tables of one field, by commit; the last one was used last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held while a table is made."""
        self.by_commit: OrderedDict[str, VectorTable] = OrderedDict()

    def size(self) -> int:
        """Bytes in memory; tables share matrices."""
        matrices = {
            id(each): each.size
            for table in list(self.by_commit.values())
            for each in (table.base, table.tail)
        }
        return sum(matrices.values())


class VectorTables:
    """The tables of one graph."""

    def __init__(self, source: TextSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._fields: OrderedDict[VectorField, _Tables] = OrderedDict()

    def table(
        self, field: VectorField, nodes: NodeIndex, db: sqlite3.Connection, commit: str
    ) -> VectorTable:
        """The vectors of a field at the commit that a transaction of the node index sees."""
        with self._lock:
            tables = self._fields.setdefault(field, _Tables())
            self._fields.move_to_end(field)
        with tables.lock:
            found = tables.by_commit.get(commit)
            if found is None:
                found = self._follow(tables, field, nodes, db, commit)
                if found is None:
                    found = VectorTable(make_matrix(field.dimension, _every(field, nodes, db)))
                tables.by_commit[commit] = found
                self._shrink(tables)
            tables.by_commit.move_to_end(commit)
            return found

    def _follow(
        self,
        tables: _Tables,
        field: VectorField,
        nodes: NodeIndex,
        db: sqlite3.Connection,
        commit: str,
    ) -> VectorTable | None:
        """The table made from that of the nearest commit; None if they have little in common."""
        with suppress(NotFoundError, CorruptionError):  # the log may have lost a commit
            ancestry = self._source.ancestry
            steps = {each: ancestry.distance(each, commit) for each in tables.by_commit}
            near = min(steps, key=steps.__getitem__, default=None)
            if near is None or steps[near] > _FAR:
                return None
            table = tables.by_commit[near]
            wanted = {field.predicate: {field.type: [(field.type, field.field)]}}
            touched: set[str] = set()
            for touch in self._source.touched_between(near, commit, wanted):
                touched.add(touch.handle)
                if len(touched) > max(_PAGE, len(table)):
                    return None
            states = nodes.find_all(db, list(touched))
            return table.changed(
                {
                    handle: vector_in(states[handle].state.values.get(field.field))
                    if handle in states
                    else None
                    for handle in touched
                }
            )
        return None

    def _shrink(self, tables: _Tables) -> None:
        """Drop what was not used for the longest time, where there is too much."""
        with self._lock:
            states = tables.by_commit
            while len(states) > _STATES or (len(states) > 1 and self.size() > MOST_BYTES):
                states.popitem(last=False)
            while len(self._fields) > 1 and self.size() > MOST_BYTES:
                self._fields.popitem(last=False)

    def size(self) -> int:
        """Bytes in memory, about."""
        return sum(each.size() for each in self._fields.values())


def _every(
    field: VectorField, nodes: NodeIndex, db: sqlite3.Connection
) -> Iterator[tuple[str, Numbers]]:
    after, size = 0, min(_PAGE, rows_at_once(field.dimension))
    while page := nodes.page(db, field.type, after, size):
        after = page[-1].nid
        for each in page:
            vector = vector_in(each.state.values.get(field.field))
            if vector is not None:
                yield each.state.handle, vector
        give_way()
