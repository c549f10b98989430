"""Hindsight: what one actor sees of commits, as if what it may not see had never been.

A commit that did nothing which the actor sees is left out: where one is asked for by its id or
as the head of a branch, the newest before it that is seen answers. The ids of heads are told
all the same, because writes are compared with them. Counts are of statements that are seen, and
places in the log, which would tell how much there is beside, are not told.

Glimpse: what a lens leaves of the statements of commits, and of changes folded from them.

Edge ends: what edges join, also those that are gone.

An edge's id is made from its ends, so these are the same wherever and whenever it exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from operator import itemgetter, methodcaller
from typing import Final

import msgspec

from trails.engine.graph.ancestry import Path
from trails.engine.graph.changes import Net, NodeNet, net_between, net_changes
from trails.engine.graph.graph import Graph
from trails.engine.graph.schema_changes import ACTOR, told_change
from trails.engine.visibility.access import Access
from trails.engine.visibility.refs import RefResolver
from trails.errors import NotFoundError
from trails.model.history import GENESIS, Commit, Head
from trails.model.iris import RDF_TYPE
from trails.model.nodes import NodeState
from trails.model.types import Schema
from trails.model.visibility import ENDS, SchemaFilter
from trails.views.nodes.index import NodeIndex

NOWHERE: Final = ("",)
"""Ends of an edge that cannot be found; nobody knows what it joins, so nobody sees it."""
_MAX_EDGES: Final = 100_000


class EdgeEndFinder:
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
        if len(remembered) >= _MAX_EDGES:
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

        for checkout in self._graph.lines.values():
            with suppress(NotFoundError):  # it was deleted a moment ago
                state = self._graph.reading_nodes(checkout, read)
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


_REMEMBERED: Final = 20_000
_CLASS: Final = RDF_TYPE.encode()
_NODE: Final = methodcaller("group", 1, 2)


class CommitFilter:
    """Looks at changes through the lens of one schema."""

    def __init__(self, graph: Graph, schema_filter: SchemaFilter) -> None:
        self._graph = graph
        self._schema_filter = schema_filter
        self._ends = EdgeEndFinder(graph)
        self._nodes = graph.names.nodes.encode()
        self._line = re.compile(
            b"<" + re.escape(self._nodes) + rb"(([^/>]+)/[^>]*)> <([^>]*)> (?:<([^>]*)>)?"
        ).match
        self.schema = schema_filter.schema
        """The types that are left."""
        self._tables = {
            each.name: self._table(schema_filter.schema, each.name)
            for each in schema_filter.schema.types
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
                found = _length(self._visible(added)), _length(self._visible(removed))
            self._remember(commit, found)
        return found

    def _known(self, commit: Commit) -> tuple[int, int] | None:
        return self._graph.glimpsed.get((commit.id, self._schema_filter.schema.digest))

    def _remember(self, commit: Commit, counts: tuple[int, int]) -> None:
        known = self._graph.glimpsed
        if len(known) >= _REMEMBERED:
            known.clear()
        known[commit.id, self._schema_filter.schema.digest] = counts

    def shows(self, commit: Commit) -> bool:
        """Whether a commit has any statement that is seen."""
        counted = self._known(commit)
        if counted is not None:
            return any(counted)
        with self._graph.folding.statements(commit) as parts:
            shown = any(True for part in parts for _ in self._visible(part))
        if not shown:
            self._remember(commit, (0, 0))  # or it would be read to its end again and again
        return shown

    def touches(self, commit: Commit, handle: str) -> bool:
        """Whether a commit did something to a node that is seen."""
        start = b"<" + self._nodes + handle.encode() + b"> "
        with self._graph.folding.statements(commit) as parts:
            lines = (line for part in parts for line in part if line.startswith(start))
            return any(True for _ in self._visible(lines))

    def _visible(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Those statements that are seen. What a commit says of one node is in one place."""
        tables, partial = self._tables, self._schema_filter.partial_edges
        for (handle, type_name), found in groupby(filter(None, map(self._line, lines)), _NODE):
            name = type_name.decode()
            if name not in tables:
                continue
            statements = [(each[0], each[3], each[4]) for each in found]
            if name in partial:
                ends = self._ends.among((each[1], each[2]) for each in statements)
                if not all(map(self._schema_filter.knows, ends or self._ends.of(handle.decode()))):
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
        return self._schema_filter.knows(iri.removeprefix(self._nodes).decode())

    # --- nodes ---------------------------------------------------------------------------

    def sees(self, handle: str, net: NodeNet | None = None) -> bool:
        """Whether a node exists at all; ``net`` may tell the ends of an edge."""
        name = handle.partition("/")[0]
        if name not in self._tables:
            return False
        if name not in self._schema_filter.partial_edges:
            return True
        ends = self._ends.of(handle, None if net is None else net.values)
        return all(map(self._schema_filter.knows, ends))

    def filter(self, net: Net) -> Net:
        """Changes per node and field without what is hidden.

        Nodes of types that this schema has never had are another's to judge.
        """
        shown: Net = {}
        for handle, node in net.items():
            name = handle.partition("/")[0]
            if name not in self._tables and name not in self._schema_filter.hidden:
                shown[handle] = node
            elif self.sees(handle, node):
                left = self._filter_node(name, node)
                if left.touched:
                    shown[handle] = left
        return shown

    def _filter_node(self, type_name: str, node: NodeNet) -> NodeNet:
        hidden = self._schema_filter.hidden_fields.get(type_name, frozenset())
        partial = self._schema_filter.partial_refs.get(type_name, frozenset())
        left = NodeNet(node.was, node.stays, node.met)
        left.commits = {name: each for name, each in node.commits.items() if name not in hidden}
        for name, pair in node.values.items():
            if name not in hidden:
                shown = tuple(map(self._shown_end, pair)) if name in partial else pair
                if shown[0] != shown[1]:
                    left.values[name] = (shown[0], shown[1])
        for name, members in node.members.items():
            if name not in hidden:
                kept = {
                    each: pair
                    for each, pair in members.items()
                    if name not in partial or self._schema_filter.knows(str(each))
                }
                if kept:
                    left.members[name] = kept
        return left

    def _shown_end(self, value: object) -> object:
        return value if value is None or self._schema_filter.knows(str(value)) else None


def _length(items: Iterable[object]) -> int:
    return sum(1 for _ in items)


_MERGED: Final = re.compile(r"merge (.+) into (.+)")


class VisibleHistory:
    """The past of one graph as one actor sees it."""

    def __init__(
        self,
        graph: Graph,
        access: Access,
        refs: RefResolver,
        branches: tuple[str, ...] | None = None,
    ) -> None:
        """``branches``: where sight is decided, if not on those that contain each commit."""
        self._graph = graph
        self._access = access
        self._refs = refs
        self._branches = branches
        self._commit_filters: dict[tuple[str, tuple[str, ...]], CommitFilter | None] = {}

    def along(self, *branches: str) -> VisibleHistory:
        """The same for commits that are all behind these branches."""
        return VisibleHistory(self._graph, self._access, self._refs, branches)

    def branches(self) -> dict[str, Head]:
        """The heads of the branches that are seen."""
        return self._refs.branches()

    # --- whether something is seen -----------------------------------------------------------

    def _commit_filter(self, commit: str, schema: str | None = None) -> CommitFilter | None:
        """How the state at a commit is seen; None where nothing of it is hidden."""
        declared = self._graph.compiled(schema or self._graph.schema_at(commit)).schema
        branches = self._deciding(commit, declared)
        key = declared.digest, branches
        if key not in self._commit_filters:
            visibility = self._access.visibility(declared, branches)
            self._commit_filters[key] = (
                None
                if visibility.reads_all
                else CommitFilter(self._graph, visibility.filter(declared))
            )
        return self._commit_filters[key]

    def _deciding(self, commit: str, declared: Schema) -> tuple[str, ...]:
        """The branches that decide; one is enough where everything is seen on it."""
        if self._branches is not None or commit == GENESIS:
            return self._branches or ()
        found: list[str] = []
        for each in self._refs.branches_of(self._graph.ancestry.commit(commit)):
            if self._access.visibility(declared, (each,)).reads_all:
                return (each,)
            found.append(each)
        return tuple(found)

    def _types(self, commit: Commit, at: str) -> Schema:
        """The types at a commit, or before it, as they are seen where it is."""
        digest = self._graph.schema_at(at)
        commit_filter = self._commit_filter(commit.id, digest)
        return (
            self._graph.compiled(digest).schema if commit_filter is None else commit_filter.schema
        )

    def shows(self, commit: Commit) -> bool:
        """Whether a commit did anything that is seen."""
        commit_filter = self._commit_filter(commit.id)
        if (
            commit_filter.shows(commit)
            if commit_filter is not None
            else commit.added or commit.removed
        ):
            return True
        if self._types(commit, commit.id).digest != self._types(commit, commit.first_parent).digest:
            return True
        return len(commit.parents) > 1 and any(
            map(self.shows, self._graph.ancestry.sides(*commit.parents)[1])
        )

    def newest(self, identifier: str) -> str:
        """A commit if it is seen, else the newest before it that is; nothing where none is."""
        while identifier != GENESIS:
            commit = self._graph.ancestry.commit(identifier)
            if self.shows(commit):
                return identifier
            identifier = commit.first_parent
        return GENESIS

    def only_shown(self, commits: Iterable[Commit]) -> list[Commit]:
        """Those commits that are seen."""
        return [commit for commit in commits if self.shows(commit)]

    def touches(self, commit: Commit, handle: str) -> bool:
        """Whether a commit did anything to a node that is seen."""
        commit_filter = self._commit_filter(commit.id)
        return commit_filter is None or commit_filter.touches(commit, handle)

    # --- what is told of it --------------------------------------------------------------------

    def told(self, commit: Commit) -> Commit:
        """A commit that is seen, as far as it is; what it follows are those that are seen."""
        parents = dict.fromkeys(map(self.newest, commit.parents))
        kept = tuple(each for each in parents if each != GENESIS)
        return msgspec.structs.replace(self.made(commit), parents=kept)

    def made(self, commit: Commit) -> Commit:
        """A commit that the actor made itself, and whose place it therefore knows."""
        branch, message = self._branch(commit), self._message(commit)
        shown = msgspec.structs.replace(commit.public(), seq=0, branch=branch, message=message)
        commit_filter = self._commit_filter(commit.id)
        if commit_filter is None:
            return shown
        added, removed = commit_filter.count(commit)
        return msgspec.structs.replace(
            shown,
            schema=commit_filter.schema.digest,
            added=added,
            removed=removed,
            payload="",
            digest="",
        )

    def _branch(self, commit: Commit) -> str:
        """The branch that a commit was made on, if that may be told."""
        return commit.branch if self._access.may("Read", commit.branch) else ""

    def _message(self, commit: Commit) -> str:
        """The message; where Trails wrote one of types or branches, of those that are seen."""
        before = commit.first_parent
        if commit.actor == ACTOR and commit.schema != self._graph.schema_at(before):
            return told_change(self._types(commit, before), self._types(commit, commit.id))
        merged = _MERGED.fullmatch(commit.message) if len(commit.parents) > 1 else None
        if merged is None or all(self._access.may("Read", each) for each in merged.groups()):
            return commit.message
        return "merge"

    def changes(self, commit: Commit) -> Net:
        """What a commit did, as far as it is seen."""
        commit_filter = self._commit_filter(commit.id)
        types = None if commit_filter is None else commit_filter.schema.by_name
        net = net_changes(self._graph, Path((), (commit,)), types)
        return net if commit_filter is None else commit_filter.filter(net)

    def between(self, start: str, end: str) -> Net:
        """What turns one state into another, as far as both are seen."""
        net = net_between(self._graph, start, end)
        for commit in (start, end):
            commit_filter = self._commit_filter(commit) if commit != GENESIS else None
            if commit_filter is not None:
                net = commit_filter.filter(net)
        return net
