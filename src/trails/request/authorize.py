"""Authorize: who may use what, with the same answer for lists and for calls.

A kernel asks its Authorizer about everything that has a gate: tools, records, resources, stored
queries. The policy comes first, and what it denies is answered as unknown; then the scope of the
credential, whose refusal names the missing scope. A tool is shown without the types and fields
that its caller can't see.

The rights of an actor are an ``ActorAccess``, the only place where an actor meets a policy, or
``FullAccess`` where nothing is denied. The engine uses both as its ``Access``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, cast

import msgspec

from trails.engine.graph.ancestry import Permits
from trails.engine.graph.checkouts import unknown_commit
from trails.engine.graph.graph import MAIN, Graph
from trails.engine.session.arguments import checks_of
from trails.engine.session.context import GraphContext
from trails.engine.visibility.access import Unrestricted
from trails.engine.visibility.refs import RefResolver, reader
from trails.imports import later
from trails.model.actors import OPERATOR, Actor
from trails.model.caches import BoundedCache, LRUCache
from trails.model.capabilities import Action, Scope, StoredQuery, Tool
from trails.model.changes.proposals import own_prefix
from trails.model.decisions import ALLOW_ALL, SERVER, Judge, Resource
from trails.model.names import INTERNAL_BRANCH
from trails.model.results import Failure
from trails.model.types import Schema
from trails.model.visibility import Visibility
from trails.projections.tools import project_capability, project_query, with_params
from trails.registry.registry import Declared, Registry, remember, visible_declarations
from trails.request.entries import OPEN_GATE, Entry, Gate, Need, Rights, of_graph

if TYPE_CHECKING:
    from trails.engine.sparql import reach
else:
    reach = later("trails.engine.sparql.reach")

_VISIBILITIES: Final = 256
"""Visibilities that are cached for an actor: of branches, and of schemas of the past."""


_WRITING: Final = frozenset({"Change", "InvokeCapability", "InvokeQuery"})
"""Actions that a proposal needs on its own branch alone."""


class Branches:
    """The branches of a graph, with a version that changes when they do."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.spelled = graph.names
        """The IRIs of the graph."""
        self._seen: tuple[int, frozenset[str]] = (-1, frozenset())

    def look(self) -> tuple[int, frozenset[str]]:
        """The version and the names of all branches; the version changes also with their types."""
        branches_version, seen = self._graph.log.branches_version, self._seen
        if seen[0] != branches_version:
            names = {MAIN, *self._graph.log.branches()}
            open_names = frozenset(n for n in names if not n.startswith(INTERNAL_BRANCH))
            seen = self._seen = branches_version, open_names
        return seen

    def schema_of(self, branch: str) -> Schema | None:
        """The types of a branch, without opening it; None if there is no such branch."""
        head = self._graph.log_head(MAIN) if branch == MAIN else self._graph.log.head(branch)
        return None if head is None else self._graph.compiled(head.schema).schema


class FullAccess(Unrestricted):
    """The rights of an actor to whom nothing is denied."""

    branches_version = 0

    def __init__(self, branches: Branches) -> None:
        self._branches = branches

    def passes(self, gate: Gate) -> bool:
        """Pass every gate."""
        del gate
        return True

    def permits(self, gate: Gate) -> Permits | None:
        """All branches."""
        del gate
        return None

    def see(self, entry: Entry, registry: Registry) -> Entry:
        """The whole entry."""
        del registry
        return entry

    def gate(self, *actions: Action) -> Gate:
        """No gate is closed."""
        del actions
        return OPEN_GATE

    def declared(self, registry: Registry) -> Registry:
        """All declarations."""
        return registry

    def schema(self, branch: str) -> Schema:
        """All types of a branch."""
        return self._branches.schema_of(branch) or Schema()


class ActorAccess:
    """The rights of one actor, valid for one version of the judge."""

    unrestricted = False

    def __init__(self, judge: Judge, actor: Actor, graph: str, branches: Branches) -> None:
        self.actor = actor
        self._judge = judge
        self._resource = Resource("Graph", graph)
        self._branches = branches
        self._gates: tuple[int, dict[Gate, bool]] = (-1, {})
        """For one version of the branches, which gates the actor may pass."""
        self._declared: tuple[Registry, int, Registry | Declared] | None = None
        self._seen: LRUCache[tuple[str, frozenset[str]], Visibility] = LRUCache(_VISIBILITIES)
        self._last: tuple[tuple[str, frozenset[str]], Visibility] | None = None

    # --- the engine's questions ----------------------------------------------------------

    def may(self, action: Action, branch: str, target: str = "") -> bool:
        """Whether an action on the graph is allowed on a branch."""
        if branch.startswith(INTERNAL_BRANCH):
            return False
        return self._judge.allows(self.actor, action, self._resource, branch, target)

    def visibility(self, schema: Schema, branches: Iterable[str]) -> Visibility:
        """What the actor sees of some types on any of these branches."""
        where = frozenset(branches)
        key = schema.digest, where
        found = self._last
        if found is None or found[0] != key:
            visible = self._seen.get(key, lambda: self._look(schema, where))
            self._last = found = key, visible
        return found[1]

    def _look(self, schema: Schema, where: frozenset[str]) -> Visibility:
        hidden: set[str] = set()
        fixed: set[str] = set()
        fields: dict[str, frozenset[str]] = {}
        for each in schema.types:
            resource = Resource("Type", each.name)
            if not self._allows("Read", resource, where):
                hidden.add(each.name)
                continue
            if not self._allows("Change", resource, where):
                fixed.add(each.name)
            gone = [
                field.name
                for field in each.fields
                if not self._allows("Read", _field(each.name, field.name), where)
            ]
            if gone:
                fields[each.name] = frozenset(gone)
        return Visibility(frozenset(hidden), fields, frozenset(fixed))

    def _allows(self, action: Action, resource: Resource, branches: Collection[str]) -> bool:
        return self._judge.allows_somewhere(self.actor, action, resource, branches)

    # --- the questions of lists and calls --------------------------------------------------

    def passes(self, gate: Gate) -> bool:
        """Whether the actor may pass a gate on at least one branch."""
        (number, names), (known_number, known) = self._branches.look(), self._gates
        if number != known_number:
            known = {}
            self._gates = number, known
        found = known.get(gate)
        if found is None:
            found = known[gate] = self._passes(gate, names)
        return found

    def see(self, entry: Entry, registry: Registry) -> Entry | None:
        """An entry as the actor sees it; None if it may not pass its gate on any branch.

        Lists and calls both use this decision.
        """
        return (
            see_entry(entry, registry, self.declared(registry)) if self.passes(entry.gate) else None
        )

    @property
    def branches_version(self) -> int:
        """Changes when lists may change for other reasons than the actor and the registry."""
        return self._branches.look()[0]

    def _passes(self, gate: Gate, branches: frozenset[str]) -> bool:
        if gate.branch is not None:
            return self._passes_on(gate, gate.branch)
        if any(each.action in _WRITING for each in gate.needs):
            branches |= self._proposed()
        if gate.invokes:
            branches = self._usable(branches)
        if not all(self._somewhere(each, branches) for each in gate.needs):
            return False
        if gate.among is not None and not any(
            self._somewhere(each, branches) for each in gate.among
        ):
            return False
        everywhere = not gate.whole and not gate.text
        return everywhere or any(self._passes_on(gate, each) for each in self._differing(branches))

    def _proposed(self) -> frozenset[str]:
        """The name of a proposal that the actor could make, if it may make one."""
        name = f"{own_prefix(self.actor.name)}new"
        return frozenset({name}) if self.may("BranchCreate", MAIN, name) else frozenset()

    def _usable(self, branches: frozenset[str]) -> frozenset[str]:
        """Main, and the branches that the actor may use: a list must not reveal the others."""
        alike = self._judge.alike(self.actor, branches)
        exists = {
            each: self.may("Read", each) or self.may("Change", each)
            for each in dict.fromkeys(alike.values())
        }
        return frozenset({MAIN, *(each for each in branches if exists[alike[each]])})

    def _differing(self, branches: frozenset[str]) -> Collection[str]:
        """One branch of each kind that policies distinguish, with each set of types."""
        alike = self._judge.alike(self.actor, branches)
        found: dict[tuple[str, str], str] = {}
        # Representatives first: most decisions about them are cached already.
        for branch in (*dict.fromkeys(alike.values()), *branches):
            schema = self._branches.schema_of(branch)
            if schema is not None:
                found.setdefault((alike[branch], schema.digest), branch)
        return found.values()

    def _somewhere(self, need: Need, branches: frozenset[str]) -> bool:
        return self._judge.allows_somewhere(self.actor, need.action, need.resource, branches)

    def permits(self, gate: Gate) -> Permits:
        """The branches on which the actor may pass a gate."""
        return lambda branch: self._passes_on(gate, branch)

    def _passes_on(self, gate: Gate, branch: str) -> bool:
        needs = gate.needs
        if len(needs) == 1 and gate.among is None and not gate.whole and not gate.text:
            return self.allows(needs[0], branch)
        allowed = all(self.allows(each, branch) for each in gate.needs)
        if allowed and gate.among is not None:
            allowed = any(self.allows(each, branch) for each in gate.among)
        if not allowed or not (gate.whole or gate.text):
            return allowed
        return self._sees_all(branch) or (not gate.whole and self._covers(gate, branch))

    def _covers(self, gate: Gate, branch: str) -> bool:
        """Whether a query touches nothing that is hidden; true also if its branch can't be read."""
        schema = self._branches.schema_of(branch)
        if schema is None or not self.may("Read", branch):
            return True
        visible = self.visibility(schema, (branch,))
        left = visible.restrict(schema).by_name
        if any(each in schema.by_name and each not in left for each in gate.takes):
            return False
        query = StoredQuery("", "", gate.text)
        return not reach.touches_hidden(
            reach.reach_of(query, schema, self._branches.spelled), visible, schema
        )

    def _sees_all(self, branch: str) -> bool:
        """Whether nothing on a branch is hidden."""
        schema = self._branches.schema_of(branch)
        return schema is not None and self.visibility(schema, (branch,)).reads_all

    def declared(self, registry: Registry) -> Registry | Declared:
        """The declarations that the actor sees on any branch.

        An actor that may read nothing sees all of them: reading is refused, and what it may call
        must be described.
        """
        (number, names), known = self._branches.look(), self._declared
        if known is None or known[:2] != (registry, number):
            known = self._declared = registry, number, self._see_declared(registry, names)
        return known[2]

    def _see_declared(self, registry: Registry, branches: frozenset[str]) -> Registry | Declared:
        if not self.passes(self.gate("Read")):
            return registry
        # Looked up once for each version of the branches, so not cached by all their names.
        visible = self._look(registry.schema, branches)
        return registry if visible.reads_all else visible_declarations(registry, visible)

    def gate(self, *actions: Action) -> Gate:
        """The gate of some actions on the graph."""
        return of_graph(self._resource.id, actions)

    def schema(self, branch: str) -> Schema:
        """The types that the actor sees on a branch; empty if it may not read the branch."""
        found = self._branches.schema_of(branch)
        if found is None or not self.may("Read", branch):
            return Schema()
        return self.visibility(found, (branch,)).restrict(found)

    def allows(self, need: Need, branch: str) -> bool:
        """Whether an action on a resource is allowed on a branch."""
        return self._judge.allows(self.actor, need.action, need.resource, branch)


def _make_entries() -> dict[Entry, Entry | None]:
    return {}


def see_entry(entry: Entry, registry: Registry, declared: Registry | Declared) -> Entry | None:
    """An entry without hidden types and fields; None if it needs a hidden one.

    ``declared`` is the visible part of the registry; each entry is made once for it.
    """
    if entry.source is None or not isinstance(declared, Declared):
        return entry
    made = remember(declared, _make_entries, _make_entries)
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
"""Actors whose rights are cached."""


class Authorizer:
    """The rights of all actors on one graph."""

    def __init__(self, graph: Graph, judge: Judge) -> None:
        self._graph = graph.name
        self._judge = judge
        self._branches = Branches(graph)
        self._full = FullAccess(self._branches)
        self._known = judge.current, BoundedCache[Actor, ActorAccess](_ACTORS)
        """The current judge, and the rights that follow from it."""

    @property
    def version(self) -> str:
        """Changes when an answer may change for other reasons than the graph itself."""
        return self._judge.version

    @property
    def is_open(self) -> bool:
        """Whether nothing is denied to any actor."""
        return self._judge.current is ALLOW_ALL

    @property
    def decides(self) -> bool:
        """Whether policies were in force when rights were last asked for.

        It does not ask the judge, which may have to read files: writers can't wait for that.
        """
        return self._known[0] is not ALLOW_ALL

    def rights(self, actor: Actor) -> Rights:
        """An actor's rights."""
        judge = self._judge.current
        if judge is ALLOW_ALL or actor == OPERATOR:
            return self._full
        decider, known = self._known
        if decider is not judge:
            known = BoundedCache(_ACTORS)
            self._known = judge, known
        found = known.get(actor)
        if found is None:
            found = known[actor] = ActorAccess(judge, actor, self._graph, self._branches)
        return found


def lists_graphs(judge: Judge, actor: Actor) -> bool:
    """Whether an actor may list the graphs of a server."""
    return actor == OPERATOR or judge.allows(actor, "GraphList", SERVER)


def refuse_scope(actor: Actor, tool: Tool) -> Failure | None:
    """The refusal of a call whose credential lacks the tool's scope, or None."""
    if tool.scope in actor.scopes:
        return None
    return _lacking(actor, tool.scope, tool.name, {"tool": tool.name})


def refuse_reading(actor: Actor) -> Failure | None:
    """The refusal of a read whose credential lacks the scope, or None."""
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


def rights_of(ctx: GraphContext) -> Rights:
    """The rights of a context's actor, where its access is restricted."""
    return cast(Rights, ctx.access)


def check_here(graph: Graph, ctx: GraphContext, gate: Gate) -> None:
    """Report the place of a context as not found if its actor may not pass a gate there."""
    if ctx.access.unrestricted:
        return
    permits = rights_of(ctx).permits(gate)
    if permits is None or any(map(permits, ctx.branches)):
        return
    if ctx.snapshot is not None:
        raise unknown_commit(ctx.snapshot)
    raise RefResolver(graph, permits, suggests=reader(ctx.access)).not_found(ctx.branch)


def _field(type_name: str, field: str) -> Resource:
    return Resource("Field", f"{type_name}.{field}")
