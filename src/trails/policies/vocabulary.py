"""The vocabulary of policies: actions, the Cedar schema, and entities.

Pure: the same registry gives the same schema text and the same entities. The entity types are
the same for every graph; the schema lists the existing names beside each type, as a help for
authors of policies. Actors are not entities here: they come with the requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, get_args

import msgspec

from trails.errors import NotFoundError, PolicyError
from trails.model.actors import Actor
from trails.model.capabilities import Action
from trails.model.decisions import PolicyQuestion, Resource, ResourceKind
from trails.model.names import suggest
from trails.registry.registry import Registry

SERVER: Final = "trails"
"""The id of the server entity."""

GRAPH_ACTIONS: Final[Mapping[Action, tuple[ResourceKind, ...]]] = {
    "Read": ("Graph", "Type", "Field"),
    "Export": ("Graph",),
    "Change": ("Graph", "Type"),
    "SchemaApply": ("Graph",),
    "BranchCreate": ("Graph",),
    "BranchDelete": ("Graph",),
    "BranchMerge": ("Graph",),
    "Admin": ("Graph",),
    "InvokeQuery": ("Query",),
    "InvokeCapability": ("Capability",),
}
"""The actions on a graph, and the entity types they apply to."""
SERVER_ACTIONS: Final[Mapping[Action, tuple[ResourceKind, ...]]] = {"GraphList": ("Server",)}
"""The actions on the server."""
PAIRS: Final[frozenset[Action]] = frozenset({"BranchCreate", "BranchMerge"})
"""Actions on two branches."""

CONTEXT: Final = ("branch", "target")
ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "Group": {},
    "Actor": {"name": "String", "scopes": "Set<String>"},
    "Server": {},
    "Graph": {},
    "Type": {},
    "Field": {},
    "Query": {"changes": "Bool"},
    "Capability": {"reads_only": "Bool", "effects": "Set<String>"},
}
"""The attributes of each entity type."""
_PARENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "Actor": ("Group",),
    "Graph": ("Server",),
    "Type": ("Graph", "Type"),
    "Field": ("Type", "Field"),
    "Query": ("Graph",),
    "Capability": ("Graph",),
}


def project_schema(registry: Registry, graph: str) -> str:
    """Return the Cedar schema for the policies of one graph."""
    there: Mapping[str, Iterable[str]] = {
        "Graph": (graph,),
        "Type": registry.types,
        "Query": registry.queries,
        "Capability": sorted((*registry.capabilities, *registry.metas)),
    }
    return _schema(f"Policies of the graph {graph!r}.", tuple(ATTRIBUTES), GRAPH_ACTIONS, there)


def server_schema(graphs: Iterable[str]) -> str:
    """Return the Cedar schema for the policies of the server."""
    kinds = ("Group", "Actor", "Server", "Graph")
    there: Mapping[str, Iterable[str]] = {"Server": (SERVER,), "Graph": graphs}
    return _schema("Policies of the server.", kinds, SERVER_ACTIONS, there)


def _schema(
    title: str,
    kinds: Iterable[str],
    actions: Mapping[Action, tuple[ResourceKind, ...]],
    there: Mapping[str, Iterable[str]],
) -> str:
    """List the entity types, each with the existing names; then the actions."""
    lines = [f"// {title}", ""]
    for kind in kinds:
        lines += [f'// {kind}::"{each}"' for each in there.get(kind, ())]
        lines.append(_entity(kind))
    lines += ["", f"type Place = {{{', '.join(f'{name}: String' for name in CONTEXT)}}};"]
    lines += [
        f"action {action} appliesTo {{principal: [Actor], resource: [{', '.join(applies)}], "
        "context: Place};"
        for action, applies in actions.items()
    ]
    return "\n".join(lines) + "\n"


def _entity(kind: str) -> str:
    parents = _PARENTS.get(kind, ())
    within = f" in [{', '.join(parents)}]" if parents else ""
    attributes = ", ".join(f"{name}: {type}" for name, type in ATTRIBUTES[kind].items())
    return f"entity {kind}{within}{f' {{{attributes}}}' if attributes else ''};"


DATA: Final = frozenset({"Type", "Field"})
FORGOTTEN: Final = ""
"""Represents types and fields that old commits have and the registry no longer has."""
Attributes = Mapping[str, bool | str | tuple[str, ...]]
NO_ATTRIBUTES: Final[Attributes] = MappingProxyType({})


class Entity(msgspec.Struct, frozen=True):
    """An entity: its attributes and its direct parents."""

    uid: Resource
    parents: tuple[Resource, ...] = ()
    attributes: Attributes = NO_ATTRIBUTES

    def record(self) -> dict[str, object]:
        """Return the entity in Cedar's JSON form."""
        return {
            "uid": {"type": self.uid.kind, "id": self.uid.id},
            "attrs": dict(self.attributes),
            "parents": [{"type": each.kind, "id": each.id} for each in self.parents],
        }


class World:
    """All entities of one graph, or of the server."""

    def __init__(self, entities: Iterable[Entity]) -> None:
        self.entities: Mapping[Resource, Entity] = {each.uid: each for each in entities}
        self._above: dict[Resource, frozenset[Resource]] = {}

    def above(self, uid: Resource) -> frozenset[Resource]:
        """Return all ancestors of an entity."""
        found = self._above.get(uid)
        if found is None:
            entity = self.entities.get(uid)
            parents = () if entity is None else entity.parents
            found = frozenset(parents).union(*(self.above(each) for each in parents))
            self._above[uid] = found
        return found

    def names(self, kind: str) -> list[str]:
        """Return the ids of one entity type."""
        return [uid.id for uid in self.entities if uid.kind == kind and uid.id != FORGOTTEN]


def graph_world(registry: Registry, graph: str) -> World:
    return World(_of_graph(registry, graph))


def server_world(graphs: Iterable[str]) -> World:
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
    """Yield types, each below the one it extends, and fields, each below the inherited one."""
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
    """Return an actor and its groups in Cedar's JSON form."""
    groups = [{"type": "Group", "id": each} for each in sorted(actor.groups)]
    uid = {"type": "Actor", "id": actor.name}
    attributes = {"name": actor.name, "scopes": sorted(actor.scopes)}
    records: list[dict[str, object]] = [{"uid": uid, "attrs": attributes, "parents": groups}]
    records += [{"uid": each, "attrs": {}, "parents": []} for each in groups]
    return records


_KINDS: Final = get_args(ResourceKind)


def find_resource(world: World, question: PolicyQuestion, whole: Resource) -> Resource:
    """Find ``Type::Person``, a unique id, or ``whole`` if none is named."""
    if not question.resource:
        return _check_whole(question, whole)
    kind, separator, identifier = question.resource.partition("::")
    if not separator:
        kind, identifier = "", question.resource
    elif kind not in _KINDS:
        raise PolicyError(f"unknown entity type {kind!r}; {suggest(kind, _KINDS)}")
    identifier = identifier.removeprefix('"').removesuffix('"')
    of_kind = [each for each in world.entities if kind in {"", each.kind}]
    found = [each for each in of_kind if each.id == identifier]
    if len(found) == 1:
        return found[0]
    if found:
        spelled = " or ".join(f"{each.kind}::{each.id}" for each in found)
        raise PolicyError(f"{identifier!r} is ambiguous: use {spelled}")
    hint = suggest(identifier, [each.id for each in of_kind])
    raise NotFoundError(f"there is no {kind or 'resource'} {identifier!r}; {hint}")


def _check_whole(question: PolicyQuestion, whole: Resource) -> Resource:
    kinds = {**GRAPH_ACTIONS, **SERVER_ACTIONS}[question.action]
    if whole.kind not in kinds:
        raise PolicyError(
            f"{question.action} applies to a {' or '.join(kinds)}; name one: {kinds[0]}::<name>"
        )
    return whole
