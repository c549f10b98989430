"""Guards: which rules of a schema are refused to whom, as a table of small schemas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.journeys.access.worlds import Narrow

from trails import App, Edge, Node, Ref, edge_type, node_type, predicate
from trails.engine.visibility.access import WriteGuard, guard_of
from trails.errors import ForbiddenError
from trails.model.nodes import NodeState
from trails.model.visibility import Visibility
from trails.views.nodes.index import Stored


@node_type
class Animal(Node):
    """Has a family."""

    tag: str = predicate(key=True)
    name: str | None = predicate()
    chip: str | None = predicate(unique=True)


@node_type
class Wolf(Animal):
    """Extends it."""


@node_type
class Cub(Wolf):
    """Extends that."""


@node_type
class Zoo(Node):
    """Where animals are."""

    code: str = predicate(key=True)
    star: Ref[Animal] | None = predicate()
    few: list[Ref[Animal]] = predicate(min_count=1)


@node_type
class Park(Node):
    """Where nothing is."""

    code: str = predicate(key=True)


@edge_type(source=Zoo, target=Animal, per_source=(1, 3))
class Keeps(Edge):
    """Every zoo has animals, and not too many."""

    since: int | None = predicate()


@edge_type(source=Zoo, target=Animal)
class Feeds(Edge):
    """Without limits."""

    code: int | None = predicate(unique=True)


@node_type(unique=[("row", "seat"), ("row", "pal")])
class Place(Node):
    """Unique by pairs."""

    code: str = predicate(key=True)
    row: str | None = predicate()
    seat: int | None = predicate(default=1)
    gate: int | None = predicate(default=7, unique=True)
    pal: Ref[Animal] | None = predicate()


TYPES = (Animal, Wolf, Cub, Zoo, Park, Keeps, Feeds, Place)


def guard(hidden: Iterable[str] = (), **fields: str) -> WriteGuard:
    """The guard of who does not see some types, nor some fields."""
    sight = Visibility(
        frozenset(hidden), {name: frozenset(each.split()) for name, each in fields.items()}
    )
    with App(*TYPES) as app:
        found = guard_of(Narrow(sight), "main", app.graph().main.compiled)
    assert found is not None
    return found


def node(name: str, /, **values: object) -> NodeState:
    """A node in some state."""
    return NodeState(name, "x", values)


def refused(found: WriteGuard, before: NodeState | None, after: NodeState | None) -> bool:
    """Whether a change is."""
    try:
        found.check(before, after)
    except ForbiddenError:
        return True
    return False


WOLF = {"hidden": ["Wolf", "Cub"]}
CASES: list[tuple[str, dict[str, Any], str, bool]] = [
    ("a key shared with a hidden type", WOLF, "+Animal tag=a", True),
    ("no key in common", WOLF, "+Park code=a", False),
    ("a value shared with a hidden type", WOLF, "Animal chip=1 > chip=2", True),
    ("a value that goes", WOLF, "Animal chip=1 > chip=", False),
    ("another value", WOLF, "Animal name=1 > name=2", False),
    ("a field that a subtype hides", {"Wolf": "chip"}, "Animal chip=1 > chip=2", True),
    ("the subtype itself", {"Wolf": "chip"}, "Wolf name=1 > name=2", False),
    ("a new one with the value", {"Wolf": "chip"}, "+Animal tag=a chip=1", True),
    ("a new one without", {"Wolf": "chip"}, "+Animal tag=a", False),
    ("a child of a hidden type", {"hidden": ["Wolf"]}, "+Cub tag=a", True),
    ("edges that must be, some hidden", WOLF, "+Zoo code=a", True),
    ("edges that are counted, some hidden", WOLF, "+Keeps since=1", True),
    ("an edge that is counted goes", WOLF, "-Keeps since=1", True),
    ("an edge that is counted changes", WOLF, "Keeps since=1 > since=2", False),
    ("edges that are not counted", WOLF, "+Feeds", False),
    ("edges that are not counted go", WOLF, "-Feeds", False),
    ("values of edges, some hidden", WOLF, "+Feeds code=1", True),
    ("edges that are all hidden and must be", {"hidden": ["Keeps"]}, "+Zoo code=a", True),
    ("edges that are all hidden and may be", {"hidden": ["Feeds"]}, "+Zoo code=a", False),
    ("who hidden edges lead to", {"hidden": ["Feeds"]}, "-Animal tag=a", True),
    ("who hidden edges begin at", {"hidden": ["Feeds"]}, "-Zoo code=a", True),
    ("who hidden edges do not lead to", {"hidden": ["Feeds"]}, "-Park code=a", False),
    ("who some hidden edges begin at", WOLF, "-Zoo code=a", True),
    ("who a hidden field refers to", {"Zoo": "star"}, "-Animal tag=a", True),
    ("who a hidden field refers to, by descent", {"Zoo": "star"}, "-Cub tag=a", True),
    ("who counts with hidden ones", WOLF, "-Animal tag=a", True),
    ("a reference that may be hidden", WOLF, "Zoo star= > star=Animal/1", True),
    ("such a reference goes", WOLF, "Zoo star=Animal/1 > star=", True),
    ("a pair with a hidden half", {"Place": "seat"}, "Place row=1 > row=2", True),
    ("such a half goes", {"Place": "seat"}, "Place row=1 > row=", False),
    ("a new pair with a hidden default", {"Place": "seat"}, "+Place code=a row=1", True),
    ("a pair with a reference that may be hidden", WOLF, "Place row=1 > row=2", True),
    ("a new pair with such a reference", WOLF, "+Place code=a row=1 pal=Animal/1", False),
    ("a hidden default that must be unique", {"Place": "gate"}, "+Place code=a", True),
    ("its change", {"Place": "gate"}, "Place row=1 > row=2", False),
]
"""What, for whom, which change (``+`` makes, ``-`` deletes), and whether it is refused."""


def _read(change: str) -> tuple[NodeState | None, NodeState | None]:
    sign = change[0] if change[0] in "+-" else ""
    name, _, rest = change.removeprefix(sign).partition(" ")

    def state(text: str) -> NodeState:
        pairs = (each.partition("=") for each in text.split())
        return node(name, **{key: value for key, _, value in pairs if value})

    if sign == "+":
        return None, state(rest)
    if sign == "-":
        return state(rest), None
    before, _, after = rest.partition(" > ")
    return state(before), state(after)


@pytest.mark.req("E11a")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_a_change_is_refused_where_hidden_data_could_decide(
    case: tuple[str, dict[str, Any], str, bool],
) -> None:
    """Exactly the changes are refused on which a rule about hidden data could decide."""
    _, who, change, expected = case
    assert refused(guard(**who), *_read(change)) is expected


@pytest.mark.req("E11a")
def test_what_is_hidden_in_a_node_is_kept() -> None:
    """A node becomes what its actor wrote, with the values that the actor does not see."""
    found = guard(Place="seat gate")
    before = Stored(1, 1, node("Place", row="r", seat=3), 0)
    shown = found.show(before)
    assert shown is not None
    assert shown.state == node("Place", row="r")
    assert found.complete(before, node("Place", row="s")) == node("Place", row="s", seat=3)
    assert found.complete(None, node("Place")) == node("Place", seat=1, gate=7)


@pytest.mark.req("E11a")
def test_references_to_hidden_nodes_are_kept_where_the_others_are() -> None:
    """A set of references that did not change keeps its hidden members."""
    found = guard(**WOLF)
    stored = node("Zoo", few=("Animal/1", "Wolf/2"), star="Wolf/2")
    before = Stored(1, 1, stored, 0)
    after = node("Zoo", code="z", few=("Animal/1",))
    kept = found.complete(before, after)
    assert kept.values == {"code": "z", "few": ("Animal/1", "Wolf/2"), "star": "Wolf/2"}
    assert not refused(found, stored, kept)
    changed = found.complete(before, node("Zoo", few=("Animal/3",)))
    assert refused(found, stored, changed)


@pytest.mark.req("E11a")
def test_hidden_edges_are_not_there() -> None:
    """An edge that leads to a hidden node is not shown, though its type is seen."""
    found = guard(**WOLF)
    for target, seen in (("Animal/1", True), ("Wolf/1", False)):
        edge = Stored(1, 1, node("Feeds", source="Zoo/z", target=target), 0)
        assert (found.show(edge) is not None) is seen
    assert found.show(Stored(1, 1, node("Wolf", tag="x"), 0)) is None


def test_nobody_is_guarded_who_may_do_all() -> None:
    """A sight that hides and fixes nothing needs no guard."""
    with App(*TYPES) as app:
        assert guard_of(Narrow(Visibility()), "main", app.graph().main.compiled) is None
