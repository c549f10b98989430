"""The short form of fields: what it means, and that mistakes are explained."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trails.authoring.field_texts import parse_field
from trails.authoring.specs import describe_field
from trails.errors import ValidationError
from trails.model.changes.steps import FieldSpec


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("title", FieldSpec("title")),
        ("title:str", FieldSpec("title")),
        ("size:int?", FieldSpec("size", "int | None")),
        ("status:str=open", FieldSpec("status", default="open")),
        ("status:str=1", FieldSpec("status", default="1")),
        ("size:int=3", FieldSpec("size", "int", default=3)),
        ("on:bool=true", FieldSpec("on", "bool", default=True)),
        ("x:str?=a=b", FieldSpec("x", "str | None", default="a=b")),
        ("owner:Ref[Person]?", FieldSpec("owner", "Ref[Person] | None")),
        ("tags:list[str](max_count=5)", FieldSpec("tags", "list[str]", max_count=5)),
        ("v:Vector(384)", FieldSpec("v", "Vector(384)")),
        ("v:Vector[384](metric=dot)", FieldSpec("v", "Vector[384]", metric="dot")),
        ("a:str(key,label)", FieldSpec("a", key=True, label=True)),
        ("a:str(stop_words=false)", FieldSpec("a", stop_words=False)),
        ("a:str(one_of=x|y z)", FieldSpec("a", one_of=("x", "y z"))),
        ('a:str(one_of=["x","y|z"])', FieldSpec("a", one_of=("x", "y|z"))),
        ("a:int(one_of=1|2)", FieldSpec("a", "int", one_of=(1, 2))),
        (
            'a:str(pattern="^[a-z]{2,3}(x|y)$",max_length=3)',
            FieldSpec("a", pattern="^[a-z]{2,3}(x|y)$", max_length=3),
        ),
        ("a:str(pattern=^[0-9]+$)", FieldSpec("a", pattern="^[0-9]+$")),
        (
            'a:str(description="A \\"quoted\\" text, (really).")',
            FieldSpec("a", description='A "quoted" text, (really).'),
        ),
        ("a:str(min_length=3)?=ab c", FieldSpec("a", "str | None", min_length=3, default="ab c")),
    ],
)
def test_a_short_form_means_a_field(text: str, expected: FieldSpec):
    """Marks, arguments, defaults, quotes."""
    assert parse_field(text) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "begins with a name"),
        ("1a", "begins with a name"),
        ("a b", "not expected"),
        ("a:str(", "not closed"),
        ("a:str(minlength=3)", "min_length"),
        ("a:str(min_length=x)", "Expected"),
        ("a:str(name=b)", "no argument 'name'"),
        ("a:str(min_length=3)x", "not expected"),
    ],
)
def test_a_mistake_is_explained(text: str, part: str):
    """With the text, the rule and an example."""
    with pytest.raises(ValidationError) as caught:
        parse_field(text, "fields[2]")
    (error,) = caught.value.fields
    assert error.field == "fields[2]"
    assert part in error.message
    assert "title:str(" in error.message


@given(st.text("ab:()[]{}=?,|\"'\\ str", max_size=40))
def test_any_text_is_a_field_or_a_mistake(text: str):
    """Nothing else is raised, and what is read can be sent."""
    try:
        found = parse_field(text)
        msgspec.json.encode(found)
        describe_field("Task", found)
    except ValidationError:
        pass
