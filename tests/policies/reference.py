"""Bare Cedar on all entities of a graph: what a judge is compared with."""

import json

import cedarpy

from trails import App, Node, node_type, predicate
from trails.authoring.capabilities import Context, capability
from trails.model.actors import Actor
from trails.model.capabilities import StoredQuery
from trails.model.decisions import Resource
from trails.policies.judge import CedarJudge, know_graph, make_judge
from trails.policies.policies import KnownNames
from trails.policies.sources import PolicyFile
from trails.policies.vocabulary import World, actor_records
from trails.registry.registry import Registry, with_queries


@node_type
class Person(Node):
    """Somebody."""

    name: str = predicate(key=True)
    salary: int | None = predicate()


@node_type
class Employee(Person):
    """Somebody who works here."""

    desk: str | None = predicate()


@node_type
class Room(Node):
    """Where people meet."""

    number: str = predicate(key=True)


@capability("people.count", side_effects=["none"])
def count(ctx: Context) -> int:
    """How many there are."""
    return Person.objects(ctx).count()


@capability("people.hire", side_effects=["sends mail", "spends money"])
def hire(ctx: Context, name: str) -> str:
    """Hire somebody."""
    return name


def make_registry() -> Registry:
    """Three types, two capabilities and two queries."""
    app = App(Person, Employee, Room, count, hire)
    queries = (
        StoredQuery("names", "All names.", "SELECT ?n { ?p :name ?n }"),
        StoredQuery("raise_all", "More.", "DELETE WHERE { ?p :salary ?s }", mutation=True),
    )
    return with_queries(app.registry(), queries)


REGISTRY = make_registry()
KNOWN: KnownNames = know_graph(REGISTRY, "main", ("main", "other"))


def judge_by(*texts: str) -> CedarJudge:
    """A judge by some policies on that registry."""
    sources = [PolicyFile(f"{at}.cedar", text) for at, text in enumerate(texts)]
    return make_judge(sources, KNOWN, "1")


class Bare:
    """Cedar without anything around it."""

    def __init__(self, text: str, world: World = KNOWN.world) -> None:
        self._policies = cedarpy.PolicySet.from_str(text)
        self._records = [each.record() for each in world.entities.values()]

    def allows(
        self, actor: Actor, action: str, resource: Resource, branch: str = "", target: str = ""
    ) -> bool:
        """Allowed, and without any error."""
        answer = cedarpy.is_authorized(
            {
                "principal": {"type": "Actor", "id": actor.name},
                "action": {"type": "Action", "id": action},
                "resource": {"type": resource.kind, "id": resource.id},
                "context": {"branch": branch, "target": target},
            },
            self._policies,
            json.dumps([*self._records, *actor_records(actor)]),
        )
        return answer.allowed and not answer.diagnostics.errors
