"""Seen: the branches and commits of a graph that somebody may use for something.

Whatever names a branch or a commit is looked up here. What may not be used is not found,
in the same words as what does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from trails.engine.access import OPEN, Access
from trails.engine.containment import Descent, Permits
from trails.engine.graph import MAIN, Graph
from trails.engine.lines import Line
from trails.engine.unknown import PREFIX, unknown_branch, unknown_commit, unknown_reference
from trails.errors import NotFoundError
from trails.model.history import Commit, Head
from trails.model.tools import Action

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


class Seen:
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

    def line(self, branch: str) -> Line:
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
