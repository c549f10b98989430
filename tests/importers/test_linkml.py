"""LinkML schemas, as types."""

import pytest

from trails.authoring.specs import describe_types
from trails.errors import ValidationError
from trails.importers.linkml import read_linkml
from trails.model.types import Schema

TEXT = """
id: https://example.org/people
name: people
prefixes:
  schema: https://schema.org/
  linkml: {prefix_prefix: linkml, prefix_reference: https://w3id.org/linkml/}
imports: [linkml:types, other]
default_range: string
types:
  Code: {typeof: string}
enums:
  Status: {permissible_values: {open: , "on hold": {description: waits}}}
slots:
  id: {identifier: true}
  full name: {required: true, slot_uri: "schema:name", description: What they are called.}
  age: {range: integer, minimum_value: 0, maximum_value: 150}
  code: {range: Code, pattern: "^[A-Z]+$"}
classes:
  NamedThing:
    abstract: true
    slots: [id, full name]
  HasAliases:
    mixin: true
    attributes:
      aliases: {multivalued: true, list_elements_ordered: true}
  Person:
    is_a: NamedThing
    mixins: [HasAliases]
    description: A person.
    class_uri: schema:Person
    slots: [age, code]
    attributes:
      status: {range: Status, ifabsent: string(open)}
      active: {range: boolean, ifabsent: "true"}
      employer: {range: Organization}
      friends: {range: Person, multivalued: true, maximum_cardinality: 9}
      when: {range: datetime, any_of: [{range: date}]}
    slot_usage:
      full name: {pattern: "x"}
    unique_keys:
      both: {unique_key_slots: [code, age]}
  Organization:
    is_a: NamedThing
"""


@pytest.fixture(scope="module")
def imported():
    """What comes of the schema."""
    return read_linkml(TEXT)


@pytest.fixture(scope="module")
def types(imported):
    """As descriptors."""
    return describe_types(imported.types, Schema())


def test_classes_are_types(types):
    """With what they extend, their IRIs and groups."""
    person = types["Person"]
    assert (person.extends, person.iri) == ("NamedThing", "https://schema.org/Person")
    assert person.description == "A person."
    assert person.unique == (("code", "age"),)
    assert types["NamedThing"].abstract
    assert not types["Organization"].abstract


@pytest.mark.parametrize(
    ("field", "kind", "said"),
    [
        ("named_thing_id", "String", {"key": True}),
        (
            "full_name",
            "String",
            {"iri": "https://schema.org/name", "min_count": 1, "declared_in": "NamedThing"},
        ),
        ("age", "Int", {"min_value": 0, "max_value": 150, "min_count": 0}),
        ("code", "String", {"pattern": "^[A-Z]+$"}),
        ("aliases", "List[String]", {"ordered": True, "declared_in": "Person"}),
        ("status", "String", {"one_of": ("open", "on hold"), "default": "open"}),
        ("active", "Bool", {"default": True}),
        ("employer", "Ref[Organization]", {}),
        ("friends", "List[Ref[Person]]", {"max_count": 9, "ordered": False}),
    ],
)
def test_a_slot_is_a_field_with_its_rules(types, field, kind, said):
    """Own slots, attributes, those of mixins and inherited ones."""
    found = types["Person"].by_name[field]
    assert str(found.type) == kind
    for name, value in said.items():
        assert getattr(found, name) == value, name


def test_what_has_no_counterpart_is_noted(imported):
    """By its place."""
    text = {(each.where, each.message.partition(" ")[0]) for each in imported.notes}
    assert ("Person.when", "'any_of'") in text
    assert any("other" in each.message for each in imported.notes)
    assert any("slot_usage" in each.message for each in imported.notes)
    assert any("mixin HasAliases" in each.message for each in imported.notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is not YAML"),
        ("a: 1", "has no classes"),
        ("a: &x 1\nclasses: {A: *x}", "YAML aliases"),
        ("classes: {A: {is_a: B, slots: [x]}, B: {is_a: A}}", "circle"),
        ("[" * 200_000, "nested more than 64 deep"),
        ("- " * 200_000, "nested more than 64 deep"),
        ("classes: !!python/object/apply:os.system [ls]", "is not YAML"),
    ],
)
def test_other_texts_are_refused(text, message):
    """With the reason; nothing of a text is executed."""
    with pytest.raises(ValidationError) as caught:
        read_linkml(text)
    assert message in caught.value.fields[0].message
