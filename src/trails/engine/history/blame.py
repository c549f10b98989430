"""Blame: the commit that wrote each value of a node, as ``git blame`` does for lines.

A value is a statement. The commit that wrote it is the newest one that added it on the way along
first parents from the state that is asked about. If that is a merge, and the merged side has the
same statement, the side is followed; so a merge is named only for what it decided itself. A commit
that changes types may write a statement again under other names: then the statement that it removed
is followed. Only the commits that changed the node are read, newest first, until every value is
explained.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from trails.engine.graph.graph import Graph
from trails.engine.graph.node_history import commits_behind, complete_history, lines_of
from trails.engine.graph.renames import NameHistory
from trails.errors import CorruptionError
from trails.model.history import GENESIS, Commit
from trails.model.nodes import NodeState

MOST_READ: Final = 5_000
"""Commits that are read for one answer."""
_LARGE: Final = 20_000
"""Statements from which the commit that created a node is not read: all that is left is its."""


class BlamedValue(msgspec.Struct, frozen=True):
    """One value of a node, or one item of a list, and the commit that wrote it."""

    field: str
    value: object
    commit: Commit | None
    """None if too many commits changed the node since."""


class _Side(msgspec.Struct):
    """The other side of a merge, and what the merge may have taken from it."""

    start: int
    wanted: set[bytes]
    merge: Commit


def blame(
    graph: Graph, state: NodeState, commit: str, fields: Collection[str] = ()
) -> tuple[BlamedValue, ...]:
    """Who wrote the values of a node as it is at a commit; of some fields, or of all."""
    terms = graph.compiled(graph.ancestry.schema_at(commit)).terms
    values = [
        (name, value, line.rstrip("\n").encode())
        for name, value, line in terms.values(state)
        if not fields or name in fields
    ]
    wanted = {line for _, _, line in values}
    found = _Blame(graph, state.handle).find(graph.ancestry.place(commit), wanted)
    return tuple(BlamedValue(name, value, found.get(line)) for name, value, line in values)


class _Blame:
    """One answer."""

    def __init__(self, graph: Graph, handle: str) -> None:
        self._graph = graph
        self._handle = handle
        self._subject = f"<{graph.names.nodes}{handle}>".encode()
        self._found: dict[bytes, Commit] = {}
        self._left = MOST_READ
        self._sides: list[_Side] = []

    def find(self, start: int, wanted: set[bytes]) -> dict[bytes, Commit]:
        """Statement → the commit that wrote it."""
        complete_history(self._graph)
        self._follow(start, wanted)
        while self._sides:
            self._follow_side(self._sides.pop())
        return self._found

    def _commits(self, start: int) -> Iterator[tuple[Commit, bool]]:
        """The commits behind one that changed the node, and whether each is the first of all."""
        commits = commits_behind(self._graph, self._handle, start)
        seq = next(commits, None)
        while seq is not None and self._left:
            self._left -= 1
            after = next(commits, None)
            commit = self._graph.log.at(seq)
            if commit is None:
                raise CorruptionError(f"commit {seq} is not in the log")
            yield commit, after is None
            seq = after

    def _follow(self, start: int, wanted: set[bytes]) -> None:
        """Explain what a state has; so what is left at the end was there from the beginning."""
        for commit, is_first in self._commits(start) if wanted else ():
            merged = len(commit.parents) > 1
            changed = self._changes_types(commit)
            if changed or not (is_first and not merged and commit.added > _LARGE):
                _, added = self._read(commit, removals=False)
                found = wanted.intersection(added)
                if found and changed:
                    found -= self._follow_names(commit, found)
                self._explain(found, commit)
                wanted.difference_update(added)
            if is_first:
                self._take(wanted, commit)
            if not wanted:
                return

    def _changes_types(self, commit: Commit) -> bool:
        parent = commit.first_parent
        return parent != GENESIS and self._graph.ancestry.schema_at(parent) != commit.schema

    def _follow_names(self, commit: Commit, lines: set[bytes]) -> set[bytes]:
        """Explain statements that a commit only wrote under other names; which these are."""
        graph, parent = self._graph, commit.first_parent
        names = NameHistory.between(graph, commit.id, parent)
        handle = names.handle(self._handle)
        former = {_former_line(graph, commit, names, self._handle, line): line for line in lines}
        with graph.log.open_removed(commit) as removed:
            moved = former.keys() & set(
                lines_of(removed, f"<{graph.names.nodes}{handle}>".encode())
            )
        if not moved:
            return set()
        earlier = _Blame(graph, handle)
        earlier._left = self._left
        found = earlier.find(graph.ancestry.place(parent), set(moved))
        self._left = earlier._left
        self._found.update({former[line]: each for line, each in found.items()})
        return {former[line] for line in moved}

    def _follow_side(self, side: _Side) -> None:
        """Explain what a merge took from its other side; what that does not have is its own."""
        for commit, _ in self._commits(side.start) if side.wanted else ():
            removed, added = self._read(commit, removals=True)
            self._explain(side.wanted.intersection(added), commit)
            self._take(side.wanted.intersection(removed), side.merge)
            side.wanted.difference_update(added, removed)
            if not side.wanted:
                return
        if self._left:
            self._take(side.wanted, side.merge)

    def _explain(self, lines: set[bytes], commit: Commit) -> None:
        """Statements that a commit added; those of a merge may come from its other side."""
        if lines and len(commit.parents) > 1:
            start = self._graph.ancestry.place(commit.parents[1])
            self._sides.append(_Side(start, lines, commit))
        else:
            self._take(lines, commit)

    def _take(self, lines: Collection[bytes], commit: Commit) -> None:
        self._found.update(dict.fromkeys(lines, commit))

    def _read(self, commit: Commit, *, removals: bool) -> tuple[list[bytes], list[bytes]]:
        """The statements of the node that a commit removed, if asked for, and added."""
        if not removals:
            with self._graph.log.open_added(commit) as added:
                return [], lines_of(added, self._subject)
        with self._graph.folding.statements(commit) as (removed, added):
            return lines_of(removed, self._subject), lines_of(added, self._subject)


def _former_line(
    graph: Graph, commit: Commit, names: NameHistory, handle: str, line: bytes
) -> bytes:
    """A statement as it would be under the names before a commit."""
    former, compiled = graph.folding.types_around(commit)
    _, predicate, value = line.decode().split(" ", 2)
    old, nodes = names.handle(handle), graph.names.nodes
    declared = former.schema.by_name.get(old.partition("/")[0])
    field = compiled.terms.field_of(handle, predicate[1:-1])
    if field is not None and declared is not None:
        name = names.field(handle.partition("/")[0], field.name)
        if name in declared.by_name:
            predicate = f"<{graph.names.term(declared.by_name[name].iri)}>"
        if field.target is not None:
            target = value.removeprefix(f"<{nodes}").removesuffix("> .")
            value = f"<{nodes}{names.handle(target)}> ."
    return f"<{nodes}{old}> {predicate} {value}".encode()
