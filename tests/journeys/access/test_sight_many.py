"""Selections under a sight on enough nodes that every way to a page is taken."""

from collections.abc import Iterator

import pytest
from tests.journeys.access.hidden_parts import TYPES, Hidden, World, twin_types
from tests.journeys.access.test_sight_reads import pages, told

from trails.engine.session.context import GraphContext
from trails.model.nodes import Condition, Group, Order, Selection

COUNT = 2_400
KINDS = ("Person", "Employee", "Chief")
HIDDEN = Hidden(frozenset({"Employee"}), frozenset({("Person", "alias")}))


def values_of(number: int) -> dict[str, object]:
    """Well mixed, with gaps, in several selectivities."""
    mixed = number * 2_654_435_761 % 2**32
    return {
        "code": f"p{number:05}",
        "name": f"n{mixed % 7}",
        "alias": f"a{number}",
        "age": None if mixed % 11 == 0 else mixed // 64 % 500,
        "tags": [f"t{mixed % 3}", f"t{mixed // 3 % 400}"],
    }


def fill(world: World) -> None:
    """Many people of every kind that there is; some know each other."""
    ctx, kinds = world.full, world.classes
    people = []
    for number in range(COUNT):
        kind = KINDS[number * 7 // 5 % 3]
        if kind in kinds:
            given = {
                k: v for k, v in values_of(number).items() if k in kinds[kind].__trails__.by_name
            }
            people.append((number, kinds[kind](**given)))
    ctx.kg.save_all(each for _, each in people)
    known = dict(people)
    ctx.kg.save_all(
        kinds["Knows"](source=known[at], target=known[at * 13 % COUNT], since=at % 5)
        for at in range(COUNT)
        if at in known and at * 13 % COUNT in known
    )


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[GraphContext, GraphContext]]:
    """A restricted context and that of the twin."""
    world, twin = World(TYPES, []), World(twin_types(TYPES, HIDDEN), [])
    fill(world)
    fill(twin)
    yield world.restricted(HIDDEN.sight(TYPES)), twin.full
    world.app.close()
    twin.app.close()


WHERE = {
    "all": None,
    "common": Condition(("name",), "exact", "n3"),
    "rare": Condition(("tags",), "exact", "t17"),
    "range": Condition(("age",), "gte", 250),
    "missing": Condition(("age",), "isnull", True),
    "start": Condition(("name",), "startswith", "n1"),
    "either": Group(
        "or", (Condition(("name",), "exact", "n1"), Condition(("tags",), "exact", "t0"))
    ),
    "both": Group("and", (Condition(("name",), "exact", "n1"), Condition(("age",), "lt", 300))),
    "not": Group("not", (Condition(("name",), "exact", "n1"),)),
    "hidden": Condition(("alias",), "exact", "a17"),
}
ORDERS = {
    "none": (),
    "up": (Order("age"),),
    "down": (Order("age", descending=True),),
    "two": (Order("name"), Order("age")),
    "hidden": (Order("alias"),),
}


@pytest.mark.req("E11a")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("where", WHERE)
def test_pages_of_many_are_those_of_the_twin(pair, where, order):
    """Whether few or many match: every page is full, and the counts are right."""
    ask = pages(Selection("Person", WHERE[where], ORDERS[order], limit=190))
    restricted, twin = pair
    assert told(ask, restricted) == told(ask, twin)


@pytest.mark.req("E11a")
def test_edges_of_many_are_those_of_the_twin(pair):
    """Edges to hidden instances are in no page and no count."""
    restricted, twin = pair
    for where in (None, Condition(("since",), "exact", 3), Condition(("source", "age"), "lt", 99)):
        for order in ((), (Order("since"),), (Order("source"),)):
            ask = pages(Selection("Knows", where, order, limit=70))
            assert told(ask, restricted) == told(ask, twin)
