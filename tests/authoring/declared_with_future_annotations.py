"""Declarations in a module whose annotations are all text, with names defined later."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import ClassVar, Optional

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
    predicate,
    shape,
)


@node_type
class Team(Node):
    """Refers to what follows, in every way one may write it."""

    LIMIT: ClassVar[int] = 9

    name: str = predicate(key=True)
    lead: Ref[Member]
    deputy: Ref[Member] | None
    second: Ref["Member"] | None  # noqa: UP037 - people write it
    third: None | Ref[Member]  # noqa: RUF036 - people write it
    bare: Member
    bare_optional: Member | None
    old_style: Optional[Member]  # noqa: UP045 - people write it
    members: list[Ref[Member]]
    quoted: list[Ref["Member"]]  # noqa: UP037 - people write it
    parent: Ref[Team] | None
    founded: date
    rate: Decimal | None
    place: Vector(2) | None


@node_type
class Member(Node):
    name: str = predicate(key=True)


@edge_type(source="Team", target=Member)
class Joined(Edge):
    since: date


@shape
class Summary(Shape):
    total: int
    lead: Ref[Member]


@capability("teams.describe")
def describe(
    ctx: Context, team: Ref[Team], rows: list[Summary], new: Member | None = None
) -> Summary:
    """Describe a team."""
    return Summary(total=len(rows), lead=team.lead)
