"""Instances in the hands of a capability: what is hidden has no value, and stays as it is."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.journeys.access.hidden_parts import TYPES, Hidden, Restricted, World
from tests.journeys.access.test_sight_reads import fixed_rows
from tests.journeys.access.test_sight_surfaces import READER, Hiding

from trails.errors import ForbiddenError, NotFoundError, QueryError
from trails.model.nodes import Condition, Order, Selection
from trails.model.visibility import Visibility
from trails.request.admission import KernelOptions
from trails.request.pipeline import Kernel

AGES = Hidden(fields=frozenset({("Person", "age")}))


@pytest.fixture
def world() -> Iterator[World]:
    """Everything, in memory."""
    made = World(TYPES, fixed_rows())
    yield made
    made.app.close()


@pytest.mark.req("E11a")
def test_a_hidden_field_has_no_value(world):
    """It reads like one that was never given, also after a refresh and through a reference."""
    ctx = world.restricted(AGES.sight(TYPES))
    employee = world.classes["Employee"].get(ctx, "p5")
    assert (employee.age, employee.badge) == (None, "b5")
    assert employee.refresh(ctx).age is None
    assert employee.boss.age is None
    assert world.classes["Employee"].get(world.full, "p5").boss.age is not None


@pytest.mark.req("E11a")
def test_saving_keeps_what_is_hidden(world):
    """A change of other fields leaves a hidden one as it is, twice in a row."""
    ctx = world.restricted(AGES.sight(TYPES))
    note = world.classes["Office"].objects(ctx).first()
    before = world.classes["Office"].get(world.full, note.id).rent
    hidden = Hidden(fields=frozenset({("Office", "rent")}))
    ctx = world.restricted(hidden.sight(TYPES))
    office = world.classes["Office"].get(ctx, note.id)
    for floor in (7, 8):
        office.floor = floor
        office.save(ctx)
        now = world.classes["Office"].get(world.full, note.id)
        assert (now.floor, now.rent) == (floor, before)
    assert before is not None


@pytest.mark.req("E11a")
def test_instances_of_hidden_types_do_not_exist(world):
    """Not by id, not in the list of a type above, not by a reference to them."""
    ctx = world.restricted(Hidden(frozenset({"Chief"})).sight(TYPES))
    with pytest.raises(NotFoundError):
        world.classes["Chief"].get(ctx, "p1")
    with pytest.raises(NotFoundError):
        world.classes["Person"].get(ctx, "Chief/p1")
    with pytest.raises(QueryError):
        world.classes["Chief"].objects(ctx).fetch()
    assert {type(each).__name__ for each in world.classes["Person"].objects(ctx)} == {
        "Person",
        "Employee",
    }
    assert all(each.chief is None for each in world.classes["Note"].objects(ctx))
    with pytest.raises(ForbiddenError):
        ctx.kg.sparql("ASK { ?s a :Office }")


ODD = Visibility(hidden_fields={"Chief": frozenset({"age"})})
"""A field that is hidden in a subtype alone, which no declaration could say."""


@pytest.mark.req("E11a")
@pytest.mark.parametrize("descending", [False, True])
def test_a_field_that_only_a_subtype_hides(world, descending):
    """Instances of the subtype are those without a value, in filters, orders and counts alike."""
    ctx = world.restricted(ODD)
    rows = world.full.kg.select(Selection("Person")).rows
    ages = {each.handle: None if each.type == "Chief" else each.values.get("age") for each in rows}
    for age in (0, 1, 2, 3):
        where = Condition(("age",), "exact", age)
        found = ctx.kg.select(Selection("Person", where)).rows
        wanted = {handle for handle, value in ages.items() if value == age}
        assert {each.handle for each in found} == wanted
        assert ctx.kg.count(Selection("Person", where)) == len(wanted)
    missing = Selection("Person", Condition(("age",), "isnull", True))
    assert ctx.kg.count(missing) == sum(value is None for value in ages.values())
    found = ctx.kg.select(Selection("Person", order=(Order("age", descending=descending),))).rows
    values = [each.values.get("age") for each in found]
    present = [each for each in values if each is not None]
    assert values == [*sorted(present, reverse=descending), *[None] * (len(values) - len(present))]
    assert len(found) == len(rows)


# --- watching ------------------------------------------------------------------------------


def heard(world: World, hidden: Hidden, uris: list[str], change) -> set[str]:
    """What somebody is told of a change who watches some URIs."""

    async def run() -> set[str]:
        kernel = Kernel(world.app.service(), KernelOptions(judge=Hiding(hidden)))
        watcher = kernel.watch(READER, uris)
        await asyncio.to_thread(change)
        await asyncio.to_thread(touch, world)
        told: set[str] = set()
        for _ in range(2000):
            told |= set(watcher.take())
            if "trails://kg/Office" in told:
                break
            await asyncio.sleep(0.005)
        watcher.close()
        kernel.close()
        return told - {"trails://kg/Office"}

    return asyncio.run(run())


def touch(world: World) -> None:
    """A change that everybody sees, after all others."""
    office = world.classes["Office"].objects(world.full).first()
    office.floor = (office.floor or 0) + 1
    office.save(world.full)


def save(world: World, type_name: str, key: str, **values: object):
    """A function that changes an instance."""

    def change() -> None:
        node = world.classes[type_name].get(world.full, key)
        for name, value in values.items():
            setattr(node, name, value)
        node.save(world.full)

    return change


PERSON, EMPLOYEE = "trails://kg/Person", "trails://kg/Employee"
ONE = "trails://kg/Person/p5"
OFFICES = "trails://kg/Office"


@pytest.mark.req("E11a")
def test_a_change_of_hidden_fields_is_told_to_nobody_restricted(world):
    """Who does not see the field hears nothing, who sees it hears."""
    uris = [PERSON, EMPLOYEE, ONE, OFFICES]
    aged = save(world, "Employee", "p5", age=77)
    assert heard(world, AGES, uris, aged) == set()
    older = save(world, "Employee", "p5", age=78)
    assert heard(world, Hidden(), uris, older) == {PERSON, EMPLOYEE, ONE}
    both = save(world, "Employee", "p5", age=79, name="new")
    assert heard(world, AGES, uris, both) == {PERSON, EMPLOYEE, ONE}


@pytest.mark.req("E11a")
def test_a_change_of_hidden_instances_is_told_to_nobody_restricted(world):
    """A type's watchers hear of no instance of a hidden type that extends it."""
    hidden = Hidden(frozenset({"Employee"}))
    uris = [PERSON, ONE, OFFICES]
    assert heard(world, hidden, uris, save(world, "Employee", "p5", name="new")) == set()
    assert heard(world, hidden, uris, save(world, "Person", "p6", name="new")) == {PERSON}


@pytest.mark.req("E11a")
def test_a_load_of_hidden_instances_is_told_to_nobody_restricted(world):
    """The same where so many nodes change that only their types are known."""
    make = world.classes["Chief"]

    def load() -> None:
        world.full.kg.save_all(make(code=f"c{at}", name="x") for at in range(2_500))

    hidden = Hidden(frozenset({"Chief"}))
    assert heard(world, hidden, [PERSON, EMPLOYEE, OFFICES], load) == set()


def test_an_access_can_be_anything_that_answers(world):
    """What a context is handed is asked, and nothing else."""
    ctx = world.app.service().context("reader", access=Restricted(Visibility()))
    assert ctx.visibility.reads_all
    assert ctx.kg.schema_filter is None
    assert ctx.kg.schema is ctx.checkout.schema
