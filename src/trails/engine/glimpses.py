"""Glimpse: what a lens leaves of the statements of commits, and of changes folded from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import methodcaller
from typing import Final

from trails.engine.changes import Net, NodeNet
from trails.engine.edge_ends import EdgeEnds
from trails.engine.graph import Graph
from trails.model.history import Commit
from trails.model.iris import RDF_TYPE
from trails.model.lenses import Lens
from trails.model.types import Schema

_REMEMBERED: Final = 20_000
_CLASS: Final = RDF_TYPE.encode()
_NODE: Final = methodcaller("group", 1, 2)


class Glimpse:
    """Looks at changes through the lens of one schema."""

    def __init__(self, graph: Graph, lens: Lens) -> None:
        self._graph = graph
        self._lens = lens
        self._ends = EdgeEnds(graph)
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
        found = self._known(commit)
        if found is None:
            with self._graph.folding.statements(commit) as (removed, added):
                found = _length(self._seen(added)), _length(self._seen(removed))
            self._remember(commit, found)
        return found

    def _known(self, commit: Commit) -> tuple[int, int] | None:
        return self._graph.glimpsed.get((commit.id, self._lens.schema.digest))

    def _remember(self, commit: Commit, counts: tuple[int, int]) -> None:
        known = self._graph.glimpsed
        if len(known) >= _REMEMBERED:
            known.clear()
        known[commit.id, self._lens.schema.digest] = counts

    def shows(self, commit: Commit) -> bool:
        """Whether a commit has any statement that is seen."""
        counted = self._known(commit)
        if counted is not None:
            return any(counted)
        with self._graph.folding.statements(commit) as parts:
            shown = any(True for part in parts for _ in self._seen(part))
        if not shown:
            self._remember(commit, (0, 0))  # or it would be read to its end again and again
        return shown

    def touches(self, commit: Commit, handle: str) -> bool:
        """Whether a commit did something to a node that is seen."""
        start = b"<" + self._nodes + handle.encode() + b"> "
        with self._graph.folding.statements(commit) as parts:
            lines = (line for part in parts for line in part if line.startswith(start))
            return any(True for _ in self._seen(lines))

    def _seen(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Those statements that are seen. What a commit says of one node is in one place."""
        tables, partial = self._tables, self._lens.partial_edges
        for (handle, type_name), found in groupby(filter(None, map(self._line, lines)), _NODE):
            name = type_name.decode()
            if name not in tables:
                continue
            statements = [(each[0], each[3], each[4]) for each in found]
            if name in partial:
                ends = self._ends.among((each[1], each[2]) for each in statements)
                if not all(map(self._lens.knows, ends or self._ends.of(handle.decode()))):
                    continue
            classes, predicates = tables[name]
            for line, predicate, target in statements:
                if predicate == _CLASS:
                    shown = target in classes
                elif predicates.get(predicate, False):
                    shown = target is not None and self._knows(target)
                else:
                    shown = predicate in predicates
                if shown:
                    yield line

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
        ends = self._ends.of(handle, None if net is None else net.values)
        return all(map(self._lens.knows, ends))

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


def _length(items: Iterable[object]) -> int:
    return sum(1 for _ in items)
