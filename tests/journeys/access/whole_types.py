"""A project with parts that some actors may not see; ``plain_types`` has the rest of it."""

from __future__ import annotations

from trails import Context, Edge, Node, Ref, capability, edge_type, node_type, predicate, shape


@node_type
class Team(Node):
    """Where people work."""

    code: str = predicate(key=True)
    title: str | None = predicate()


@node_type
class Person(Node):
    """Someone whose pay is not for everybody."""

    email: str = predicate(key=True, pattern=r"^[^@ ]+@[^@ ]+$")
    name: str = predicate(min_length=1, max_length=20)
    badge: str | None = predicate(unique=True)
    tags: list[str] = predicate(max_count=3)
    team: Ref[Team] | None = predicate()
    salary: int | None = predicate(unique=True, min_value=0)
    grade: int = predicate(default=3, min_value=1, max_value=9)
    secrets: list[str] = predicate()


@shape(target=Person)
class PersonRules:
    """More rules for people."""

    name: str = predicate(max_length=12)
    grade: int = predicate(max_value=5)


@node_type
class Task(Node):
    """Something to do; hidden vaults refer to it."""

    code: str = predicate(key=True)
    title: str = predicate(min_length=3)
    state: str = predicate(one_of=["open", "done"], default="open")
    owner: Ref[Person] | None = predicate()


@node_type
class Note(Node):
    """Text about a person that can't stand without it."""

    code: str = predicate(key=True)
    text: str = predicate(default="…")
    about: Ref[Person] = predicate()


@edge_type(source=Person, target=Team, per_source=(0, 2))
class Member(Edge):
    """Who is in a team."""

    since: int | None = predicate()


@node_type
class Account(Node):
    """What nobody can make who does not see its PIN."""

    code: str = predicate(key=True)
    label: str | None = predicate()
    pin: str = predicate()


@node_type(unique=[("room", "number")])
class Seat(Node):
    """Unique by a field that is seen and one that is not."""

    code: str = predicate(key=True)
    room: str | None = predicate()
    label: str | None = predicate()
    number: int | None = predicate()


@node_type
class Asset(Node):
    """Shares its keys with a hidden type."""

    tag: str = predicate(key=True)
    serial: str | None = predicate(unique=True)
    label: str | None = predicate()


@node_type
class Laptop(Asset):
    """A hidden asset."""

    disk: str | None = predicate()


@node_type
class Desk(Node):
    """Refers to assets, hidden ones among them."""

    code: str = predicate(key=True)
    label: str | None = predicate()
    main: Ref[Asset] | None = predicate()
    more: list[Ref[Asset]] = predicate()
    row: list[Ref[Asset]] = predicate(ordered=True)


@node_type
class Room(Node):
    """Where assets are."""

    code: str = predicate(key=True)


@edge_type(source=Room, target=Asset)
class Holds(Edge):
    """What is in a room, hidden assets among it."""

    since: int | None = predicate()


@node_type
class Vault(Node):
    """A hidden type."""

    code: str = predicate(key=True)
    task: Ref[Task] | None = predicate()


@capability("people.add")
def add_person(ctx: Context, person: Person) -> Person:
    """Add somebody."""
    person.save(ctx)
    return person


@capability("people.rename")
def rename_person(ctx: Context, person: Ref[Person], name: str) -> Person:
    """Give somebody another name."""
    person.name = name
    person.save(ctx)
    return person


@capability("tasks.drop")
def drop_task(ctx: Context, task: Ref[Task]) -> None:
    """Delete a task."""
    task.delete(ctx)


CAPABILITIES = (add_person, rename_person, drop_task)
TYPES = (
    Team,
    Person,
    PersonRules,
    Task,
    Note,
    Member,
    Account,
    Seat,
    Asset,
    Laptop,
    Desk,
    Room,
    Holds,
    Vault,
)
