"""CedarJudge: decides by some policies about some world, neither of which changes.

When a policy or the registry changes, there is another judge; so nothing that this one
remembers is ever out of date. Whatever goes wrong is a denial: Cedar skips a ``forbid`` that
fails, and would allow what it was to forbid.

Ask Cedar: one actor, one action, one thing, some places.

The stage: as much of a world as some policies can tell apart.

A policy sees of a thing its kind, its attributes, and whether it is, or is part of, something
that a policy names. Things that agree in all of that are alike: whatever is decided about one
holds for the others. So one of each stands for all, and a graph with hundreds of fields needs
a handful of entities and decisions.

Make the judge of a graph, or of the server, from texts and what there is.
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
from trails.policies.places import Place, join_conditions, kinds_of, places_for
from trails.policies.policies import KnownNames, Policies, Policy, read_policies
from trails.policies.sources import PolicyFile
from trails.policies.trees import Uid
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
    """Cedar's answers, with its own names of policies. Any error is a denial.

    Things are named by records, never by Cedar's syntax: a name may hold any character.
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
        # A name that is no Unicode text, for example: a caller may send anything.
        return [deny(error)] * len(places)
    return [_read(each) for each in answers]


def deny(error: Exception) -> Decision:
    """What is answered if Cedar can't be asked."""
    return Decision(False, errors=(f"{type(error).__name__}: {error}",))


def _read(answer: cedarpy.AuthzResult) -> Decision:
    errors = tuple(answer.diagnostics.errors)
    return Decision(answer.allowed and not errors, tuple(answer.diagnostics.reasons), errors)


class EntityClasses:
    """The things of a world, with who stands for whom."""

    def __init__(self, world: World, policies: Policies) -> None:
        self.world = world
        self._policies = policies.policies
        self._named = policies.mentioned_resources
        self._tells_data = any(each.kind in DATA for each in self._named)
        alike: dict[Hashable, Resource] = {}
        self.stands_for: Mapping[Resource, Resource] = {
            uid: alike.setdefault(self._seen_of(entity), uid)
            for uid, entity in world.entities.items()
        }
        """Each thing, with the one that is asked about instead."""
        records = [each.record() for each in self._entities()]
        self._base = cedarpy.Entities.from_json_str(msgspec.json.encode(records).decode())

    def _seen_of(self, entity: Entity) -> Hashable:
        """All that the policies can tell about a thing."""
        uid = entity.uid
        return (
            uid.kind,
            uid if uid in self._named else None,
            self.world.above(uid) & self._named,
            tuple(sorted(entity.attributes.items())),
        )

    def _entities(self) -> Iterator[Entity]:
        """Whoever stands for others, and whatever is named: policies may ask about that too."""
        for uid, entity in self.world.entities.items():
            if self.stands_for[uid] == uid:
                above = self.world.above(uid) & self._named
                yield Entity(uid, tuple(sorted(above, key=str)), entity.attributes)

    def find(self, resource: Resource) -> Resource | None:
        """What is asked about instead of a thing; None if nothing can be said about it.

        What a graph had declared once is like all other data, unless a policy tells some data
        from other: what it extended then is not known, and so not what holds for it.
        """
        found = self.stands_for.get(resource)
        if found is None and resource.kind in DATA and not self._tells_data:
            return self.stands_for.get(Resource(resource.kind, FORGOTTEN))
        return found

    def about(self, actor: Actor) -> list[Policy]:
        """The policies that may apply to an actor, whatever it does."""
        uid, groups = ("Actor", actor.name), {("Group", each) for each in actor.groups}
        return [each for each in self._policies if each.principal.fits(uid, groups)]

    def uids_above(self, resource: Resource) -> frozenset[Uid]:
        """Everything that a thing is part of, as heads of policies name it."""
        return frozenset((each.kind, each.id) for each in self.world.above(resource))

    def with_actor(self, actor: Actor) -> cedarpy.Entities:
        """The stage with one actor and its groups on it."""
        return self._base.with_added_json_str(msgspec.json.encode(actor_records(actor)).decode())


Standing = tuple[str, frozenset[str], frozenset[str]]

_ACTORS: Final = 256
_DECISIONS: Final = 1 << 16
_BRANCHES: Final = 8
"""Sets of branches about which answers are remembered; a set may be large."""
_TOLD: Final = 100
_NAME: Final = re.compile(r"policy `(policy\d+)`")
_logger: Final = logging.getLogger("trails")


class CedarJudge:
    """Answers from policies, and remembers what it answered."""

    def __init__(self, policies: Policies, stage: EntityClasses, version: str) -> None:
        self.policies = policies
        self.stage = stage
        self.version = version
        self._actors: LRUCache[Standing, cedarpy.Entities] = LRUCache(_ACTORS)
        self._policies_about: LRUCache[Standing, list[Policy]] = LRUCache(_ACTORS)
        self._decided: dict[object, bool] = {}
        self._somewhere: LRUCache[frozenset[str], dict[object, bool]] = LRUCache(_BRANCHES)
        self._told: set[str] = set()

    @property
    def current(self) -> CedarJudge:
        """Itself."""
        return self

    def allows(
        self, actor: Actor, action: Action, resource: Resource, branch: str = "", target: str = ""
    ) -> bool:
        """Whether some policy permits it, none forbids it, and all could be asked."""
        asked = self.stage.find(resource)
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
        """Whether it is allowed on one of these branches, or between two of them.

        A fork is to a branch that is not there yet, so it is allowed somewhere if it is to some
        name. Where policies compare the two branches of a fork or merge in ways that can't be
        foreseen, the answer is yes, and each call is decided by itself.
        """
        if len(branches) == 1 and action not in PAIRS:
            return self.allows(actor, action, resource, *branches)
        asked = self.stage.find(resource)
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
        """Each branch, with one of them on which all is decided alike for this actor."""
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
        """The policies that may apply, whatever their conditions say."""
        uid, above = (resource.kind, resource.id), self.stage.uids_above(resource)
        return [
            each
            for each in self._about(actor)
            if each.is_about(action) and each.resource.fits(uid, above)
        ]

    def _about(self, actor: Actor) -> list[Policy]:
        standing = (actor.name, actor.groups, actor.scopes)
        return self._policies_about.get(standing, lambda: self.stage.about(actor))

    def _ask(
        self, actor: Actor, action: Action, asked: Resource, places: Sequence[Place]
    ) -> list[bool]:
        """Answers for some places: those that are remembered, or new ones, which then are."""
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
        """Ask Cedar about one thing in some places, with all reasons and nothing from memory."""
        try:
            entities = self.entities_with(actor)
        except ValueError as error:
            return [deny(error)] * len(places)
        found = ask_cedar(self.policies.handle, entities, (actor, action, resource), places)
        return [self._label(each) for each in found]

    def entities_with(self, actor: Actor) -> cedarpy.Entities:
        """What Cedar is told about; raises ValueError if the actor can't be told about."""
        standing = (actor.name, actor.groups, actor.scopes)
        return self._actors.get(standing, lambda: self.stage.with_actor(actor))

    def _label(self, decision: Decision) -> Decision:
        labels = tuple(self.policies.label(each) for each in decision.policies)
        errors = tuple(_NAME.sub(self._name, each) for each in decision.errors)
        for error in errors:
            if error not in self._told and len(self._told) < _TOLD:
                self._told.add(error)
                _logger.warning("a policy failed, so what was asked is denied: %s", error)
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
"""What holds where credentials are asked for and nobody has said what they permit."""


def know_graph(registry: Registry, graph: str, graphs: Collection[str]) -> KnownNames:
    """What the policies of a graph can speak of."""
    world = graph_world(registry, graph)
    schema = project_schema(registry, graph)
    return KnownNames(schema, GRAPH_ACTIONS, SERVER_ACTIONS, world, graphs)


def know_server(graphs: Collection[str]) -> KnownNames:
    """What the policies of the server can speak of."""
    return KnownNames(
        server_schema(graphs), SERVER_ACTIONS, GRAPH_ACTIONS, server_world(graphs), graphs
    )


def make_judge(sources: Iterable[PolicyFile], known: KnownNames, version: str) -> CedarJudge:
    """Who decides by some files; ``version`` says which state of the world they decide about."""
    policies = read_policies(sources, known)
    return CedarJudge(
        policies, EntityClasses(known.world, policies), f"{policies.digest}-{version}"
    )
