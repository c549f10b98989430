"""Specs as arguments of operations: the shape of a field, and the struct that it becomes.

The shape is made from ``FieldSpec``, so every argument of ``predicate()`` is one of a tool too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import inspect

from trails.errors import FieldError, ValidationError
from trails.model.changes.steps import FieldSpec
from trails.model.types import ANY, OBJECT, ShapeDescriptor
from trails.request.builtins.declare import field

T = TypeVar("T")
_TEXTS: Final[Mapping[str, str]] = {
    "name": "A lower-case word.",
    "type": "str, int | None, date, list[Ref[Person]], Vector[384] …",
    "default": "Its value where none is given.",
    "description": "What the values mean.",
    "pattern": "A regular expression.",
    "one_of": "The allowed values.",
    "key": "Whether ids are made from it.",
    "label": "Whether it names a node.",
    "search": "Whether its text is searched.",
    "iri": "Its RDF name.",
}
_KINDS: Final[Mapping[type, str]] = {
    inspect.BoolType: "Bool",
    inspect.IntType: "Int",
    inspect.StrType: "String",
}


def _shape() -> ShapeDescriptor:
    info = inspect.type_info(FieldSpec)
    assert isinstance(info, inspect.StructType)  # noqa: S101 - for the type checker
    fields = []
    for each in info.fields:
        kind, many = _kind_of(each.type)
        text = _TEXTS.get(each.name, "")
        fields.append(field(each.name, text, kind, many=many, required=each.name == "name"))
    return ShapeDescriptor("Field", tuple(fields), "A field as it is declared.")


def _kind_of(given: inspect.Type) -> tuple[str, bool]:
    if isinstance(given, inspect.UnionType):
        given = next(each for each in given.types if not isinstance(each, inspect.NoneType))
    if isinstance(given, inspect.VarTupleType):
        return ANY, True
    return _KINDS.get(type(given), ANY), False


FIELD: Final = _shape()
"""The shape of a field."""
FIELDS: Final = field(
    "fields", "Its fields, as in predicate().", OBJECT, target=FIELD.name, many=True
)


def read_fields(given: Sequence[Mapping[str, object]] | None, where: str) -> tuple[FieldSpec, ...]:
    """The specs of fields; what was left out is None in the arguments."""
    return tuple(
        read_spec(FieldSpec, each, f"{where}[{at}]") for at, each in enumerate(given or ())
    )


def read_spec(wanted: type[T], given: Mapping[str, object], where: str) -> T:
    """A spec of what was given; empty lists and what was left out are not."""
    values = {name: each for name, each in given.items() if each is not None and each != []}
    try:
        return msgspec.convert(msgspec.to_builtins(values), wanted)
    except msgspec.ValidationError as error:
        message = f"{where}: {error}; correct it"
        raise ValidationError([FieldError(where, "datatype", message)]) from None
