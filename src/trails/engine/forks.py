"""Forks: from where an actor may make a branch of a certain name.

Whether a name may be given is decided before it is looked at whether anything exists, so a
refusal tells nothing of that.
"""

from __future__ import annotations

from trails.engine.access import OPEN, Access
from trails.engine.graph import MAIN, Graph
from trails.engine.seen import Seen
from trails.errors import ForbiddenError


def forkable(graph: Graph, access: Access, name: str) -> Seen:
    """What a branch may begin at; refused where the name may not be given at all."""
    if access is OPEN:
        return Seen(graph)

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
    return Seen(graph, permits, speaks)
