"""The JSON Schema of types and inputs, whole: every keyword, and the rest in words."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from jsonschema import Draft202012Validator

from trails import (
    Context,
    Edge,
    Iri,
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
from trails.authoring.capabilities import MARK
from trails.model.iris import IRI_PATTERN
from trails.model.kinds import DATE_PATTERN, DECIMAL_PATTERN, FLOAT_MAX, INT_MAX, INT_MIN, KINDS
from trails.model.types import ValueType
from trails.projections.json_schema import project_fields, project_type, project_value
from trails.registry.registry import Registry


@node_type(unique=[("code", "version")])
class Item(Node):
    """Something kept."""

    code: str = predicate(key=True, pattern="^[A-Z]+$", description="As printed.")
    version: int = predicate(min_value=1, max_value=9, default=1)
    state: str | None = predicate(one_of=["new", "old"])
    name: str = predicate(min_length=1, max_length=9, unique=True)
    price: Decimal | None = predicate(min_value="0.5", one_of=["1.50", "2"])
    made: date = predicate(max_value=date(2030, 1, 1))
    page: Iri | None = predicate(pattern="^https:", max_length=99)
    tags: list[str] = predicate(min_count=1, max_count=3, max_length=5)
    dates: list[date] = predicate(min_value=date(2000, 1, 1))
    parent: Ref[Item] | None = predicate(description="What it is part of.")
    spot: Vector = predicate(dimension=2)


@edge_type(source=Item, target=Item, per_source=(1, 2), per_target=(0, 5))
class Replaces(Edge):
    """One item for another."""


@shape(target=Item)
class Tidy(Shape):
    """More rules."""

    name: str = predicate(pattern="^[a-z]+$")
    tags: list[str] = predicate(min_count=2)


@shape
class Tree(Shape):
    """A tree."""

    data: dict
    kids: list[Tree]


@capability("items.keep")
def keep(ctx: Context, item: Item, tree: Tree | None = None, notes: list[object] = ()) -> None:
    """Keep an item."""


REGISTRY = Registry(types=[Item, Replaces], shapes=[Tidy, Tree])
NUMBER = {"type": "number", "minimum": -FLOAT_MAX, "maximum": FLOAT_MAX}
DATE = {"type": "string", "format": "date", "pattern": DATE_PATTERN}
SET = "Stored as a set: without order, each value once."

ITEM = {
    "type": "object",
    "description": (
        "Something kept. Unique together: code, version. When saved, name must match ^[a-z]+$ "
        "and is required. When saved, tags is required and needs at least 2 values."
    ),
    "additionalProperties": False,
    "required": ["code", "name", "made", "tags", "spot"],
    "properties": {
        "code": {
            "type": "string",
            "pattern": "^[A-Z]+$",
            "description": (
                "As printed. The key: the id is derived from it, and it can't be changed later."
            ),
        },
        "version": {"type": ["integer", "null"], "minimum": 1, "maximum": 9, "default": 1},
        "state": {"type": ["string", "null"], "enum": ["new", "old", None]},
        "name": {
            "type": "string",
            "minLength": 1,
            "maxLength": 9,
            "description": "Unique: no two instances have the same value.",
        },
        "price": {
            "type": ["string", "null"],
            "pattern": DECIMAL_PATTERN,
            "description": "Must be one of 1.5, 2. Must be at least 0.5.",
        },
        "made": {**DATE, "description": "Must be at most 2030-01-01."},
        "page": {
            "type": ["string", "null"],
            "format": "iri",
            "pattern": IRI_PATTERN,
            "maxLength": 99,
            "allOf": [{"pattern": "^https:"}],
        },
        "tags": {
            "type": "array",
            "items": {"type": "string", "maxLength": 5},
            "minItems": 1,
            "maxItems": 3,
            "description": SET,
        },
        "dates": {
            "type": ["array", "null"],
            "items": {**DATE, "description": "Must be at least 2000-01-01."},
            "description": SET,
        },
        "parent": {
            "type": ["string", "null"],
            "format": "iri",
            "trails:node_type": "Item",
            "description": "What it is part of. An existing Item: its IRI, 'Item/id' or key.",
        },
        "spot": {
            "type": "array",
            "items": NUMBER,
            "minItems": 2,
            "maxItems": 2,
            "description": "Nearest neighbours (near) are found by cosine.",
        },
    },
}

TREE = {
    "type": ["object", "null"],
    "description": "A tree.",
    "additionalProperties": False,
    "required": ["data"],
    "properties": {
        "data": {"not": {"type": "null"}},
        "kids": {
            "type": ["array", "null"],
            "items": {"type": "object", "description": "Another Tree, with the same fields."},
        },
    },
}


def test_a_type_is_its_object_schema():
    """Every constraint of every field is a keyword, or is told."""
    assert project_type(Item.__trails__, REGISTRY) == ITEM


def test_an_input_holds_types_and_shapes_inline():
    """Without `$ref`; a shape that holds itself ends where it begins again."""
    document = project_fields(getattr(keep, MARK).descriptor.input_shape, REGISTRY)
    assert document == {
        "type": "object",
        "additionalProperties": False,
        "required": ["item"],
        "properties": {
            "item": ITEM,
            "tree": TREE,
            "notes": {"type": ["array", "null"], "items": {}, "default": []},
        },
    }
    Draft202012Validator.check_schema(document)


def test_an_edge_tells_of_its_ends():
    """How many may meet at a node is beyond a schema of one edge."""
    document = project_type(Replaces.__trails__, REGISTRY)
    assert document["description"] == (
        "One item for another. One for each pair of source and target. Each source needs at least "
        "1. Each source may have at most 2. Each target may have at most 5."
    )
    assert document["required"] == ["source", "target"]


def test_nothing_is_shared_with_the_tables():
    """Changing a document changes no other, nor the tables it came from."""
    for field in Item.__trails__.fields:
        document = project_fields([field], REGISTRY)["properties"][field.name]
        for part in (*document.values(), document):
            if isinstance(part, dict | list):
                part.clear()
    assert project_type(Item.__trails__, REGISTRY) == ITEM


@pytest.mark.parametrize(
    ("value_type", "document"),
    [
        (ValueType("Bool"), {"type": "boolean"}),
        (ValueType("Bool", nullable=True), {"type": ["boolean", "null"]}),
        (ValueType("Int"), {"type": "integer", "minimum": INT_MIN, "maximum": INT_MAX}),
        (ValueType("Vector"), {"type": "array", "items": NUMBER}),
        (
            ValueType("List", item=ValueType("Bool")),
            {"type": "array", "items": {"type": "boolean"}},
        ),
        (ValueType("Any"), {}),
        (ValueType("Json"), dict(KINDS["Json"].schema)),
    ],
)
def test_a_value_needs_no_field(value_type, document):
    """What a capability returns has a type and no constraints."""
    assert project_value(value_type) == document


def test_an_unknown_kind_is_no_silent_gap():
    """A kind without a row and without a form is an error, not an empty schema."""
    with pytest.raises(LookupError, match="Colour"):
        project_value(ValueType("Colour"))
