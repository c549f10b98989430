"""Entities: the things that policies speak of, and what each is part of.

Pure: the same registry gives the same entities. Actors are not among them; they come with
the requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from trails.model.actors import Actor
from trails.model.decisions import Resource
from trails.policies.vocabulary import SERVER
from trails.registry.registry import Registry

DATA: Final = frozenset({"Type", "Field"})
FORGOTTEN: Final = ""
"""Stands for types and fields that commits of the past have, and the registry has no more."""
Attributes = Mapping[str, bool | str | tuple[str, ...]]
NO_ATTRIBUTES: Final[Attributes] = MappingProxyType({})


class Entity(msgspec.Struct, frozen=True):
    """One thing: what can be asked of it, and what it is directly part of."""

    uid: Resource
    parents: tuple[Resource, ...] = ()
    attributes: Attributes = NO_ATTRIBUTES

    def record(self) -> dict[str, object]:
        """As Cedar's JSON has it."""
        return {
            "uid": {"type": self.uid.kind, "id": self.uid.id},
            "attrs": dict(self.attributes),
            "parents": [{"type": each.kind, "id": each.id} for each in self.parents],
        }


class World:
    """All things of one graph, or of the server."""

    def __init__(self, entities: Iterable[Entity]) -> None:
        self.entities: Mapping[Resource, Entity] = {each.uid: each for each in entities}
        self._above: dict[Resource, frozenset[Resource]] = {}

    def above(self, uid: Resource) -> frozenset[Resource]:
        """Everything that a thing is part of, without itself."""
        found = self._above.get(uid)
        if found is None:
            entity = self.entities.get(uid)
            parents = () if entity is None else entity.parents
            found = frozenset(parents).union(*(self.above(each) for each in parents))
            self._above[uid] = found
        return found

    def names(self, kind: str) -> list[str]:
        """The ids of one kind of thing."""
        return [uid.id for uid in self.entities if uid.kind == kind and uid.id != FORGOTTEN]


def graph_world(registry: Registry, graph: str) -> World:
    """The things of a graph."""
    return World(_of_graph(registry, graph))


def server_world(graphs: Iterable[str]) -> World:
    """The server and its graphs."""
    server = Resource("Server", SERVER)
    return World((Entity(server), *(Entity(Resource("Graph", each), (server,)) for each in graphs)))


def _of_graph(registry: Registry, graph: str) -> Iterator[Entity]:
    server, whole = Resource("Server", SERVER), Resource("Graph", graph)
    yield Entity(server)
    yield Entity(whole, (server,))
    yield from _of_types(registry, whole)
    for query in registry.queries.values():
        yield Entity(Resource("Query", query.name), (whole,), {"changes": query.mutation})
    for capability in (*registry.capabilities.values(), *registry.metas.values()):
        given = capability.descriptor
        attributes: Attributes = {"reads_only": given.reads_only, "effects": given.side_effects}
        yield Entity(Resource("Capability", capability.id), (whole,), attributes)


def _of_types(registry: Registry, whole: Resource) -> Iterator[Entity]:
    """A type is part of the one it extends, and a field of the one it is inherited from."""
    forgotten = Resource("Type", FORGOTTEN)
    yield Entity(forgotten, (whole,))
    yield Entity(Resource("Field", FORGOTTEN), (forgotten,))
    types = registry.types
    for each in types.values():
        extended = types.get(each.extends or "")
        own = Resource("Type", each.name)
        general = () if extended is None else (Resource("Type", extended.name),)
        yield Entity(own, (whole, *general))
        for field in each.fields:
            inherited = (
                (Resource("Field", f"{extended.name}.{field.name}"),)
                if extended is not None and field.name in extended.by_name
                else ()
            )
            yield Entity(Resource("Field", f"{each.name}.{field.name}"), (own, *inherited))


def actor_records(actor: Actor) -> list[dict[str, object]]:
    """An actor and its groups, as Cedar's JSON has them."""
    groups = [{"type": "Group", "id": each} for each in sorted(actor.groups)]
    uid = {"type": "Actor", "id": actor.name}
    attributes = {"name": actor.name, "scopes": sorted(actor.scopes)}
    records: list[dict[str, object]] = [{"uid": uid, "attrs": attributes, "parents": groups}]
    records += [{"uid": each, "attrs": {}, "parents": []} for each in groups]
    return records
