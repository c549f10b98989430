"""Project fields, types and the input of a capability into JSON Schema (2020-12).

A fold over the tables of kinds and constraints, which also make the validator: the schema
accepts a value exactly when a call does. Rules that JSON Schema can't express are written into
``description``. Types are inlined, without ``$ref``, because many clients do not follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Final, Protocol

from trails.model.constraints import Rule, rules_of
from trails.model.types import (
    ANY,
    LIST,
    MAP,
    OBJECT,
    REF,
    PredicateDescriptor,
    Schema,
    ShapeDescriptor,
    TypeDescriptor,
    ValueType,
)

Document = dict[str, object]
Declared = TypeDescriptor | ShapeDescriptor


class TypeLookup(Protocol):
    """The part of a registry that types are looked up in."""

    @property
    def schema(self) -> Schema:
        """Node and edge types, and the shapes that constrain them."""

    @property
    def shapes(self) -> Mapping[str, ShapeDescriptor]:
        """Shapes by name."""


class _Nothing:
    """Declarations for values that name no type."""

    schema = Schema()
    shapes: Mapping[str, ShapeDescriptor] = {}


NOTHING: Final[TypeLookup] = _Nothing()


def project_fields(
    fields: Iterable[PredicateDescriptor], declared: TypeLookup = NOTHING
) -> Document:
    """The schema of an object of some fields."""
    return _project_object(fields, declared, ())


def project_type(descriptor: Declared, declared: TypeLookup = NOTHING) -> Document:
    """The schema of an object with the fields of a node type, edge type or shape."""
    return _project_declared(descriptor, declared, ())


def project_value(value_type: ValueType, declared: TypeLookup = NOTHING) -> Document:
    """The schema of a value of a type, without a field's constraints."""
    document = _project_value(value_type, declared, ())
    return _with_null(document) if value_type.nullable else document


# --- objects -----------------------------------------------------------------


def _project_object(
    fields: Iterable[PredicateDescriptor], declared: TypeLookup, inside: tuple[str, ...]
) -> Document:
    fields = tuple(fields)
    document: Document = {
        "type": "object",
        "properties": {field.name: _project_field(field, declared, inside) for field in fields},
        "additionalProperties": False,
    }
    if required := [field.name for field in fields if not is_omissible(field)]:
        document["required"] = required
    return document


def _project_declared(
    descriptor: Declared, declared: TypeLookup, inside: tuple[str, ...]
) -> Document:
    document = _project_object(descriptor.fields, declared, (*inside, descriptor.name))
    if isinstance(descriptor, TypeDescriptor):
        _describe_stored_fields(document, descriptor)
        _extend_description(document, _describe_type(descriptor, declared))
    return _extend_description(document, (), first=descriptor.description)


_SET: Final = "Stored as a set: without order, each value once."
_ORDERED: Final = "An ordered list: order and duplicates are kept, and it changes as a whole."


def _describe_stored_fields(document: Document, descriptor: TypeDescriptor) -> None:
    properties: dict[str, Document] = document["properties"]  # type: ignore[assignment]
    for field in descriptor.fields:
        notes = []
        if field.key:
            source = "it" if descriptor.edge is None else "it and both ends"
            notes.append(
                f"The key: the id is derived from {source}, and it can't be changed later."
            )
        if field.unique:
            notes.append("Unique: no two instances have the same value.")
        if field.many:
            notes.append(_ORDERED if field.ordered else _SET)
        if field.label:
            notes.append("The label: it names an instance to readers.")
        if field.search:
            language = "" if field.language is None else f" as {field.language.capitalize()}"
            common = "" if field.stop_words else ", with its most common words"
            notes.append(f"Its text can be searched{language}{common}.")
        if field.type.kind == "Vector":
            notes.append(f"Nearest neighbours (near) are found by {field.metric}.")
        if field.iri not in {"", field.name}:
            notes.append(f"Its RDF predicate is {field.iri}.")
        _extend_description(properties[field.name], notes)


def _describe_type(descriptor: TypeDescriptor, declared: TypeLookup) -> Iterable[str]:
    if descriptor.abstract:
        choices = declared.schema.concrete(descriptor.name)
        create = f"; create {' or '.join(choices)} instead" if choices else ""
        yield f"Abstract: no instance has exactly this type{create}."
    for group in descriptor.unique:
        yield f"Unique together: {', '.join(group)}."
    if edge := descriptor.edge:
        if descriptor.key is None:
            yield "One for each pair of source and target."
        else:
            yield f"One for each source, target and {descriptor.key.name}."
        for end, (low, high) in (("source", edge.per_source), ("target", edge.per_target)):
            if low:
                yield f"Each {end} needs at least {low}."
            if high is not None:
                yield f"Each {end} may have at most {high}."
    if descriptor.name in declared.schema.by_name:
        for shape in declared.schema.shapes_of(descriptor.name):
            yield from _describe_shape(shape)


def _describe_shape(shape: ShapeDescriptor) -> Iterable[str]:
    """The rules that a shape adds to a node type; they are checked on save."""
    for field in shape.fields:
        rules = [_describe_rule(rule, limit) for rule, limit in rules_of(field)]
        if field.required:
            rules.append("is required")
        if field.many and field.min_count > 1:
            rules.append(f"needs at least {field.min_count} values")
        if field.many and field.max_count is not None:
            rules.append(f"may have at most {field.max_count} values")
        if rules:
            yield f"When saved, {field.name} {' and '.join(rules)}."


# --- fields ------------------------------------------------------------------


def is_omissible(field: PredicateDescriptor) -> bool:
    """Whether a field may be left out, and may be null, which means the same."""
    return not field.required or field.default is not None


def _project_field(
    field: PredicateDescriptor, declared: TypeLookup, inside: tuple[str, ...]
) -> Document:
    document = _project_value(field.type.scalar, declared, inside)
    _extend_description(document, _apply_rules(document, field))
    if field.many:
        document = _array_of(document, field)
    document = _with_null(document) if is_omissible(field) else _without_null(document)
    if field.default is not None:
        document["default"] = _listed(field.default)
    return _extend_description(document, (), first=field.description)


def _array_of(items: Document, field: PredicateDescriptor) -> Document:
    document: Document = {"type": "array", "items": items}
    if field.min_count:
        document["minItems"] = field.min_count
    if field.max_count is not None:
        document["maxItems"] = field.max_count
    return document


def _describe_rule(rule: Rule, limit: object) -> str:
    return rule.phrase.format(", ".join(map(str, limit)) if isinstance(limit, tuple) else limit)


def _apply_rules(document: Document, field: PredicateDescriptor) -> list[str]:
    """Add constraints to the schema; return those that it can't express, in words."""
    notes = []
    texts = document.get("additionalProperties")
    for rule, limit in rules_of(field):
        if field.tagged and rule.limit != "tags" and isinstance(texts, dict):
            texts[rule.keyword] = limit  # of each text
        elif field.tagged:
            document[rule.keyword] = _listed(limit)
        elif not _can_say(rule, document, field.type.scalar):
            phrase = _describe_rule(rule, limit)
            notes.append(f"{phrase[0].upper()}{phrase[1:]}.")
        elif rule.keyword not in document:
            document[rule.keyword] = _listed(limit)
        elif rule.tighter is not None:
            document[rule.keyword] = rule.tighter(document[rule.keyword], limit)
        else:
            document["allOf"] = [{rule.keyword: limit}]
    return notes


def _can_say(rule: Rule, document: Document, value_type: ValueType) -> bool:
    """Whether the keyword means the same for the JSON form as the rule for the value."""
    if rule.json_types:
        return document.get("type") in rule.json_types
    row = value_type.row
    return row is not None and not row.respelled


# --- values ------------------------------------------------------------------


def _project_value(
    value_type: ValueType, declared: TypeLookup, inside: tuple[str, ...]
) -> Document:
    project = _FORMS.get(value_type.kind, _project_kind)
    return project(value_type, declared, inside)


def _project_kind(value_type: ValueType, declared: TypeLookup, inside: tuple[str, ...]) -> Document:
    del declared, inside
    row = value_type.row
    if row is None:
        raise LookupError(f"{value_type.kind} is not a kind of value")
    document: Document = deepcopy(dict(row.schema))
    if value_type.dimension is not None:
        document["minItems"] = document["maxItems"] = value_type.dimension
    return document


def _project_list(value_type: ValueType, declared: TypeLookup, inside: tuple[str, ...]) -> Document:
    return {"type": "array", "items": _project_value(value_type.scalar, declared, inside)}


def _project_reference(
    value_type: ValueType, declared: TypeLookup, inside: tuple[str, ...]
) -> Document:
    del declared, inside
    name = value_type.target
    return {
        "type": "string",
        "format": "iri",
        "trails:node_type": name,
        "description": f"An existing {name}: its IRI, '{name}/id' or key.",
    }


def _project_json(value_type: ValueType, declared: TypeLookup, inside: tuple[str, ...]) -> Document:
    del value_type, declared, inside
    return {}


def _project_map(value_type: ValueType, declared: TypeLookup, inside: tuple[str, ...]) -> Document:
    del value_type, declared, inside
    return {"type": "object"}


def _project_target(
    value_type: ValueType, declared: TypeLookup, inside: tuple[str, ...]
) -> Document:
    name = value_type.target or ""
    if name in inside:
        # A recursive shape can't be inlined.
        return {"type": "object", "description": f"Another {name}, with the same fields."}
    descriptor = declared.shapes.get(name) or declared.schema.by_name[name]
    return _project_declared(descriptor, declared, inside)


_FORMS: Final[Mapping[str, Callable[[ValueType, TypeLookup, tuple[str, ...]], Document]]] = {
    LIST: _project_list,
    REF: _project_reference,
    OBJECT: _project_target,
    ANY: _project_json,
    MAP: _project_map,
}
"""Value types that are not in the kind table."""


# --- parts of documents ------------------------------------------------------


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _with_null(document: Document) -> Document:
    """Accept null as well."""
    if "type" in document:
        document["type"] = [document["type"], "null"]
    choices = document.get("enum")
    if isinstance(choices, list):
        document["enum"] = [*choices, None]
    return document


def _without_null(document: Document) -> Document:
    """Refuse null, which a schema without a type accepts."""
    return document if "type" in document else {**document, "not": {"type": "null"}}


def _extend_description(document: Document, notes: Iterable[str], *, first: str = "") -> Document:
    """Extend the description."""
    texts = [first, str(document.pop("description", "")), *notes]
    if any(texts):
        document["description"] = " ".join(filter(None, texts))
    return document
