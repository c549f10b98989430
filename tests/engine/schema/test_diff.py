"""Differences of schemas as steps, and their reversal, over random schemas."""

from __future__ import annotations

import random

import msgspec
import pytest

from trails.authoring.specs import describe_field, field_spec
from trails.engine.schema.diff import diff_schemas, likely_renames, reverse
from trails.engine.schema.resolve import resolve
from trails.model.changes.steps import (
    AddShape,
    AddType,
    FieldSpec,
    RenameField,
    RenameType,
    ShapeSpec,
    Step,
    TypeSpec,
)
from trails.model.types import Schema

NAMES = ["Alpha", "Beta", "Gamma", "Delta", "Eps"]
FIELDS = ["one", "two", "three", "four", "five", "six"]
KINDS = ["str", "int", "float", "date", "Decimal", "bool", "datetime", "Json", "Vector[3]"]


def random_field(pick: random.Random, name: str, types: list[str]) -> FieldSpec:
    """Any field that can be declared."""
    kind = pick.choice([*KINDS, *(f"Ref[{each}]" for each in types)])
    iri = pick.choice(["", "", "", f"https://example.org/{pick.choice(FIELDS)}"])
    if kind not in {"Json", "Vector[3]"} and pick.random() < 0.2:
        low = pick.choice([None, 1])
        return FieldSpec(name, f"list[{kind}]", min_count=low, max_count=pick.choice([None, 4]))
    optional = pick.random() < 0.6
    more: dict[str, object] = {}
    if kind == "str":
        more = pick.choice(
            [
                {},
                {"max_length": 9},
                {"one_of": ("a", "b")},
                {"search": True, "language": "english"},
                {"default": "a"},
                {"unique": True},
            ]
        )
    elif kind == "int":
        more = pick.choice([{}, {"min_value": 1, "max_value": pick.choice([5, 9])}, {"default": 3}])
    return FieldSpec(
        name,
        f"{kind} | None" if optional else kind,
        description=pick.choice(["", "Says something."]),
        iri=iri,
        **more,  # type: ignore[arg-type]
    )


def random_schema(pick: random.Random) -> Schema:
    """Any schema of a few types."""
    names = pick.sample(NAMES, pick.randint(1, len(NAMES)))
    steps: list[Step] = []
    kinds: dict[str, bool] = {}
    taken: dict[str, set[str]] = {}
    for name in names:
        edge = bool(kinds) and pick.random() < 0.25
        parents = [each for each, is_edge in kinds.items() if not is_edge]
        parent = pick.choice(parents) if parents and not edge and pick.random() < 0.5 else None
        free = [each for each in FIELDS if each not in taken.get(parent or "", ())]
        chosen = pick.sample(free, min(len(free), pick.randint(0, 3)))
        fields = [random_field(pick, each, names) for each in chosen]
        keyed = parent is None and pick.random() < 0.4
        if keyed:
            fields.insert(pick.randint(0, len(fields)), FieldSpec("code", "str", key=True))
        plain = [each.name for each in fields if each.type in {"str", "int | None", "str | None"}]
        group = (tuple(plain[:2]),) if len(plain) > 1 and pick.random() < 0.6 else ()
        what = pick.choice(["unique", "index"])
        kinds[name] = edge
        taken[name] = {*(each.name for each in fields), *taken.get(parent or "", ())}
        steps.append(
            AddType(
                TypeSpec(
                    name,
                    tuple(fields),
                    extends=parent,
                    unique=group if what == "unique" else (),
                    index=group if what == "index" else (),
                    source=pick.choice(names) if edge else None,
                    target=pick.choice(names) if edge else None,
                    per_source=pick.choice([(0, None), (0, 2)]) if edge else (0, None),
                    iri=pick.choice(["", "", f"https://example.org/types/{name}"]),
                    abstract=not edge and pick.random() < 0.2,
                )
            )
        )
        texts = [each for each in fields if each.type == "str"]
        if texts and pick.random() < 0.4:
            rule = FieldSpec(texts[0].name, "str", max_length=pick.choice([3, 4]))
            steps.append(AddShape(ShapeSpec(f"Shape{name}", (rule,), target=name)))
    return resolve(Schema(), steps)[-1]


def schemas(seed: int, count: int) -> list[Schema]:
    """Random schemas; fields of one type never share an IRI."""
    pick, found = random.Random(seed), list[Schema]()
    while len(found) < count:
        try:
            found.append(random_schema(pick))
        except Exception:  # noqa: BLE001, S112 - a schema that can't be declared
            continue
    return found


@pytest.mark.parametrize("seed", range(60))
def test_a_difference_leads_from_one_schema_to_the_other(seed: int) -> None:
    """Exactly, from any schema to any other; and its JSON form is read back as it was."""
    old, new = schemas(seed, 2)
    steps = diff_schemas(old, new)
    found = resolve(old, steps)[-1] if steps else old
    assert found == new
    assert msgspec.convert(msgspec.to_builtins(steps), tuple[Step, ...]) == steps
    assert diff_schemas(new, new) == ()


@pytest.mark.parametrize("seed", range(60))
def test_a_difference_can_be_reversed(seed: int) -> None:
    """The types come back exactly, except for the order of fields that were dropped."""
    old, new = schemas(seed + 1000, 2)
    steps = diff_schemas(old, new)
    back = reverse(steps, old)
    found = resolve(new, back)[-1] if back else new
    assert diff_schemas(found, old) == ()


@pytest.mark.parametrize("seed", range(20))
def test_a_field_is_written_as_it_was_declared(seed: int) -> None:
    """Descriptor to text and back."""
    for schema in schemas(seed + 2000, 3):
        for declared in schema.types:
            for field in declared.fields:
                again = describe_field(field.declared_in, field_spec(field))
                if not (declared.edge is not None and field.name in {"source", "target"}):
                    assert again == field


def test_renames_are_given_and_never_guessed() -> None:
    """Without a hint it is a drop and an addition, which are named as a likely rename."""
    fields = FieldSpec("code", key=True), FieldSpec("state", "str | None")
    old = resolve(Schema(), [AddType(TypeSpec("Task", fields))])[-1]
    new = resolve(old, [RenameField("Task", "state", "status"), RenameType("Task", "Issue")])[-1]
    renamed = resolve(old, [RenameField("Task", "state", "status")])[-1]
    assert likely_renames(old, renamed) == (RenameField("Task", "state", "status"),)
    assert [type(each).__name__ for each in diff_schemas(old, renamed)] == ["DropField", "AddField"]
    hints = RenameField("Task", "state", "status"), RenameType("Task", "Issue")
    assert diff_schemas(old, new, hints) == hints
