"""Resolve names to branches and commits that a caller may use, and open snapshots.

A branch or commit that the caller may not use is reported as not found, in the same words as one
that does not exist. Permission to use a name is checked before existence, so a refusal reveals
nothing.

A snapshot is the graph as of one commit, on a layer of its own that is built from the nearest
checkout. Large ones are built in parts, so that writers get their turn. ``_MOST`` and
``_MOST_ROWS`` bound the snapshots that are kept; the least recently used one is dropped first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Final

from trails.engine.graph.ancestry import Descent, Permits
from trails.engine.graph.checkouts import (
    PREFIX,
    SNAPSHOT,
    Checkout,
    unknown_branch,
    unknown_commit,
    unknown_reference,
)
from trails.engine.graph.graph import MAIN, Graph
from trails.engine.visibility.access import Access
from trails.errors import ForbiddenError, NotFoundError
from trails.model.capabilities import Action
from trails.model.fairness import give_way
from trails.model.history import Commit, Head, Position
from trails.model.names import INTERNAL_BRANCH
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.layers import UNFINISHED

_COMMIT: Final = re.compile(r"[0-9a-f]{32}")
_DIGITS: Final = re.compile(r"[0-9a-f]+")
_MATCHES: Final = 5
_LOOKED_AT: Final = 1000
"""How many commits with the same prefix are searched for visible ones."""


def reader(access: Access) -> Permits | None:
    """The branches that an actor may read; None means all."""
    return permitting(access, "Read")


def permitting(access: Access, action: Action) -> Permits | None:
    """The branches on which an actor may perform an action; None means all."""
    return None if access.unrestricted else lambda branch: access.may(action, branch)


def usable(access: Access, permits: Permits) -> Permits:
    """The permitted branches that the actor may also read or change; the others stay hidden."""
    return lambda branch: (
        permits(branch) and (access.may("Read", branch) or access.may("Change", branch))
    )


class RefResolver:
    """Resolves the names of branches and commits that a caller may use."""

    def __init__(
        self,
        graph: Graph,
        permits: Permits | None = None,
        exposes: Permits | None = None,
        suggests: Permits | None = None,
    ) -> None:
        """``permits`` selects the branches that may be used; None means all.

        ``exposes`` selects the branches whose commits may be used (default: ``permits``).
        ``suggests`` selects the branches that a "not found" message may name (default: all).
        """
        self._graph = graph
        self._permits = permits
        self._exposes = exposes or permits
        self._suggests = suggests

    # --- branches --------------------------------------------------------------------------

    def branches(self) -> dict[str, Head]:
        """Usable branches: name → head."""
        graph = self._graph
        heads = {MAIN: graph.log_head(MAIN), **graph.log.branches()}
        return {name: head for name, head in heads.items() if self._allows(name)}

    def has(self, branch: str) -> bool:
        """Whether a branch exists and may be used."""
        exists = branch == MAIN or self._graph.log.head(branch) is not None
        return exists and self._allows(branch)

    def _allows(self, branch: str) -> bool:
        if branch.startswith(INTERNAL_BRANCH):
            return False
        return self._permits is None or self._permits(branch)

    def check(self, branch: str) -> None:
        """Raise NotFoundError unless a branch exists and may be used."""
        if not self.has(branch):
            raise self.not_found(branch)

    def not_found(self, branch: str, more: str = "") -> NotFoundError:
        """The error for a branch that does not exist."""
        return unknown_branch(branch, self._suggestions(), more)

    def _suggestions(self) -> list[str]:
        """The names that a message may suggest."""
        suggests = self._suggests
        return [name for name in self.branches() if suggests is None or suggests(name)]

    def checkout(self, branch: str) -> Checkout:
        """The checkout of a branch."""
        if self._permits is None:
            return self._graph.checkout(branch)
        self.check(branch)
        try:
            return self._graph.checkout(branch)
        except NotFoundError:  # deleted by another caller
            raise self.not_found(branch) from None

    # --- commits ---------------------------------------------------------------------------

    def commit(self, reference: str) -> Commit:
        """A commit by its id, or by a unique prefix of it."""
        log = self._graph.log
        found = log.commit(reference) if _COMMIT.fullmatch(reference) else None
        if found is None and PREFIX <= len(reference) < 32 and _DIGITS.fullmatch(reference):
            matches = self.starting_with(reference, _MATCHES)
            if len(matches) > 1:
                raise NotFoundError(
                    f"{reference!r} is ambiguous; it matches the commits {', '.join(matches)}; "
                    "give more digits",
                    commit=reference,
                )
            found = log.commit(matches[0]) if matches else None
        if found is None or not self.sees(found):
            raise unknown_commit(reference)
        return found

    def starting_with(self, digits: str, limit: int) -> list[str]:
        """The ids of the first few usable commits with this prefix."""
        starting_with = self._graph.log.starting_with
        if self._exposes is None:
            return starting_with(digits, limit)
        known = map(self._graph.ancestry.commit, starting_with(digits, _LOOKED_AT))
        return [each.id for each in islice(filter(self.sees, known), limit)]

    def sees(self, commit: Commit) -> bool:
        """Whether any exposing branch contains a commit."""
        exposes = self._exposes
        return exposes is None or any(map(exposes, self._graph.containment.branches_of(commit)))

    def branches_of(self, commit: Commit) -> Iterator[str]:
        """The exposing branches that contain a commit, the likeliest first."""
        containing = self._graph.containment.branches_of(commit)
        return (each for each in containing if self._exposes is None or self._exposes(each))

    def descent(self) -> Descent | None:
        """Decides for many commits, newest first, which are visible; None means all are."""
        if self._exposes is None:
            return None
        return Descent(self._graph.log, self._graph.ancestry, self._exposes)

    # --- either ----------------------------------------------------------------------------

    def resolve(self, reference: str) -> Head:
        """The head of a branch, or the commit with this id or prefix."""
        if self.has(reference):
            return self._graph.log_head(reference)
        try:
            commit = self.commit(reference)
        except NotFoundError:
            raise unknown_reference(reference, self._suggestions()) from None
        return Head(commit.id, commit.seq, commit.schema)


AT_ONCE: Final = 1_000
"""Statements that are undone or redone while the lock is held; more of them take several parts."""
PART: Final = 250
"""Statements of one part, for which a writer may have to wait: about 4 ms."""
_KEYS: Final = 500_000
"""Keys of a layer that memory holds: some 80 MB."""
_KEYS_AT_ONCE: Final = 4_000
"""Keys of one part, which take as long."""
_ACTOR: Final = "/snapshots"
"""The actor that takes the writer's lock, so that writers and snapshots alternate."""
_MOST: Final = 64
_MOST_ROWS: Final = 2_000_000


def snapshot_checkout(graph: Graph, commit: Commit) -> Checkout:
    """The graph as it was after a commit."""
    name = SNAPSHOT + commit.id
    checkout = graph.checkouts.get(name)
    if checkout is None:
        build_distant(graph, commit)
        with graph.writing():
            checkout = graph.checkouts.get(name) or _make(graph, name, commit)
    graph.file.layers.touch(name)
    return checkout


def _make(graph: Graph, name: str, commit: Commit) -> Checkout:
    if name not in graph.file.layers.refs:
        make_room(graph, _MOST - 1, _MOST_ROWS)
    return graph.add_snapshot(name, Head(commit.id, commit.seq, commit.schema))


def build_distant(graph: Graph, commit: Commit) -> None:
    """Build the layer of a commit that is far from all open checkouts, outside the lock.

    If the node index is replaced in the meantime, the next holder of the lock builds it instead.
    """
    if graph.file.in_memory or graph.file.frozen:
        return
    name, head = SNAPSHOT + commit.id, Head(commit.id, commit.seq, commit.schema)
    with graph.writing(_ACTOR):
        if not _is_distant(graph, name, head):
            return
    with graph.nodes.building:
        _build(graph, name, head)


def _is_distant(graph: Graph, name: str, head: Head) -> bool:
    if name in graph.file.layers.refs:
        return False
    path = graph.nodes.path_to(head)[1]
    return sum(each.added + each.removed + 1 for each in (*path.undo, *path.redo)) > AT_ONCE


def _build(graph: Graph, name: str, head: Head) -> None:
    file = graph.file
    nodes = NodeIndex(file, UNFINISHED + name)
    with graph.writing(_ACTOR):
        if not _is_distant(graph, name, head):  # another thread has built it
            return
        base, path = graph.nodes.path_to(head)
        with file.rw_lock.exclusive(), file.transaction():
            file.layers.fork(file.db, UNFINISHED + name, base.nodes.layer.number)
            nodes.follow(
                graph.compiled(graph.ancestry.schema_at(base.nodes.position.commit)).schema
            )
    try:
        nodes.let_keys_wait()
        with closing(graph.folding.walk_parts(nodes, path, PART)) as parts:
            while _do_part(graph, nodes, parts):
                if nodes.waiting_keys > _KEYS:
                    _put_keys(graph, nodes)
                give_way()
        _put_keys(graph, nodes)
        with graph.writing(_ACTOR):
            if nodes.known:
                make_room(graph, _MOST - 1, _MOST_ROWS)
                _finish(graph, nodes, name, head)
                graph.add_snapshot(name, head)
    finally:
        if nodes.known:
            with graph.writing(_ACTOR):
                graph.drop_checkouts([UNFINISHED + name])


def _do_part(graph: Graph, nodes: NodeIndex, parts: Iterator[int]) -> bool:
    """Do one part in its own transaction; return whether there may be more."""
    with graph.writing(_ACTOR):
        if not nodes.known:
            return False
        with graph.file.transaction():
            work = 0
            while work < PART:
                done = next(parts, None)
                if done is None:
                    return False
                work += done
    return True


def _put_keys(graph: Graph, nodes: NodeIndex) -> None:
    """Put the keys that wait into their table, in parts."""
    while nodes.waiting_keys:
        with graph.writing(_ACTOR):
            if not nodes.known:
                return
            with graph.file.transaction():
                nodes.put_waiting_keys(_KEYS_AT_ONCE)
        give_way()


def _finish(graph: Graph, nodes: NodeIndex, name: str, head: Head) -> None:
    """Publish a finished layer under its name."""
    file = graph.file
    built = NodeIndex(file, name)
    built.follow(nodes.schema)
    with file.rw_lock.exclusive(), file.step():
        file.layers.point(file.db, name, nodes.layer.number)
        file.layers.forget(file.db, UNFINISHED + name)
        built.commit(Position(head.seq, head.commit))


def make_room(graph: Graph, most: int, most_rows: int, *, dry_run: bool = False) -> list[str]:
    """Drop the oldest snapshots beyond the limits; return the dropped ones."""
    layers = graph.file.layers
    names = layers.oldest([name for name in layers.refs if name.startswith(SNAPSHOT)])
    with graph.file.writer() as db:
        sizes = {name: layers.size(db, layers.refs[name]) for name in names}
    dropped: list[str] = []
    while names and (len(names) > most or sum(sizes[name] for name in names) > most_rows):
        dropped.append(names.pop(0))
    if dropped and not dry_run:
        graph.drop_checkouts(dropped)
    return [name.removeprefix(SNAPSHOT) for name in dropped]


def forkable(graph: Graph, access: Access, name: str) -> RefResolver:
    """The refs from which an actor may fork a branch of this name, if it may use the name."""
    if access.unrestricted:
        return RefResolver(graph)

    def permits(branch: str) -> bool:
        return access.may("Read", branch) and access.may("BranchCreate", branch, name)

    at_commits = access.may("BranchCreate", "", name)

    def exposes(branch: str) -> bool:
        return at_commits and access.may("Read", branch)

    # Without read access, a "name is taken" error would reveal that the branch exists.
    readable = access.may("Read", name)
    if not readable or (
        not at_commits and not any(map(permits, {MAIN: None, **graph.log.branches()}))
    ):
        raise ForbiddenError(
            f"you may not create branch {name[:100]!r}; choose another name", branch=name[:100]
        )
    return RefResolver(graph, permits, exposes)
