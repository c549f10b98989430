"""Who may use what: one answer, for listing and for using alike.

An Authority, one a kernel, is asked about everything that has a gate: tools, records,
resources, stored queries. First comes the policy, and what it denies is answered as what
does not exist; then the scope of the credential, which is told.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

from trails.engine.access import OPEN, Access
from trails.engine.graph import Graph
from trails.model.actors import Actor
from trails.model.capabilities import Scope
from trails.model.decisions import EVERYTHING, Judge
from trails.model.outcomes import Failure
from trails.model.tools import Tool
from trails.request.gates import Gate
from trails.request.rights import ActorAccess, Branches

_ACTORS: Final = 1024
"""Actors whose rights are remembered."""


class Authority:
    """Answers for every actor on one graph."""

    def __init__(self, graph: Graph, judge: Judge) -> None:
        self._graph = graph.name
        self._judge = judge
        self._branches = Branches(graph)
        self._version = judge.version
        self._known: dict[Actor, ActorAccess] = {}

    def rights(self, actor: Actor) -> ActorAccess | None:
        """An actor's rights; None where nothing is denied to it."""
        version = self._judge.version
        if version == EVERYTHING.version:
            return None
        if version != self._version or len(self._known) > _ACTORS:
            self._known.clear()
            self._version = version
        found = self._known.get(actor)
        if found is None:
            found = ActorAccess(self._judge, actor, self._graph, self._branches)
            self._known[actor] = found
        return found

    def access(self, actor: Actor) -> Access:
        """An actor's rights, as the engine asks for them."""
        return self.rights(actor) or OPEN

    def admits(self, actor: Actor, gate: Gate) -> bool:
        """Whether something exists for an actor: some branch would let it through."""
        rights = self.rights(actor)
        return rights is None or rights.passes(gate)

    def standing(self, actor: Actor) -> Hashable:
        """All that answers depend on: actors of the same standing see the same."""
        version = self._judge.version
        if version == EVERYTHING.version:
            return actor.scopes
        return version, self._branches.look(), actor


def refuse_scope(actor: Actor, tool: Tool) -> Failure | None:
    """Why a credential is not enough for a tool, or None where it is."""
    if tool.scope in actor.scopes:
        return None
    return _lacking(actor, tool.scope, tool.name, {"tool": tool.name})


def refuse_reading(actor: Actor) -> Failure | None:
    """Why a credential is not enough to read resources, or None where it is."""
    if "runtime" in actor.scopes:
        return None
    return _lacking(actor, "runtime", "reading resources", {})


def _lacking(actor: Actor, scope: Scope, what: str, about: Mapping[str, object]) -> Failure:
    held = sorted(actor.scopes)
    data = {**about, "required_scope": scope, "caller_scopes": held}
    if not actor.credential:
        return Failure(
            "unauthenticated",
            "unauthenticated",
            f"{what} needs the scope {scope!r}, and no credential came with this request; present "
            "one that has it",
            data,
        )
    return Failure(
        "scope",
        "scope",
        f"{what} needs the scope {scope!r}, and this credential has "
        f"{', '.join(held) or 'none'}; ask for one that has it",
        data,
    )
