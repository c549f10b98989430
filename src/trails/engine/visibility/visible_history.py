"""The history of a graph as one actor sees it, without the hidden parts.

Commits that changed nothing visible are left out; a request for one gets the newest visible
commit before it. The id of a branch's head is always shown, because writes are compared with it.
Counts cover visible statements only, and positions in the log are not shown, since they would
reveal how much is hidden.

``CommitFilter`` applies a schema filter to the statements of commits; ``EdgeEndFinder`` finds the
two ends of an edge, also of a deleted one (an edge's id is derived from its ends).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from operator import itemgetter, methodcaller
from typing import Final, Literal

import msgspec

from trails.engine.graph.ancestry import Path
from trails.engine.graph.changes import (
    ACTOR,
    Net,
    NodeNet,
    change_message,
    net_between,
    net_changes,
)
from trails.engine.graph.graph import Graph
from trails.engine.visibility.access import Access
from trails.engine.visibility.refs import RefResolver
from trails.errors import NotFoundError
from trails.model.history import GENESIS, Commit, Head
from trails.model.iris import RDF_TYPE
from trails.model.nodes import NodeState
from trails.model.types import PredicateDescriptor, Schema
from trails.model.values.lang_texts import split_part
from trails.model.visibility import ENDS, SchemaFilter
from trails.views.lists import unpack
from trails.views.nodes.index import NodeIndex
from trails.views.terms import read_statements

NOWHERE: Final = ("",)
"""The ends of an edge that were not found; such an edge is hidden from everyone."""
_MAX_EDGES: Final = 100_000


class EdgeEndFinder:
    """Finds and caches the ends of the edges of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._predicates = {graph.names.term(end).encode(): end for end in ENDS}
        self._nodes = graph.names.nodes.encode()
        self._learned: set[str] = set()
        """Commits whose edges were all cached once."""

    def of(self, handle: str, known: Mapping[str, tuple[object, object]] | None = None) -> Ends:
        """The handles of an edge's ends; ``known`` has its changed values (before, after)."""
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
        """The ends of an edge from its statements (predicate, object), if both are present."""
        found = {
            self._predicates[predicate]: target.removeprefix(self._nodes).decode()
            for predicate, target in statements
            if predicate in self._predicates and target is not None
        }
        return tuple(found[end] for end in ENDS) if len(found) == len(ENDS) else None

    def _indexed(self, handle: str) -> Ends | None:
        """Look for the edge on any open branch."""

        def read(nodes: NodeIndex) -> NodeState | None:
            with nodes.file.reader() as db:
                stored = nodes.find(db, handle)
            return None if stored is None else stored.state

        for checkout in list(self._graph.checkouts.values()):
            with suppress(NotFoundError):  # deleted by another caller
                state = self._graph.reading_nodes(checkout, read)
                if state is not None and all(end in state.values for end in ENDS):
                    return tuple(str(state.values[end]) for end in ENDS)
        return None

    def _logged(self, handle: str) -> Ends | None:
        """Look for the edge in a commit that created or deleted it, smallest commit first."""
        graph = self._graph
        with graph.file.reader() as db:
            places = graph.file.commits_of(db, handle)
        commits = [commit for commit in map(graph.log.at, places) if commit is not None]
        # The cache may have been cleared since, so commits that were read once come last.
        for commit in sorted(commits, key=lambda each: (each.id in self._learned, _size(each))):
            self._learned.add(commit.id)
            found = self._learn(commit, handle)
            if found is not None:
                return found
        return None

    def _learn(self, commit: Commit, wanted: str) -> Ends | None:
        """Cache the ends of all edges that a commit created or deleted; return those of one.

        A caller that needs one edge of a commit is likely to need the others.
        """
        found = None
        with self._graph.folding.statements(commit) as parts:
            for part in parts:
                lines = filter(self._is_end, part)
                for subject, some in groupby(map(_split, lines), itemgetter(0)):
                    ends = self.among((predicate, target) for _, predicate, target in some)
                    handle = subject.removeprefix(self._nodes).decode()
                    if ends is not None:
                        self._remember(handle, ends)
                        found = ends if handle == wanted else found
        return found

    def _is_end(self, line: bytes) -> bool:
        return line.split(b" ", 2)[1].strip(b"<>") in self._predicates


Ends = tuple[str, ...]


def _size(commit: Commit) -> int:
    return commit.added + commit.removed


def _split(line: bytes) -> tuple[bytes, bytes, bytes | None]:
    """Subject, predicate and, if it is an IRI, object."""
    subject, predicate, rest = line.split(b" ", 2)
    target = rest[1 : rest.index(b">")] if rest.startswith(b"<") else None
    return subject.strip(b"<>"), predicate.strip(b"<>"), target


_REMEMBERED: Final = 20_000
_CLASS: Final = RDF_TYPE.encode()
_NODE: Final = methodcaller("group", 1, 2)


class CommitFilter:
    """Filters the changes of commits by what is visible of one schema."""

    def __init__(self, graph: Graph, schema_filter: SchemaFilter) -> None:
        self._graph = graph
        self._schema_filter = schema_filter
        self._ends = EdgeEndFinder(graph)
        self._nodes = graph.names.nodes.encode()
        self._line = re.compile(
            b"<" + re.escape(self._nodes) + rb"(([^/>]+)/[^>]*)> <([^>]*)> (?:<([^>]*)>)?"
        ).match
        self.schema = schema_filter.schema
        """The visible types."""
        self._tables = {
            each.name: self._table(schema_filter.schema, each.name)
            for each in schema_filter.schema.types
        }

    def _table(self, schema: Schema, name: str) -> tuple[frozenset[bytes], dict[bytes, str]]:
        """The classes of a type, and its predicates with what they lead to."""
        term, descriptor = self._graph.names.term, schema.by_name[name]
        partial = self._schema_filter.partial_refs.get(name, ())
        return (
            frozenset(term(schema.by_name[each].iri).encode() for each in schema.lineage(name)),
            {
                term(field.iri).encode(): _leads_to(field, partial=field.name in partial)
                for field in descriptor.fields
            },
        )

    @property
    def key(self) -> str:
        """The same for two filters of one commit that show the same."""
        return self._schema_filter.schema.digest

    # --- statements ----------------------------------------------------------------------

    def count(self, commit: Commit) -> tuple[int, int]:
        """How many visible statements a commit added and removed."""
        found = self._known(commit)
        if found is None:
            with self._graph.folding.statements(commit) as parts:
                counts = Counter(side for side, _ in self.visible(*parts))
            found = counts[1], counts[0]
            self._remember(commit, found)
        return found

    def _known(self, commit: Commit) -> tuple[int, int] | None:
        return self._graph.visible_counts.get((commit.id, self._schema_filter.schema.digest))

    def _remember(self, commit: Commit, counts: tuple[int, int]) -> None:
        known = self._graph.visible_counts
        if len(known) >= _REMEMBERED:
            known.clear()
        known[commit.id, self._schema_filter.schema.digest] = counts

    def shows(self, commit: Commit) -> bool:
        """Whether a commit changed any visible statement."""
        counted = self._known(commit)
        if counted is not None:
            return any(counted)
        with self._graph.folding.statements(commit) as parts:
            shown = any(True for _ in self.visible(*parts))
        if not shown:
            self._remember(commit, (0, 0))  # so that it is not read in full again
        return shown

    def touches(self, commit: Commit, handle: str) -> bool:
        """Whether a commit changed something visible of a node."""
        start = b"<" + self._nodes + handle.encode() + b"> "
        with self._graph.folding.statements(commit) as parts:
            removed, added = ([line for line in part if line.startswith(start)] for part in parts)
            return any(True for _ in self.visible(removed, added))

    def visible(
        self, removed: Iterable[bytes], added: Iterable[bytes]
    ) -> Iterator[tuple[int, bytes]]:
        """The visible statements of a commit: 0 for a removed one, 1 for an added one.

        A list that differs in hidden items only is in neither.
        """
        lists: tuple[dict[bytes, bytes], dict[bytes, bytes]] = {}, {}
        for side, lines in enumerate((removed, added)):
            for line in self._visible(lines, lists[side]):
                yield side, line
        for side, found in enumerate(lists):
            other = lists[1 - side]
            yield from ((side, line) for shown, line in found.items() if shown not in other)

    def _visible(self, lines: Iterable[bytes], lists: dict[bytes, bytes]) -> Iterator[bytes]:
        """The visible ones; those of one node are adjacent.

        Lists with items that may be hidden are collected instead: as they look, and their lines.
        """
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
                kind = predicates.get(predicate)
                if predicate == _CLASS:
                    shown = target in classes
                elif kind == "list":
                    shown = False
                    if items := self._known_items(line):
                        lists[b" ".join((handle, predicate, *items))] = line
                elif kind == "reference":
                    shown = target is not None and self._knows(target)
                else:
                    shown = kind is not None
                if shown:
                    yield line

    def _known_items(self, line: bytes) -> list[bytes]:
        """The visible items of an ordered list of references."""
        return [
            each.encode()
            for quad in read_statements(line, lenient=True)
            if (packed := unpack(quad.object)) is not None
            for each in packed.items
            if self._knows(each.encode())
        ]

    def _knows(self, iri: bytes) -> bool:
        return self._schema_filter.knows(iri.removeprefix(self._nodes).decode())

    # --- nodes ---------------------------------------------------------------------------

    def sees(self, handle: str, net: NodeNet | None = None) -> bool:
        """Whether a node is visible; ``net`` may have the ends of an edge."""
        name = handle.partition("/")[0]
        if name not in self._tables:
            return False
        if name not in self._schema_filter.partial_edges:
            return True
        ends = self._ends.of(handle, None if net is None else net.values)
        return all(map(self._schema_filter.knows, ends))

    def filter(self, net: Net) -> Net:
        """Changes per node and field without the hidden ones.

        Nodes of types that this schema does not have are kept; another schema's filter decides.
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
        left.commits = {
            name: each for name, each in node.commits.items() if split_part(name)[0] not in hidden
        }
        for name, pair in node.values.items():
            if split_part(name)[0] not in hidden:
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
        if isinstance(value, tuple):
            return tuple(each for each in value if self._schema_filter.knows(str(each))) or None
        return value if value is None or self._schema_filter.knows(str(value)) else None


def _leads_to(
    field: PredicateDescriptor, *, partial: bool
) -> Literal["value", "reference", "list"]:
    """``list``: an ordered list of references, some of which may be hidden."""
    if field.target is None or (field.ordered and not partial):
        return "value"
    return "list" if field.ordered else "reference"


_MERGED: Final = re.compile(r"merge (.+) into (.+)")


class VisibleHistory:
    """The commits of one graph as one actor sees them."""

    def __init__(
        self,
        graph: Graph,
        access: Access,
        refs: RefResolver,
        branches: tuple[str, ...] | None = None,
    ) -> None:
        """``branches`` decide what is visible; by default, those that contain each commit."""
        self._graph = graph
        self._access = access
        self._refs = refs
        self._branches = branches
        self._commit_filters: dict[tuple[str, tuple[str, ...]], CommitFilter | None] = {}

    def along(self, *branches: str) -> VisibleHistory:
        """The same history, for commits that all of these branches contain."""
        return VisibleHistory(self._graph, self._access, self._refs, branches)

    def branches(self) -> dict[str, Head]:
        """Visible branches: name → head."""
        return self._refs.branches()

    # --- visibility ---------------------------------------------------------------------------

    def _commit_filter(self, commit: str, schema: str | None = None) -> CommitFilter | None:
        """The filter for the state at a commit; None if nothing is hidden."""
        declared = self._graph.compiled(schema or self._graph.ancestry.schema_at(commit)).schema
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
        """The branches that decide; a single one if it shows everything."""
        if self._branches is not None or commit == GENESIS:
            return self._branches or ()
        found: list[str] = []
        for each in self._refs.branches_of(self._graph.ancestry.commit(commit)):
            if self._access.visibility(declared, (each,)).reads_all:
                return (each,)
            found.append(each)
        return tuple(found)

    def _types(self, commit: Commit, at: str) -> Schema:
        """The types at commit ``at``, as visible on the branches of ``commit``."""
        digest = self._graph.ancestry.schema_at(at)
        commit_filter = self._commit_filter(commit.id, digest)
        return (
            self._graph.compiled(digest).schema if commit_filter is None else commit_filter.schema
        )

    def filter_at(self, commit: str) -> CommitFilter | None:
        """The filter of a commit's statements; None if nothing is hidden."""
        return self._commit_filter(commit)

    def schema_at(self, commit: str) -> Schema:
        """The visible types at a commit."""
        commit_filter = self._commit_filter(commit)
        if commit_filter is not None:
            return commit_filter.schema
        return self._graph.compiled(self._graph.ancestry.schema_at(commit)).schema

    def shows(self, commit: Commit) -> bool:
        """Whether a commit changed anything visible."""
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
        """The commit itself if visible, else the newest visible one before it, or GENESIS."""
        while identifier != GENESIS:
            commit = self._graph.ancestry.commit(identifier)
            if self.shows(commit):
                return identifier
            identifier = commit.first_parent
        return GENESIS

    def only_shown(self, commits: Iterable[Commit]) -> list[Commit]:
        """The visible ones of these commits."""
        return [commit for commit in commits if self.shows(commit)]

    def touches(self, commit: Commit, handle: str) -> bool:
        """Whether a commit changed something visible of a node."""
        commit_filter = self._commit_filter(commit.id)
        return commit_filter is None or commit_filter.touches(commit, handle)

    # --- descriptions -------------------------------------------------------------------------

    def describe(self, commit: Commit) -> Commit:
        """The visible part of a visible commit; its parents are the nearest visible ones."""
        parents = dict.fromkeys(map(self.newest, commit.parents))
        kept = tuple(each for each in parents if each != GENESIS)
        return msgspec.structs.replace(self.describe_own(commit), parents=kept)

    def describe_own(self, commit: Commit) -> Commit:
        """The visible part of a commit that the actor made, with its true parents."""
        shown = self.caption(commit)
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

    def caption(self, commit: Commit) -> Commit:
        """Who made a commit, when and why; its counts and digests may cover hidden statements."""
        branch, message = self._branch(commit), self._message(commit)
        return msgspec.structs.replace(commit.public(), seq=0, branch=branch, message=message)

    def _branch(self, commit: Commit) -> str:
        """The branch that a commit was made on, if the actor may read it."""
        return commit.branch if self._access.may("Read", commit.branch) else ""

    def _message(self, commit: Commit) -> str:
        """The message; a generated one names only visible types and branches."""
        before = commit.first_parent
        if commit.actor == ACTOR and commit.schema != self._graph.ancestry.schema_at(before):
            return change_message(self._types(commit, before), self._types(commit, commit.id))
        merged = _MERGED.fullmatch(commit.message) if len(commit.parents) > 1 else None
        if merged is None or all(self._access.may("Read", each) for each in merged.groups()):
            return commit.message
        return "merge"

    def changes(self, commit: Commit) -> Net:
        """The visible changes of a commit."""
        commit_filter = self._commit_filter(commit.id)
        types = None if commit_filter is None else commit_filter.schema.by_name
        net = net_changes(self._graph, Path((), (commit,)), types)
        return net if commit_filter is None else commit_filter.filter(net)

    def between(self, start: str, end: str) -> Net:
        """The changes between two states that are visible in both."""
        net = net_between(self._graph, start, end)
        for commit in (start, end):
            commit_filter = self._commit_filter(commit) if commit != GENESIS else None
            if commit_filter is not None:
                net = commit_filter.filter(net)
        return net
