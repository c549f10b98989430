"""Merge two schemas type by type.

A type that both sides changed in different ways is *torn*: it is a conflict that a resolution
settles by taking one side. Types that one side removed and the other still needs are kept, and
inherited fields follow those of the parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from trails.model.history import Side
from trails.model.types import (
    PredicateDescriptor,
    Schema,
    ShapeDescriptor,
    TypeDescriptor,
    can_constrain,
)

D = TypeVar("D", TypeDescriptor, ShapeDescriptor)
Settle = Callable[[str], Side | None]
"""Which side settles a name that is torn."""


def merge_schemas(
    base: Schema, ours: Schema, theirs: Schema, settle: Settle
) -> tuple[Schema, list[str]]:
    """The merged schema, and the names on which the two sides disagree unsettled."""
    if theirs.digest in {ours.digest, base.digest}:
        return ours, []
    if ours.digest == base.digest:
        return theirs, []
    types, torn_types = _merge(base.types, ours.types, theirs.types, settle)
    shapes, torn_shapes = _merge(base.shapes, ours.shapes, theirs.shapes, settle)
    merged = complete(types, shapes, ours, theirs)
    return merged, torn_types + torn_shapes


def _merge(
    base: Iterable[D], ours: Iterable[D], theirs: Iterable[D], settle: Settle
) -> tuple[list[D], list[str]]:
    before: dict[str, D] = {each.name: each for each in base}
    mine: dict[str, D] = {each.name: each for each in ours}
    other: dict[str, D] = {each.name: each for each in theirs}
    merged: list[D] = []
    torn: list[str] = []
    for name in sorted({*mine, *other}):
        was, here, there = before.get(name), mine.get(name), other.get(name)
        chosen = there if here == was else here
        if here != there and was not in (here, there):
            side = settle(name)
            if side is None:
                torn.append(name)
            chosen = there if side == "theirs" else here
        if chosen is not None:
            merged.append(chosen)
    return merged, torn


def with_type(schema: Schema, name: str, ours: Schema, theirs: Schema, side: Side) -> Schema:
    """A schema with a type as one side declares it, or without it."""
    wanted = (ours if side == "ours" else theirs).by_name.get(name)
    types = [each for each in schema.types if each.name != name]
    if wanted is not None:
        types.append(wanted)
    return complete(types, schema.shapes, ours, theirs)


def with_field(
    schema: Schema, owner: str, name: str, ours: Schema, theirs: Schema, side: Side
) -> Schema:
    """A schema with a field of a type, and of those that inherit it, as one side declares it."""
    chosen = ours if side == "ours" else theirs
    declared = chosen.by_name.get(owner)
    field = None if declared is None else declared.by_name.get(name)
    types = [
        _with_field(each, name, field) if owner in schema.lineage(each.name) else each
        for each in schema.types
    ]
    return complete(types, schema.shapes, ours, theirs)


def _with_field(
    declared: TypeDescriptor, name: str, field: PredicateDescriptor | None
) -> TypeDescriptor:
    fields = [each for each in declared.fields if each.name != name]
    if field is not None:
        fields.append(field)
    return _without_groups(msgspec.structs.replace(declared, fields=tuple(fields)))


def _without_groups(declared: TypeDescriptor) -> TypeDescriptor:
    """A type without the groups that name missing fields."""
    known = {each.name for each in declared.fields}
    unique, index = (
        tuple(group for group in groups if known.issuperset(group))
        for groups in (declared.unique, declared.index)
    )
    return msgspec.structs.replace(declared, unique=unique, index=index)


def complete(
    types: Iterable[TypeDescriptor],
    shapes: Iterable[ShapeDescriptor],
    ours: Schema,
    theirs: Schema,
) -> Schema:
    """A schema of these types, the types they need, and inherited fields."""
    found = {each.name: each for each in types}
    pending = [*found.values()]
    while pending:
        for name in _needs(pending.pop()):
            if name not in found:
                found[name] = ours.by_name.get(name) or theirs.by_name[name]
                pending.append(found[name])
    done: dict[str, TypeDescriptor] = {}
    for name in sorted(found):
        _inherit(name, found, done, (ours, theirs))
    return Schema.of(done.values(), (each for each in shapes if each.target in done))


def without_idle_rules(schema: Schema) -> Schema:
    """A schema without shape rules for fields that the types do not have.

    One side can add a rule for a field that the other side removed.
    """
    shapes = (
        msgspec.structs.replace(
            shape,
            fields=tuple(
                field
                for field in shape.fields
                if can_constrain(schema.by_name[shape.target or ""], field)
            ),
        )
        for shape in schema.shapes
    )
    return Schema.of(schema.types, (each for each in shapes if each.fields))


def _needs(declared: TypeDescriptor) -> Iterator[str]:
    """The types that a type refers to."""
    if declared.extends is not None:
        yield declared.extends
    for field in declared.fields:
        if field.target is not None:
            yield field.target
    if declared.edge is not None:
        yield declared.edge.source
        yield declared.edge.target


def _inherit(
    name: str,
    found: dict[str, TypeDescriptor],
    done: dict[str, TypeDescriptor],
    sides: tuple[Schema, Schema],
) -> TypeDescriptor:
    """A type with the fields and groups of its merged parent."""
    if name in done:
        return done[name]
    declared = done[name] = found[name]
    if declared.extends is None or declared.extends == name:
        return declared
    parent = _inherit(declared.extends, found, done, sides)
    inherited = {each.name: each for each in parent.fields}
    kept = [
        each
        for each in declared.fields
        if each.declared_in == name or inherited.get(each.name) == each
    ]
    names = {each.name for each in kept}
    missing = [each for each in parent.fields if each.name not in names]
    before = [side.by_name[parent.name] for side in sides if parent.name in side.by_name]
    done[name] = _without_groups(
        msgspec.structs.replace(
            declared,
            fields=declared.fields
            if len(kept) == len(declared.fields) and not missing
            else (*missing, *kept),
            unique=_groups(declared.unique, parent.unique, [each.unique for each in before]),
            index=_groups(declared.index, parent.index, [each.index for each in before]),
        )
    )
    return done[name]


def _groups(
    own: tuple[tuple[str, ...], ...],
    parents: tuple[tuple[str, ...], ...],
    before: list[tuple[tuple[str, ...], ...]],
) -> tuple[tuple[str, ...], ...]:
    """The groups of a type, with the parent's old groups replaced by its new ones."""
    if set(parents) <= set(own) and not (set(own) - set(parents)) & set().union(*before):
        return own
    return (*parents, *(each for each in own if not any(each in groups for groups in before)))
