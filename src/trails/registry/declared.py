"""Declared: the types and shapes of a registry as a sight shows them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from weakref import WeakKeyDictionary

import msgspec

from trails.model.capabilities import Capability, StoredQuery
from trails.model.kept import Kept
from trails.model.sights import Sight
from trails.model.types import OBJECT, REF, PredicateDescriptor, Schema, ShapeDescriptor, ValueType
from trails.registry.registry import Registry

_SIGHTS = 64
"""Sights on one registry that are ready to be used."""


class Declared(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """What is left of a registry's declarations."""

    schema: Schema
    shapes: Mapping[str, ShapeDescriptor]

    def knows(self, called: Capability | StoredQuery) -> bool:
        """Whether all types exist that a capability or query takes and gives."""
        if isinstance(called, StoredQuery):
            return all(self._has(field.type) for field in called.params)
        given = called.descriptor
        output = () if given.output_shape is None else (given.output_shape,)
        return all(map(self._has, (*(field.type for field in given.input_shape), *output)))

    def _has(self, value_type: ValueType) -> bool:
        return _exists(value_type, self.schema.by_name.keys() | self.shapes.keys())


def _exists(value_type: ValueType, known: AbstractSet[str]) -> bool:
    scalar = value_type.scalar
    return scalar.kind not in {REF, OBJECT} or scalar.target in known


_seen: WeakKeyDictionary[Registry, Kept[object, Declared]] = WeakKeyDictionary()


def see_declared(registry: Registry, sight: Sight) -> Declared:
    """The declarations of a registry as if what is hidden had never been declared."""
    kept = _seen.get(registry)
    if kept is None:
        kept = _seen.setdefault(registry, Kept(_SIGHTS))
    return kept.get(sight.key, lambda: _see(registry, sight))


def _see(registry: Registry, sight: Sight) -> Declared:
    lens = sight.lens(registry.schema)
    shapes = {
        name: shape for name, shape in registry.shapes.items() if shape.target not in lens.hidden
    }
    while True:
        known = lens.schema.by_name.keys() | shapes.keys()
        left = {
            name: _restrict(shape, known, lens.hidden_fields.get(shape.target or "", frozenset()))
            for name, shape in shapes.items()
        }
        # A shape without any field can't be given, so nothing can have it as a field.
        found = {name: shape for name, shape in left.items() if shape.fields}
        if found.keys() == shapes.keys():
            return Declared(lens.schema, found)
        shapes = found


def _restrict(
    shape: ShapeDescriptor, known: AbstractSet[str], hidden: frozenset[str]
) -> ShapeDescriptor:
    def is_left(field: PredicateDescriptor) -> bool:
        return field.name not in hidden and _exists(field.type, known)

    return msgspec.structs.replace(shape, fields=tuple(filter(is_left, shape.fields)))
