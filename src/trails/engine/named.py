"""Whether everything that a selection names exists in a schema."""

from __future__ import annotations

from trails.model.selections import Condition, Group, Selection
from trails.model.types import Schema


def names_known(schema: Schema, selection: Selection) -> bool:
    """Whether its type and all its fields exist, those behind references too."""
    descriptor = schema.by_name.get(selection.type)
    if descriptor is None or any(each.field not in descriptor.by_name for each in selection.order):
        return False
    return selection.where is None or _are_known(schema, selection.type, selection.where)


def _are_known(schema: Schema, type_name: str, tree: Condition | Group) -> bool:
    waiting: list[Condition | Group] = [tree]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Group):
            waiting += each.parts
        elif not _is_known(schema, type_name, each.path):
            return False
    return True


def _is_known(schema: Schema, type_name: str, path: tuple[str, ...]) -> bool:
    at: str | None = type_name
    for name in path:
        field = None if at is None else schema.by_name[at].by_name.get(name)
        if field is None:
            # No field of anything: what comes after a value that is no reference is told as such.
            return at is None
        at = field.target
    return True
