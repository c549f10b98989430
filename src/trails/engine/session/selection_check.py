"""Check that the types, fields and nodes that a selection names exist."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from trails.errors import FieldError, ValidationError
from trails.model.constraints import showable
from trails.model.kinds import DanglingError, KindError
from trails.model.nodes import Condition, Group, Selection
from trails.model.types import PredicateDescriptor, Schema

Resolve = Callable[[str, object], str]
"""(type, reference) → the handle of the node."""


_MAX_DEPTH = 100


def names_known(schema: Schema, selection: Selection) -> bool:
    """Whether its type and all its fields exist, including those behind references."""
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
            # Not a field: a path behind a plain value is reported when the condition is compiled.
            return at is None
        at = field.target
    return True


def settle_references(schema: Schema, selection: Selection, resolve: Resolve) -> Selection:
    """A selection whose conditions refer to nodes by handle.

    A reference to a node that does not exist is an error, not an empty answer. Instances are
    taken as they are: a program that holds one knows what it asks for.
    """
    if selection.where is None or selection.type not in schema.by_name:
        return selection
    errors: list[FieldError] = []
    where = _settle(schema, selection.type, selection.where, resolve, errors)
    if errors:
        raise ValidationError(errors)
    return (
        selection if where is selection.where else msgspec.structs.replace(selection, where=where)
    )


def _settle(
    schema: Schema,
    type_name: str,
    tree: Condition | Group,
    resolve: Resolve,
    errors: list[FieldError],
    depth: int = 0,
) -> Condition | Group:
    if isinstance(tree, Group):
        if depth > _MAX_DEPTH:
            return tree  # the selection is refused for its depth when it is run
        parts = tuple(
            _settle(schema, type_name, part, resolve, errors, depth + 1) for part in tree.parts
        )
        same = all(old is new for old, new in zip(tree.parts, parts, strict=True))
        return tree if same else msgspec.structs.replace(tree, parts=parts)
    field = _field_at(schema, type_name, tree.path)
    if field is None or field.target is None:
        return tree
    path = "__".join(tree.path)
    if tree.lookup == "exact":
        value = _handle(path, field.target, tree.value, resolve, errors)
    elif tree.lookup == "in" and isinstance(tree.value, list | tuple | set | frozenset):
        value = [_handle(path, field.target, each, resolve, errors) for each in tree.value]
    else:
        return tree
    return msgspec.structs.replace(tree, value=value)


def _field_at(schema: Schema, type_name: str, path: tuple[str, ...]) -> PredicateDescriptor | None:
    at: str | None = type_name
    field = None
    for name in path:
        field = None if at is None else schema.by_name[at].by_name.get(name)
        if field is None:
            return None
        at = field.target
    return field


def _handle(
    path: str, target: str, value: object, resolve: Resolve, errors: list[FieldError]
) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    try:
        return resolve(target, value)
    except DanglingError as error:
        errors.append(FieldError(path, error.code, f"{path}: {error}", showable(value), target))
    except KindError:
        pass  # reported when the condition is compiled
    return value
