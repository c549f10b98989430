"""List commits, show one, and compare any two states.

Pages are bounded, cursors are signed, and hidden commits are left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from trails.engine.graph.ancestry import Path
from trails.engine.graph.changes import Net, count_changes, net_changes, show_changes
from trails.engine.graph.cursors import Cursors, Holder, check_subject, stale
from trails.engine.graph.graph import Graph
from trails.engine.graph.node_history import commits_of_node
from trails.engine.visibility.refs import RefResolver
from trails.engine.visibility.visible_history import VisibleHistory
from trails.errors import NotFoundError, QueryError
from trails.model.caches import BoundedCache
from trails.model.history import GENESIS, Commit, CommitDetail, CommitPage, CommitQuery, Difference
from trails.model.iris import HANDLE_PREFIX
from trails.model.nodes import make_handle

LIST_COMMITS: Final = "commit_list"
"""The tool that cursors of commits are for."""
MOST_COMMITS: Final = 1000
MOST_CHANGES: Final = 10_000
TOO_LARGE: Final = 2_000_000
"""Beyond this many statements, the changes of a commit are not listed."""


def list_commits(
    graph: Graph,
    wanted: CommitQuery,
    *,
    actor: str,
    after: str | None = None,
    limit: int = 50,
    refs: RefResolver | None = None,
    visible_history: VisibleHistory | None = None,
) -> CommitPage:
    """One page of visible commits, newest first, and the cursor of the next one for the actor.

    A cursor holds the frontier of the walk. With ``visible_history`` it holds the last commit of
    the page instead, because the frontier can name hidden commits; the walk then starts over.
    """
    if not 1 <= limit <= MOST_COMMITS:
        raise QueryError(f"limit must be from 1 to {MOST_COMMITS}, not {limit}")
    refs = refs or RefResolver(graph)
    if visible_history is not None and wanted.branch is not None and refs.has(wanted.branch):
        visible_history = visible_history.along(wanted.branch)
    pages = _Pages(graph, wanted, actor)
    frontier = None if after is None else pages.read(refs, after)
    walk = _Walk(graph, refs, wanted, frontier, visible_history)
    if visible_history is None:
        found = [commit.public() for commit in islice(walk, limit)]
        rest = walk.frontier if len(found) == limit else []
        return CommitPage(tuple(found), pages.cursor(found[-1].id, rest) if rest else None)
    found = list(islice(walk, limit + 1))
    last = found[limit - 1].id if len(found) > limit else None
    shown = tuple(map(visible_history.describe, found[:limit]))
    return CommitPage(shown, None if last is None else pages.cursor(last, [last]))


class _Pages:
    """The cursors of one list of commits, for one actor."""

    def __init__(self, graph: Graph, wanted: CommitQuery, actor: str) -> None:
        self._cursors = Cursors(graph)
        self._holder = Holder(actor, LIST_COMMITS, wanted.branch or "")
        self._subject = [wanted.actor, wanted.node]

    def cursor(self, last: str, frontier: Sequence[str]) -> str:
        """The cursor of the page after a commit."""
        return self._cursors.sign(self._holder, last, self._subject, " ".join(frontier))

    def read(self, refs: RefResolver, text: str) -> list[str]:
        """The frontier that a cursor holds; StaleError if one of its commits is gone."""
        found = self._cursors.read(self._holder, text)
        check_subject(found, self._subject)
        try:
            return [refs.commit(each).id for each in str(found.place).split()]
        except NotFoundError:
            raise stale(found.commit_id) from None


class _Walk:
    """Walks commits from the newest to the oldest; its frontier fits into a cursor."""

    def __init__(
        self,
        graph: Graph,
        refs: RefResolver,
        wanted: CommitQuery,
        frontier: list[str] | None,
        visible_history: VisibleHistory | None,
    ) -> None:
        self._graph = graph
        self._visible_history = visible_history
        self._before: int | None = None
        self._descent = refs.descent()
        self._actor = wanted.actor
        self._all = wanted.branch is None
        self._seqs = (
            None if wanted.node is None else _commits_of(graph, refs, wanted.node, visible_history)
        )
        self._candidates = [] if self._seqs is None else sorted(self._seqs)
        self._oldest = self._candidates[0] if self._candidates else 0
        place = graph.ancestry.place
        if visible_history is not None and frontier:
            self._before, frontier = min(map(place, frontier)), None
        if frontier is None:
            frontier = [self._start(refs, wanted.branch)]
        self._heap: list[int] = []
        """The places at which it goes on, negative."""
        self._read: dict[int, Commit] = {}
        """Commits that were read before the walk comes to them."""
        for identifier in frontier:
            self._push(place(identifier))

    def _start(self, refs: RefResolver, branch: str | None) -> str:
        if branch is not None:
            return refs.resolve(branch).commit
        found = self._newest_visible(next(self._graph.log.newest(), None))
        return GENESIS if found is None else found.id

    def _newest_visible(self, commit: Commit | None) -> Commit | None:
        """The commit itself, or the newest visible one before it in the log."""
        while commit is not None and not self._sees(commit):
            commit = self._graph.log.at(commit.seq - 1)
        return commit

    def _sees(self, commit: Commit) -> bool:
        return self._descent is None or self._descent.sees(commit)

    def _push(self, seq: int) -> None:
        if seq and -seq not in self._heap:
            heappush(self._heap, -seq)

    def __iter__(self) -> Iterator[Commit]:
        while self._heap:
            seq = -heappop(self._heap)
            if seq < self._oldest:
                self._heap.clear()
                return
            commit = None
            if self._seqs is None or seq in self._seqs:
                commit = self._read.pop(seq, None) or self._graph.ancestry.at(seq)
            for following in self._following(seq, commit):
                self._push(following)
            if commit is not None and self._meets(commit):
                yield commit

    def _following(self, seq: int, commit: Commit | None) -> Iterable[int]:
        """The places to go on at after a commit, which is read only where it may be listed."""
        ancestry = self._graph.ancestry
        if not self._all:
            if self._seqs is None and commit is not None:
                return [self._note(ancestry.commit(each)) for each in commit.parents if each]
            return ancestry.parents(seq)
        if self._seqs is not None:
            at = bisect_left(self._candidates, seq)
            return self._candidates[at - 1 : at] if at else ()
        found = self._newest_visible(self._graph.log.at(seq - 1))
        return () if found is None else (self._note(found),)

    def _note(self, commit: Commit) -> int:
        self._read[commit.seq] = commit
        return commit.seq

    def _meets(self, commit: Commit) -> bool:
        if self._before is not None and commit.seq >= self._before:
            return False
        if not self._all and not self._sees(commit):
            return False
        if self._actor is not None and commit.actor != self._actor:
            return False
        if self._seqs is not None and commit.seq not in self._seqs:
            return False
        return self._visible_history is None or self._visible_history.shows(commit)

    @property
    def frontier(self) -> list[str]:
        """The commits at which the walk goes on; none at its end."""
        return sorted(self._graph.ancestry.at(-each).id for each in self._heap)


def _commits_of(
    graph: Graph, refs: RefResolver, node: str, visible_history: VisibleHistory | None
) -> frozenset[int]:
    """The sequence numbers of the visible commits that changed a node."""
    handle = node
    parsed = graph.names.parse_node(node) or graph.names.parse_node(HANDLE_PREFIX + node)
    if parsed is not None:
        handle = make_handle(*parsed)
    found = frozenset(commits_of_node(graph, handle))
    descent = refs.descent()
    if descent is not None:
        commits = filter(None, map(graph.log.at, sorted(found, reverse=True)))
        found = frozenset(
            each.seq
            for each in commits
            if descent.sees(each)
            and (visible_history is None or visible_history.touches(each, handle))
        )
    if not found:
        hint = "" if parsed is not None else "; write a node as Type/id, or as its IRI"
        raise NotFoundError(f"no commit ever changed {node[:200]!r}{hint}", node=node[:200])
    return found


def show_commit(
    graph: Graph,
    reference: str,
    *,
    limit: int = 1000,
    after: str | None = None,
    refs: RefResolver | None = None,
    visible_history: VisibleHistory | None = None,
) -> CommitDetail:
    """A commit with its changes per node and field, of the nodes after a handle."""
    found = resolve_commit(graph, refs or RefResolver(graph), reference, visible_history)
    commit = found.public() if visible_history is None else visible_history.describe(found)
    net: Net = {}
    large = commit.added + commit.removed > TOO_LARGE
    if not large and visible_history is not None:
        net = visible_history.changes(found)
    elif not large:
        net = _net(graph, Path((), (found,)))
    shown = _difference(graph, net, commit.first_parent, commit.id, limit, after)
    if large:
        shown = msgspec.structs.replace(shown, truncated=True)
    return CommitDetail(commit, shown)


def resolve_commit(
    graph: Graph, refs: RefResolver, reference: str, visible_history: VisibleHistory | None = None
) -> Commit:
    """The newest visible commit of a branch, or the commit with this id."""
    found = refs.resolve(reference).commit
    if visible_history is not None:
        found = visible_history.newest(found)
    if found == GENESIS:
        raise NotFoundError(f"branch {reference!r} has no commit yet", branch=reference)
    return graph.ancestry.commit(found)


def diff(
    graph: Graph,
    start: str,
    end: str,
    *,
    limit: int = 1000,
    after: str | None = None,
    refs: RefResolver | None = None,
    visible_history: VisibleHistory | None = None,
) -> Difference:
    """The changes between the states of two branches or commits, of the nodes after a handle."""
    refs = refs or RefResolver(graph)
    first, last = refs.resolve(start).commit, refs.resolve(end).commit
    between = (
        _net(graph, graph.ancestry.path(first, last))
        if visible_history is None
        else visible_history.between(first, last)
    )
    return _difference(graph, between, first, last, limit, after)


_nets: Final[WeakKeyDictionary[Graph, BoundedCache[tuple[str, ...], Net]]] = WeakKeyDictionary()
_KEPT: Final = 4
"""Differences that are kept for each graph, because large ones are read page by page."""
_LARGE: Final = 200_000
"""Statements of a difference that is too large to be kept."""


def _net(graph: Graph, path: Path) -> Net:
    """The net effect of a way through the log; not to be changed by the caller."""
    if sum(each.added + each.removed for each in (*path.undo, *path.redo)) > _LARGE:
        return net_changes(graph, path)
    kept = _nets.setdefault(graph, BoundedCache(_KEPT))
    key = (*(each.id for each in path.undo), "", *(each.id for each in path.redo))
    found = kept.get(key)
    if found is None:
        found = kept[key] = net_changes(graph, path)
    return found


def _difference(
    graph: Graph, net: Net, start: str, end: str, limit: int, after: str | None
) -> Difference:
    if not 1 <= limit <= MOST_CHANGES:
        raise QueryError(f"limit must be from 1 to {MOST_CHANGES}, not {limit}")
    # Types that the end no longer declares are shown as the start declared them.
    schemas = [graph.compiled(graph.ancestry.schema_at(each)).schema for each in (end, start)]
    created, updated, deleted = count_changes(net)
    if after is not None:
        net = {handle: node for handle, node in net.items() if handle > after}
    changes = tuple(islice(show_changes(graph, net, *schemas), limit))
    return Difference(
        start,
        end,
        created,
        updated,
        deleted,
        changes,
        len(net) > limit,
    )
