"""Rights: what one actor may do on one graph, as its judge decides.

The engine asks them as its Access, listing and calling as gates: there is no other place
where an actor meets a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from trails.engine.graph import MAIN, Graph
from trails.model.actors import Actor
from trails.model.decisions import Judge, Resource
from trails.model.kept import Kept
from trails.model.sights import Sight
from trails.model.tools import Action
from trails.model.types import Schema
from trails.request.gates import Gate, Need

_SIGHTS: Final = 256
"""Sights that are remembered for an actor: of branches, and of schemas of the past."""


class Branches:
    """The names of a graph's branches, with a number that changes when they do."""

    def __init__(self, graph: Graph) -> None:
        self._log = graph.log
        self._seen: frozenset[str] = frozenset()
        self.names: tuple[str, ...] = (MAIN,)
        self.generation = 0

    def look(self) -> int:
        """See which branches there are now; the number of that."""
        heads = self._log.branches()
        if heads.keys() != self._seen:
            self._seen = frozenset(heads)
            self.names = (MAIN, *sorted(self._seen - {MAIN}))
            self.generation += 1
        return self.generation


class ActorAccess:
    """The rights of one actor, as long as the judge's version is the same."""

    def __init__(self, judge: Judge, actor: Actor, graph: str, branches: Branches) -> None:
        self.actor = actor
        self._judge = judge
        self._resource = Resource("Graph", graph)
        self._branches = branches
        self._generation = -1
        self._gates: dict[Gate, bool] = {}
        self._sights: Kept[tuple[str, tuple[str, ...]], Sight] = Kept(_SIGHTS)

    # --- the engine's questions ----------------------------------------------------------

    def may(self, action: Action, branch: str, target: str = "") -> bool:
        """Whether an action on the graph is allowed on a branch."""
        return self._judge.allows(self.actor, action, self._resource, branch, target)

    def sight(self, schema: Schema, branches: Iterable[str]) -> Sight:
        """What is seen of some types on a branch; of a snapshot, on any branch that has it."""
        asked = tuple(branches)
        return self._sights.get((schema.digest, asked), lambda: self._look(schema, asked))

    def _look(self, schema: Schema, branches: tuple[str, ...]) -> Sight:
        hidden: set[str] = set()
        fixed: set[str] = set()
        fields: dict[str, frozenset[str]] = {}
        for each in schema.types:
            resource = Resource("Type", each.name)
            if not self._allows("Read", resource, branches):
                hidden.add(each.name)
                continue
            if not self._allows("Change", resource, branches):
                fixed.add(each.name)
            gone = frozenset(
                field.name
                for field in each.fields
                if not self._allows(
                    "Read", Resource("Field", f"{each.name}.{field.name}"), branches
                )
            )
            if gone:
                fields[each.name] = gone
        return Sight(frozenset(hidden), fields, frozenset(fixed))

    def _allows(self, action: Action, resource: Resource, branches: Collection[str]) -> bool:
        return any(self._judge.allows(self.actor, action, resource, each) for each in branches)

    # --- the questions of lists and calls --------------------------------------------------

    def passes(self, gate: Gate) -> bool:
        """Whether some branch would let the actor through a gate."""
        generation = self._branches.look()
        if generation != self._generation:
            self._gates.clear()
            self._generation = generation
        found = self._gates.get(gate)
        if found is None:
            found = self._gates[gate] = self._passes(gate, self._branches.names)
        return found

    def _passes(self, gate: Gate, branches: tuple[str, ...]) -> bool:
        if gate.branch is not None:
            return self._passes_on(gate, gate.branch)
        if not all(self._somewhere(each, branches) for each in gate.needs):
            return False
        if gate.among is not None and not any(
            self._somewhere(each, branches) for each in gate.among
        ):
            return False
        return not gate.whole or any(self._passes_on(gate, each) for each in branches)

    def _somewhere(self, need: Need, branches: tuple[str, ...]) -> bool:
        return self._judge.allows_somewhere(self.actor, need.action, need.resource, branches)

    def passer(self, gate: Gate) -> Callable[[str], bool]:
        """Tells on which branches the actor is let through a gate."""
        return lambda branch: self._passes_on(gate, branch)

    def _passes_on(self, gate: Gate, branch: str) -> bool:
        return all(self.allows(each, branch) for each in gate.needs)

    def allows(self, need: Need, branch: str) -> bool:
        """Whether what is needed is allowed on a branch."""
        return self._judge.allows(self.actor, need.action, need.resource, branch)


def _field(type_name: str, field: str) -> Resource:
    return Resource("Field", f"{type_name}.{field}")
