"""The vocabulary of policies: which actions there are, and the Cedar schema that says so.

A schema is text, generated from a registry: the same registry gives the same bytes. The kinds
of things are the same for every graph; which things there are stands beside each kind, for
whoever writes a policy.

Entities: the things that policies speak of, and what each is part of.

Pure: the same registry gives the same entities. Actors are not among them; they come with
the requests.

Find the thing that somebody means, as people write it.
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
"""The id of the one server that there is for its policies."""

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
"""What is asked about a graph, and of which things."""
SERVER_ACTIONS: Final[Mapping[Action, tuple[ResourceKind, ...]]] = {"GraphList": ("Server",)}
"""What is asked about the server."""
PAIRS: Final[frozenset[Action]] = frozenset({"BranchCreate", "BranchMerge"})
"""Actions that are about two branches."""

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
"""What a policy can ask of each kind of thing."""
_PARENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "Actor": ("Group",),
    "Graph": ("Server",),
    "Type": ("Graph", "Type"),
    "Field": ("Type", "Field"),
    "Query": ("Graph",),
    "Capability": ("Graph",),
}


def project_schema(registry: Registry, graph: str) -> str:
    """The Cedar schema of one graph's policies."""
    there: Mapping[str, Iterable[str]] = {
        "Graph": (graph,),
        "Type": registry.types,
        "Query": registry.queries,
        "Capability": sorted((*registry.capabilities, *registry.metas)),
    }
    return _schema(f"Policies of the graph {graph!r}.", tuple(ATTRIBUTES), GRAPH_ACTIONS, there)


def server_schema(graphs: Iterable[str]) -> str:
    """The Cedar schema of policies about the server itself."""
    kinds = ("Group", "Actor", "Server", "Graph")
    there: Mapping[str, Iterable[str]] = {"Server": (SERVER,), "Graph": graphs}
    return _schema("Policies of the server.", kinds, SERVER_ACTIONS, there)


def _schema(
    title: str,
    kinds: Iterable[str],
    actions: Mapping[Action, tuple[ResourceKind, ...]],
    there: Mapping[str, Iterable[str]],
) -> str:
    """Kinds of things, each with what there is of it; then the actions."""
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


_KINDS: Final = get_args(ResourceKind)


def find_resource(world: World, question: PolicyQuestion, whole: Resource) -> Resource:
    """``Type::Person``, an id that only one thing has, or the whole where none is named."""
    if not question.resource:
        return _check_whole(question, whole)
    kind, separator, identifier = question.resource.partition("::")
    if not separator:
        kind, identifier = "", question.resource
    elif kind not in _KINDS:
        raise PolicyError(f"there is no kind of thing {kind!r}; {suggest(kind, _KINDS)}")
    identifier = identifier.removeprefix('"').removesuffix('"')
    of_kind = [each for each in world.entities if kind in {"", each.kind}]
    found = [each for each in of_kind if each.id == identifier]
    if len(found) == 1:
        return found[0]
    if found:
        spelled = " or ".join(f"{each.kind}::{each.id}" for each in found)
        raise PolicyError(f"{identifier!r} may be {spelled}; say which")
    hint = suggest(identifier, [each.id for each in of_kind])
    raise NotFoundError(f"there is no {kind or 'thing'} {identifier!r}; {hint}")


def _check_whole(question: PolicyQuestion, whole: Resource) -> Resource:
    kinds = {**GRAPH_ACTIONS, **SERVER_ACTIONS}[question.action]
    if whole.kind not in kinds:
        raise PolicyError(
            f"{question.action} is done to a {' or '.join(kinds)}; say which: {kinds[0]}::<name>"
        )
    return whole
