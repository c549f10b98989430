"""CedarJudge: decides requests by a fixed set of policies and entities.

When a policy or the registry changes, a new judge is made, so its caches never become stale.
Every failure is a denial: Cedar skips a ``forbid`` that fails to evaluate, and would allow
what it was meant to forbid.

``EntityClasses`` groups entities that no policy can tell apart (same kind, attributes and
mentioned ancestors) and asks Cedar about one of each group, so a graph with hundreds of
fields needs a handful of decisions. ``places`` does the same for branches.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import cedarpy
import msgspec

from trails.model.actors import Actor
from trails.model.caches import LRUCache
from trails.model.capabilities import Action
from trails.model.decisions import Decision, Resource
from trails.policies.places import Place, Uid, join_conditions, kinds_of, places_for
from trails.policies.policies import KnownNames, Policies, Policy, read_policies
from trails.policies.sources import PolicyFile
from trails.policies.vocabulary import (
    DATA,
    FORGOTTEN,
    GRAPH_ACTIONS,
    PAIRS,
    SERVER_ACTIONS,
    Entity,
    World,
    actor_records,
    graph_world,
    project_schema,
    server_schema,
    server_world,
)
from trails.registry.registry import Registry


def ask_cedar(
    policies: cedarpy.PolicySet,
    entities: cedarpy.Entities,
    asked: tuple[Actor, Action, Resource],
    places: Sequence[Place],
) -> list[Decision]:
    """Return Cedar's decisions, with its own policy names. Any error is a denial.

    Entities are passed as records, not in Cedar's syntax: a name may contain any character.
    """
    actor, action, resource = asked
    try:
        requests = [
            {
                "principal": {"type": "Actor", "id": actor.name},
                "action": {"type": "Action", "id": action},
                "resource": {"type": resource.kind, "id": resource.id},
                "context": msgspec.json.encode({"branch": branch, "target": target}).decode(),
            }
            for branch, target in places
        ]
        answers = cedarpy.is_authorized_batch(requests, policies, entities)
    except (ValueError, TypeError, KeyError) as error:
        # For example a name with lone surrogates: a caller may send anything.
        return [deny(error)] * len(places)
    return [_read(each) for each in answers]


def deny(error: Exception) -> Decision:
    """Return the decision for a request that Cedar can't evaluate."""
    return Decision(False, errors=(f"{type(error).__name__}: {error}",))


def _read(answer: cedarpy.AuthzResult) -> Decision:
    errors = tuple(answer.diagnostics.errors)
    return Decision(answer.allowed and not errors, tuple(answer.diagnostics.reasons), errors)


class EntityClasses:
    """Entities grouped by what the policies can distinguish, with one representative each."""

    def __init__(self, world: World, policies: Policies) -> None:
        self.world = world
        self._policies = policies.policies
        self._named = policies.mentioned_resources
        self._mentions_data = any(each.kind in DATA for each in self._named)
        alike: dict[Hashable, Resource] = {}
        self.representatives: Mapping[Resource, Resource] = {
            uid: alike.setdefault(self._signature(entity), uid)
            for uid, entity in world.entities.items()
        }
        """Each resource with its representative."""
        records = [each.record() for each in self._entities()]
        self._base = cedarpy.Entities.from_json_str(msgspec.json.encode(records).decode())

    def _signature(self, entity: Entity) -> Hashable:
        """Return all that the policies can distinguish about an entity."""
        uid = entity.uid
        return (
            uid.kind,
            uid if uid in self._named else None,
            self.world.above(uid) & self._named,
            tuple(sorted(entity.attributes.items())),
        )

    def _entities(self) -> Iterator[Entity]:
        """Yield the representatives and all entities that a policy mentions."""
        for uid, entity in self.world.entities.items():
            if self.representatives[uid] == uid:
                above = self.world.above(uid) & self._named
                yield Entity(uid, tuple(sorted(above, key=str)), entity.attributes)

    def find(self, resource: Resource) -> Resource | None:
        """Return a resource's representative; None if it is unknown.

        Types and fields that a graph no longer declares count as plain data, unless a policy
        mentions a type or field: their supertypes are unknown then, and so are the policies that
        would apply.
        """
        found = self.representatives.get(resource)
        if found is None and resource.kind in DATA and not self._mentions_data:
            return self.representatives.get(Resource(resource.kind, FORGOTTEN))
        return found

    def about(self, actor: Actor) -> list[Policy]:
        """Return the policies that may apply to an actor."""
        uid, groups = ("Actor", actor.name), {("Group", each) for each in actor.groups}
        return [each for each in self._policies if each.principal.fits(uid, groups)]

    def uids_above(self, resource: Resource) -> frozenset[Uid]:
        """Return the ancestors of a resource, as uids for matching the heads of policies."""
        return frozenset((each.kind, each.id) for each in self.world.above(resource))

    def with_actor(self, actor: Actor) -> cedarpy.Entities:
        """Return the entities with one actor and its groups added."""
        return self._base.with_added_json_str(msgspec.json.encode(actor_records(actor)).decode())


ActorKey = tuple[str, frozenset[str], frozenset[str]]

_ACTORS: Final = 256
_DECISIONS: Final = 1 << 16
_BRANCHES: Final = 8
"""Sets of branches whose answers are cached; a set may be large."""
_MOST_LOGGED: Final = 100
_NAME: Final = re.compile(r"policy `(policy\d+)`")
_logger: Final = logging.getLogger("trails")


class CedarJudge:
    """Decides requests by Cedar policies, and caches its answers."""

    def __init__(self, policies: Policies, classes: EntityClasses, version: str) -> None:
        self.policies = policies
        self.classes = classes
        self.version = version
        self._actors: LRUCache[ActorKey, cedarpy.Entities] = LRUCache(_ACTORS)
        self._policies_about: LRUCache[ActorKey, list[Policy]] = LRUCache(_ACTORS)
        self._decided: dict[object, bool] = {}
        self._somewhere: LRUCache[frozenset[str], dict[object, bool]] = LRUCache(_BRANCHES)
        self._logged: set[str] = set()

    @property
    def current(self) -> CedarJudge:
        return self

    def allows(
        self, actor: Actor, action: Action, resource: Resource, branch: str = "", target: str = ""
    ) -> bool:
        """Whether a policy permits the request, none forbids it, and all could be evaluated."""
        asked = self.classes.find(resource)
        if asked is None:
            return False
        key = (actor.name, actor.groups, actor.scopes, action, asked, branch, target)
        found = self._decided.get(key)
        if found is None:
            (found,) = self._ask(actor, action, asked, ((branch, target),))
        return found

    def allows_somewhere(
        self, actor: Actor, action: Action, resource: Resource, branches: Collection[str]
    ) -> bool:
        """Whether the action is allowed on one of these branches, or between two of them.

        A fork creates a branch, so it is allowed somewhere if it is allowed for some name. If
        policies compare the two branches of a fork or merge in a way that can't be analysed, the
        answer is yes, and each call is decided separately.
        """
        if len(branches) == 1 and action not in PAIRS:
            return self.allows(actor, action, resource, *branches)
        asked = self.classes.find(resource)
        if asked is None:
            return False
        names = branches if isinstance(branches, frozenset) else frozenset(branches)
        known = self._somewhere.get(names, dict)
        key = (actor.name, actor.groups, actor.scopes, action, asked)
        found = known.get(key)
        if found is None:
            if len(known) >= _DECISIONS:
                known.clear()
            found = known[key] = self._find_somewhere(actor, action, asked, names)
        return found

    def alike(self, actor: Actor, branches: Collection[str]) -> Mapping[str, str]:
        """Map each branch to one for which all decisions about this actor are the same."""
        conditions = join_conditions(each.conditions for each in self._about(actor))
        return kinds_of(conditions.for_actor(actor), frozenset(branches))

    def _find_somewhere(
        self, actor: Actor, action: Action, asked: Resource, branches: frozenset[str]
    ) -> bool:
        concerned = self.concerned(actor, action, asked)
        if not any(policy.permits for policy in concerned):
            return False
        conditions = join_conditions(policy.conditions for policy in concerned)
        places = places_for(action, conditions.for_actor(actor), branches)
        if places is None:
            return True
        return any(
            any(self._ask(actor, action, asked, some)) for some in (places[:1], places[1:]) if some
        )

    def concerned(self, actor: Actor, action: Action, resource: Resource) -> list[Policy]:
        """Return the policies that may apply, whatever their conditions."""
        uid, above = (resource.kind, resource.id), self.classes.uids_above(resource)
        return [
            each
            for each in self._about(actor)
            if each.is_about(action) and each.resource.fits(uid, above)
        ]

    def _about(self, actor: Actor) -> list[Policy]:
        key = (actor.name, actor.groups, actor.scopes)
        return self._policies_about.get(key, lambda: self.classes.about(actor))

    def _ask(
        self, actor: Actor, action: Action, asked: Resource, places: Sequence[Place]
    ) -> list[bool]:
        """Return the answers for some places, from the cache where possible."""
        about = (actor.name, actor.groups, actor.scopes, action, asked)
        known = [self._decided.get((*about, *place)) for place in places]
        if None not in known:
            return [bool(each) for each in known]
        decisions = self.decide(actor, action, asked, places)
        return [
            self._keep((*about, *place), decision.allowed)
            for place, decision in zip(places, decisions, strict=True)
        ]

    def _keep(self, key: object, answer: bool) -> bool:  # noqa: FBT001
        if len(self._decided) >= _DECISIONS:
            self._decided = {}
        self._decided[key] = answer
        return answer

    def decide(
        self, actor: Actor, action: Action, resource: Resource, places: Sequence[Place]
    ) -> list[Decision]:
        """Ask Cedar about one resource in some places, with reasons and without the cache."""
        try:
            entities = self.entities_with(actor)
        except ValueError as error:
            return [deny(error)] * len(places)
        found = ask_cedar(self.policies.handle, entities, (actor, action, resource), places)
        return [self._label(each) for each in found]

    def entities_with(self, actor: Actor) -> cedarpy.Entities:
        """Return the entities for Cedar; raise ValueError if the actor can't be represented."""
        key = (actor.name, actor.groups, actor.scopes)
        return self._actors.get(key, lambda: self.classes.with_actor(actor))

    def _label(self, decision: Decision) -> Decision:
        labels = tuple(self.policies.label(each) for each in decision.policies)
        errors = tuple(_NAME.sub(self._name, each) for each in decision.errors)
        for error in errors:
            if error not in self._logged and len(self._logged) < _MOST_LOGGED:
                self._logged.add(error)
                _logger.warning(
                    "A policy failed to evaluate, so the request was denied: %s",
                    error,
                    extra={"event": "policy.failed", "quotes": True},
                )
        return Decision(decision.allowed, labels, errors)

    def _name(self, found: re.Match[str]) -> str:
        return f"policy {self.policies.label(found[1])!r}"


READ_ONLY: Final = PolicyFile(
    "read-only (built in)",
    """
@id("read-only: data")
permit(principal, action in [Action::"Read", Action::"Export"], resource);
@id("read-only: queries")
permit(principal, action == Action::"InvokeQuery", resource) when { !resource.changes };
@id("read-only: capabilities")
permit(principal, action == Action::"InvokeCapability", resource) when { resource.reads_only };
""",
)
"""The policies in force if credentials are required and no policies are configured."""


def know_graph(registry: Registry, graph: str, graphs: Collection[str]) -> KnownNames:
    """Return the names that the policies of a graph may mention."""
    world = graph_world(registry, graph)
    schema = project_schema(registry, graph)
    return KnownNames(schema, GRAPH_ACTIONS, SERVER_ACTIONS, world, graphs)


def know_server(graphs: Collection[str]) -> KnownNames:
    """Return the names that the policies of the server may mention."""
    return KnownNames(
        server_schema(graphs), SERVER_ACTIONS, GRAPH_ACTIONS, server_world(graphs), graphs
    )


def make_judge(sources: Iterable[PolicyFile], known: KnownNames, version: str) -> CedarJudge:
    """Make a judge from policy files; ``version`` identifies the state of the registry."""
    policies = read_policies(sources, known)
    return CedarJudge(
        policies, EntityClasses(known.world, policies), f"{policies.digest}-{version}"
    )
