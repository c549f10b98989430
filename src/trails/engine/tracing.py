"""Tracing: find from the log what a way through it changes, facet by facet.

States are sets of statements, so those that a way adds and does not remove again, or the
other way round, are its net effect. They are counted by facet: where one has too many to
count, it is said to have changed, and what is found in the others does not depend on that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from trails.engine.ancestry import Ancestry
from trails.engine.feed import Change, Feed
from trails.engine.folding import Folding
from trails.engine.lines import Compiled, Line
from trails.engine.traces import Traces
from trails.errors import TrailsError
from trails.model.facets import Facet, type_of
from trails.model.history import GENESIS
from trails.model.iris import RDF_TYPE, Names
from trails.model.types import Schema

_COUNTED: Final = 20_000
"""Statements of one facet that are counted; where it has more, it has changed."""
_WAITING: Final = 1_000
"""Edges whose ends are looked up together."""
_ENDS: Final = ("source", "target")


class Statement(NamedTuple):
    """A line of the log, as far as facets tell lines apart."""

    handle: str
    type: str
    field: str
    target: str
    line: bytes


class Tracing:
    """Traces changes of one graph for those who do not see everything."""

    def __init__(
        self,
        feed: Feed,
        ancestry: Ancestry,
        folding: Folding,
        compiled: Callable[[str], Compiled],
        names: Names,
    ) -> None:
        self._feed = feed
        self._ancestry = ancestry
        self._folding = folding
        self._compiled = compiled
        self._names = names

    def complete(self, change: Change, line: Line, start: str, end: str) -> Change:
        """A change with what those have to know who do not see everything, if there are any."""
        if not self._feed.traced(line.name):
            return change
        before, after = self._schema_at(start), self._schema_at(end)
        turn = None if before == after else (before, after)
        traces = change.traces
        if traces is None:
            try:
                traces = self.between(line, start, end)
            except TrailsError:  # the change is made, whatever can be read of it
                traces = None
        return msgspec.structs.replace(change, traces=traces, turn=turn)

    def _schema_at(self, commit: str) -> str:
        return Schema().digest if commit == GENESIS else self._ancestry.commit(commit).schema

    def between(self, line: Line, start: str, end: str) -> Traces:
        """What differs between two commits; the line is at the second."""
        net = _Net(line)
        path = self._ancestry.path(start, end)
        for commits, sign in ((path.undo, -1), (path.redo, 1)):
            for commit in commits:
                reader = Statements(self._compiled(commit.schema).schema, self._names)
                with self._folding.statements(commit) as (removed, added):
                    net.count(reader.of(removed), -sign)
                    net.count(reader.of(added), sign)
        return net.traces()


class Statements:
    """Reads the lines of commits under one schema."""

    def __init__(self, schema: Schema, names: Names) -> None:
        self._nodes = nodes = names.nodes.encode()
        self._match = re.compile(
            b"<" + re.escape(nodes) + rb"(([^/>]+)/[^>]*)> <([^>]*)> (?:<([^>]*)>)?"
        ).match
        self._classes = {each.name: names.term(each.iri).encode() for each in schema.types}
        self._fields = {
            (each.name, names.term(field.iri).encode()): (field.name, field.target is not None)
            for each in schema.types
            for field in each.fields
        }

    def of(self, lines: Iterable[bytes]) -> Iterator[Statement]:
        """The statements that declared types can hold; of classes that which makes a node."""
        for line in lines:
            found = self._match(line)
            if found is None:
                continue
            handle, kind, predicate, value = found.groups()
            name = kind.decode()
            if predicate == _CLASS:
                if value == self._classes.get(name):
                    yield Statement(handle.decode(), name, "", "", line)
                continue
            field = self._fields.get((name, predicate))
            if field is None:
                continue
            target = ""
            if field[1]:
                if value is None or not value.startswith(self._nodes):
                    continue
                target = value[len(self._nodes) :].decode()
            yield Statement(handle.decode(), name, field[0], target, line)


_CLASS: Final = RDF_TYPE.encode()


class _Net:
    """Statements that were added and not removed, or the other way round, by facet."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._counts: dict[Facet, dict[bytes, tuple[str, int]] | None] = {}
        self._waiting: dict[str, list[tuple[Statement, int]]] = {}
        """Of edges that were neither made nor deleted so far, so that their ends are not known."""
        self._looked_up = 0

    def count(self, statements: Iterator[Statement], step: int) -> None:
        """Count statements in; those of one node follow each other."""
        by_name = self._line.schema.by_name
        for (handle, name), some in groupby(statements, key=_node_of):
            descriptor = by_name.get(name)
            if descriptor is None or descriptor.edge is None:
                for each in some:
                    self._put(each, (), step)
            else:
                self._count_edge(handle, list(some), step)

    def _count_edge(self, handle: str, statements: list[Statement], step: int) -> None:
        known = {each.field: type_of(each.target) for each in statements if each.field in _ENDS}
        waiting = [*self._waiting.pop(handle, ()), *((each, step) for each in statements)]
        if len(known) == len(_ENDS):
            self._put_edge(waiting, (known["source"], known["target"]))
            return
        self._waiting[handle] = waiting
        if len(self._waiting) >= self._looked_up + _WAITING:
            self._look_up()

    def _put_edge(self, statements: list[tuple[Statement, int]], ends: tuple[str, ...]) -> None:
        for each, step in statements:
            self._put(each, ends, step)

    def _look_up(self) -> None:
        """Find the ends of edges that are there in the end; others are deleted on the way."""
        nodes = self._line.nodes
        with nodes.file.reader() as db:
            found = nodes.find_all(db, list(self._waiting))
        for handle, stored in found.items():
            values = stored.state.values
            ends = tuple(type_of(values.get(each)) for each in _ENDS)
            self._put_edge(self._waiting.pop(handle), ends)
        self._looked_up = len(self._waiting)

    def _put(self, statement: Statement, ends: tuple[str, ...], step: int) -> None:
        target = type_of(statement.target) if statement.target else ""
        facet = Facet(statement.type, statement.field, target, ends)
        counted = self._counts.setdefault(facet, {})
        if counted is None:
            return
        sum_ = counted.pop(statement.line, ("", 0))[1] + step
        if sum_:
            counted[statement.line] = statement.handle, sum_
            if len(counted) > _COUNTED:
                self._counts[facet] = None

    def traces(self) -> Traces:
        """What is left in the end."""
        if self._waiting:
            self._look_up()
        return Traces(
            {
                facet: None if counted is None else {handle for handle, _ in counted.values()}
                for facet, counted in self._counts.items()
                if counted is None or counted
            }
        )


def _node_of(statement: Statement) -> tuple[str, str]:
    return statement.handle, statement.type
