"""JSON Schema documents, as types."""

import json

import pytest
from tests.importers.projects import new_project
from tests.worlds.graphs import Calls

from trails import App
from trails.authoring.specs import describe_types
from trails.errors import ValidationError
from trails.importers.json_schema import read_json_schema
from trails.model.actors import OPERATOR
from trails.model.types import Schema

DOCUMENT = {
    "title": "order line",
    "description": "One line of an order.",
    "type": "object",
    "required": ["sku", "count", "customer", "labels"],
    "properties": {
        "sku": {"type": "string", "pattern": "^[A-Z]+$", "minLength": 2, "maxLength": 9},
        "count": {"type": "integer", "minimum": 1, "exclusiveMaximum": 100, "default": 1},
        "price": {"type": ["number", "null"], "minimum": 0.5},
        "gift": {"type": "boolean"},
        "state": {"enum": ["open", "done"], "description": "Where it is."},
        "size": {"oneOf": [{"const": "s"}, {"const": "l"}]},
        "due": {"type": "string", "format": "date"},
        "seen": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
        "link": {"type": "string", "format": "uri"},
        "customer": {"$ref": "#/$defs/customer"},
        "labels": {"type": "array", "items": {"$ref": "#/$defs/label"}, "uniqueItems": True},
        "steps": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 5},
        "others": {"type": "array", "items": {"$ref": "#/$defs/customer"}},
        "extra": {"type": "object"},
        "mixed": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "from": {"type": "string"},
        "unit-price": {"type": "number", "multipleOf": 0.01},
        "odd": {"type": "string", "pattern": "(?=x)"},
    },
    "$defs": {
        "customer": {"type": "object", "properties": {"name": {"type": "string"}}},
        "company": {
            "allOf": [
                {"$ref": "#/$defs/customer"},
                {"properties": {"vat": {"type": "string"}}, "required": ["vat"]},
            ]
        },
        "label": {"type": "string", "maxLength": 20},
    },
}


@pytest.fixture(scope="module")
def imported():
    """What comes of the document."""
    return read_json_schema(json.dumps(DOCUMENT))


def test_objects_are_types(imported):
    """Definitions and the root; one that builds on another extends it."""
    types = describe_types(imported.types, Schema())
    assert sorted(types) == ["Company", "Customer", "OrderLine"]
    assert types["Company"].extends == "Customer"
    assert list(types["Company"].by_name) == ["name", "vat"]
    assert types["OrderLine"].description == "One line of an order."


@pytest.mark.parametrize(
    ("field", "kind", "said"),
    [
        (
            "sku",
            "String",
            {"pattern": "^[A-Z]+$", "min_length": 2, "max_length": 9},
        ),
        ("count", "Int", {"min_value": 1, "max_value": 99, "default": 1}),
        ("price", "Float", {"min_value": 0.5, "min_count": 0}),
        ("gift", "Bool", {"min_count": 0}),
        ("state", "String", {"one_of": ("open", "done"), "description": "Where it is."}),
        ("size", "String", {"one_of": ("s", "l")}),
        ("due", "Date", {}),
        ("seen", "DateTime", {"min_count": 0}),
        ("link", "Iri", {}),
        ("customer", "Ref[Customer]", {"min_count": 1}),
        ("labels", "List[String]", {"max_length": 20, "ordered": False}),
        ("steps", "List[String]", {"min_count": 1, "max_count": 5, "ordered": True}),
        ("others", "List[Ref[Customer]]", {"ordered": True}),
        ("extra", "Json", {}),
        ("mixed", "Json", {}),
        ("order_line_from", "String", {"iri": "from"}),
        ("unit_price", "Float", {}),
        ("odd", "String", {"pattern": None}),
    ],
)
def test_a_property_is_a_field_with_its_rules(imported, field, kind, said):
    """Each keyword that has a counterpart."""
    found = describe_types(imported.types, Schema())["OrderLine"].by_name[field]
    assert str(found.type) == kind
    for name, value in said.items():
        assert getattr(found, name) == value, name


def test_what_has_no_counterpart_is_noted(imported):
    """By its place."""
    notes = {(each.where, each.kind) for each in imported.notes}
    assert ("OrderLine.mixed", "changed") in notes
    assert ("OrderLine.unit-price", "left_out") in notes
    assert ("OrderLine.odd", "left_out") in notes
    assert ("OrderLine.from", "changed") in notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "schema.json is not JSON"),
        ("[]", "must be a JSON object"),
        ('{"type": "string"}', "no object with properties"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_other_texts_are_refused(text, message):
    """With the reason."""
    with pytest.raises(ValidationError) as caught:
        read_json_schema(text)
    assert message in caught.value.fields[0].message


def test_a_schema_of_very_many_types_is_refused(tmp_path):
    """So that one caller does not occupy the server for long."""
    many = {f"A{n}": {"properties": {"x": {"type": "string"}}} for n in range(301)}
    with App.open(new_project(tmp_path), strict=True) as app:
        calls = Calls(app)
        given = {"text": json.dumps({"$defs": many}), "file": "a.json"}
        refused = calls.failure("trails_meta_schema_import", given, OPERATOR)
        calls.kernel.close()
    assert "at most 300 are imported at once" in refused.message


def test_references_in_a_circle_end():
    """A definition that is only itself."""
    loop = {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"$ref": "#/$defs/x"}}}
    found = read_json_schema(json.dumps(loop))
    assert any("circle" in each.message for each in found.notes)
