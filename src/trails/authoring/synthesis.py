"""Classes for types that no Python code declares: those of a graph that owns its types.

They are made from descriptors, and are used like declared ones: by the ORM, by capabilities and by
every projection of the registry.
"""

from __future__ import annotations

from collections.abc import Mapping

from trails.authoring.nodes import Edge, Node
from trails.authoring.types import Shape
from trails.model.types import Schema, ShapeDescriptor, TypeDescriptor


def make_classes(schema: Schema, module: str) -> tuple[tuple[type, ...], tuple[type, ...]]:
    """The classes of all types, and of all shapes that constrain types, in name order.

    ``module`` is what the classes say of where they are from.
    """
    made: dict[str, type] = {}

    def make(name: str) -> type:
        if name not in made:
            given = schema.by_name[name]
            base = Node if given.edge is None else Edge
            parent = base if given.extends is None else make(given.extends)
            made[name] = _make_class(given, parent, module)
        return made[name]

    types = tuple(make(each.name) for each in schema.types)
    return types, tuple(_make_class(each, Shape, module) for each in schema.shapes)


def _make_class(given: TypeDescriptor | ShapeDescriptor, base: type, module: str) -> type:
    members: Mapping[str, object] = {
        "__module__": module,
        "__doc__": given.description or None,
        "__trails__": given,
    }
    return type(given.name, (base,), dict(members))
