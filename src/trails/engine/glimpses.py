"""Glimpse: what a lens leaves of the statements of commits, and of changes folded from them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import IO, Final

from trails.engine.changes import Net, NodeNet
from trails.engine.graph import Graph
from trails.model.history import Commit
from trails.model.iris import RDF_TYPE
from trails.model.lenses import Lens
from trails.model.types import Schema

_ENDS: Final = ("source", "target")
_REMEMBERED: Final = 100_000
_CLASS: Final = RDF_TYPE.encode()


class Glimpse:
    """Looks at changes through the lens of one schema."""

    def __init__(self, graph: Graph, lens: Lens) -> None:
        self._graph = graph
        self._lens = lens
        self._nodes = graph.names.nodes.encode()
        self._line = re.compile(
            b"<" + re.escape(self._nodes) + rb"(([^/>]+)/[^>]*)> <([^>]*)> (?:<([^>]*)>)?"
        ).match
        self.schema = lens.schema
        """The types that are left."""
        self._tables = {
            each.name: self._table(lens.schema, each.name) for each in lens.schema.types
        }

    def _table(self, schema: Schema, name: str) -> tuple[frozenset[bytes], dict[bytes, bool]]:
        """The classes of a type, and its predicates with whether they are references."""
        term, descriptor = self._graph.names.term, schema.by_name[name]
        return (
            frozenset(term(schema.by_name[each].iri).encode() for each in schema.lineage(name)),
            {term(field.iri).encode(): field.target is not None for field in descriptor.fields},
        )

    # --- statements ----------------------------------------------------------------------

    def count(self, commit: Commit) -> tuple[int, int]:
        """How many statements a commit added and removed, of those that are seen."""
        known = self._graph.glimpsed
        key = commit.id, self._lens.schema.digest
        found = known.get(key)
        if found is None:
            with self._graph.folding.statements(commit) as (removed, added):
                found = self._count(added), self._count(removed)
            if len(known) >= _REMEMBERED:
                known.clear()
            known[key] = found
        return found

    def shows(self, commit: Commit) -> bool:
        """Whether a commit has any statement that is seen."""
        counted = self._graph.glimpsed.get((commit.id, self._lens.schema.digest))
        if counted is not None:
            return any(counted)
        with self._graph.folding.statements(commit) as parts:
            return any(self._shows(line) for part in parts for line in part)

    def _count(self, lines: Iterable[bytes]) -> int:
        return sum(map(self._shows, lines))

    def touches(self, commit: Commit, handle: str) -> bool:
        """Whether a commit did something to a node that is seen."""
        start = b"<" + self._nodes + handle.encode() + b"> "
        with self._graph.folding.statements(commit) as parts:
            return any(
                line.startswith(start) and self._shows(line) for part in parts for line in part
            )

    def _shows(self, line: bytes) -> bool:
        found = self._line(line)
        if found is None:
            return False
        handle, type_name, predicate, target = found.groups()
        name = type_name.decode()
        if name not in self._tables:
            return False
        classes, predicates = self._tables[name]
        if predicate == _CLASS:
            shown = target in classes
        elif predicates.get(predicate, False):
            shown = target is not None and self._knows(target)
        else:
            shown = predicate in predicates
        return shown and self.sees(handle.decode())

    def _knows(self, iri: bytes) -> bool:
        return self._lens.knows(iri.removeprefix(self._nodes).decode())

    # --- nodes ---------------------------------------------------------------------------

    def sees(self, handle: str, net: NodeNet | None = None) -> bool:
        """Whether a node exists at all; ``net`` may tell the ends of an edge."""
        name = handle.partition("/")[0]
        if name not in self._tables:
            return False
        if name not in self._lens.partial_edges:
            return True
        return all(map(self._lens.knows, self._ends(handle, net)))

    def _ends(self, handle: str, net: NodeNet | None) -> tuple[str, ...]:
        """What an edge joins, which its id was made from: so it is the same for ever."""
        known = self._graph.edge_ends
        found = known.get(handle)
        if found is None:
            values = {} if net is None else net.values
            pairs = [values[end] for end in _ENDS if end in values]
            if len(pairs) == len(_ENDS):
                found = tuple(str(after or before) for before, after in pairs)
            else:
                found = self._find_ends(handle)
            if len(known) >= _REMEMBERED:
                known.clear()
            known[handle] = found
        return found

    def _find_ends(self, handle: str) -> tuple[str, ...]:
        """The ends of an edge, from the first commit that speaks of it."""
        graph = self._graph
        with graph.file.reader() as db:
            places = graph.file.commits_of(db, handle)
        start = b"<" + self._nodes + handle.encode() + b"> "
        for place in places:
            commit = graph.log.at(place)
            if commit is not None:
                with graph.folding.statements(commit) as (removed, added):
                    ends = {**self._ends_in(removed, start), **self._ends_in(added, start)}
                if len(ends) == len(_ENDS):
                    return tuple(ends[end] for end in _ENDS)
        return ("",)

    def _ends_in(self, lines: IO[bytes], start: bytes) -> dict[str, str]:
        found: dict[str, str] = {}
        names = {self._graph.names.term(end).encode(): end for end in _ENDS}
        for line in lines:
            match = self._line(line) if line.startswith(start) else None
            if match is not None and match[3] in names and match[4] is not None:
                found[names[match[3]]] = match[4].removeprefix(self._nodes).decode()
        return found

    def filter(self, net: Net) -> Net:
        """Changes per node and field without what is hidden.

        Nodes of types that this schema has never had are another's to judge.
        """
        shown: Net = {}
        for handle, node in net.items():
            name = handle.partition("/")[0]
            if name not in self._tables and name not in self._lens.hidden:
                shown[handle] = node
            elif self.sees(handle, node):
                left = self._filter_node(name, node)
                if left.touched:
                    shown[handle] = left
        return shown

    def _filter_node(self, type_name: str, node: NodeNet) -> NodeNet:
        hidden = self._lens.hidden_fields.get(type_name, frozenset())
        partial = self._lens.partial_refs.get(type_name, frozenset())
        left = NodeNet(node.was, node.stays, node.met)
        left.commits = {name: each for name, each in node.commits.items() if name not in hidden}
        for name, pair in node.values.items():
            if name not in hidden:
                seen = tuple(map(self._shown_end, pair)) if name in partial else pair
                if seen[0] != seen[1]:
                    left.values[name] = (seen[0], seen[1])
        for name, members in node.members.items():
            if name not in hidden:
                kept = {
                    each: pair
                    for each, pair in members.items()
                    if name not in partial or self._lens.knows(str(each))
                }
                if kept:
                    left.members[name] = kept
        return left

    def _shown_end(self, value: object) -> object:
        return value if value is None or self._lens.knows(str(value)) else None
