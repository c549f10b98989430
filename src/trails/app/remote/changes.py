"""What an instance changes, as an operation of ``graph_mutate``, and what its answer means for it.

Only fields that differ from what was read are sent. After a write the fields of an instance are
read again when one is needed, because the server may have completed or normalized them. Violations
name fields as they do where the graph is: ``title``, or ``Task/t1.title`` among several.
"""

from __future__ import annotations

from typing import Final, Self

import msgspec

from trails.authoring.capabilities import Context
from trails.authoring.nodes import Node, is_unfolded, state_of
from trails.errors import FieldError, NotFoundError, TrailsError, TransactionError, ValidationError
from trails.model.kinds import KindError
from trails.model.nodes import make_handle
from trails.model.operations.selections import write_values
from trails.model.types import PredicateDescriptor, TypeDescriptor

_MISSING: Final = "reference"


class PendingChange(msgspec.Struct, frozen=True, eq=False):
    """One operation, and the instance that it saves or deletes."""

    node: Node
    operation: dict[str, object]

    @classmethod
    def deleting(cls, node: object, *, cascade: bool) -> Self:
        """The deletion of a node."""
        handle = getattr(node, "handle", None)
        if handle is None or not isinstance(node, Node):
            raise NotFoundError(f"{node!r} was never saved, so it can't be deleted")
        name = type(node).__trails__.name
        return cls(node, {"op": "delete", "type": name, "id": handle, "cascade": cascade})

    @property
    def label(self) -> str:
        """How violations name the instance among several."""
        return f"{type(self.node).__trails__.name}/{self.node.id or '?'}."

    def land(self, ctx: Context, identifier: str | None) -> None:
        """Record in the instance that the write succeeded."""
        state = state_of(self.node)
        if self.operation["op"] == "delete":
            state.remember(stored=False, values=None)
            return
        if identifier is not None:
            name = type(self.node).__trails__.name
            state.id, state.handle = identifier, make_handle(name, identifier)
        state.ctx = ctx
        state.remember(stored=True, values=None)
        for field in type(self.node).__trails__.by_name:
            self.node.__dict__.pop(field, None)


def change_of(node: object, *, upsert: bool) -> PendingChange | None:
    """The operation that saves an instance; None if nothing differs."""
    descriptor = getattr(type(node), "__trails__", None)
    if descriptor is None or not isinstance(node, Node):
        raise TransactionError(f"{node!r} is not an instance of a node type")
    state = state_of(node)
    if state.stored:
        if not is_unfolded(node):
            return None
        data = _differences(node, descriptor)
        operation = {"op": "update", "type": descriptor.name, "id": state.handle or node.handle}
        return PendingChange(node, {**operation, "data": data}) if data else None
    data = {
        name: _plain(field, value)
        for name, field in descriptor.by_name.items()
        if (value := node.__dict__.get(name)) not in (None, [])
    }
    operation = {"op": "upsert" if upsert else "create", "type": descriptor.name, "data": data}
    if descriptor.key is None and descriptor.edge is None:
        operation["id"] = state.id
    return PendingChange(node, operation)


def _differences(node: Node, descriptor: TypeDescriptor) -> dict[str, object]:
    """The fields whose values differ from those that were read; null removes one."""
    read = write_values(descriptor, state_of(node).loaded or {})
    found: dict[str, object] = {}
    for name, field in descriptor.by_name.items():
        value = node.__dict__.get(name)
        plain = None if value in (None, []) else _plain(field, value)
        before = read.get(name)
        if _comparable(field, plain) != _comparable(field, before):
            found[name] = [] if plain is None and field.many else plain
    return found


def _comparable(field: PredicateDescriptor, plain: object) -> object:
    """A value without the order of a set."""
    if field.is_set and isinstance(plain, list):
        return sorted(map(msgspec.json.encode, plain))
    return plain


def _plain(field: PredicateDescriptor, value: object) -> object:
    """A value in JSON form; one that the kind does not accept is left for the server to refuse."""
    if field.many and isinstance(value, list | tuple | set | frozenset):
        return [_plain_item(field, each) for each in value]
    return _plain_item(field, value)


def _plain_item(field: PredicateDescriptor, value: object) -> object:
    row = field.type.scalar.row
    if row is None:
        handle = getattr(value, "handle", None)
        return handle if isinstance(handle, str) else value
    try:
        stored = row.coerce(value)
    except KindError:
        return value
    return stored if row.plain is None else row.plain(stored)


def settle_error(error: ValidationError, changes: list[PendingChange]) -> TrailsError:
    """A refusal of operations, as the error that saving the instances has."""
    fields = [_settle(each, changes) for each in error.fields]
    first = error.fields[0] if error.fields else None
    if first is not None and first.code == _MISSING and first.field == "operations[0].id":
        handle = changes[0].node.handle
        if changes[0].operation["op"] == "delete":
            return NotFoundError(f"{handle} does not exist", handle=handle)
        return NotFoundError(
            f"{handle} no longer exists; it was deleted after it was read", handle=handle
        )
    return ValidationError(fields)


def _settle(error: FieldError, changes: list[PendingChange]) -> FieldError:
    for at, change in enumerate(changes):
        path = f"operations[{at}]"
        if error.field.startswith(f"{path}."):
            label = "" if len(changes) == 1 else change.label
            message = error.message.removeprefix(f"{path}.")
            between = error.message.removeprefix(f"{path}: ")  # about a rule between nodes
            return msgspec.structs.replace(
                error,
                field=label + error.field.removeprefix(f"{path}."),
                message=between if between != error.message else label + message,
            )
    return error
