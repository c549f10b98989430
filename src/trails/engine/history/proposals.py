"""Proposals: branches below ``proposals/`` with changes that their target does not have yet.

A proposal is created with all of its commits in one step (``engine.write.write.land``), so a branch
that is found here is whole. One that its target contains is merged, and is not listed any more.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

import msgspec

from trails.engine.graph.graph import Graph, now
from trails.engine.history.branches import Versions, branch_makers, delete_branch
from trails.engine.history.commits import TOO_LARGE
from trails.engine.visibility.access import Access
from trails.engine.visibility.refs import RefResolver, reader
from trails.errors import NotFoundError, TrailsError
from trails.model.changes.proposals import PREFIX, target_of
from trails.model.fairness import with_pauses
from trails.model.history import Commit, MergeRequest


class ProposalFilter(msgspec.Struct, frozen=True):
    """Which open proposals are listed."""

    author: str | None = None
    target: str | None = None
    after: str | None = None
    """Those after this one."""
    limit: int = 50


class Proposal(msgspec.Struct, frozen=True):
    """A branch that waits for a merge."""

    branch: str
    target: str
    commits: tuple[Commit, ...]
    """Those that the target does not have, oldest first."""
    counts: tuple[int | None, int | None, int | None] = (None, None, None)
    """Nodes that it creates, updates and deletes; None if they are too many to be counted."""
    conflicts: int | None = None
    """Conflicts with the target now; None if that is not known, or not for the actor to know."""

    @property
    def author(self) -> str:
        """Who proposes it."""
        return self.commits[0].actor

    @property
    def age(self) -> int:
        """Seconds since its first commit."""
        begun = datetime.fromisoformat(self.commits[0].time)
        return max(0, int((datetime.fromisoformat(now()) - begun).total_seconds()))


def open_proposals(
    graph: Graph, versions: Versions, access: Access, wanted: ProposalFilter
) -> tuple[list[Proposal], str | None]:
    """A page of the open proposals that an actor may read, oldest first, and where it goes on."""
    refs = RefResolver(graph, reader(access))
    found = [
        proposal
        for name in with_pauses(sorted(graph.log.branches()))
        if name.startswith(PREFIX)
        and wanted.target in {None, target_of(name)}
        and refs.has(name)
        and (proposal := _find(graph, versions, refs, name)) is not None
        and wanted.author in {None, proposal.author}
    ]
    found.sort(key=lambda each: (each.commits[0].time, each.branch))
    names = [each.branch for each in found]
    if wanted.after is not None:
        found = found[names.index(wanted.after) + 1 :] if wanted.after in names else []
    page = found[: wanted.limit]
    more = len(found) > wanted.limit
    return [_measured(versions, each) for each in page], page[-1].branch if more else None


def _find(graph: Graph, versions: Versions, refs: RefResolver, name: str) -> Proposal | None:
    """A branch as a proposal; None if it is merged, empty, or for a branch that is not there."""
    target = target_of(name)
    head = graph.log.head(name)
    if head is None or not refs.has(target):
        return None
    own, _ = graph.ancestry.sides(head.commit, graph.log_head(target).commit)
    shown = versions.only_shown(name, own)
    return Proposal(name, target, tuple(shown)) if shown else None


def _measured(versions: Versions, proposal: Proposal) -> Proposal:
    """A proposal with its size, and with what a merge would refuse."""
    if sum(each.added + each.removed for each in proposal.commits) > TOO_LARGE:
        return proposal
    start = proposal.commits[0].first_parent or proposal.target
    size = versions.diff(start, proposal.branch, limit=1)
    conflicts: int | None = None
    with suppress(TrailsError):  # who may not merge it may not know what a merge would meet
        asked = MergeRequest(source=proposal.branch, target=proposal.target, dry_run=True)
        conflicts = len(versions.merge(asked).conflicts)
    counts = size.created, size.updated, size.deleted
    return msgspec.structs.replace(proposal, counts=counts, conflicts=conflicts)


def drop_merged_proposals(graph: Graph, actor: str) -> None:
    """Delete the merged proposals of an actor, which would count against its budget."""
    with graph.writing(actor):
        makers = branch_makers(graph)
        mine = [name for name in makers if makers[name] == actor and name.startswith(PREFIX)]
    for name in mine:
        head = graph.log.head(name)
        target = graph.log_head(target_of(name)).commit
        if head is not None and graph.ancestry.is_ancestor(head.commit, target):
            with suppress(NotFoundError):  # deleted by another caller
                delete_branch(graph, name, force=True, actor=actor)
