"""Collect declarations from a module or any collection of names."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import msgspec

from trails.authoring.capabilities import MARK
from trails.model.capabilities import Capability
from trails.model.types import ShapeDescriptor, TypeDescriptor


class Declarations(msgspec.Struct, frozen=True):
    """What was found, ready to be registered."""

    types: tuple[type, ...]
    shapes: tuple[type, ...]
    capabilities: tuple[Capability, ...]


def collect(objects: Iterable[object]) -> Declarations:
    """Pick the declared classes and functions out of any objects, each once."""
    types: dict[int, type] = {}
    shapes: dict[int, type] = {}
    capabilities: dict[int, Capability] = {}
    for each in objects:
        declared = vars(each).get("__trails__") if isinstance(each, type) else None
        if isinstance(each, type) and isinstance(declared, TypeDescriptor):
            types[id(each)] = each
        elif isinstance(each, type) and isinstance(declared, ShapeDescriptor):
            shapes[id(each)] = each
        elif isinstance(mark := getattr(each, MARK, None), Capability):
            capabilities[id(mark)] = mark
    return Declarations(tuple(types.values()), tuple(shapes.values()), tuple(capabilities.values()))


def discover(module: ModuleType) -> Declarations:
    """Everything declared in a module, imported names included."""
    return collect(vars(module).values())
