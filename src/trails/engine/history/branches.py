"""Create, list and delete branches; ``Versions`` is the history of a graph for one actor.

A branch is a row in the log and a layer in the node file. Its own quads store is made by hard
links when it is first queried with SPARQL, so a branch costs the same on a graph of any size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from trails.engine.graph.activities import CallRecord
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.feed import BranchChange, ChangeIndex
from trails.engine.graph.graph import MAIN, Graph, note_maker, now
from trails.engine.history.blame import BlamedValue, blame
from trails.engine.history.change_feed import ChangePage, ChangeQuery, read_changes
from trails.engine.history.commits import diff, list_commits, show_commit
from trails.engine.visibility.access import OPEN, Access, check_credential
from trails.engine.visibility.refs import RefResolver, build_distant, forkable, permitting, reader
from trails.engine.visibility.visible_history import VisibleHistory
from trails.errors import BudgetError, ConflictError, NotFoundError, TransactionError
from trails.imports import later
from trails.model.actors import is_limited
from trails.model.fairness import with_pauses
from trails.model.history import (
    ALL_BRANCHES,
    GENESIS,
    BranchFilter,
    BranchInfo,
    BranchPage,
    Commit,
    CommitDetail,
    CommitPage,
    CommitQuery,
    Difference,
    Head,
    MergeRequest,
    MergeResult,
    Move,
)
from trails.model.names import check_branch_name
from trails.model.nodes import NodeState
from trails.model.texts import count

if TYPE_CHECKING:
    from trails.engine.history import merge as history_merge
else:
    history_merge = later("trails.engine.history.merge")


def list_branches(
    graph: Graph,
    refs: RefResolver | None = None,
    visible_history: VisibleHistory | None = None,
    wanted: BranchFilter = ALL_BRANCHES,
) -> BranchPage:
    """Visible branches: ``main`` first, the others by name.

    Reads only the branches of the page.
    """
    known, heads = refs or RefResolver(graph), {MAIN: graph.log_head(MAIN), **graph.log.branches()}
    start = None if wanted.after is None else _main_first(wanted.after)
    names = (
        name
        for name in with_pauses(sorted(heads, key=_main_first))
        if name.startswith(wanted.prefix)
        and (start is None or _main_first(name) > start)
        and known.has(name)
    )
    page = list(names if wanted.limit is None else islice(names, wanted.limit + 1))
    more = wanted.limit is not None and len(page) > wanted.limit
    shown = [
        _info(graph, name, heads[name], visible_history)
        for name in with_pauses(page[: wanted.limit])
    ]
    return BranchPage(shown, shown[-1].name if more else None)


def _main_first(name: str) -> tuple[bool, str]:
    return name != MAIN, name


def _info(
    graph: Graph, name: str, head: Head, visible_history: VisibleHistory | None
) -> BranchInfo:
    """A branch with its head and its newest visible commit."""
    newest = (
        head.commit if visible_history is None else visible_history.along(name).newest(head.commit)
    )
    if newest == GENESIS:
        return BranchInfo(name, head.commit, 0, "", "", "")
    commit = graph.ancestry.commit(newest)
    if visible_history is not None:
        commit = visible_history.along(name).describe(commit)
    return BranchInfo(name, head.commit, commit.seq, commit.time, commit.message, commit.actor)


def create_branch(
    graph: Graph,
    name: str,
    *,
    source: str = MAIN,
    actor: str,
    refs: RefResolver | None = None,
    visible_history: VisibleHistory | None = None,
    most: int = 0,
) -> BranchInfo:
    """Create a branch at a visible branch or commit.

    ``most`` limits the branches of the actor; 0 means no limit.
    """
    check_branch_name(name)
    graph.check_writable()
    if source not in graph.checkouts:
        with suppress(NotFoundError):  # reported below
            start = (refs or RefResolver(graph)).resolve(source).commit
            if start != GENESIS:
                build_distant(graph, graph.ancestry.commit(start))
    with graph.appending(actor):
        if name == MAIN or name in graph.log.branches():
            raise ConflictError(
                f"branch {name!r} already exists; choose another name, or delete it first",
                branch=name,
            )
        makers = branch_makers(graph)
        if most:
            _check_number(graph, actor, most)
        head = (refs or RefResolver(graph)).resolve(source)
        move = Move(name, "create", head.commit, GENESIS, actor, now())
        graph.log.move(move, head.schema)
        makers[name] = actor
        graph.add_branch(name, _checkout_in_use(graph, source, head))
        info = _info(graph, name, head, visible_history)
    graph.feed.publish(BranchChange(name, index=ChangeIndex(), schema_change=(None, head.schema)))
    return info


def most_branches(graph: Graph, call: CallRecord | None) -> int:
    """How many branches the actor of a call may have; 0 means no limit."""
    return graph.most_branches if call is not None and is_limited(call.caller) else 0


def branch_makers(graph: Graph) -> dict[str, str]:
    """Existing branch → its creator; called with the writer's lock."""
    if graph.branch_makers is None:
        found: dict[str, str] = {}
        for move in graph.log.moves():
            note_maker(found, move)
        graph.branch_makers = found
    return graph.branch_makers


def check_branch_budget(graph: Graph, actor: str, most: int) -> None:
    """Refuse one branch more than an actor may have; called with the writer's lock."""
    if most:
        _check_number(graph, actor, most)


def _check_number(graph: Graph, actor: str, most: int) -> None:
    used = sum(each == actor for each in branch_makers(graph).values())
    if used >= most:
        raise BudgetError(
            f"{actor} has {count(used, 'branch', 'branches')}; the limit is {most} (branches in "
            f"[graphs.{graph.name}.budgets]). Delete a branch, then try again",
            limit="branches",
            allowed=most,
            used=used,
        )


def _checkout_in_use(graph: Graph, source: str, head: Head) -> Checkout | None:
    """The open checkout of the forked branch, if it is at its head."""
    checkout = graph.checkouts.get(source)
    if checkout is None or checkout.nodes.position.commit != head.commit:
        return None
    return checkout


def delete_branch(
    graph: Graph,
    name: str,
    *,
    force: bool = False,
    actor: str,
    refs: RefResolver | None = None,
    visible_history: VisibleHistory | None = None,
) -> BranchInfo:
    """Delete a visible branch. Its commits stay in the log and can be read by id."""
    refs = refs or RefResolver(graph)
    if name == MAIN and refs.has(MAIN):
        raise TransactionError("main can't be deleted")
    graph.check_writable()
    with graph.appending(actor):
        refs.check(name)
        heads = graph.log.branches()
        head = heads[name]
        if not force:
            _check_merged(graph, name, heads, visible_history)
        info = _info(graph, name, head, visible_history)
        move = Move(name, "delete", head.commit, head.commit, actor, now())
        makers = branch_makers(graph)
        graph.log.move(move, head.schema)
        makers.pop(name, None)
        graph.drop_checkouts([name])
    graph.feed.publish(BranchChange(name, index=ChangeIndex(), schema_change=(head.schema, None)))
    return info


@contextmanager
def forked_branch(
    graph: Graph,
    name: str,
    *,
    source: str | None,
    actor: str,
    access: Access = OPEN,
    most: int = 0,
) -> Iterator[bool]:
    """Work on a branch; if it does not exist and ``source`` is given, create it.

    Yields whether it was created. A created branch is deleted if the work fails.
    """
    changeable = RefResolver(graph, permitting(access, "Change"), suggests=reader(access))
    if changeable.has(name):
        yield False
        return
    if source is None or not access.may("Change", name):
        raise changeable.not_found(
            name,
            "; to create it, give the branch or commit to fork from (from)",
        )
    refs = forkable(graph, access, name)
    made = create_branch(graph, name, source=source, actor=actor, refs=refs, most=most)
    try:
        yield True
    except BaseException:
        # Keep the branch if another caller has committed to it.
        if graph.log_head(name).commit == made.head:
            delete_branch(graph, name, force=True, actor=actor)
        raise


def _check_merged(
    graph: Graph, name: str, heads: dict[str, Head], visible_history: VisibleHistory | None
) -> None:
    """Refuse to delete a branch with visible commits that no other branch contains."""
    head = heads[name]
    if visible_history is not None:
        heads = visible_history.branches()
    others = [heads[other] for other in sorted(heads, key=_main_first) if other != name]
    if any(
        other.seq >= head.seq and graph.ancestry.is_ancestor(head.commit, other.commit)
        for other in others
    ):
        return
    unmerged, _ = graph.ancestry.sides(head.commit, graph.log_head(MAIN).commit)
    if visible_history is not None:
        unmerged = visible_history.along(name).only_shown(unmerged)
    if not unmerged:
        return
    raise ConflictError(
        f"branch {name!r} has {count(len(unmerged), 'unmerged commit')}; merge it "
        "first, or delete it with force: its commits can still be read by id; the last one "
        f"is {head.commit}",
        branch=name,
        unmerged=[commit.id for commit in unmerged[-20:]],
        head=head.commit,
    )


class Versions:
    """Branches, commits, differences and merges of one graph, on behalf of one actor."""

    def __init__(
        self, graph: Graph, actor: str, call: CallRecord | None = None, access: Access = OPEN
    ) -> None:
        self._graph = graph
        self._actor = actor
        self._call = call
        self._access = access

    def _commit(self) -> None:
        """Mark the call as writing, so that its activity is recorded."""
        check_credential(self._graph, self._call)
        if self._call is not None:
            self._call.change()

    def branches(self) -> list[BranchInfo]:
        """All visible branches, ``main`` first."""
        return self.branch_page(ALL_BRANCHES).branches

    def branch_page(self, wanted: BranchFilter) -> BranchPage:
        """One page of the visible branches."""
        refs = self._readable()
        return list_branches(self._graph, refs, self._visible_history(refs), wanted)

    def _readable(self) -> RefResolver:
        return RefResolver(self._graph, reader(self._access))

    def _visible_history(self, refs: RefResolver) -> VisibleHistory | None:
        """The history as the actor sees it; None if it sees everything."""
        return (
            None if self._access.unrestricted else VisibleHistory(self._graph, self._access, refs)
        )

    def only_shown(self, branch: str, commits: Sequence[Commit]) -> Sequence[Commit]:
        """Those of some commits of a branch that the actor may see, as it sees them."""
        visible_history = self._visible_history(self._readable())
        if visible_history is None:
            return [each.public() for each in commits]
        along = visible_history.along(branch)
        return [along.describe(each) for each in along.only_shown(commits)]

    def create_branch(self, name: str, source: str = MAIN) -> BranchInfo:
        """Create a branch at another branch or at any commit."""
        self._commit()
        refs = forkable(self._graph, self._access, name)
        return create_branch(
            self._graph,
            name,
            source=source,
            actor=self._actor,
            refs=refs,
            visible_history=self._visible_history(self._readable()),
            most=most_branches(self._graph, self._call),
        )

    def delete_branch(self, name: str, *, force: bool = False) -> BranchInfo:
        """Delete a branch; refused while it has unmerged commits."""
        self._commit()
        deletes = permitting(self._access, "BranchDelete")
        refs = RefResolver(self._graph, deletes, suggests=reader(self._access))
        return delete_branch(
            self._graph,
            name,
            force=force,
            actor=self._actor,
            refs=refs,
            visible_history=self._visible_history(self._readable()),
        )

    def merge(self, request: MergeRequest) -> MergeResult:
        """Merge a branch or commit into a branch."""
        if not request.dry_run:
            self._commit()
        return history_merge.merge(
            self._graph, request, actor=self._actor, call=self._call, access=self._access
        )

    def commits(
        self,
        branch: str | None = MAIN,
        *,
        actor: str | None = None,
        node: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> CommitPage:
        """A page of commits, newest first; ``branch=None`` lists those of all branches."""
        wanted = CommitQuery(branch, actor, node)
        refs = self._readable()
        return list_commits(
            self._graph,
            wanted,
            actor=self._actor,
            after=after,
            limit=limit,
            refs=refs,
            visible_history=self._visible_history(refs),
        )

    def commit(
        self, reference: str, *, limit: int = 1000, after: str | None = None
    ) -> CommitDetail:
        """A commit with its changes per node and field, of the nodes after a handle."""
        refs = self._readable()
        return show_commit(
            self._graph,
            reference,
            limit=limit,
            after=after,
            refs=refs,
            visible_history=self._visible_history(refs),
        )

    def changes(self, wanted: ChangeQuery) -> ChangePage:
        """The visible commits of a branch after one, oldest first, with the nodes they changed."""
        refs = self._readable()
        return read_changes(self._graph, wanted, refs, self._visible_history(refs))

    def blame(
        self, state: NodeState, commit: str, fields: Collection[str] = ()
    ) -> tuple[BlamedValue, ...]:
        """Who wrote the values of a node, as it was read at a commit.

        ``state`` has what the actor may see of it, and nothing else is looked at.
        """
        found = blame(self._graph, state, commit, fields)
        visible_history = self._visible_history(self._readable())
        if visible_history is None:
            return found
        return tuple(
            each
            if each.commit is None
            else msgspec.structs.replace(each, commit=visible_history.caption(each.commit))
            for each in found
        )

    def newest(self, limit: int) -> list[Commit]:
        """The newest visible commits of all branches."""
        return list(self.commits(None, limit=limit).commits)

    def diff(
        self, start: str, end: str, *, limit: int = 1000, after: str | None = None
    ) -> Difference:
        """The changes between two states, per node and field, of the nodes after a handle."""
        refs = self._readable()
        return diff(
            self._graph,
            start,
            end,
            limit=limit,
            after=after,
            refs=refs,
            visible_history=self._visible_history(refs),
        )
