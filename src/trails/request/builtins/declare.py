"""How a built-in tool is declared: with the field descriptors that capabilities have too."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from trails.authoring.predicates import Predicate, describe
from trails.engine.service import GraphService
from trails.model.tools import Action, Hints
from trails.model.types import LIST, PredicateDescriptor, ValueType
from trails.request.entries import Place
from trails.request.options import KernelOptions

READER = Hints(read_only=True, destructive=False, idempotent=True)
WRITER = Hints(read_only=False, destructive=True, idempotent=False)
ADDER = Hints(read_only=False, destructive=False, idempotent=False)


class Desk(msgspec.Struct, frozen=True, eq=False):
    """What a built-in works with."""

    service: GraphService
    options: KernelOptions


class Builtin(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One built-in tool."""

    name: str
    title: str
    description: str
    fields: tuple[PredicateDescriptor, ...] = ()
    controls: tuple[PredicateDescriptor, ...] = ()
    output: Mapping[str, object]
    hints: Hints
    action: Action | None = None
    place: Place = "thread"
    kind: str = "query"
    run: Callable[..., object]
    """Takes the desk, the context, and the arguments by name."""


def field(
    name: str, description: str, kind: str = "String", *, many: bool = False, **said: object
) -> PredicateDescriptor:
    """A parameter; one without a default is optional unless ``required`` says otherwise."""
    value_type = ValueType(kind)
    given = {"required": False, **said}
    return describe(
        "tool",
        name,
        ValueType(LIST, item=value_type) if many else value_type,
        Predicate(description=description, **given),  # type: ignore[arg-type]
        stored=False,
    )


def shown(**properties: Mapping[str, object]) -> dict[str, object]:
    """The schema of a result: an object that always has these members."""
    return {"type": "object", "properties": properties, "required": list(properties)}
