"""History: list commits, look into one, and compare any two states."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import islice
from typing import Final

import msgspec

from trails.engine.ancestry import Path
from trails.engine.branches import resolve
from trails.engine.changes import Net, net_between, net_changes, show_changes
from trails.engine.graph import Graph
from trails.engine.snapshots import find_commit
from trails.errors import NotFoundError, QueryError
from trails.model.history import GENESIS, Commit
from trails.model.iris import HANDLE_PREFIX
from trails.model.nodes import make_handle
from trails.model.versions import CommitDetail, CommitFilter, CommitPage, Difference

MOST_COMMITS: Final = 1000
MOST_CHANGES: Final = 10_000
_TOO_LARGE: Final = 2_000_000
"""Statements of a commit whose changes are counted and not shown."""


def list_commits(
    graph: Graph, wanted: CommitFilter, *, after: str | None = None, limit: int = 50
) -> CommitPage:
    """One page of commits, newest first."""
    if not 1 <= limit <= MOST_COMMITS:
        raise QueryError(f"limit must be from 1 to {MOST_COMMITS}, not {limit}")
    walk = _Walk(graph, wanted, _read_cursor(graph, after))
    found = list(islice(walk, limit))
    return CommitPage(tuple(found), walk.cursor() if len(found) == limit else None)


class _Walk:
    """Commits from the newest to the oldest, from a frontier that can be written down."""

    def __init__(self, graph: Graph, wanted: CommitFilter, frontier: list[str] | None) -> None:
        self._graph = graph
        self._actor = wanted.actor
        self._all = wanted.branch is None
        self._seqs = None if wanted.node is None else _commits_of(graph, wanted.node)
        self._oldest = 0 if self._seqs is None else min(self._seqs)
        if frontier is None:
            frontier = [self._start(graph, wanted.branch)]
        self._heap: list[tuple[int, str]] = []
        for identifier in frontier:
            self._push(identifier)

    @staticmethod
    def _start(graph: Graph, branch: str | None) -> str:
        if branch is not None:
            return resolve(graph, branch).commit
        newest = next(graph.log.newest(), None)
        return GENESIS if newest is None else newest.id

    def _push(self, identifier: str) -> None:
        if identifier and all(identifier != known for _, known in self._heap):
            heappush(self._heap, (-self._graph.ancestry.commit(identifier).seq, identifier))

    def __iter__(self) -> Iterator[Commit]:
        while self._heap:
            _, identifier = heappop(self._heap)
            commit = self._graph.ancestry.commit(identifier)
            if self._all:
                before = self._graph.log.at(commit.seq - 1)
                self._push("" if before is None else before.id)
            else:
                for parent in commit.parents:
                    self._push(parent)
            if commit.seq < self._oldest:
                self._heap.clear()
                return
            if self._meets(commit):
                yield commit

    def _meets(self, commit: Commit) -> bool:
        if self._actor is not None and commit.actor != self._actor:
            return False
        return self._seqs is None or commit.seq in self._seqs

    def cursor(self) -> str | None:
        """Where to go on; None at the end."""
        if not self._heap:
            return None
        frontier = sorted(identifier for _, identifier in self._heap)
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(frontier)).decode().rstrip("=")


def _read_cursor(graph: Graph, text: str | None) -> list[str] | None:
    if text is None:
        return None
    try:
        padded = text + "=" * (-len(text) % 4)
        frontier = msgspec.msgpack.decode(base64.urlsafe_b64decode(padded), type=list[str])
        return [find_commit(graph, each).id for each in frontier]
    except (TypeError, ValueError, msgspec.MsgspecError, NotFoundError):
        raise QueryError(
            "this cursor can't be read; use one exactly as an earlier page returned it"
        ) from None


def _commits_of(graph: Graph, node: str) -> frozenset[int]:
    """The places of the commits that changed a node."""
    handle = node
    parsed = graph.names.parse_node(node) or graph.names.parse_node(HANDLE_PREFIX + node)
    if parsed is not None:
        handle = make_handle(*parsed)
    with graph.file.reader() as db:
        found = frozenset(graph.file.commits_of(db, handle))
    if not found:
        raise NotFoundError(f"no commit ever changed {node[:200]!r}", node=node[:200])
    return found


def show_commit(graph: Graph, reference: str, *, limit: int = 1000) -> CommitDetail:
    """A commit with its changes per node and field."""
    commit = resolve_commit(graph, reference)
    net: Net = {}
    large = commit.added + commit.removed > _TOO_LARGE
    if not large:
        net = net_changes(graph, Path((), (commit,)))
    shown = _difference(graph, net, commit.first_parent, commit.id, limit)
    if large:
        shown = msgspec.structs.replace(shown, truncated=True)
    return CommitDetail(commit, shown)


def resolve_commit(graph: Graph, reference: str) -> Commit:
    """The commit that a branch is at, or that a text names."""
    head = resolve(graph, reference)
    if head.commit == GENESIS:
        raise NotFoundError(f"branch {reference!r} has no commit yet", branch=reference)
    return graph.ancestry.commit(head.commit)


def diff(graph: Graph, start: str, end: str, *, limit: int = 1000) -> Difference:
    """What turns the state of one branch or commit into that of another."""
    first, last = resolve(graph, start).commit, resolve(graph, end).commit
    return _difference(graph, net_between(graph, first, last), first, last, limit)


def _difference(graph: Graph, net: Net, start: str, end: str, limit: int) -> Difference:
    if not 1 <= limit <= MOST_CHANGES:
        raise QueryError(f"limit must be from 1 to {MOST_CHANGES}, not {limit}")
    schema = graph.compiled(graph.schema_at(end or start)).schema
    created = sum(not node.was for node in net.values())
    deleted = sum(not node.stays for node in net.values())
    changes = tuple(islice(show_changes(graph, net, schema), limit))
    return Difference(
        start,
        end,
        created,
        len(net) - created - deleted,
        deleted,
        changes,
        len(net) > limit,
    )
