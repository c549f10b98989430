"""Edge ends: what edges join, also those that are gone.

An edge's id is made from its ends, so these are the same wherever and whenever it exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import Final

from trails.engine.graph import Graph
from trails.errors import NotFoundError
from trails.model.facets import ENDS
from trails.model.history import Commit
from trails.model.nodes import NodeState
from trails.views.nodes.index import NodeIndex

NOWHERE: Final = ("",)
"""Ends of an edge that cannot be found; nobody knows what it joins, so nobody sees it."""
_REMEMBERED: Final = 100_000


class EdgeEnds:
    """Finds the ends of the edges of one graph, and remembers those that it had to look up."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._predicates = {graph.names.term(end).encode(): end for end in ENDS}
        self._nodes = graph.names.nodes.encode()
        self._learned: set[str] = set()
        """Commits whose edges were all remembered once."""

    def of(self, handle: str, known: Mapping[str, tuple[object, object]] | None = None) -> Ends:
        """The handles of what an edge joins; ``known`` may have them, before and after."""
        remembered = self._graph.edge_ends
        found = remembered.get(handle)
        if found is None:
            pairs = [known[end] for end in ENDS if end in known] if known else []
            if len(pairs) == len(ENDS):
                found = tuple(str(after or before) for before, after in pairs)
            else:
                found = self._indexed(handle) or self._logged(handle) or NOWHERE
            self._remember(handle, found)
        return found

    def _remember(self, handle: str, ends: Ends) -> None:
        remembered = self._graph.edge_ends
        if len(remembered) >= _REMEMBERED:
            remembered.clear()
            self._learned.clear()
        remembered[handle] = ends

    def among(self, statements: Iterable[tuple[bytes, bytes | None]]) -> Ends | None:
        """The ends that an edge has in some of its statements (predicate, object), if both are."""
        found = {
            self._predicates[predicate]: target.removeprefix(self._nodes).decode()
            for predicate, target in statements
            if predicate in self._predicates and target is not None
        }
        return tuple(found[end] for end in ENDS) if len(found) == len(ENDS) else None

    def _indexed(self, handle: str) -> Ends | None:
        """From a branch on which the edge is now."""

        def read(nodes: NodeIndex) -> NodeState | None:
            with nodes.file.reader() as db:
                stored = nodes.find(db, handle)
            return None if stored is None else stored.state

        for line in self._graph.lines.values():
            with suppress(NotFoundError):  # it was deleted a moment ago
                state = self._graph.reading_nodes(line, read)
                if state is not None and all(end in state.values for end in ENDS):
                    return tuple(str(state.values[end]) for end in ENDS)
        return None

    def _logged(self, handle: str) -> Ends | None:
        """From the commit that made or deleted it, small ones first: one of both is enough."""
        graph = self._graph
        with graph.file.reader() as db:
            places = graph.file.commits_of(db, handle)
        commits = [commit for commit in map(graph.log.at, places) if commit is not None]
        # What is remembered may have been forgotten for others since, so all are read if need be.
        for commit in sorted(commits, key=lambda each: (each.id in self._learned, _size(each))):
            self._learned.add(commit.id)
            found = self._learn(commit, handle)
            if found is not None:
                return found
        return None

    def _learn(self, commit: Commit, wanted: str) -> Ends | None:
        """Remember the ends of all edges that a commit made or deleted; those of one are given.

        Whoever asks for one edge of a commit is likely to ask for the others.
        """
        found = None
        with self._graph.folding.statements(commit) as parts:
            for part in parts:
                lines = filter(self._tells_end, part)
                for subject, some in groupby(map(_split, lines), itemgetter(0)):
                    ends = self.among((predicate, target) for _, predicate, target in some)
                    handle = subject.removeprefix(self._nodes).decode()
                    if ends is not None:
                        self._remember(handle, ends)
                        found = ends if handle == wanted else found
        return found

    def _tells_end(self, line: bytes) -> bool:
        return line.split(b" ", 2)[1].strip(b"<>") in self._predicates


Ends = tuple[str, ...]


def _size(commit: Commit) -> int:
    return commit.added + commit.removed


def _split(line: bytes) -> tuple[bytes, bytes, bytes | None]:
    """Subject, predicate and, where it is an IRI, object."""
    subject, predicate, rest = line.split(b" ", 2)
    target = rest[1 : rest.index(b">")] if rest.startswith(b"<") else None
    return subject.strip(b"<>"), predicate.strip(b"<>"), target
