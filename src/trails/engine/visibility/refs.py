"""Seen: the branches and commits of a graph that somebody may use for something.

Whatever names a branch or a commit is looked up here. What may not be used is not found,
in the same words as what does not exist.

Snapshots: the graph as of any commit.

A snapshot stands on a layer of its own, made from the nearest line by undoing and
doing what lies between. As many are kept as ``_MOST`` and ``_MOST_ROWS`` allow; the one
that was used longest ago goes first, and is made again when it is asked for.

A layer that takes much work is built part by part, under a name of its own; between parts, writers
have their turn. What a crash leaves of it is removed when the graph is opened.

Forks: from where an actor may make a branch of a certain name.

Whether a name may be given is decided before it is looked at whether anything exists, so a
refusal tells nothing of that.
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
from trails.engine.visibility.access import OPEN, Access
from trails.errors import ForbiddenError, NotFoundError
from trails.model.capabilities import Action
from trails.model.history import Commit, Head, Position
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.layers import UNFINISHED

_COMMIT: Final = re.compile(r"[0-9a-f]{32}")
_DIGITS: Final = re.compile(r"[0-9a-f]+")
_MATCHES: Final = 5
_LOOKED_AT: Final = 1000
"""Commits with the same first digits among which one that may be seen is looked for."""


def reader(access: Access) -> Permits | None:
    """Which branches an actor may read; None where it may read all."""
    return permitting(access, "Read")


def permitting(access: Access, action: Action) -> Permits | None:
    """On which branches an actor may do something; None where it may do everything."""
    return None if access is OPEN else lambda branch: access.may(action, branch)


def usable(access: Access, permits: Permits) -> Permits:
    """Which branches exist for an actor, of those on which it is permitted to do something.

    One that it may neither read nor change does not, whatever it is allowed to call there.
    """
    return lambda branch: (
        permits(branch) and (access.may("Read", branch) or access.may("Change", branch))
    )


class RefResolver:
    """What names stand for, as far as a caller may use it."""

    def __init__(
        self,
        graph: Graph,
        permits: Permits | None = None,
        speaks: Permits | None = None,
        tells: Permits | None = None,
    ) -> None:
        """``permits`` tells which branches may be used; None where all may.

        ``speaks`` tells which let the commits be used that they contain, ``tells`` which of
        those that may be used are named instead of one that there is not: the same and all,
        unless said.
        """
        self._graph = graph
        self._permits = permits
        self._speaks = speaks or permits
        self._tells = tells

    # --- branches --------------------------------------------------------------------------

    def branches(self) -> dict[str, Head]:
        """The heads of the branches, by name."""
        graph = self._graph
        heads = {MAIN: graph.log_head(MAIN), **graph.log.branches()}
        if self._permits is None:
            return heads
        return {name: head for name, head in heads.items() if self._permits(name)}

    def has(self, branch: str) -> bool:
        """Whether there is such a branch."""
        exists = branch == MAIN or self._graph.log.head(branch) is not None
        return exists and (self._permits is None or self._permits(branch))

    def check(self, branch: str) -> None:
        """Refuse a branch that there is not."""
        if not self.has(branch):
            raise self.unknown(branch)

    def unknown(self, branch: str, more: str = "") -> NotFoundError:
        """What is said of a branch that there is not."""
        return unknown_branch(branch, self._told(), more)

    def _told(self) -> list[str]:
        """The names that a message may offer."""
        tells = self._tells
        return [name for name in self.branches() if tells is None or tells(name)]

    def checkout(self, branch: str) -> Checkout:
        """A branch, ready to be read and written."""
        if self._permits is None:
            return self._graph.line(branch)
        self.check(branch)
        try:
            return self._graph.line(branch)
        except NotFoundError:  # it was deleted a moment ago
            raise self.unknown(branch) from None

    # --- commits ---------------------------------------------------------------------------

    def commit(self, reference: str) -> Commit:
        """A commit by its id, or by the beginning of it where that is unique."""
        log = self._graph.log
        found = log.commit(reference) if _COMMIT.fullmatch(reference) else None
        if found is None and PREFIX <= len(reference) < 32 and _DIGITS.fullmatch(reference):
            matches = self.starting_with(reference, _MATCHES)
            if len(matches) > 1:
                raise NotFoundError(
                    f"{reference!r} is the beginning of several commits: {', '.join(matches)}; "
                    "give more digits",
                    commit=reference,
                )
            found = log.commit(matches[0]) if matches else None
        if found is None or not self.sees(found):
            raise unknown_commit(reference)
        return found

    def starting_with(self, digits: str, limit: int) -> list[str]:
        """The ids of the first few commits that begin so."""
        starting_with = self._graph.log.starting_with
        if self._speaks is None:
            return starting_with(digits, limit)
        known = map(self._graph.ancestry.commit, starting_with(digits, _LOOKED_AT))
        return [each.id for each in islice(filter(self.sees, known), limit)]

    def sees(self, commit: Commit) -> bool:
        """Whether a branch that may be used speaks for a commit."""
        speaks = self._speaks
        return speaks is None or any(map(speaks, self._graph.containment.branches_of(commit)))

    def branches_of(self, commit: Commit) -> Iterator[str]:
        """The branches that speak for a commit and may be used, the likeliest first."""
        spoken = self._graph.containment.branches_of(commit)
        return (each for each in spoken if self._speaks is None or self._speaks(each))

    def descent(self) -> Descent | None:
        """Tells of many commits, newest first, which may be seen; None where all may."""
        if self._speaks is None:
            return None
        return Descent(self._graph.log, self._graph.ancestry, self._speaks)

    # --- either ----------------------------------------------------------------------------

    def resolve(self, reference: str) -> Head:
        """Where a branch is, or the commit that a text names."""
        if self.has(reference):
            return self._graph.log_head(reference)
        try:
            commit = self.commit(reference)
        except NotFoundError:
            raise unknown_reference(reference, self._told()) from None
        return Head(commit.id, commit.seq, commit.schema)


AT_ONCE: Final = 1_000
"""Statements that are undone or done in one part."""
_ACTOR: Final = "/snapshots"
"""In whose name the writer's lock is taken, so that actors and snapshots take turns."""
_MOST: Final = 64
_MOST_ROWS: Final = 2_000_000


def snapshot_checkout(graph: Graph, commit: Commit) -> Checkout:
    """The graph as it was after a commit."""
    name = SNAPSHOT + commit.id
    checkout = graph.lines.get(name)
    if checkout is None:
        build_distant(graph, commit)
        with graph.writing():
            checkout = graph.lines.get(name) or _make(graph, name, commit)
    graph.file.layers.touch(name)
    return checkout


def _make(graph: Graph, name: str, commit: Commit) -> Checkout:
    if name not in graph.file.layers.refs:
        make_room(graph, _MOST - 1, _MOST_ROWS)
    return graph.add_snapshot(name, Head(commit.id, commit.seq, commit.schema))


def build_distant(graph: Graph, commit: Commit) -> None:
    """Build the layer of a commit that is far from all lines in use, if it is; without the lock.

    Whoever takes the lock next finds it built, or builds it there: when the node index was
    replaced meanwhile.
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
        if not _is_distant(graph, name, head):  # somebody else has built it
            return
        base, path = graph.nodes.path_to(head)
        with file.turns.exclusive(), file.transaction():
            file.layers.fork(file.db, UNFINISHED + name, base.nodes.layer.number)
            nodes.follow(graph.compiled(graph.schema_at(base.nodes.position.commit)).schema)
    try:
        with closing(graph.folding.walk_parts(nodes, path, AT_ONCE)) as parts:
            while _do_part(graph, nodes, parts):
                pass
        with graph.writing(_ACTOR):
            if nodes.known:
                make_room(graph, _MOST - 1, _MOST_ROWS)
                _finish(graph, nodes, name, head)
                graph.add_snapshot(name, head)
    finally:
        if nodes.known:
            with graph.writing(_ACTOR):
                graph.forget_lines([UNFINISHED + name])


def _do_part(graph: Graph, nodes: NodeIndex, parts: Iterator[int]) -> bool:
    """Do one part in a transaction of its own; whether there may be more."""
    with graph.writing(_ACTOR):
        if not nodes.known:
            return False
        with graph.file.transaction():
            work = 0
            while work < AT_ONCE:
                done = next(parts, None)
                if done is None:
                    return False
                work += done
    return True


def _finish(graph: Graph, nodes: NodeIndex, name: str, head: Head) -> None:
    """Give a layer that is built its name."""
    file = graph.file
    built = NodeIndex(file, name)
    built.follow(nodes.schema)
    with file.turns.exclusive(), file.step():
        file.layers.point(file.db, name, nodes.layer.number)
        file.layers.forget(file.db, UNFINISHED + name)
        built.commit(Position(head.seq, head.commit))


def make_room(graph: Graph, most: int, most_rows: int, *, dry_run: bool = False) -> list[str]:
    """Drop snapshots until no more are left than that; which ones were dropped."""
    layers = graph.file.layers
    names = layers.oldest([name for name in layers.refs if name.startswith(SNAPSHOT)])
    with graph.file.writer() as db:
        sizes = {name: layers.size(db, layers.refs[name]) for name in names}
    dropped: list[str] = []
    while names and (len(names) > most or sum(sizes[name] for name in names) > most_rows):
        dropped.append(names.pop(0))
    if dropped and not dry_run:
        graph.forget_lines(dropped)
    return [name.removeprefix(SNAPSHOT) for name in dropped]


def forkable(graph: Graph, access: Access, name: str) -> RefResolver:
    """What a branch may begin at; refused where the name may not be given at all."""
    if access is OPEN:
        return RefResolver(graph)

    def permits(branch: str) -> bool:
        return access.may("Read", branch) and access.may("BranchCreate", branch, name)

    at_commits = access.may("BranchCreate", "", name)

    def speaks(branch: str) -> bool:
        return at_commits and access.may("Read", branch)

    # Whether a branch that can't be read exists would show in a name that is taken.
    named = access.may("Read", name)
    if not named or (
        not at_commits and not any(map(permits, {MAIN: None, **graph.log.branches()}))
    ):
        raise ForbiddenError(
            f"you may not make a branch {name[:100]!r}; choose another name", branch=name[:100]
        )
    return RefResolver(graph, permits, speaks)
