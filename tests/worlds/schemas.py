"""Random schemas, made from specs: for tests of what turns schemas into texts and back."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from itertools import count
from types import ModuleType
from typing import Final

import msgspec

from trails.authoring.specs import (
    describe_field,
    describe_shape,
    describe_type,
    field_spec,
    shape_spec,
    type_spec,
)
from trails.errors import ValidationError
from trails.model.changes.steps import FieldSpec, ShapeSpec, TypeSpec
from trails.model.kinds import KINDS
from trails.model.types import Schema, TypeDescriptor, can_constrain
from trails.registry.registry import Registry, discover

NAMES: Final = ("Person", "Task", "Team", "Note", "Place", "Thing", "TestCase", "A1")
FIELDS: Final = (
    "title", "name", "size", "born", "owner", "tags", "body", "camelCase", "x1", "a_b", "code",
    "rank", "parts", "meta", "where", "until", "match", "field",
)  # fmt: skip
TEXTS: Final = (
    "", "plain", "It's \"quoted\"", 'ends with "', "back\\slash", '"""', "a\nb\n\n  c", "tab\there",
    "é ü 🙂 \u2028 \u202e", "\x00\x07\x7f", "{braces} %s {0}", "'''", "\\", "x" * 120, "#comment",
    "' or \" or \\\"", "many words " * 20, "\r\n", "\ufeff", "$1", "trailing ", "\\N{BULLET}",
    "'" * 3 + '"',
)  # fmt: skip
VALUES: Final = {
    "String": TEXTS,
    "Bool": (True, False),
    "Int": (0, 1, -5, 2**62, 10**9),
    "BigInt": ("1", "-99999999999999999999999", "0"),
    "Float": (0.0, 1.5, -2.25, 1e-7, 1e300, 100000.0, 3.0e16),
    "Decimal": ("1.5", "-0.001", "100", "0"),
    "Date": ("2026-01-01", "0001-01-01", "9999-12-31"),
    "DateTime": ("2026-01-01T00:00:00Z", "2026-03-01T09:30:00.125Z", "1999-12-31T23:59:59+02:00"),
    "Iri": ("https://example.org/a", "urn:x:y"),
    "Blob": ("https://example.org/b",),
    "LangText": ({"en": "text"}, {"de-ch": 'é"', "en": "'", "fr": "\n"}),
    "Json": ({}, [1, {"a": None}], "text", {"k": [True, 1.5, 'é"']}, 3),
}


def random_field(  # noqa: C901 - one line for each argument
    rng: random.Random, name: str, types: list[str]
) -> FieldSpec:
    """A field, often with constraints; it may not be valid."""
    kind = rng.choice([*KINDS, "Ref", "String", "String"])
    if kind == "Ref" and not types:
        kind = "String"
    written = {
        "Ref": f"Ref[{rng.choice(types or ['X'])}]",
        "Vector": f"Vector[{rng.randint(1, 9)}]",
    }
    base = written.get(kind, kind)
    many = rng.random() < 0.25 and kind not in {"Vector", "Json", "LangText"}
    nullable = not many and rng.random() < 0.4
    text = f"list[{base}]" if many else base + (" | None" if nullable else "")
    given: dict[str, object] = {}

    def maybe(argument: str, value: object, chance: float = 0.2) -> None:
        if rng.random() < chance:
            given[argument] = value

    values = VALUES.get(kind, ())
    maybe("description", rng.choice(TEXTS))
    if kind in {"String", "Iri", "Blob", "LangText"}:
        maybe("min_length", rng.randint(0, 3))
        maybe("max_length", rng.randint(3, 500))
        maybe("pattern", rng.choice([r"^[a-z]+$", r"\d{3}", "a\"b'c", r"\\", "^x{1,2}$"]), 0.1)
    if values and kind not in {"Json", "LangText"}:
        maybe("one_of", tuple(rng.sample(values, rng.randint(1, min(3, len(values))))), 0.15)
    if kind in {"Int", "Float"}:
        maybe("min_value", rng.choice(values))
    if values:
        value = rng.choice(values)
        maybe("default", [value] if many else value, 0.25)
    if many:
        maybe("min_count", rng.randint(0, 2))
        maybe("max_count", rng.randint(2, 9))
        maybe("ordered", True)
    if kind == "LangText":
        maybe("languages", ("en", "de-ch")[: rng.randint(1, 2)])
    if kind == "String":
        maybe("search", True)
        if given.get("search"):
            maybe("language", "german", 0.5)
            if "language" in given:
                maybe("stop_words", False, 0.5)
    if kind == "Vector":
        maybe("metric", rng.choice(["dot", "euclidean"]), 0.5)
    for mark in ("key", "unique", "label"):
        maybe(mark, True, 0.08)
    maybe("iri", rng.choice([f"https://example.org/{name}", f"other_{name}"]), 0.1)
    return FieldSpec(name=name, type=text, **given)  # type: ignore[arg-type]


def random_fields(rng: random.Random, owner: str, types: list[str], names: list[str]):
    """Valid fields; the constraints of one that is not valid are dropped."""
    found = []
    for name in names:
        for _ in range(20):
            spec = random_field(rng, name, types)
            try:
                describe_field(owner, spec)
            except ValidationError:
                continue
            found.append(spec)
            break
    return tuple(found)


def random_type(rng: random.Random, name: str, schema: Schema, types: list[str]) -> TypeDescriptor:
    """A type that may extend, refer to or join those of a schema."""
    for attempt in range(50):
        nodes = [each.name for each in schema.types if each.edge is None]
        parent = rng.choice(nodes) if nodes and rng.random() < 0.3 else None
        is_edge = bool(nodes) and parent is None and rng.random() < 0.25
        taken = set() if parent is None else set(schema.by_name[parent].by_name)
        names = [each for each in FIELDS if each not in taken]
        fields = random_fields(rng, name, types, rng.sample(names, rng.randint(0, 5)))
        fields = tuple(_unmarked(fields, "key" if attempt % 2 else "label"))
        plain = [
            each.name
            for each in fields
            if not each.type.startswith(("list", "Json", "Lang", "Vector"))
        ]
        group = (tuple(rng.sample(plain, 2)),) if len(plain) > 1 and rng.random() < 0.3 else ()
        spec = TypeSpec(
            name=name,
            fields=fields,
            description=rng.choice(TEXTS),
            extends=parent,
            unique=group if rng.random() < 0.5 else (),
            index=group,
            iri=rng.choice(["", "", f"https://example.org/{name}"]),
            source=rng.choice(nodes) if is_edge else None,
            target=rng.choice(nodes) if is_edge else None,
            per_source=rng.choice([(0, None), (1, 3)]) if is_edge else (0, None),
            abstract=not is_edge and rng.random() < 0.1,
        )
        try:
            return describe_type(spec, _with(schema, types))
        except ValidationError:
            continue
    return describe_type(TypeSpec(name), schema)


def _unmarked(fields: tuple[FieldSpec, ...], mark: str) -> Iterator[FieldSpec]:
    """The same without a mark, and with the other one once at most."""
    seen: set[str] = set()
    for each in fields:
        given = {name: False for name in ("key", "label") if name == mark or name in seen}
        yield msgspec.structs.replace(each, **given)
        seen |= {name for name in ("key", "label") if getattr(each, name)}


def _with(schema: Schema, types: list[str]) -> Schema:
    """A schema in which other names count as types, for references forwards."""
    missing = [TypeDescriptor(name, ()) for name in types if name not in schema.by_name]
    return Schema.of((*schema.types, *missing))


def random_schema(rng: random.Random) -> Schema:
    """A few types that refer to each other, and shapes with rules for them."""
    names = rng.sample(NAMES, rng.randint(1, 5))
    schema = Schema()
    for name in names:
        made = random_type(rng, name, schema, names)
        schema = Schema.of((*schema.types, made))
    shapes = []
    for number in range(rng.randint(0, 2)):
        target = rng.choice(schema.types)
        fields = [each for each in target.fields if each.type.kind == "String" and not each.key]
        chosen = tuple(
            FieldSpec(name=each.name, type=field_spec(each).type, max_length=rng.randint(1, 50))
            for each in rng.sample(fields, min(len(fields), 2))
        )
        given = ShapeSpec(f"Rule{number}", chosen, rng.choice(TEXTS), target.name)
        shapes.append(describe_shape(given, schema))
    return Schema.of(schema.types, shapes)


class RandomChange:
    """Random changes of a schema, made on its specs, with the renames among them."""

    def __init__(self, rng: random.Random, schema: Schema) -> None:
        self.rng = rng
        self.schema = schema
        self.given = frozenset(schema.by_name)
        self.added: set[str] = set()
        self.types: dict[str, str] = {}
        self.fields: dict[tuple[str, str], str] = {}

    def change(self) -> None:
        """One change that leaves a valid schema; sometimes none."""
        specs = {each.name: type_spec(each, self.schema) for each in self.schema.types}
        shapes = [shape_spec(each) for each in self.schema.shapes]
        if not specs:
            return
        name = self.rng.choice([*specs])
        kept = (dict(self.types), dict(self.fields))
        action = self.rng.choice(
            [self._add_field] * 3 + [self._change_field] * 3 + [self._drop_field] * 2
            + [self._rename_field, self._rename_type, self._drop_type, self._add_type]
            + [self._describe, self._group, self._set_iri]
        )  # fmt: skip
        try:
            action(specs, shapes, name)
            self.schema = schema_of(list(specs.values()), shapes)
        except (ValidationError, KeyError, IndexError, ValueError):
            self.types, self.fields = kept

    def _put(self, specs: dict[str, TypeSpec], name: str, **given: object) -> None:
        specs[name] = msgspec.structs.replace(specs[name], **given)

    def _add_field(self, specs, shapes, name):
        names = [each for each in FIELDS if each not in self.schema.by_name[name].by_name]
        added = random_fields(self.rng, name, [*specs], [self.rng.choice(names)])
        self._put(specs, name, fields=(*specs[name].fields, *added))

    def _change_field(self, specs, shapes, name):
        fields = list(specs[name].fields)
        at = self.rng.randrange(len(fields))
        fields[at] = random_fields(self.rng, name, [*specs], [fields[at].name])[0]
        self._put(specs, name, fields=tuple(fields))

    def _drop_field(self, specs, shapes, name):
        gone = self.rng.choice([each.name for each in specs[name].fields])
        self._put(specs, name, fields=tuple(e for e in specs[name].fields if e.name != gone))

    def _rename_field(self, specs, shapes, name):
        old = self.rng.choice([each.name for each in specs[name].fields])
        new = self.rng.choice([e for e in FIELDS if e not in self.schema.by_name[name].by_name])
        if any(key[0] == name for key in self.fields) or name in self.types.values():
            raise KeyError(name)  # one rename for each type keeps the oracle simple
        if any(spec.extends == name for spec in specs.values()) or shapes:
            raise KeyError(name)
        keep = self.rng.random() < 0.7
        self._put(
            specs,
            name,
            fields=tuple(
                msgspec.structs.replace(e, name=new, iri=e.iri or (old if keep else ""))
                if e.name == old
                else e
                for e in specs[name].fields
            ),
            unique=_replaced(specs[name].unique, old, new),
            index=_replaced(specs[name].index, old, new),
        )
        self.fields[name, old] = new

    def _rename_type(self, specs, shapes, name):
        new = self.rng.choice([e for e in NAMES if e not in specs])
        if name in self.types.values() or any(key[0] == name for key in self.fields):
            raise KeyError(name)
        if name in self.added or new in self.types or new in self.given:
            raise KeyError(name)
        texts = msgspec.json.encode([list(specs.values()), shapes]).decode()
        for quoted in (f'"{name}"', f"Ref[{name}]"):
            texts = texts.replace(quoted, quoted.replace(name, new))
        types, changed = msgspec.json.decode(
            texts.encode(), type=tuple[list[TypeSpec], list[ShapeSpec]]
        )
        specs.clear()
        specs.update({each.name: each for each in types})
        shapes[:] = changed
        if self.rng.random() < 0.7:
            self._put(specs, new, iri=specs[new].iri or name)
        self.types[name] = new

    def _drop_type(self, specs, shapes, name):
        if name in self.types.values():
            raise KeyError(name)
        del specs[name]
        for other in list(specs):
            fields = [e for e in specs[other].fields if f"[{name}]" not in e.type]
            self._put(specs, other, fields=tuple(fields))
        shapes[:] = [each for each in shapes if each.target != name]

    def _add_type(self, specs, shapes, name):
        new = self.rng.choice([e for e in NAMES if e not in specs and e not in self.types])
        if new in self.given:
            raise KeyError(new)  # dropped before; it would be a change of the old class
        made = random_type(self.rng, new, self.schema, [*specs, new])
        specs[new] = type_spec(made, Schema.of((*self.schema.types, made)))
        self.added.add(new)

    def _describe(self, specs, shapes, name):
        self._put(specs, name, description=self.rng.choice(TEXTS))

    def _group(self, specs, shapes, name):
        names = [e.name for e in specs[name].fields]
        group = tuple(self.rng.sample(names, 2)) if self.rng.random() < 0.7 else None
        self._put(specs, name, index=() if group is None else (group,))

    def _set_iri(self, specs, shapes, name):
        self._put(specs, name, iri=self.rng.choice(["", f"https://example.org/x/{name}"]))


def _replaced(groups: tuple[tuple[str, ...], ...], old: str, new: str):
    return tuple(tuple(new if each == old else each for each in group) for group in groups)


def schema_of(types: list[TypeSpec], shapes: list[ShapeSpec]) -> Schema:
    """The schema that specs declare together."""
    schema, left = Schema(), list(types)
    names = [each.name for each in types]
    while left:
        ready = [e for e in left if e.extends is None or e.extends in schema.by_name]
        if not ready:
            raise KeyError("a type extends one that is gone")
        for each in ready:
            made = describe_type(each, _with(schema, names))
            schema = Schema.of((*schema.types, made))
            left.remove(each)
    described = [describe_shape(each, schema) for each in shapes]
    for shape in described:
        if not all(can_constrain(schema.by_name[shape.target], each) for each in shape.fields):
            raise KeyError(shape.name)
    return Schema.of(schema.types, described)


_numbers = count()


def declared(text: str) -> Schema:
    """The schema that the text of a module declares."""
    name = f"generated_{next(_numbers)}"
    module = ModuleType(name)
    sys.modules[name] = module
    try:
        exec(compile(text, f"{name}.py", "exec"), vars(module))  # noqa: S102 - what it is for
        found = discover(module)
    finally:
        del sys.modules[name]
    return Registry(types=found.types, shapes=found.shapes).schema
