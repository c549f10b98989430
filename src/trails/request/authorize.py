"""Who may use what: the same answer for listing and for using.

A kernel asks its Authorizer about everything that has a gate: tools, records, resources, stored
queries. The policy comes first, and what it denies is answered as unknown; then the scope of the
credential, whose refusal names the missing scope. A tool is shown without the types and fields
that its caller can't see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from trails.engine.graph.graph import Graph
from trails.engine.session.arguments import checks_of
from trails.engine.visibility.access import OPEN, Access
from trails.model.actors import OPERATOR, Actor
from trails.model.capabilities import Scope, StoredQuery, Tool
from trails.model.decisions import ALLOW_ALL, SERVER, Judge
from trails.model.results import Failure
from trails.projections.tools import project_capability, project_query, with_params
from trails.registry.registry import Declared, Registry
from trails.request.entries import Entry
from trails.request.rights import ActorAccess, Branches

_kept: Final[WeakKeyDictionary[Declared, dict[Entry, Entry | None]]] = WeakKeyDictionary()


def see_entry(entry: Entry, registry: Registry, declared: Registry | Declared) -> Entry | None:
    """An entry with what is left of its types; None when one that it names does not exist.

    ``declared`` is what is left of the registry; each entry is made once for it.
    """
    if entry.source is None or not isinstance(declared, Declared):
        return entry
    made = _kept.setdefault(declared, {})
    if entry not in made:
        made[entry] = _see(entry, registry, declared)
    return made[entry]


def _see(entry: Entry, registry: Registry, declared: Declared) -> Entry | None:
    source = entry.source
    assert source is not None  # noqa: S101 - the caller has looked
    if not declared.knows(source):
        return None
    checks = checks_of(registry, declared)
    if isinstance(source, StoredQuery):
        return msgspec.structs.replace(
            entry,
            tool=project_query(source, declared, entry.tool.output_schema or {}),
            arguments=checks.of_query(source),
            declared=with_params(source, declared),
        )
    return msgspec.structs.replace(
        entry,
        tool=project_capability(source, declared),
        arguments=checks.of_capability(source),
        declared=declared,
    )


_ACTORS: Final = 1024
"""Actors whose rights are remembered."""


class Authorizer:
    """Answers for every actor on one graph."""

    def __init__(self, graph: Graph, judge: Judge) -> None:
        self._graph = graph.name
        self._judge = judge
        self._branches = Branches(graph)
        self._known: tuple[Judge, dict[Actor, ActorAccess]] = judge.current, {}
        """What the judge of now has decided about; replaced as a whole."""

    @property
    def version(self) -> str:
        """Changes whenever an answer may, for other reasons than the graph itself."""
        return self._judge.version

    @property
    def is_open(self) -> bool:
        """Whether nothing is denied to anybody."""
        return self._judge.current is ALLOW_ALL

    @property
    def decides(self) -> bool:
        """Whether anything was denied to anybody when rights were last asked for.

        No judge is asked, who may have to look at files: writers can't wait for that.
        """
        return self._known[0] is not ALLOW_ALL

    def rights(self, actor: Actor) -> ActorAccess | None:
        """An actor's rights; None where nothing is denied to it."""
        judge = self._judge.current
        if judge is ALLOW_ALL or actor == OPERATOR:
            return None
        decider, known = self._known
        if decider is not judge or len(known) > _ACTORS:
            known = {}
            self._known = judge, known
        found = known.get(actor)
        if found is None:
            found = known[actor] = ActorAccess(judge, actor, self._graph, self._branches)
        return found

    def access(self, actor: Actor) -> Access:
        """An actor's rights, as the engine asks for them."""
        return self.rights(actor) or OPEN


def lists_graphs(judge: Judge, actor: Actor) -> bool:
    """Whether an actor may list the graphs of a server."""
    return actor == OPERATOR or judge.allows(actor, "GraphList", SERVER)


def see(rights: ActorAccess | None, entry: Entry, registry: Registry) -> Entry | None:
    """What an entry is for an actor, if it exists for it: some branch would let it through.

    The one decision of lists and calls.
    """
    if rights is None:
        return entry
    if not rights.passes(entry.gate):
        return None
    return see_entry(entry, registry, rights.declared(registry))


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
