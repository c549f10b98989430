"""Tracing: find from the log what a way through it changes, facet by facet.

States are sets of statements, so those that a way adds and does not remove again, or the
other way round, are its net effect. They are counted by facet: where one has too many to
count, it is said to have changed, and what is found in the others does not depend on that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from trails.engine.ancestry import Ancestry
from trails.engine.feed import Change, Feed
from trails.engine.folding import Folding
from trails.engine.lines import Compiled, Line
from trails.engine.traces import Traces
from trails.errors import TrailsError
from trails.model.facets import ENDS, Facet, type_of
from trails.model.history import GENESIS
from trails.model.iris import RDF_TYPE, Names
from trails.model.types import Schema

_COUNTED: Final = 20_000
"""Statements of one facet that are counted; where it has more, it has changed."""
_WAITING: Final = 1_000
"""Edges whose ends are looked up together."""
_CLASS: Final = RDF_TYPE.encode()


class Place(NamedTuple):
    """Where a statement belongs: a type, and its class or one of its fields."""

    facet: Facet
    """Without what a reference leads to and an edge joins."""
    main_class: bytes | None
    """Of the statements of classes only this one counts, which makes a node."""
    refers: bool
    joins: bool
    """Whether the type is one of edges."""


Said = tuple[Place, str, bytes]
"""A statement: where it belongs, what it refers to, and its line."""


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
        net = _Net(line, self._names)
        path = self._ancestry.path(start, end)
        for commits, sign in ((path.undo, -1), (path.redo, 1)):
            for commit in commits:
                former, latter = self._folding.types_around(commit)
                with self._folding.statements(commit) as (removed, added):
                    net.count(places_of(former.schema, self._names), removed, -sign)
                    net.count(places_of(latter.schema, self._names), added, sign)
        return net.traces()


def places_of(schema: Schema, names: Names) -> Mapping[tuple[bytes, bytes], Place]:
    """The places of a schema's statements, by type and predicate."""
    found: dict[tuple[bytes, bytes], Place] = {}
    for each in schema.types:
        name, joins = each.name.encode(), each.edge is not None
        main = names.term(each.iri).encode()
        found[name, _CLASS] = Place(Facet(each.name), main, refers=False, joins=joins)
        for field in each.fields:
            facet, refers = Facet(each.name, field.name), field.target is not None
            found[name, names.term(field.iri).encode()] = Place(facet, None, refers, joins)
    return found


class _Net:
    """Statements that were added and not removed, or the other way round, by facet."""

    def __init__(self, line: Line, names: Names) -> None:
        self._line = line
        self._nodes = nodes = names.nodes.encode()
        self._match = re.compile(
            b"<" + re.escape(nodes) + rb"(([^/>]+)/[^>]*)> <([^>]*)> (?:<([^>]*)>)?"
        ).match
        self._counts: dict[Facet, dict[bytes, int] | None] = {}
        self._waiting: dict[str, list[tuple[Said, int]]] = {}
        """Of edges that were neither made nor deleted so far, so that their ends are not known."""
        self._looked_up = 0

    def count(
        self, places: Mapping[tuple[bytes, bytes], Place], lines: Iterable[bytes], step: int
    ) -> None:
        """Count statements in; those of one node follow each other."""
        match, edge, said = self._match, b"", list[Said]()
        for line in lines:
            found = match(line)
            if found is None:
                continue
            handle, kind, predicate, value = found.groups()
            place = places.get((kind, predicate))
            if place is None or (place.main_class is not None and value != place.main_class):
                continue
            target = ""
            if place.refers:
                if value is None or not value.startswith(self._nodes):
                    continue
                target = type_of(value[len(self._nodes) :].decode())
            if not place.joins:
                self._put((place, target, line), (), step)
                continue
            if handle != edge:
                self._count_edge(edge.decode(), said, step)
                edge, said = handle, []
            said.append((place, target, line))
        self._count_edge(edge.decode(), said, step)

    def _count_edge(self, handle: str, said: list[Said], step: int) -> None:
        if not said:
            return
        known = {place.facet.field: target for place, target, _ in said}
        waiting = [*self._waiting.pop(handle, ()), *((each, step) for each in said)]
        if all(end in known for end in ENDS):
            self._put_edge(waiting, tuple(known[end] for end in ENDS))
            return
        self._waiting[handle] = waiting
        if len(self._waiting) >= self._looked_up + _WAITING:
            self._look_up()

    def _put_edge(self, said: list[tuple[Said, int]], ends: tuple[str, ...]) -> None:
        for each, step in said:
            self._put(each, ends, step)

    def _look_up(self) -> None:
        """Find the ends of edges that are there in the end; others are deleted on the way."""
        nodes = self._line.nodes
        with nodes.file.reader() as db:
            found = nodes.find_all(db, list(self._waiting))
        for handle, stored in found.items():
            values = stored.state.values
            self._put_edge(
                self._waiting.pop(handle), tuple(type_of(values.get(end)) for end in ENDS)
            )
        self._looked_up = len(self._waiting)

    def _put(self, said: Said, ends: tuple[str, ...], step: int) -> None:
        place, target, line = said
        facet = place.facet
        if target or ends:
            facet = Facet(facet.type, facet.field, target, ends)
        counted = self._counts.get(facet)
        if counted is None:
            if facet in self._counts:
                return  # too many already
            counted = self._counts[facet] = {}
        sum_ = counted.pop(line, 0) + step
        if sum_:
            counted[line] = sum_
            if len(counted) > _COUNTED:
                self._counts[facet] = None

    def traces(self) -> Traces:
        """What is left in the end."""
        if self._waiting:
            self._look_up()
        return Traces(
            {
                facet: None if counted is None else set(map(self._handle_of, counted))
                for facet, counted in self._counts.items()
                if counted is None or counted
            }
        )

    def _handle_of(self, line: bytes) -> str:
        return line[1 + len(self._nodes) : line.index(b">")].decode()
