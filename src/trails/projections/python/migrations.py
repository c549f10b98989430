"""Write a migration as the file that a person would write.

Pure: same steps, same text. Every value is written as a literal, so a file that is made from
steps does what the steps say and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from trails.model.changes.steps import FieldSpec, ShapeSpec, Step, TypeSpec
from trails.projections.python.layout import (
    WIDTH,
    Code,
    CodeGroup,
    docstring,
    import_lines,
    lay_out,
    literal,
)

_POSITIONAL: Final = frozenset({"type", "field", "to", "name", "shape"})
"""What is clear without its name: ``RenameField("Task", "state", "status")``."""
_SPECS: Final = (FieldSpec, TypeSpec, ShapeSpec)


def project_migration(
    name: str, after: str | None, steps: Sequence[Step], description: str = ""
) -> str:
    """The text of a migration's file."""
    used: set[str] = {"Migration"}
    forward = CodeGroup(tuple(_construct(each, used) for each in steps), "[", "]")
    arguments: list[tuple[str, Code]] = [("forward=", forward)]
    if after is not None:
        arguments.insert(0, ("after=", literal(after)))
    whole = CodeGroup(tuple(arguments), is_call=True)
    said = description.strip() or f"{name[5:].replace('_', ' ').capitalize()}."
    lines = [
        *docstring(said, ""),
        "",
        *import_lines("trails", used, WIDTH),
        "",
        *lay_out("migration = Migration", whole, "", "", WIDTH),
    ]
    return "\n".join(lines) + "\n"


def _construct(value: msgspec.Struct, used: set[str]) -> tuple[str, Code]:
    """A step or a declaration as a call: its name, and its arguments."""
    used.add(type(value).__name__)
    return type(value).__name__, CodeGroup(tuple(_arguments(value, used)), is_call=True)


def _arguments(value: msgspec.Struct, used: set[str]) -> Iterator[tuple[str, Code]]:
    positional = True
    for field in msgspec.structs.fields(type(value)):
        given = getattr(value, field.name)
        if not field.required and (given is msgspec.UNSET or given == field.default):
            positional = False
            continue
        positional = positional and field.required and field.name in _POSITIONAL
        before = "" if positional else f"{field.name}="
        if isinstance(given, _SPECS):
            name, group = _construct(given, used)
            yield before + name, group
        else:
            yield before, _code(given, used)


def _code(given: object, used: set[str]) -> Code:
    if isinstance(given, tuple):
        return CodeGroup(tuple(_items(given, used)))
    return literal(given)


def _items(given: Iterable[object], used: set[str]) -> Iterator[tuple[str, Code]]:
    for each in given:
        if isinstance(each, _SPECS):
            yield _construct(each, used)
        else:
            yield "", _code(each, used)
