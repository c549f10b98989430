"""Declarations as data: FieldSpec, TypeSpec and ShapeSpec to descriptors, and back.

A spec has what a person writes in ``predicate()`` and in a decorator; it is what agents,
migrations and imports send. The checks are those of the decorators. A fault is an error
of a field of the input, with the spec, the value, the rule, and the nearest kind where a type is
misspelled. ``spell_value_type`` and the functions ``*_spec`` give back what was declared.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Final, TypeVar

import msgspec

from trails.authoring.predicates import UNSET, Predicate, describe
from trails.authoring.types import check_free_name, compose_shape, compose_type
from trails.errors import DeclarationError, FieldError, ValidationError
from trails.model.changes.steps import FieldSpec, ShapeSpec, TypeSpec
from trails.model.kinds import BY_PYTHON, KINDS
from trails.model.names import check_type_name, suggest
from trails.model.types import (
    ANY,
    LIST,
    OBJECT,
    REF,
    EdgeEnds,
    PredicateDescriptor,
    Schema,
    ShapeDescriptor,
    TypeDescriptor,
    ValueType,
)

T = TypeVar("T")
_LONGEST: Final = 200
"""Characters of a type."""
ARGUMENTS: Final = tuple(name for name in Predicate.__struct_fields__ if name != "dimension")
"""The arguments of ``predicate()`` that a FieldSpec has; a dimension is part of its type."""
_OTHER_NAMES: Final[Mapping[str, str]] = {
    "array": "list[str]",
    "boolean": "bool",
    "double": "float",
    "enum": "str, with one_of",
    "integer": "int",
    "number": "float",
    "reference": "Ref[Type]",
    "string": "str",
    "text": "str",
    "timestamp": "datetime",
    "uri": "Iri",
    "url": "Iri",
}


def _kinds() -> Mapping[str, str]:
    """The names that a type may be written with, and their kinds; plugins may have added some."""
    return {
        **{name: name for name in KINDS},
        **{cls.__name__: kind.name for cls, kind in BY_PYTHON.items()},
        "Any": ANY,
        "dict": ANY,
        "object": ANY,
    }


def _forms() -> str:
    return (
        f"{', '.join(each.__name__ for each in BY_PYTHON)}, Vector[384], Ref[Type], list[...] of "
        "one of these, or one of them with '| None'"
    )


class _TypeFault(Exception):  # noqa: N818 - an internal signal, never seen by users
    """What is wrong with the text of a type."""


def parse_value_type(
    text: str, where: str = "type", known: Iterable[str] | None = None
) -> ValueType:
    """The type that a text like ``list[Ref[Person]]`` or ``List[Int]`` names.

    ``where`` is the field of the input that errors name. With ``known`` any other name of a
    node type or shape is refused.
    """
    try:
        return _read(_parse(text), None if known is None else frozenset(known))
    except _TypeFault as fault:
        message = f"{where}: {text[:100]!r} is not a type: {fault}; write {_forms()}"
        raise ValidationError([FieldError(where, "type", message, text[:_LONGEST])]) from None


def _parse(text: str) -> ast.expr:
    if len(text) > _LONGEST:
        raise _TypeFault(f"it has more than {_LONGEST} characters")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _TypeFault("it can't be read") from None


def _read(tree: ast.expr, known: frozenset[str] | None) -> ValueType:
    members = _members(tree)
    rest = [each for each in members if not _is_none(each)]
    if len(rest) != 1:
        raise _TypeFault("a value has one type, or one type '| None'")
    found = _read_single(rest[0], known)
    if len(rest) == len(members):
        return found
    return msgspec.structs.replace(found, nullable=True)


def _members(tree: ast.expr) -> list[ast.expr]:
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitOr):
        return [*_members(tree.left), *_members(tree.right)]
    if isinstance(tree, ast.Subscript) and _name(tree.value) == "Optional":
        return [tree.slice, ast.Constant(None)]
    return [tree]


def _is_none(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Constant) and tree.value is None


def _name(tree: ast.expr) -> str:
    """A name, which may be written in quotes."""
    if isinstance(tree, ast.Name):
        return tree.id
    if isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        return tree.value
    return ""


def _read_single(tree: ast.expr, known: frozenset[str] | None) -> ValueType:
    match tree:
        case ast.Subscript(value, inner):
            return _read_generic(_name(value), inner, known)
        case ast.Call(value, [inner], []) if _name(value) == "Vector":
            return _vector(inner)
        case _ if _name(tree):
            name = _name(tree)
            kind = _kinds().get(name)
            return ValueType(kind) if kind is not None else ValueType(OBJECT, _type(name, known))
        case _:
            raise _TypeFault("it can't be read")


def _read_generic(name: str, inner: ast.expr, known: frozenset[str] | None) -> ValueType:
    if name in {"list", LIST}:
        item = _read(inner, known)
        if item.nullable:
            raise _TypeFault("items of a list can't be None")
        if item.kind == LIST:
            raise _TypeFault("a list can't hold lists")
        return ValueType(LIST, item=item)
    if name == REF:
        if _name(inner) in _kinds():
            raise _TypeFault(f"Ref[...] names a node type, and {_name(inner)} is a kind of value")
        return ValueType(REF, target=_type(_name(inner), known))
    if name == "Vector":
        return _vector(inner)
    raise _TypeFault(f"{name!r} has no parameter" if name in _kinds() else _unknown(name, known))


def _vector(inner: ast.expr) -> ValueType:
    if isinstance(inner, ast.Subscript) and _name(inner.value) == "Literal":
        inner = inner.slice
    if isinstance(inner, ast.Constant) and type(inner.value) is int:
        return ValueType("Vector", dimension=inner.value)
    raise _TypeFault("the dimension of a Vector is a whole number")


def _type(name: str, known: frozenset[str] | None) -> str:
    """The name of a node type or shape."""
    try:
        check_type_name(name)
    except DeclarationError:
        raise _TypeFault(_unknown(name, known)) from None
    if known is not None and name not in known:
        raise _TypeFault(_unknown(name, known))
    return name


def _unknown(name: str, known: frozenset[str] | None) -> str:
    other = _OTHER_NAMES.get(name.lower())
    if other is not None:
        return f"{name!r} is written {other}"
    candidates = {each.lower(): each for each in (*_kinds(), *(known or ()))}
    near = get_close_matches(name.lower(), candidates, n=1)
    hint = f", did you mean {candidates[near[0]]!r}?" if near else ""
    return f"{name[:64]!r} is not known{hint}"


def spell_value_type(value_type: ValueType) -> str:
    """The text of a type, as annotations write it; the inverse of :func:`parse_value_type`."""
    optional = " | None" if value_type.nullable else ""
    if value_type.item is not None:
        return f"list[{spell_value_type(value_type.item)}]{optional}"
    if value_type.kind == REF:
        return f"Ref[{value_type.target}]{optional}"
    if value_type.kind == OBJECT:
        return f"{value_type.target}{optional}"
    if value_type.dimension is not None:
        return f"{value_type.kind}[{value_type.dimension}]{optional}"
    row = value_type.row
    name = value_type.kind if row is None or row.python is None else row.python.__name__
    return f"{name}{optional}"


# --- specs to descriptors ----------------------------------------------------


def describe_field(
    owner: str,
    spec: FieldSpec,
    *,
    stored: bool = True,
    where: str = "field",
    known: Iterable[str] | None = None,
) -> PredicateDescriptor:
    """The descriptor of a field, checked as ``predicate()`` checks it."""
    value_type = parse_value_type(spec.type, f"{where}.type", known)
    given = {name: getattr(spec, name) for name in ARGUMENTS}
    if given["default"] is msgspec.UNSET:
        given["default"] = UNSET
    try:
        if stored:
            check_free_name(owner, spec.name)
        return describe(owner, spec.name, value_type, Predicate(**given), stored=stored)
    except DeclarationError as error:
        raise _fault(where, error, msgspec.to_builtins(spec)) from None


def describe_fields(
    owner: str,
    specs: Iterable[FieldSpec],
    *,
    stored: bool = True,
    where: str = "fields",
    known: Iterable[str] | None = None,
) -> dict[str, PredicateDescriptor]:
    """The fields by name; all faults are reported together."""
    found: dict[str, PredicateDescriptor] = {}
    errors: list[FieldError] = []
    known = None if known is None else frozenset(known)
    for at, spec in enumerate(specs):
        place = f"{where}[{at}]"
        if spec.name in found:
            message = f"{place}.name: {owner} has two fields {spec.name!r}; rename one"
            errors.append(FieldError(f"{place}.name", "name", message, spec.name))
            continue
        try:
            found[spec.name] = describe_field(owner, spec, stored=stored, where=place, known=known)
        except ValidationError as error:
            errors += error.fields
    if errors:
        raise ValidationError(errors)
    return found


def describe_type(spec: TypeSpec, schema: Schema, *, where: str = "type") -> TypeDescriptor:
    """The descriptor of a node type or edge type that is added to a schema.

    It may refer to itself and to the types of the schema. ``where`` is the place of the spec in
    the input; empty if it is the input.
    """
    known = {*schema.by_name, spec.name}
    parent = None
    for what in ("extends", "source", "target"):
        _known_type(getattr(spec, what), known, _inside(where, what))
    if (spec.source is None) != (spec.target is None):
        place = where or "source"
        message = f"{place}: an edge type has a source and a target; give both or neither"
        raise ValidationError([FieldError(place, "edge", message)])
    if spec.abstract and spec.source is not None:
        message = f"{where}.abstract: only a node type can be abstract; remove it from an edge type"
        raise ValidationError([FieldError(f"{where}.abstract", "edge", message)])
    edge = None
    if spec.source is not None and spec.target is not None:
        edge = EdgeEnds(spec.source, spec.target, spec.per_source, spec.per_target)
    if spec.extends is not None:
        parent = schema.by_name.get(spec.extends)
        if parent is None or parent.edge is not None or edge is not None:
            message = (
                f"{_inside(where, 'extends')}: only a node type can extend another node type, "
                f"and {spec.extends!r} is not one for {spec.name!r}"
            )
            raise ValidationError(
                [FieldError(_inside(where, "extends"), "type", message, spec.extends)]
            )
    fields = describe_fields(spec.name, spec.fields, where=_inside(where, "fields"), known=known)

    def compose() -> TypeDescriptor:
        return compose_type(
            spec.name,
            fields,
            description=spec.description,
            parent=parent,
            unique=spec.unique,
            index=spec.index,
            iri=spec.iri,
            edge=edge,
            abstract=spec.abstract,
        )

    return _composed(where, spec.name, compose)


def describe_types(
    specs: Iterable[TypeSpec], schema: Schema, *, where: str = "types"
) -> dict[str, TypeDescriptor]:
    """The descriptors of types that are added together, and may refer to each other."""
    given = {spec.name: (at, spec) for at, spec in enumerate(specs)}
    found: dict[str, TypeDescriptor] = {}
    errors: list[FieldError] = []
    while len(found) < len(given):
        ready = [
            (at, spec)
            for at, spec in given.values()
            if spec.name not in found and (spec.extends not in given or spec.extends in found)
        ]
        if not ready:
            names = ", ".join(name for name in given if name not in found)
            message = f"{where}: {names} extend each other in a circle; remove one 'extends'"
            raise ValidationError([FieldError(where, "type", message)])
        others = (found.get(name) or TypeDescriptor(name, ()) for name in given)
        known = Schema.of({each.name: each for each in (*schema.types, *others)}.values())
        for at, spec in ready:
            try:
                made = describe_type(spec, known, where=f"{where}[{at}]")
            except ValidationError as error:
                errors += error.fields
                made = TypeDescriptor(spec.name, ())
            found[spec.name] = made
    if errors:
        raise ValidationError(errors)
    return found


def describe_shape(
    spec: ShapeSpec,
    schema: Schema,
    *,
    shapes: Iterable[str] = (),
    where: str = "shape",
) -> ShapeDescriptor:
    """The descriptor of a shape; one without target may hold types and other shapes."""
    known = {*schema.by_name, *shapes, spec.name}
    _known_type(spec.target, set(schema.by_name), _inside(where, "target"))
    stored = spec.target is not None
    fields = describe_fields(
        spec.name, spec.fields, stored=stored, where=_inside(where, "fields"), known=known
    )
    return _composed(
        where, spec.name, lambda: compose_shape(spec.name, fields, spec.description, spec.target)
    )


def _composed(where: str, name: str, compose: Callable[[], T]) -> T:
    try:
        return compose()
    except DeclarationError as error:
        raise _fault(where or "name", error, name) from None


def _inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _known_type(name: str | None, known: set[str], where: str) -> None:
    if name is not None and name not in known:
        hint = suggest(name, sorted(known)) if known else "there are no types yet"
        message = f"{where}: there is no type {name[:64]!r}; {hint}"
        raise ValidationError([FieldError(where, "type", message, name[:64])])


def _fault(where: str, error: DeclarationError, value: object) -> ValidationError:
    return ValidationError([FieldError(where, "declaration", f"{where}: {error.message}", value)])


# --- descriptors to specs ----------------------------------------------------


def field_spec(field: PredicateDescriptor) -> FieldSpec:
    """The field as it is declared; ``describe_field`` gives the descriptor back."""
    given = {name: getattr(field, name) for name in ARGUMENTS if name not in _DERIVED}
    if field.many:
        given["min_count"], given["max_count"] = field.min_count or None, field.max_count
    if field.default is not None:
        plural = isinstance(field.default, tuple)
        given["default"] = list(field.default) if plural else field.default  # type: ignore[call-overload]
    if field.iri != field.name:
        given["iri"] = field.iri
    if field.metric != "cosine":
        given["metric"] = field.metric
    return FieldSpec(name=field.name, type=spell_value_type(field.type), **given)


_DERIVED: Final = frozenset({"default", "required", "min_count", "max_count", "iri", "metric"})
"""Arguments whose place in a descriptor differs: ``field_spec`` names each."""


def type_spec(found: TypeDescriptor, schema: Schema) -> TypeSpec:
    """The type as it is declared, without what it inherits."""
    parent = None if found.extends is None else schema.by_name[found.extends]
    inherited = set() if parent is None else set(parent.by_name)
    if found.edge is not None:
        inherited |= {"source", "target"}
    ends = found.edge or EdgeEnds("", "")
    return TypeSpec(
        name=found.name,
        fields=tuple(field_spec(each) for each in found.fields if each.name not in inherited),
        description=found.description,
        extends=found.extends,
        unique=_own_groups(found.unique, () if parent is None else parent.unique),
        index=_own_groups(found.index, () if parent is None else parent.index),
        iri="" if found.iri == found.name else found.iri,
        source=ends.source or None,
        target=ends.target or None,
        per_source=ends.per_source,
        per_target=ends.per_target,
        abstract=found.abstract,
    )


def _own_groups(
    groups: tuple[tuple[str, ...], ...], inherited: tuple[tuple[str, ...], ...]
) -> tuple[tuple[str, ...], ...]:
    """A type has its own groups first, then those of its parent."""
    return groups[: len(groups) - len(inherited)]


def shape_spec(found: ShapeDescriptor) -> ShapeSpec:
    """The shape as it is declared, with what it inherits from other shapes."""
    fields = tuple(map(field_spec, found.fields))
    return ShapeSpec(found.name, fields, found.description, found.target)
