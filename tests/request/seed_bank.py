"""A seed bank: types with every kind and rule, for tests of what errors say."""

from datetime import date, datetime
from decimal import Decimal

from trails import (
    App,
    BigInt,
    Context,
    Edge,
    Iri,
    Node,
    Ref,
    Vector,
    capability,
    edge_type,
    node_type,
    predicate,
)


@node_type
class Species(Node):
    """A plant species."""

    code: str = predicate(key=True, pattern=r"^[A-Z]{3}-\d{2}$")
    name: str = predicate(min_length=3, max_length=20, label=True)
    status: str = predicate(one_of=["common", "rare", "extinct"], default="common")
    tags: list[str] = predicate(max_count=2)


@node_type
class Site(Node):
    """Where seeds are collected."""

    slug: str = predicate(key=True)
    homepage: Iri | None = predicate()


@node_type
class Lot(Node):
    """A lot of seeds."""

    number: str = predicate(key=True, pattern=r"^A\d{4}$")
    species: Ref[Species] = predicate()
    site: Ref[Site] | None = predicate()
    mass: Decimal = predicate(min_value=Decimal("0.001"), max_value=Decimal(5000))
    seeds: BigInt | None = predicate()
    viability: float | None = predicate(min_value=0, max_value=1)
    grade: int | None = predicate(min_value=1, max_value=5)
    collected: date = predicate()
    seen: datetime | None = predicate()
    sealed: bool = predicate(default=False)
    look: Vector(3) | None = predicate()  # type: ignore[valid-type]
    parents: list[Ref["Lot"]] = predicate(max_count=2)
    keywords: list[str] = predicate(min_count=1)


@edge_type(source=Lot, target=Site, per_source=(0, 1))
class Storage(Edge):
    """Where a lot is stored."""

    shelf: int = predicate(min_value=1)


GRADE = predicate(min_value=1, max_value=5)
MOOD = predicate(one_of=["dry", "frozen"], default="dry")


@capability("lots.grade", idempotent=True)
def grade_lot(
    ctx: Context,
    lot: Ref[Lot],
    on: date,
    price: Decimal,
    grade: int = GRADE,
    storage: str = MOOD,
    notes: list[str] = (),
) -> Lot:
    """Set the grade of a lot."""
    lot.grade = grade
    lot.save(ctx)
    return lot


DECLARED = (Species, Site, Lot, Storage, grade_lot)
LOT = {
    "number": "A0100",
    "species": "ABC-01",
    "site": "hill",
    "mass": "1.5",
    "seeds": "12",
    "viability": 0.5,
    "grade": 3,
    "collected": "2026-02-01",
    "seen": "2026-02-01T10:00:00Z",
    "sealed": True,
    "look": [1, 2, 3],
    "parents": ["A0001"],
    "keywords": ["dry"],
}
GRADING = {"lot": "A0001", "on": "2026-02-01", "price": "1.5", "grade": 3, "storage": "dry"}


def stocked() -> App:
    """An app with some species, sites and lots."""
    app = App(*DECLARED)
    ctx = app.context(actor="ann")
    oak, elm = Species(code="ABC-01", name="Oak"), Species(code="ABC-02", name="Elm")
    hill, day = Site(slug="hill"), date(2026, 2, 1)
    lots = [
        Lot(number=f"A000{n}", species=oak, mass=Decimal(n), collected=day, keywords=["dry"])
        for n in (1, 2)
    ]
    ctx.kg.save_all([oak, elm, hill, *lots])
    return app
