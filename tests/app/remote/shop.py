"""A shop, with every kind of field: the project that programs use here and from elsewhere."""

import datetime as dt
import decimal
import enum

from trails import (
    BigInt,
    Context,
    Edge,
    Iri,
    Json,
    Node,
    Ref,
    Vector,
    capability,
    edge_type,
    node_type,
    predicate,
)


class State(enum.Enum):
    """Where an item is."""

    NEW = "new"
    USED = "used"


class Grade(enum.IntEnum):
    """How good it is."""

    LOW = 1
    HIGH = 2


@node_type
class Maker(Node):
    """Someone who makes things."""

    name: str = predicate(key=True, label=True)
    city: str | None = predicate()


@node_type
class Item(Node):
    """Something to sell."""

    code: str = predicate(key=True, pattern=r"^[a-zäß]+[0-9/]*$")
    title: str | None = predicate(min_length=3, max_length=40)
    price: decimal.Decimal | None = predicate(min_value=decimal.Decimal(0))
    stock: int = predicate(default=0)
    weight: float | None = predicate()
    big: BigInt | None = predicate()
    since: dt.date | None = predicate()
    seen: dt.datetime | None = predicate()
    sold: bool = predicate(default=False)
    page: Iri | None = predicate()
    facts: Json | None = predicate()
    place: Vector(2) | None = predicate()
    tags: list[str] = predicate()
    steps: list[str] = predicate(ordered=True)
    maker: Ref[Maker] | None = predicate()
    parts: list[Ref["Item"]] = predicate()
    state: State = State.NEW
    grades: list[Grade] = predicate()


@node_type
class Book(Item):
    """An item to read."""

    author: str | None = predicate()


@node_type
class Note(Node):
    """A remark, which has no key."""

    text: str = predicate()


@edge_type(source=Maker, target=Maker)
class Knows(Edge):
    """One maker knows another."""

    years: int | None = predicate()


@edge_type(source=Maker, target=Maker)
class Meets(Edge):
    """One maker meets another, as often as there are days."""

    day: dt.date = predicate(key=True)
    place: str | None = predicate()


@node_type(abstract=True)
class Place(Node):
    """Where something is kept."""

    code: str = predicate(key=True)


@node_type
class Shelf(Place):
    """In the shop."""


@capability("shop.sell", idempotent=True)
def sell(ctx: Context, item: Ref[Item]) -> Item:
    """Sell an item."""
    item.sold = True
    item.save(ctx)
    return item


@capability("shop.remark")
def remark(ctx: Context, text: str) -> str:
    """Write a note, each time."""
    Note(text=text).save(ctx)
    return text
