"""Declarations that use every argument of ``predicate()``, made anew with one of them changed."""

import inspect
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Final

from trails import (
    BigInt,
    Context,
    Node,
    Ref,
    Shape,
    Vector,
    capability,
    node_type,
    predicate,
    shape,
)

Said = Mapping[str, Mapping[str, object]]


@node_type
class Person(Node):
    """Somebody."""

    email: str = predicate(key=True)


@shape
class Period(Shape):
    """A stretch of time."""

    start: date = predicate(description="The first day.")
    days: int = predicate(min_value=1, default=7)


TYPES: Final[Mapping[str, object]] = {
    "code": str,
    "title": str,
    "status": str,
    "rank": int,
    "ratio": float | None,
    "price": Decimal | None,
    "total": BigInt | None,
    "day": date | None,
    "tags": list[str],
    "done": bool,
    "owner": Ref[Person] | None,
    "friends": list[Ref[Person]],
    "vector": Vector,
}
SAID: Final[Said] = {
    "code": {"pattern": "^[A-Z]+$", "min_length": 2, "max_length": 9},
    "title": {"min_length": 3, "max_length": 200, "description": "What it is called."},
    "status": {"one_of": ["open", "closed"], "default": "open"},
    "rank": {"min_value": 1, "max_value": 5, "required": True},
    "ratio": {"min_value": 0.5, "max_value": 1.5},
    "price": {"min_value": "0.50", "max_value": "99.50"},
    "total": {"min_value": "1", "max_value": "100000000000000000000"},
    "day": {"min_value": "2026-01-01", "max_value": "2026-12-31"},
    "tags": {"min_count": 1, "max_count": 3, "one_of": ["a", "b", "c"]},
    "done": {"default": False},
    "owner": {},
    "friends": {"max_count": 2},
    "vector": {"dimension": 3},
}
OTHER: Final[Said] = {
    "code": {"pattern": "^[a-z]+$", "min_length": 3, "max_length": 8},
    "title": {
        "min_length": 4,
        "max_length": 100,
        "description": "Its name.",
        "default": "Untitled",
    },
    "status": {"one_of": ["open", "shut"], "default": "closed"},
    "rank": {"min_value": 2, "max_value": 4, "required": False, "one_of": [1, 2]},
    "ratio": {"min_value": 0.6, "max_value": 1.4, "default": 1.0},
    "price": {"min_value": "0.60", "max_value": "99.40"},
    "total": {"min_value": "2", "max_value": "100000000000000000001"},
    "day": {"min_value": "2026-01-02", "max_value": "2026-12-30"},
    "tags": {"min_count": 2, "max_count": 2, "one_of": ["a", "b"]},
    "done": {"default": True, "description": "Whether it is done."},
    "owner": {"description": "Whose it is."},
    "friends": {"max_count": 4, "min_count": 1, "required": True},
    "vector": {"dimension": 4},
}
"""Another value for each argument of each field, and for some that it was not given."""
STORED: Final[Said] = {
    "code": {"key": True, "iri": "https://schema.org/sku"},
    "title": {"unique": True, "label": True, "search": True, "iri": "https://schema.org/name"},
    "owner": {"iri": "https://schema.org/owner"},
}
"""Arguments that mean something for what is stored only."""


def changed(field: str, **said: object) -> Said:
    """What is said of all fields, with one argument of one of them changed."""
    return {**SAID, field: {**SAID[field], **said}}


def make_matrix(said: Said = SAID) -> Callable[..., object]:
    """A capability with a parameter of each kind."""

    def everything(ctx: Context) -> None:
        """Take one of everything."""

    kind = inspect.Parameter.KEYWORD_ONLY
    annotations = {**TYPES, "vector": Vector}
    everything.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Context),
            *(
                inspect.Parameter(
                    name, kind, annotation=annotations[name], default=predicate(**said[name])
                )
                for name in TYPES
            ),
            inspect.Parameter("period", kind, annotation=Period),
            inspect.Parameter("anything", kind, annotation=dict[str, object]),
        ],
        return_annotation=None,
    )
    return capability("matrix.everything")(everything)


def make_specimen(said: Said = SAID) -> type[Node]:
    """A node type with a field of each kind."""
    body = {
        "__doc__": "Something to look at.",
        "__annotations__": dict(TYPES),
        "__module__": __name__,
        **{name: predicate(**said[name]) for name in TYPES},
    }
    return node_type(unique=[("title", "rank")])(type("Specimen", (Node,), body))


def make_add(specimen: type[Node]) -> Callable[..., object]:
    """A capability that takes a node."""

    def add(ctx: Context, specimen):
        """Add a specimen to the collection."""

    add.__annotations__ = {"ctx": Context, "specimen": specimen, "return": specimen}
    return capability("specimens.add", idempotent=True)(add)


@capability("research.search")
async def search(
    ctx: Context,
    query: str = predicate(min_length=1, max_length=500, description="What to look for."),
    limit: int = predicate(min_value=1, max_value=100, default=10),
    author: Ref[Person] | None = None,
) -> list[Person]:
    """Search the collection; the best matches come first."""
    return []
