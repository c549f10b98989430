"""Writes and history in calls: results, failures and what is suggested, as without hidden parts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator, Mapping

import msgspec
import pytest
from tests.journeys.access.worlds import HIDDEN_WORDS, SIGHT, World, anonymous, plain, settle, whole

from trails.model.actors import Actor
from trails.model.capabilities import Action
from trails.model.decisions import Judge, Resource
from trails.model.results import Failure
from trails.model.visibility import FULL, Visibility
from trails.request.admission import KernelOptions
from trails.request.pipeline import Kernel

AGENT = Actor("agent", credential="token")


class Hides:
    """Lets everybody do everything but read what the sight hides."""

    version = "1"

    def __init__(self, sight: Visibility) -> None:
        self._sight = sight

    @property
    def current(self) -> Hides:
        """Itself: it never changes."""
        return self

    def allows(
        self, actor: Actor, action: Action, resource: Resource, branch: str = "", target: str = ""
    ) -> bool:
        """Whether it is not hidden."""
        del actor, branch, target
        if action != "Read" or resource.kind not in {"Type", "Field"}:
            return True
        name, _, field = resource.id.partition(".")
        return name not in self._sight.hidden and field not in self._sight.hidden_fields.get(
            name, ()
        )

    def allows_somewhere(
        self, actor: Actor, action: Action, resource: Resource, branches: Collection[str]
    ) -> bool:
        """The same on every branch."""
        del branches
        return self.allows(actor, action, resource)

    def alike(self, actor: Actor, branches: Collection[str]) -> Mapping[str, str]:
        """All are."""
        del actor
        return dict.fromkeys(branches, next(iter(branches), ""))


class Served:
    """A world with its kernel."""

    def __init__(self, world: World, judge: Judge) -> None:
        self.world = world
        self.kernel = Kernel(world.app.service(), KernelOptions(judge=judge))

    def call(self, tool: str, **arguments: object) -> object:
        """What an agent is told."""
        outcome = asyncio.run(self.kernel.execute(AGENT, tool, arguments))
        if isinstance(outcome, Failure):
            return anonymous(msgspec.to_builtins(outcome))
        return anonymous(json.loads(outcome.body))


@pytest.fixture
def both() -> Iterator[tuple[Served, Served]]:
    """The project with hidden parts, and the one that never had them."""
    with whole() as secretive, plain() as open_one:
        served = Served(settle(secretive), Hides(SIGHT)), Served(settle(open_one), Hides(FULL))
        yield served
        for each in served:
            each.kernel.close()


def _op(op: str, type_name: str, **data: object) -> dict[str, object]:
    return {"operations": [{"op": op, "type": type_name, "data": data}]}


def _line(type_name: str, **data: object) -> dict[str, object]:
    return {"data": json.dumps({"type": type_name, "data": data}), "format": "ndjson"}


CALLS: list[tuple[str, dict[str, object]]] = [
    ("graph_mutate", _op("create", "Person", email="new@x", name="New")),
    ("graph_mutate", _op("create", "Person", email="c@x", name="C", salary=1)),
    ("graph_mutate", _op("create", "Person", email="c@x", name="C", salry=1)),
    ("graph_mutate", _op("create", "Person", email="c@x", nam="C")),
    ("graph_mutate", _op("create", "Vault", code="v")),
    ("graph_mutate", _op("create", "Vautl", code="v")),
    ("graph_mutate", _op("create", "Desk", code="e", main="Laptop/L0")),
    ("graph_mutate", _op("create", "Person", email="c@x", name="C", badge="1")),
    ("graph_load", _line("Person", email="d@x", name="D")),
    ("graph_load", _line("Person", email="d@x", name="D", secrets=["x"])),
    ("graph_load", _line("Laptop", tag="L0")),
    ("people.add", {"person": {"email": "e@x", "name": "E"}}),
    ("people.add", {"person": {"email": "f@x", "name": "F", "salary": 1}}),
    ("people.add", {"person": {"email": "f@x", "name": "F", "salry": 1}}),
    ("people.add", {"person": {"email": "f@x", "nme": "F"}}),
    ("people.add", {"person": {"email": "ann@x", "name": "F"}}),
    ("people.rename", {"person": "Person/ann%40x", "name": "Anna"}),
    ("people.rename", {"person": "an@x", "name": "Anna"}),
    ("people.rename", {"person": "Laptop/L0", "name": "Anna"}),
    ("people.rename", {"person": "Person/ann%40x", "name": "n" * 13}),
    ("tasks.drop", {"task": "T9"}),
    ("commit_list", {"limit": 3}),
    ("commit_list", {"node": "Laptop/L0"}),
    ("commit_list", {"node": "Person/ann%40x"}),
    ("commit_get", {"commit": "main"}),
    ("commit_get", {"commit": "mian"}),
    ("branch_create", {"name": "side"}),
    ("branch_delete", {"name": "sid"}),
    ("branch_delete", {"name": "side"}),
]


@pytest.mark.req("E11a")
def test_calls_are_answered_as_without_the_hidden_parts(both: tuple[Served, Served]) -> None:
    """Results, errors, suggestions and corrected arguments are those of the plain project."""
    secretive, open_one = both
    for tool, arguments in CALLS:
        there = secretive.call(tool, **arguments)
        assert there == open_one.call(tool, **arguments), (tool, arguments)
        echoed = HIDDEN_WORDS.search(json.dumps(arguments)) is not None
        assert echoed or not HIDDEN_WORDS.search(json.dumps(there))
    assert secretive.world.seen() == open_one.world.seen()


REFUSED: list[tuple[str, dict[str, object]]] = [
    ("graph_mutate", {"update": "DELETE WHERE { ?s ?p ?o }"}),
    ("graph_mutate", _op("create", "Account", code="new")),
    ("graph_load", _line("Asset", tag="new")),
    ("tasks.drop", {"task": "Task/T2"}),
    ("branch_merge", {"source": "other"}),
]


@pytest.mark.req("E11a")
@pytest.mark.parametrize(("tool", "arguments"), REFUSED)
def test_a_refusal_is_told_to_the_caller(
    both: tuple[Served, Served], tool: str, arguments: dict[str, object]
) -> None:
    """What hidden data could decide is a failure with the code ``forbidden``, not a crash."""
    secretive = both[0]
    secretive.world.app.service().versions("owner").create_branch("other")
    before = secretive.world.all()
    there = secretive.call(tool, **arguments)
    assert "forbidden" in json.dumps(there)
    assert not HIDDEN_WORDS.search(json.dumps(there))
    assert secretive.world.all() == before
