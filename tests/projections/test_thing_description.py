"""The schemas of a card mean what those of the tools mean."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from trails.projections.thing_description import data_schema

SCALARS = st.sampled_from(["string", "integer", "boolean"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 12) | st.text("ab", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)


def scalar(kind: str, *, null: bool, choices: list[object], description: str) -> dict[str, Any]:
    """As fields of one value are projected."""
    found: dict[str, Any] = {"type": [kind, "null"] if null else kind}
    if kind == "integer":
        found |= {"minimum": 0, "maximum": 9}
    if kind == "string":
        found |= {"minLength": 1, "pattern": "^a"}
    if choices:
        found["enum"] = [*choices, None] if null else choices
    if description:
        found["description"] = description
    return found


def nested(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Lists, objects and alternatives."""
    lists = st.builds(
        lambda items, null: {"type": ["array", "null"] if null else "array", "items": items},
        inner,
        st.booleans(),
    )
    objects = st.builds(
        lambda members, closed: {
            "type": "object",
            "properties": members,
            "required": sorted(members)[:1],
            "additionalProperties": not closed,
        },
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.booleans(),
    )
    return lists | objects


SCHEMAS = st.recursive(
    st.builds(
        scalar,
        SCALARS,
        null=st.booleans(),
        choices=st.lists(st.text("ab", max_size=2) | st.integers(0, 3), max_size=2, unique=True),
        description=st.sampled_from(["", "What it is."]),
    ),
    nested,
    max_leaves=5,
)


def types_of(schema: object) -> list[object]:
    """Every ``type`` in a schema."""
    if isinstance(schema, dict):
        own = [schema["type"]] if isinstance(schema.get("type"), list | str) else []
        return own + [each for value in schema.values() for each in types_of(value)]
    if isinstance(schema, list):
        return [each for value in schema for each in types_of(value)]
    return []


@given(schema=SCHEMAS, value=VALUES)
@settings(max_examples=400, deadline=None)
def test_the_same_values_are_valid(schema, value):
    """And every type is one name, as the standard demands; doing it twice changes nothing."""
    before = json.dumps(schema)
    shown = data_schema(schema)
    assert json.dumps(schema) == before
    assert all(isinstance(each, str) for each in types_of(shown))
    one, other = (jsonschema.Draft202012Validator(each) for each in (schema, shown))
    assert one.is_valid(value) == other.is_valid(value)
    assert data_schema(shown) == shown
