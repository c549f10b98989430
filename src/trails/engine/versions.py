"""Versions: what an actor can do with the history of a graph."""

from __future__ import annotations

from trails.engine.access import OPEN, Access
from trails.engine.activities import Call
from trails.engine.branches import create_branch, delete_branch, list_branches, most_branches
from trails.engine.forks import forkable
from trails.engine.graph import MAIN, Graph
from trails.engine.hindsight import Hindsight
from trails.engine.history import diff, list_commits, show_commit
from trails.engine.merge import merge
from trails.engine.seen import Seen, permitting, reader
from trails.engine.standing import check_standing
from trails.model.history import Commit
from trails.model.merges import MergeRequest, MergeResult
from trails.model.versions import (
    ALL_BRANCHES,
    BranchFilter,
    BranchInfo,
    BranchPage,
    CommitDetail,
    CommitFilter,
    CommitPage,
    Difference,
)


class Versions:
    """Branches, commits, differences and merges of one graph, on behalf of one actor."""

    def __init__(
        self, graph: Graph, actor: str, call: Call | None = None, access: Access = OPEN
    ) -> None:
        self._graph = graph
        self._actor = actor
        self._call = call
        self._access = access

    def _commit(self) -> None:
        """Something is written: the activity of the call has to be, too."""
        check_standing(self._graph, self._call)
        if self._call is not None:
            self._call.committed = True

    def branches(self) -> list[BranchInfo]:
        """All branches that the actor may read, ``main`` first."""
        return self.branch_page(ALL_BRANCHES).branches

    def branch_page(self, wanted: BranchFilter) -> BranchPage:
        """Some of them."""
        seen = self._readable()
        return list_branches(self._graph, seen, self._hindsight(seen), wanted)

    def _readable(self) -> Seen:
        return Seen(self._graph, reader(self._access))

    def _hindsight(self, seen: Seen) -> Hindsight | None:
        """How the actor sees commits; None where it sees everything."""
        return None if self._access is OPEN else Hindsight(self._graph, self._access, seen)

    def create_branch(self, name: str, source: str = MAIN) -> BranchInfo:
        """Make a branch where another branch is, or at any commit."""
        self._commit()
        seen = forkable(self._graph, self._access, name)
        return create_branch(
            self._graph,
            name,
            source=source,
            actor=self._actor,
            seen=seen,
            hindsight=self._hindsight(self._readable()),
            most=most_branches(self._graph, self._call),
        )

    def delete_branch(self, name: str, *, force: bool = False) -> BranchInfo:
        """Delete a branch; refused while it has commits that are merged nowhere."""
        self._commit()
        deletes = permitting(self._access, "BranchDelete")
        seen = Seen(self._graph, deletes, tells=reader(self._access))
        return delete_branch(
            self._graph,
            name,
            force=force,
            actor=self._actor,
            seen=seen,
            hindsight=self._hindsight(self._readable()),
        )

    def merge(self, request: MergeRequest) -> MergeResult:
        """Merge a branch or commit into a branch."""
        if not request.dry_run:
            self._commit()
        return merge(self._graph, request, actor=self._actor, call=self._call, access=self._access)

    def commits(
        self,
        branch: str | None = MAIN,
        *,
        actor: str | None = None,
        node: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> CommitPage:
        """A page of commits, newest first; ``branch=None`` lists all that the log holds."""
        wanted = CommitFilter(branch, actor, node)
        seen = self._readable()
        return list_commits(
            self._graph,
            wanted,
            after=after,
            limit=limit,
            seen=seen,
            hindsight=self._hindsight(seen),
        )

    def commit(self, reference: str, *, limit: int = 1000) -> CommitDetail:
        """A commit with what it changed, per node and field."""
        seen = self._readable()
        hindsight = self._hindsight(seen)
        return show_commit(self._graph, reference, limit=limit, seen=seen, hindsight=hindsight)

    def newest(self, limit: int) -> list[Commit]:
        """The newest commits that the actor may see, of all branches."""
        return list(self.commits(None, limit=limit).commits)

    def diff(self, start: str, end: str, *, limit: int = 1000) -> Difference:
        """What turns one state into another, per node and field."""
        seen = self._readable()
        hindsight = self._hindsight(seen)
        return diff(self._graph, start, end, limit=limit, seen=seen, hindsight=hindsight)
