"""Collect declarations from a module or any collection of names."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import msgspec

from trails.authoring.capabilities import MARK
from trails.authoring.policy_rules import RULE
from trails.model.capabilities import Capability
from trails.model.policy_rules import PolicyRule
from trails.model.types import ShapeDescriptor, TypeDescriptor


class Declarations(msgspec.Struct, frozen=True):
    """What was found, ready to be registered."""

    types: tuple[type, ...]
    shapes: tuple[type, ...]
    capabilities: tuple[Capability, ...]
    rules: tuple[PolicyRule, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self.types or self.shapes or self.capabilities or self.rules)


def collect(objects: Iterable[object]) -> Declarations:
    """Pick the declared classes and functions out of any objects, each once."""
    types: dict[int, type] = {}
    shapes: dict[int, type] = {}
    capabilities: dict[int, Capability] = {}
    rules: dict[int, PolicyRule] = {}
    for each in objects:
        declared = vars(each).get("__trails__") if isinstance(each, type) else None
        if isinstance(each, type) and isinstance(declared, TypeDescriptor):
            types[id(each)] = each
        elif isinstance(each, type) and isinstance(declared, ShapeDescriptor):
            shapes[id(each)] = each
        elif isinstance(mark := getattr(each, MARK, None), Capability):
            capabilities[id(mark)] = mark
        elif isinstance(rule := getattr(each, RULE, None), PolicyRule):
            rules[id(rule)] = rule
    return Declarations(
        tuple(types.values()),
        tuple(shapes.values()),
        tuple(capabilities.values()),
        tuple(rules.values()),
    )


def discover(module: ModuleType) -> Declarations:
    """Everything declared in a module, imported names included."""
    return collect(vars(module).values())
