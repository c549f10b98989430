"""History: list commits, look into one, and compare any two states."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import islice
from typing import Final

import msgspec

from trails.engine.ancestry import Path
from trails.engine.changes import Net, net_between, net_changes, show_changes
from trails.engine.graph import Graph
from trails.engine.seen import Seen
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
    graph: Graph,
    wanted: CommitFilter,
    *,
    after: str | None = None,
    limit: int = 50,
    seen: Seen | None = None,
) -> CommitPage:
    """One page of commits that are seen, newest first."""
    if not 1 <= limit <= MOST_COMMITS:
        raise QueryError(f"limit must be from 1 to {MOST_COMMITS}, not {limit}")
    seen = seen or Seen(graph)
    walk = _Walk(graph, seen, wanted, _read_cursor(seen, after))
    found = list(islice(walk, limit))
    return CommitPage(tuple(found), walk.cursor() if len(found) == limit else None)


class _Walk:
    """Commits from the newest to the oldest, from a frontier that can be written down."""

    def __init__(
        self, graph: Graph, seen: Seen, wanted: CommitFilter, frontier: list[str] | None
    ) -> None:
        self._graph = graph
        self._descent = seen.descent()
        self._actor = wanted.actor
        self._all = wanted.branch is None
        self._seqs = None if wanted.node is None else _commits_of(graph, seen, wanted.node)
        self._oldest = 0 if self._seqs is None else min(self._seqs)
        if frontier is None:
            frontier = [self._start(seen, wanted.branch)]
        self._heap: list[tuple[int, str]] = []
        for identifier in frontier:
            self._push(identifier)

    def _start(self, seen: Seen, branch: str | None) -> str:
        if branch is not None:
            return seen.resolve(branch).commit
        return self._newest_seen(next(self._graph.log.newest(), None))

    def _newest_seen(self, commit: Commit | None) -> str:
        """A commit, or the newest before it in the log that is seen."""
        while commit is not None and not self._sees(commit):
            commit = self._graph.log.at(commit.seq - 1)
        return GENESIS if commit is None else commit.id

    def _sees(self, commit: Commit) -> bool:
        return self._descent is None or self._descent.sees(commit)

    def _push(self, identifier: str) -> None:
        if identifier and all(identifier != known for _, known in self._heap):
            heappush(self._heap, (-self._graph.ancestry.commit(identifier).seq, identifier))

    def __iter__(self) -> Iterator[Commit]:
        while self._heap:
            _, identifier = heappop(self._heap)
            commit = self._graph.ancestry.commit(identifier)
            if self._all:
                self._push(self._newest_seen(self._graph.log.at(commit.seq - 1)))
            else:
                for parent in commit.parents:
                    self._push(parent)
            if commit.seq < self._oldest:
                self._heap.clear()
                return
            if self._meets(commit):
                yield commit

    def _meets(self, commit: Commit) -> bool:
        if not self._all and not self._sees(commit):
            return False
        if self._actor is not None and commit.actor != self._actor:
            return False
        return self._seqs is None or commit.seq in self._seqs

    def cursor(self) -> str | None:
        """Where to go on; None at the end."""
        if not self._heap:
            return None
        frontier = sorted(identifier for _, identifier in self._heap)
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(frontier)).decode().rstrip("=")


def _read_cursor(seen: Seen, text: str | None) -> list[str] | None:
    if text is None:
        return None
    try:
        padded = text + "=" * (-len(text) % 4)
        frontier = msgspec.msgpack.decode(base64.urlsafe_b64decode(padded), type=list[str])
        return [seen.commit(each).id for each in frontier]
    except (TypeError, ValueError, msgspec.MsgspecError, NotFoundError):
        raise QueryError(
            "this cursor can't be read; use one exactly as an earlier page returned it"
        ) from None


def _commits_of(graph: Graph, seen: Seen, node: str) -> frozenset[int]:
    """The places of the commits that changed a node, as far as they are seen."""
    handle = node
    parsed = graph.names.parse_node(node) or graph.names.parse_node(HANDLE_PREFIX + node)
    if parsed is not None:
        handle = make_handle(*parsed)
    with graph.file.reader() as db:
        found = frozenset(graph.file.commits_of(db, handle))
    descent = seen.descent()
    if descent is not None:
        commits = filter(None, map(graph.log.at, sorted(found, reverse=True)))
        found = frozenset(each.seq for each in commits if descent.sees(each))
    if not found:
        raise NotFoundError(f"no commit ever changed {node[:200]!r}", node=node[:200])
    return found


def show_commit(
    graph: Graph, reference: str, *, limit: int = 1000, seen: Seen | None = None
) -> CommitDetail:
    """A commit with its changes per node and field."""
    commit = resolve_commit(graph, seen or Seen(graph), reference)
    net: Net = {}
    large = commit.added + commit.removed > _TOO_LARGE
    if not large:
        net = net_changes(graph, Path((), (commit,)))
    shown = _difference(graph, net, commit.first_parent, commit.id, limit)
    if large:
        shown = msgspec.structs.replace(shown, truncated=True)
    return CommitDetail(commit, shown)


def resolve_commit(graph: Graph, seen: Seen, reference: str) -> Commit:
    """The commit that a branch is at, or that a text names."""
    head = seen.resolve(reference)
    if head.commit == GENESIS:
        raise NotFoundError(f"branch {reference!r} has no commit yet", branch=reference)
    return graph.ancestry.commit(head.commit)


def diff(
    graph: Graph, start: str, end: str, *, limit: int = 1000, seen: Seen | None = None
) -> Difference:
    """What turns the state of one branch or commit into that of another."""
    seen = seen or Seen(graph)
    first, last = seen.resolve(start).commit, seen.resolve(end).commit
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
