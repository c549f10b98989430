"""Declarations as data: the types of fields as texts, and specs to descriptors and back."""

from __future__ import annotations

import inspect
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worlds.schemas import random_schema

from trails import Edge, Node, Ref, Vector, edge_type, node_type, predicate
from trails.authoring.specs import (
    describe_field,
    describe_fields,
    describe_shape,
    describe_type,
    field_spec,
    parse_value_type,
    shape_spec,
    spell_value_type,
    type_spec,
)
from trails.errors import ValidationError
from trails.model.changes.steps import FieldSpec, ShapeSpec, TypeSpec
from trails.model.kinds import KINDS
from trails.model.types import Schema, ValueType


class TestTypes:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("str", ValueType("String")),
            ("String", ValueType("String")),
            ("int | None", ValueType("Int", nullable=True)),
            ("None | Int", ValueType("Int", nullable=True)),
            ("Optional[int]", ValueType("Int", nullable=True)),
            ("list[Ref[Person]]", ValueType("List", item=ValueType("Ref", "Person"))),
            ('List[Ref["Person"]]', ValueType("List", item=ValueType("Ref", "Person"))),
            ("List[Int]", ValueType("List", item=ValueType("Int"))),
            ("Vector[384]", ValueType("Vector", dimension=384)),
            ("Vector(384)", ValueType("Vector", dimension=384)),
            ("Vector[Literal[384]] | None", ValueType("Vector", None, 384, nullable=True)),
            ("datetime", ValueType("DateTime")),
            ("Person", ValueType("Object", "Person")),
            ("Ref[Person] | None", ValueType("Ref", "Person", nullable=True)),
            ("Any", ValueType("Any")),
        ],
    )
    def test_both_spellings_are_read(self, text: str, expected: ValueType):
        """As annotations write types, and by the names of the table."""
        assert parse_value_type(text) == expected

    @pytest.mark.parametrize(
        ("text", "part"),
        [
            ("string", "'string' is written str"),
            ("Strng", "did you mean 'String'"),
            ("dattime", "did you mean 'datetime'"),
            ("int | str", "one type"),
            ("None", "one type"),
            ("list[int | None]", "can't be None"),
            ("list[list[int]]", "can't hold lists"),
            ("Ref[str]", "kind of value"),
            ("Ref[Persn]", "did you mean 'Person'"),
            ("Vector[x]", "whole number"),
            ("__import__('os').system('x')", "can't be read"),
            ("str[", "can't be read"),
            ("str[int]", "no parameter"),
            ("a" * 500, "more than"),
            ("(" * 190, "can't be read"),
            ("x\0", "can't be read"),
            ("", "can't be read"),
            ("Vector(__import__('os'))", "whole number"),
        ],
    )
    def test_a_fault_names_field_value_and_rule(self, text: str, part: str):
        """And the nearest kind."""
        with pytest.raises(ValidationError) as caught:
            parse_value_type(text, "fields[0].type", {"Person"})
        (error,) = caught.value.fields
        assert error.field == "fields[0].type"
        assert part in error.message
        assert error.value == text[:200]

    @pytest.mark.parametrize("name", KINDS)
    def test_a_type_is_spelled_as_it_is_read(self, name: str):
        """For each kind, alone, optional and in a list."""
        plain = ValueType(name, dimension=3 if name == "Vector" else None)
        for each in (
            plain,
            msgspec.structs.replace(plain, nullable=True),
            ValueType("List", item=plain),
        ):
            assert parse_value_type(spell_value_type(each)) == each


class TestSpecs:
    def test_a_field_spec_has_every_argument_of_predicate(self):
        """So a new argument of predicate() is in specs, files and diffs as well."""
        arguments = set(inspect.signature(predicate).parameters)
        # A dimension is part of the type.
        assert set(FieldSpec.__struct_fields__) == arguments - {"dimension"} | {"name", "type"}

    def test_a_type_spec_has_every_argument_of_the_decorators(self):
        """Likewise."""
        arguments = {
            *inspect.signature(node_type).parameters,
            *inspect.signature(edge_type).parameters,
        }
        expected = arguments - {"cls"} | {"name", "fields", "description"}
        assert set(TypeSpec.__struct_fields__) == expected

    def test_a_spec_gives_what_the_class_gives(self):
        """The same descriptors, whichever way they are declared."""

        @node_type
        class Person(Node):
            """Someone."""

            email: str = predicate(key=True, pattern="^[^@]+@[^@]+$")
            friends: list[Ref[Person]] = predicate(max_count=3)
            vector: Vector = predicate(dimension=3, metric="dot")
            nick: str | None = None
            status: str = "open"

        @edge_type(source=Person, target=Person, per_source=(0, 2))
        class Knows(Edge):
            since: int

        schema = Schema.of([Person.__trails__, Knows.__trails__])  # type: ignore[attr-defined]
        person = TypeSpec(
            "Person",
            (
                FieldSpec("email", key=True, pattern="^[^@]+@[^@]+$"),
                FieldSpec("friends", "list[Ref[Person]]", max_count=3),
                FieldSpec("vector", "Vector[3]", metric="dot"),
                FieldSpec("nick", "str | None"),
                FieldSpec("status", default="open"),
            ),
            description="Someone.",
        )
        knows = TypeSpec(
            "Knows", (FieldSpec("since", "int"),), source="Person", target="Person",
            per_source=(0, 2),
        )  # fmt: skip
        made = describe_type(person, Schema())
        assert made == schema.by_name["Person"]
        assert describe_type(knows, Schema.of([made])) == schema.by_name["Knows"]
        assert type_spec(made, schema) == person
        assert type_spec(schema.by_name["Knows"], schema) == knows

    @settings(max_examples=150, deadline=None)
    @given(st.integers(0, 2**32))
    def test_random_schemas_survive_the_round_trip(self, seed: int):
        """Descriptors to specs to JSON to specs to descriptors."""
        schema = random_schema(random.Random(seed))
        names = [*schema.by_name]
        for found in schema.types:
            spec = type_spec(found, schema)
            again = msgspec.json.decode(msgspec.json.encode(spec), type=TypeSpec)
            assert describe_type(again, schema) == found
            for field in found.fields:
                again_field = describe_field(
                    field.declared_in, field_spec(field), known=names, stored=False
                )
                assert again_field == msgspec.structs.replace(
                    field, description=again_field.description
                )
        for shape in schema.shapes:
            spec = shape_spec(shape)
            again = msgspec.json.decode(msgspec.json.encode(spec), type=ShapeSpec)
            assert describe_shape(again, schema) == shape

    def test_all_faults_of_all_fields_are_reported(self):
        """Each with its place."""
        with pytest.raises(ValidationError) as caught:
            describe_fields(
                "Task",
                (
                    FieldSpec("title", "strin"),
                    FieldSpec("id"),
                    FieldSpec("size", "int", pattern="x"),
                    FieldSpec("ok"),
                    FieldSpec("ok"),
                    FieldSpec("Bad\nname"),
                    FieldSpec("v", "Vector"),
                    FieldSpec("n", "int", default="x"),
                ),
            )
        places = [each.field for each in caught.value.fields]
        assert places == [
            "fields[0].type", "fields[1]", "fields[2]", "fields[4].name", "fields[5]", "fields[6]",
            "fields[7]",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("spec", "field"),
        [
            (TypeSpec("task"), "type"),
            (TypeSpec("Task", extends="Nobody"), "type.extends"),
            (TypeSpec("Task", extends="Task"), "type.extends"),
            (TypeSpec("Task", source="Person"), "type"),
            (TypeSpec("Task", source="Person", target="Persn"), "type.target"),
            (TypeSpec("Task", unique=(("a", "b"),)), "type"),
            (TypeSpec("Task", (FieldSpec("p", "Ref[Nobody]"),)), "type.fields[0].type"),
            (TypeSpec("Task", (FieldSpec("email"),), extends="Person"), "type"),
            (TypeSpec("Task", source="Person", target="Person", per_source=(3, 1)), "type"),
        ],
    )
    def test_a_type_that_does_not_fit_is_refused(self, spec: TypeSpec, field: str):
        """With the place of the fault."""
        person = describe_type(TypeSpec("Person", (FieldSpec("email"),)), Schema())
        with pytest.raises(ValidationError) as caught:
            describe_type(spec, Schema.of([person]))
        assert caught.value.fields[0].field == field


def test_equal_specs_are_written_equally():
    """Also one that was sent with a default spelled out, so that digests agree."""
    sent = msgspec.json.decode(b'{"name": "a", "type": "str"}', type=FieldSpec)
    assert msgspec.to_builtins(sent) == msgspec.to_builtins(FieldSpec("a")) == {"name": "a"}
