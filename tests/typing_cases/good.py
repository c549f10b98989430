"""What a type checker must accept; never run."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Literal, assert_type

from trails import (
    App,
    BigInt,
    Blob,
    Commit,
    Context,
    Edge,
    Iri,
    Node,
    Page,
    Q,
    Ref,
    Shape,
    Vector,
    capability,
    connect,
    edge_type,
    meta_capability,
    node_type,
    policy,
    policy_rule,
    predicate,
    shape,
)


@node_type
class Person(Node):
    """A person."""

    email: str = predicate(key=True)
    joined: date | None = predicate(default=None)


@node_type(unique=[("title", "due")])
class Task(Node):
    title: str = predicate(min_length=1, label=True)
    owner: Ref[Person]
    reviewer: Ref[Person] | None = predicate(default=None)
    parents: list[Ref[Task]] = predicate(default=())
    priority: int = predicate(default=3, min_value=1)
    weight: Decimal | None = None
    due: datetime | None = None
    link: Iri | None = None
    scan: Blob | None = None
    count: BigInt | None = None
    place: Vector = predicate(dimension=2)


@node_type
class Epic(Task):
    goal: str


@node_type(extends=Person)
class Robot(Node):
    model: str


@edge_type(source=Task, target="Person", per_source=(0, 3))
class Watches(Edge):
    since: date


class Status(Enum):
    OPEN = "open"
    DONE = "done"


class Level(IntEnum):
    LOW = 1


class Mark(StrEnum):
    BUG = "bug"


Title = Annotated[str, predicate(max_length=200)]


@node_type(abstract=True)
class Asset(Node):
    code: str = predicate(key=True)


@node_type
class Machine(Asset):
    status: Status = Status.OPEN
    level: Level | None = None
    marks: list[Mark] = predicate(default=())
    size: Literal["small", "large"] = "small"
    title: Title
    subtitle: Title | None = None
    embedding: Vector[Literal[384]] | None = None
    numbers: Annotated[list[float], Vector(384)]
    plain: Vector = predicate(dimension=2)
    optional: Annotated[Vector | None, predicate(dimension=2)] = None


@edge_type(source=Asset, target=Asset)
class Moves(Edge):
    on: date = predicate(key=True)


@shape
class Report(Shape):
    total: int = predicate(min_value=0)
    lines: list[str] = predicate(default=())


@policy_rule("four-eyes")
def four_eyes(ctx: Context, task: Task, limit: int = 10) -> bool | str:
    """Whoever owns it asks somebody else."""
    return task.owner.email != ctx.actor or f"{limit} others may"


@capability("tasks.close", idempotent=True, cost={"usd": 0.1}, side_effects=["mail"])
@policy("four-eyes")
def close(ctx: Context, task: Ref[Task], reason: str | None = None, limit: int = 10) -> Report:
    """Close a task."""
    assert_type(task, Task)
    ctx.spend(usd=0.1, calls=2)
    task.priority = 1
    assert_type(task.save(ctx), Commit | None)
    return Report(total=limit, lines=[reason or task.owner.email])


@meta_capability("trails.meta.ping", scope="runtime", idempotent=True)
async def ping(ctx: Context) -> str:
    """Answer."""
    return ctx.actor


def use(ctx: Context) -> None:
    """Every way to make, read, query and delete."""
    person = Person(email="a@b.c", joined=date(2024, 1, 1))
    task = Task(title="t", owner=person, parents=[], due=None, place=Vector([1.0, 2.0]))
    epic = Epic(title="e", owner=person, goal="g", place=Vector(), reviewer=person)
    edge = Watches(source=task, target=person, since=date(2024, 1, 1))

    assert_type(four_eyes(ctx, task), bool | str)
    assert_type(person.joined, date | None)
    assert_type(task.owner, Person)
    assert_type(task.owner.email, str)
    assert_type(task.reviewer, Person | None)
    assert_type(task.parents, list[Task])
    assert_type(task.weight, Decimal | None)
    assert_type(epic.title, str)
    assert_type(edge.since, date)
    assert_type(person.id, str | None)
    assert_type(person.iri(ctx), str)

    assert_type(person.save(ctx, upsert=True, message="m", expected_head="h"), Commit | None)
    assert_type(person.delete(ctx, cascade=True), Commit | None)
    assert_type(Task.get(ctx, "1"), Task)
    assert_type(Epic.get(ctx, "1").goal, str)
    assert_type(Task.objects(ctx).first(), Task | None)
    assert_type(
        Task.objects(ctx).where(owner__email="x").order_by("-due").limit(3).fetch(), list[Task]
    )
    assert_type(Task.where(Q(priority__gte=3) | ~Q(title="x")).fetch(ctx), list[Task])
    assert_type(Task.objects(ctx).exclude(title="x").get(), Task)
    assert_type(Task.objects(ctx).page(10), Page[Task])
    assert_type(Task.objects(ctx).page(10).items, tuple[Task, ...])
    assert_type(Task.objects(ctx).count(), int)
    assert_type(Task.objects(ctx).exists(), bool)
    assert_type([each.title for each in Task.objects(ctx)], list[str])
    assert_type(Task.objects(ctx).values("title"), list[dict[str, object]])

    with ctx.kg.transaction(message="m"):
        ctx.kg.save_all([person, task, epic, edge])
    assert_type(close(ctx, task), Report)


@capability("machines.set")
def set_status(
    ctx: Context,
    machine: Ref[Asset],
    status: Status,
    size: Literal["small", "large"] = "small",
    title: Annotated[str, predicate(min_length=3)] = "abc",
    near: Annotated[list[float] | None, Vector(384)] = None,
) -> Status:
    """Change a machine."""
    assert_type(machine, Asset)
    assert_type(near, list[float] | None)
    return status


def forms(ctx: Context) -> None:
    """Values have the types that annotations say."""
    machine = Machine(
        code="m", status=Status.DONE, title="t", numbers=[1.0], plain=Vector([1.0]), marks=[]
    )
    assert_type(machine.status, Status)
    assert_type(machine.level, Level | None)
    assert_type(machine.marks, list[Mark])
    assert_type(machine.size, Literal["small", "large"])
    assert_type(machine.title, str)
    assert_type(machine.subtitle, str | None)
    assert_type(machine.embedding, Vector[Literal[384]] | None)
    assert_type(machine.numbers, list[float])
    assert_type(Machine.where(status=Status.OPEN).fetch(ctx), list[Machine])
    assert_type([each.code for each in Asset.objects(ctx)], list[str])
    assert_type(set_status(ctx, machine, Status.OPEN, "large"), Status)
    for number in machine.embedding or ():
        assert_type(number, float)
    machine.embedding = Vector([1.0])
    machine.numbers = [2.0, 3.0]
    assert_type(Moves(source=machine, target=machine, on=date(2026, 1, 1)).on, date)


def embed() -> None:
    """An application in a program."""
    with App(Person, Task, close, name="demo") as app:
        ctx: Context = app.context(actor="ann")
        app.call(app.context(), "tasks.close", {"task": "trails://kg/Task/1"})
        use(ctx)


def elsewhere() -> None:
    """A program on a server uses the same classes."""
    with connect("http://127.0.0.1:8321", "token", Task, Person, timeout=5) as client:
        ctx = client.context(branch="review")
        assert_type(Task.where(title="a").fetch(ctx), list[Task])
        assert_type(Person.get(ctx, "ann@example.org"), Person)
        assert_type(Task.get(ctx, "t").save(ctx), Commit | None)


async def awaited() -> None:
    """With an event loop too."""
    async with connect("http://127.0.0.1:8321", None, Task) as client:
        assert_type(await client.get(Task, "t"), Task)
        assert_type(await client.fetch(Task.where(priority__gt=3)), list[Task])
        assert_type(await client.run(len, "abc"), int)
