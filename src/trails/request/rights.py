"""What one actor may do on one graph: its rights, and the gates that ask for them.

ActorAccess is the only place where an actor meets a policy: the engine uses it as its Access, and
lists and calls ask it about gates. An entry has one gate, which listing and calling share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

from trails.engine.graph.checkouts import unknown_commit
from trails.engine.graph.graph import MAIN, Graph
from trails.engine.session.context import GraphContext
from trails.engine.sparql.reach import reach_of, touches_hidden
from trails.engine.visibility.refs import RefResolver, reader
from trails.model.actors import Actor
from trails.model.caches import LRUCache
from trails.model.capabilities import Action, Capability, StoredQuery
from trails.model.decisions import Judge, Resource
from trails.model.types import Schema
from trails.model.visibility import Visibility
from trails.registry.registry import Declared, Registry, visible_declarations


class Need(msgspec.Struct, frozen=True, cache_hash=True):
    """One question: an action on a resource."""

    action: Action
    resource: Resource


_INVOKING: Final[frozenset[Action]] = frozenset({"InvokeCapability", "InvokeQuery", "Export"})


class Gate(msgspec.Struct, frozen=True, cache_hash=True):
    """What has to be allowed on some branch; where a call names one, on that one."""

    needs: tuple[Need, ...] = ()
    """All of these."""
    among: tuple[Need, ...] | None = None
    """And one of these; None where there is nothing to choose from."""
    whole: bool = False
    """Whether nothing may be hidden from the caller, because a text can name anything."""
    text: str = ""
    """A query that may touch nothing that is hidden from a caller who reads the graph."""
    takes: tuple[str, ...] = ()
    """The types of its parameters."""
    branch: str | None = None
    """The one branch that it works on, where a call can't name another."""

    @property
    def invokes(self) -> bool:
        """Whether it leads to something that is called or exported, and not to the graph."""
        needs = (*self.needs, *(self.among or ()))
        return any(each.action in _INVOKING for each in needs)


OPEN_GATE: Final = Gate()
"""The gate of what anybody may use who reached the server."""


def of_graph(graph: str, actions: Iterable[Action], *, whole: bool = False) -> Gate:
    """The gate of what is done to a graph."""
    resource = Resource("Graph", graph)
    return Gate(tuple(Need(each, resource) for each in actions), whole=whole)


def of_capability(capability: Capability, graph: str, branch: str) -> Gate:
    """The gate of a capability, or of an operation on the application: that works on ``branch``."""
    if capability.meta is None:
        return Gate((Need("InvokeCapability", Resource("Capability", capability.id)),))
    if capability.id == PING:
        return OPEN_GATE
    action = _meta_action(capability)
    return Gate((Need(action, Resource("Graph", graph)),), branch=branch)


PING = "trails.meta.ping"
"""Anybody who reached the server may ask whether it is there."""


def _meta_action(capability: Capability) -> Action:
    if capability.descriptor.reads_only:
        return "Read"
    assert capability.meta is not None  # noqa: S101 - the caller has looked
    return "SchemaApply" if capability.meta.scope == "builder" else "Admin"


def of_query(query: StoredQuery) -> Gate:
    """The gate of a stored query."""
    targets = (each.type.scalar.target for each in query.params)
    takes = tuple(each for each in targets if each is not None)
    return Gate((_invoking(query),), text=query.text, takes=takes)


def of_queries(queries: Iterable[StoredQuery], graph: str) -> Gate:
    """The gate of what lists or runs any of some stored queries; readers learn of none."""
    return Gate(among=tuple(map(_invoking, queries)) or (Need("Read", Resource("Graph", graph)),))


def _invoking(query: StoredQuery) -> Need:
    return Need("InvokeQuery", Resource("Query", query.name))


_SIGHTS: Final = 256
"""Sights that are remembered for an actor: of branches, and of schemas of the past."""


class Branches:
    """The names of a graph's branches, with a number that changes when they do."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.spelled = graph.names
        """How IRIs are spelled."""
        self._seen: tuple[int, frozenset[str]] = (-1, frozenset())

    def look(self) -> tuple[int, frozenset[str]]:
        """The branches that there are now; the number changes also with the types of one."""
        arrangement, seen = self._graph.log.branches_version, self._seen
        if seen[0] != arrangement:
            seen = self._seen = arrangement, frozenset({MAIN, *self._graph.log.branches()})
        return seen

    def schema_of(self, branch: str) -> Schema | None:
        """The types of a branch, without opening it; None where there is no such branch."""
        head = self._graph.log_head(MAIN) if branch == MAIN else self._graph.log.head(branch)
        return None if head is None else self._graph.compiled(head.schema).schema


class ActorAccess:
    """The rights of one actor, as long as the judge's version is the same."""

    def __init__(self, judge: Judge, actor: Actor, graph: str, branches: Branches) -> None:
        self.actor = actor
        self._judge = judge
        self._resource = Resource("Graph", graph)
        self._branches = branches
        self._gates: tuple[int, dict[Gate, bool]] = (-1, {})
        """Replaced as a whole when the branches change."""
        self._declared: tuple[Registry, int, Registry | Declared] | None = None
        self._sights: LRUCache[tuple[str, frozenset[str]], Visibility] = LRUCache(_SIGHTS)
        self._last_sight: tuple[tuple[str, frozenset[str]], Visibility] | None = None

    # --- the engine's questions ----------------------------------------------------------

    def may(self, action: Action, branch: str, target: str = "") -> bool:
        """Whether an action on the graph is allowed on a branch."""
        return self._judge.allows(self.actor, action, self._resource, branch, target)

    def visibility(self, schema: Schema, branches: Iterable[str]) -> Visibility:
        """What is seen of some types on a branch; of a snapshot, on any branch that has it."""
        where = frozenset(branches)
        key = schema.digest, where
        found = self._last_sight
        if found is None or found[0] != key:
            sight = self._sights.get(key, lambda: self._look(schema, where))
            self._last_sight = found = key, sight
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
        """Whether some branch would let the actor through a gate."""
        (number, names), (known_number, known) = self._branches.look(), self._gates
        if number != known_number:
            known = {}
            self._gates = number, known
        found = known.get(gate)
        if found is None:
            found = known[gate] = self._passes(gate, names)
        return found

    @property
    def arrangement(self) -> int:
        """All that lists depend on beside the actor and the registry."""
        return self._branches.look()[0]

    def _passes(self, gate: Gate, branches: frozenset[str]) -> bool:
        if gate.branch is not None:
            return self._passes_on(gate, gate.branch)
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

    def _usable(self, branches: frozenset[str]) -> frozenset[str]:
        """Those that exist for the actor, beside main: a list must not reveal the others."""
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

    def passer(self, gate: Gate) -> Callable[[str], bool]:
        """A test of whether the actor may pass a gate on a branch."""
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
        """Whether a query touches nothing that is hidden, or would be refused as a whole."""
        schema = self._branches.schema_of(branch)
        if schema is None or not self.may("Read", branch):
            return True
        sight = self.visibility(schema, (branch,))
        left = sight.restrict(schema).by_name
        if any(each in schema.by_name and each not in left for each in gate.takes):
            return False
        query = StoredQuery("", "", gate.text)
        return not touches_hidden(reach_of(query, schema, self._branches.spelled), sight, schema)

    def _sees_all(self, branch: str) -> bool:
        """Whether nothing on a branch is hidden."""
        schema = self._branches.schema_of(branch)
        return schema is not None and self.visibility(schema, (branch,)).reads_all

    def declared(self, registry: Registry) -> Registry | Declared:
        """What the actor sees of the declarations: of what is seen on any branch.

        An actor that may read nothing is refused when it reads; what it may invoke is shown whole.
        """
        (number, names), known = self._branches.look(), self._declared
        if known is None or known[:2] != (registry, number):
            known = self._declared = registry, number, self._see_declared(registry, names)
        return known[2]

    def _see_declared(self, registry: Registry, branches: frozenset[str]) -> Registry | Declared:
        if not self.passes(self.gate("Read")):
            return registry
        # Looked up once an arrangement of branches, so it is not remembered by all their names.
        sight = self._look(registry.schema, branches)
        return registry if sight.reads_all else visible_declarations(registry, sight)

    def gate(self, *actions: Action) -> Gate:
        """The gate of some actions on the graph."""
        return of_graph(self._resource.id, actions)

    def schema(self, branch: str) -> Schema:
        """The types that the actor sees on a branch; none on one that it may not read."""
        found = self._branches.schema_of(branch)
        if found is None or not self.may("Read", branch):
            return Schema()
        return self.visibility(found, (branch,)).restrict(found)

    def allows(self, need: Need, branch: str) -> bool:
        """Whether what is needed is allowed on a branch."""
        return self._judge.allows(self.actor, need.action, need.resource, branch)


def rights_of(ctx: GraphContext) -> ActorAccess | None:
    """The rights of a context's actor; None where nothing is denied."""
    return ctx.access if isinstance(ctx.access, ActorAccess) else None


def check_here(graph: Graph, ctx: GraphContext, gate: Gate) -> None:
    """Refuse a place where the gate is closed, as one that does not exist."""
    rights = rights_of(ctx)
    if rights is None:
        return
    permits = rights.passer(gate)
    if not any(map(permits, ctx.branches)):
        if ctx.snapshot is not None:
            raise unknown_commit(ctx.snapshot)
        raise RefResolver(graph, permits, suggests=reader(rights)).not_found(ctx.branch)


def _field(type_name: str, field: str) -> Resource:
    return Resource("Field", f"{type_name}.{field}")
