"""What a type checker must refuse, on the lines marked so; never run."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Annotated, Literal

from trails import (
    Context,
    Edge,
    Node,
    Ref,
    Shape,
    Vector,
    capability,
    edge_type,
    node_type,
    policy_rule,
    predicate,
    shape,
)


@node_type
class Person(Node):
    email: str = predicate(key=True)
    age: int | None = None


@node_type
class Task(Node):
    title: str
    owner: Ref[Person]
    parents: list[Ref[Task]] = predicate(default=())


@edge_type(source=Task, target=Person)
class Watches(Edge):
    since: date


class Status(Enum):
    OPEN = "open"


@node_type
class Machine(Node):
    status: Status
    size: Literal["small", "large"] = "small"
    title: Annotated[str, predicate(max_length=3)] = "abc"
    numbers: Annotated[list[float], Vector(3)] | None = None
    exact: Vector[Literal[3]] | None = None


@shape
class Report(Shape):
    total: int


@capability("tasks.close")
def close(ctx: Context, task: Ref[Task]) -> Report:
    """Close a task."""
    task.title = 3  # error
    task.titel = "x"  # error
    return Report(total="1")  # error


def use(ctx: Context) -> None:
    """Each mistake on a line of its own."""
    person = Person(email="a@b.c")
    Person(emial="a@b.c")  # error
    Person(email=3)  # error
    Person("a@b.c")  # error
    Person(email="a@b.c", age="old")  # error
    Task(title="t", owner="a@b.c")  # error
    Task(title="t")  # error
    task = Task(title="t", owner=person)
    Task(title="t", owner=task)  # error
    task.owner = task  # error
    task.parents.append(person)  # error
    phone = task.owner.phone  # error
    len(person.age)  # error
    person.save()  # error
    person.save(ctx, overwrite=True)  # error
    Watches(source=task, target=person, since="today")  # error
    Watches(source=task, target=person, until=date(2024, 1, 1))  # error
    Report(total=1, lines=[])  # error
    number: int = Task.get(ctx, "1")  # error
    people: list[Person] = Task.objects(ctx).fetch()  # error
    title = Task.objects(ctx).first().title  # error
    Task.objects()  # error
    Task.objects(ctx).order_by(3)  # error
    Task.nowhere(ctx)  # error
    close(ctx, person)  # error
    close(ctx)  # error
    policy_rule("quiet")(lambda ctx: None)  # error
    ctx.spend(usd="much")  # error
    predicate(min_length="3")  # error
    predicate(minimum=3)  # error
    machine = Machine(status=Status.OPEN)
    Machine(status="never")  # error
    machine.size = "huge"  # error
    machine.title = 3  # error
    machine.numbers = ["a"]  # error
    machine.exact = [1.0, 2.0, 3.0]  # error
    machine.status = "open"  # error
    del number, people, phone, title
