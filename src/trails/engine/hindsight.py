"""Hindsight: what one actor sees of commits, as if what it may not see had never been.

A commit that did nothing which the actor sees is left out: where one is asked for by its id or
as the head of a branch, the newest before it that is seen answers. The ids of heads are told
all the same, because writes are compared with them. Counts are of statements that are seen, and
places in the log, which would tell how much there is beside, are not told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from trails.engine.access import Access
from trails.engine.ancestry import Path
from trails.engine.changes import Net, net_between, net_changes
from trails.engine.evolve import ACTOR, told_change
from trails.engine.glimpses import Glimpse
from trails.engine.graph import Graph
from trails.engine.seen import Seen
from trails.model.history import GENESIS, Commit, Head
from trails.model.types import Schema

_MERGED: Final = re.compile(r"merge (.+) into (.+)")


class Hindsight:
    """The past of one graph as one actor sees it."""

    def __init__(
        self, graph: Graph, access: Access, seen: Seen, branches: tuple[str, ...] | None = None
    ) -> None:
        """``branches``: where sight is decided, if not on those that contain each commit."""
        self._graph = graph
        self._access = access
        self._seen = seen
        self._branches = branches
        self._glimpses: dict[tuple[str, tuple[str, ...]], Glimpse | None] = {}

    def along(self, *branches: str) -> Hindsight:
        """The same for commits that are all behind these branches."""
        return Hindsight(self._graph, self._access, self._seen, branches)

    def branches(self) -> dict[str, Head]:
        """The heads of the branches that are seen."""
        return self._seen.branches()

    # --- whether something is seen -----------------------------------------------------------

    def _glimpse(self, commit: str, schema: str | None = None) -> Glimpse | None:
        """How the state at a commit is seen; None where nothing of it is hidden."""
        declared = self._graph.compiled(schema or self._graph.schema_at(commit)).schema
        branches = self._deciding(commit, declared)
        key = declared.digest, branches
        if key not in self._glimpses:
            sight = self._access.sight(declared, branches)
            self._glimpses[key] = (
                None if sight.reads_all else Glimpse(self._graph, sight.lens(declared))
            )
        return self._glimpses[key]

    def _deciding(self, commit: str, declared: Schema) -> tuple[str, ...]:
        """The branches that decide; one is enough where everything is seen on it."""
        if self._branches is not None or commit == GENESIS:
            return self._branches or ()
        found: list[str] = []
        for each in self._seen.branches_of(self._graph.ancestry.commit(commit)):
            if self._access.sight(declared, (each,)).reads_all:
                return (each,)
            found.append(each)
        return tuple(found)

    def _types(self, commit: Commit, at: str) -> Schema:
        """The types at a commit, or before it, as they are seen where it is."""
        digest = self._graph.schema_at(at)
        glimpse = self._glimpse(commit.id, digest)
        return self._graph.compiled(digest).schema if glimpse is None else glimpse.schema

    def shows(self, commit: Commit) -> bool:
        """Whether a commit did anything that is seen."""
        glimpse = self._glimpse(commit.id)
        if glimpse.shows(commit) if glimpse is not None else commit.added or commit.removed:
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
        glimpse = self._glimpse(commit.id)
        return glimpse is None or glimpse.touches(commit, handle)

    # --- what is told of it --------------------------------------------------------------------

    def told(self, commit: Commit) -> Commit:
        """A commit that is seen, as far as it is; what it follows are those that are seen."""
        parents = dict.fromkeys(map(self.newest, commit.parents))
        kept = tuple(each for each in parents if each != GENESIS)
        return msgspec.structs.replace(self.made(commit), parents=kept)

    def made(self, commit: Commit) -> Commit:
        """A commit that the actor made itself, and whose place it therefore knows."""
        branch, message = self._branch(commit), self._message(commit)
        seen = msgspec.structs.replace(commit.public(), seq=0, branch=branch, message=message)
        glimpse = self._glimpse(commit.id)
        if glimpse is None:
            return seen
        added, removed = glimpse.count(commit)
        return msgspec.structs.replace(
            seen,
            schema=glimpse.schema.digest,
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
        glimpse = self._glimpse(commit.id)
        types = None if glimpse is None else glimpse.schema.by_name
        net = net_changes(self._graph, Path((), (commit,)), types)
        return net if glimpse is None else glimpse.filter(net)

    def between(self, start: str, end: str) -> Net:
        """What turns one state into another, as far as both are seen."""
        net = net_between(self._graph, start, end)
        for commit in (start, end):
            glimpse = self._glimpse(commit) if commit != GENESIS else None
            if glimpse is not None:
                net = glimpse.filter(net)
        return net
