"""A type's own declaration, and the type as a whole with what it inherits. Pure.

Steps change declarations; the descriptors that a graph stores have the fields and groups of their
ancestors as well. Both are equal to what the decorators make.
"""

from __future__ import annotations

import msgspec

from trails.authoring.specs import describe_fields, type_spec
from trails.authoring.types import compose_type
from trails.errors import DeclarationError
from trails.model.changes.steps import TypeSpec
from trails.model.names import check_term, check_type_name
from trails.model.types import EdgeEnds, Schema, TypeDescriptor

Groups = tuple[tuple[str, ...], ...]


def own_declarations(schema: Schema) -> dict[str, TypeDescriptor]:
    """The types of a schema, each without what it inherits."""
    return {
        each.name: own_declaration(
            each, None if each.extends is None else schema.by_name[each.extends]
        )
        for each in schema.types
    }


def own_declaration(declared: TypeDescriptor, parent: TypeDescriptor | None) -> TypeDescriptor:
    """A type without what it inherits, and without the fields that every edge has."""
    inherited = {} if parent is None else parent.by_name
    ends = () if declared.edge is None else ("source", "target")
    return msgspec.structs.replace(
        declared,
        fields=tuple(
            each for each in declared.fields if each.name not in inherited and each.name not in ends
        ),
        unique=_own_groups(declared.unique, () if parent is None else parent.unique),
        index=_own_groups(declared.index, () if parent is None else parent.index),
    )


def _own_groups(groups: Groups, inherited: Groups) -> Groups:
    if inherited and groups[-len(inherited) :] == inherited:
        return groups[: -len(inherited)]
    return tuple(each for each in groups if each not in inherited)


def whole_type(own: TypeDescriptor, parent: TypeDescriptor | None) -> TypeDescriptor:
    """A type with what it inherits, checked as its class would be."""
    whole = compose_type(
        own.name,
        {each.name: each for each in own.fields},
        parent=parent,
        unique=own.unique,
        index=own.index,
        edge=own.edge,
    )
    return msgspec.structs.replace(own, fields=whole.fields, unique=whole.unique, index=whole.index)


def describe_own_type(spec: TypeSpec, where: str) -> TypeDescriptor:
    """What a type itself declares; it may refer to types that are added later."""
    check_type_name(spec.name)
    check_term(spec.name, spec.iri)
    if (spec.source is None) != (spec.target is None):
        raise DeclarationError(
            f"{spec.name}: an edge type has a source and a target; give both or neither"
        )
    if spec.abstract and spec.source is not None:
        raise DeclarationError(f"{spec.name}: only a node type can be abstract; leave it out")
    edge = None
    if spec.source is not None and spec.target is not None:
        edge = EdgeEnds(spec.source, spec.target, spec.per_source, spec.per_target)
    return TypeDescriptor(
        name=spec.name,
        fields=tuple(describe_fields(spec.name, spec.fields, where=f"{where}.fields").values()),
        description=spec.description,
        iri=spec.iri or spec.name,
        extends=spec.extends,
        unique=spec.unique,
        index=spec.index,
        edge=edge,
        abstract=spec.abstract,
    )


def own_spec(own: TypeDescriptor) -> TypeSpec:
    """A type's own declaration as a step has it."""
    spec = type_spec(msgspec.structs.replace(own, extends=None), Schema())
    return msgspec.structs.replace(spec, extends=own.extends)
