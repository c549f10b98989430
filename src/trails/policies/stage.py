"""The stage: as much of a world as some policies can tell apart.

A policy sees of a thing its kind, its attributes, and whether it is, or is part of, something
that a policy names. Things that agree in all of that are alike: whatever is decided about one
holds for the others. So one of each stands for all, and a graph with hundreds of fields needs
a handful of entities and decisions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

import cedarpy
import msgspec

from trails.model.actors import Actor
from trails.model.decisions import Resource
from trails.policies.entities import DATA, FORGOTTEN, Entity, World, actor_records
from trails.policies.heads import Uid
from trails.policies.policies import Policies, Policy


class Stage:
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
