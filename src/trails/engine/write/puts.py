"""Put one node: check its values, find its identity, merge it with the stored state.

Works on one node before any other node is read; pure except for the clock in new ids. The last
part turns instances of node types into puts, and writes the stored state back into them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from trails.authoring.nodes import WriteOutcome, is_unfolded, state_of
from trails.engine.validation.validate import Exist, Validator
from trails.engine.write.pending import PendingNodes
from trails.errors import FieldError, NotFoundError, TransactionError
from trails.model.iris import id_problem, uuid7
from trails.model.nodes import NodeState, derive_id, make_handle
from trails.model.types import PredicateDescriptor, Schema, TypeDescriptor
from trails.views.nodes.index import Stored

Mode = Literal["create", "update", "upsert"]


class Put(msgspec.Struct, frozen=True):
    """Create or change a node: its raw values, and its id where the type has no key."""

    type: str
    values: Mapping[str, object]
    id: str | None = None
    mode: Mode = "create"
    loaded: Mapping[str, object] | None = None
    """For an update: the values that were read; only what differs from them is written."""
    label: str | None = None
    """How errors name this node among many, such as ``line 12: ``; else by type and key."""
    handle: str | None = None
    """Given with ``id`` where the values are checked already, being the validator's own."""


class Wanted(msgspec.Struct):
    """A checked put: the node's values, their violations, and its identity."""

    label: str | None
    """The prefix of its errors; None if it is made when there is one."""
    values: dict[str, object]
    errors: list[FieldError]
    id: str | None = None
    handle: str | None = None


def check_put(
    schema: Schema, validator: Validator, change: Put, prefix: str | None, exist: Exist
) -> Wanted:
    """Validate one node's own values and determine its identity.

    ``exist`` looks up which nodes exist, for references by key.
    """
    if change.handle is not None:
        return Wanted(change.label or "", dict(change.values), [], change.id, change.handle)
    descriptor = schema.by_name.get(change.type)
    if descriptor is None:
        raise NotFoundError(
            f"this graph has no type {change.type!r}; it has "
            f"{', '.join(schema.by_name) or 'none yet'}"
        )
    errors: list[FieldError] = []
    label = prefix if prefix is not None else _batch_prefix(descriptor, change)
    given = validator.references.settle(change.type, change.values, exist)
    values = validator.check(change.type, given, label, errors)
    identifier = _identify(descriptor, change, values, label, errors)
    if identifier is None:
        return Wanted(label, values, errors)
    return Wanted(label, values, errors, identifier, make_handle(change.type, identifier))


def check_puts(
    schema: Schema, validator: Validator, changes: Sequence[Put]
) -> Iterable[Wanted] | None:
    """The same as ``check_put`` for many puts at once; None if one of them may be refused."""
    types: dict[str, list[int]] = {}
    for at, change in enumerate(changes):
        if change.handle is not None or change.type not in schema.by_name:
            return None
        types.setdefault(change.type, []).append(at)
    found: dict[int, Wanted] = {}
    errors: list[FieldError] = []
    for type_name, places in types.items():
        descriptor = schema.by_name[type_name]
        checked = validator.check_all(type_name, [changes[at].values for at in places])
        if checked is None:
            return None
        for at, values in zip(places, checked, strict=True):
            identifier = _identify(descriptor, changes[at], values, "", errors)
            if identifier is None:
                return None
            handle = make_handle(type_name, identifier)
            found[at] = Wanted(None, values, [], identifier, handle)
    return found.values() if len(types) == 1 else map(found.__getitem__, range(len(changes)))


def settle_put(
    schema: Schema, change: Put, wanted: Wanted, before: Stored | None
) -> NodeState | None:
    """The new state of a node, given the stored one; None if it can't be put."""
    identifier, handle, values = wanted.id, wanted.handle, wanted.values
    if identifier is None or handle is None:
        return None
    if before is None:
        if change.mode == "update":
            raise NotFoundError(
                f"{handle} no longer exists; it was deleted after it was read",
                handle=handle,
            )
        return NodeState(change.type, identifier, values)
    descriptor = schema.by_name[change.type]
    label = _batch_prefix(descriptor, change) if wanted.label is None else wanted.label
    if change.mode == "create":
        wanted.errors.append(_exists(descriptor, change, handle, wanted, label))
        return None
    if change.loaded is not None:
        values = _merge(before.state.values, change.loaded, values, descriptor)
    fixed = _changed_identity(descriptor, before.state.values, values, label)
    if fixed:
        wanted.errors.extend(fixed)
        return None
    return NodeState(change.type, identifier, values)


def _identify(
    descriptor: TypeDescriptor,
    change: Put,
    values: Mapping[str, object],
    label: str,
    errors: list[FieldError],
) -> str | None:
    if change.mode == "update" and change.id is not None:
        return change.id
    key = descriptor.key
    if key is None and descriptor.edge is None:
        return change.id or uuid7()
    identifier = derive_id(descriptor, values)
    problem = None if identifier is None else id_problem(identifier)
    if key is not None and problem is not None:
        path = label + key.name
        message = f"{path} can't be a key: {problem}"
        errors.append(FieldError(path, "datatype", message, identifier))
        return None
    return identifier


_plain_id = re.compile("[A-Za-z0-9_-]{1,64}").fullmatch
"""Texts that are ids as they are."""


def misnamed(schema: Schema, state: NodeState) -> Iterator[FieldError]:
    """Check that a node's id matches its key, and an edge's its ends and key."""
    descriptor = schema.by_name[state.type]
    key = descriptor.key
    if (
        key is not None
        and key.type.kind == "String"
        and descriptor.edge is None
        and state.values.get(key.name) == state.id
        and _plain_id(state.id)
    ):
        return
    handle, errors = state.handle, list[FieldError]()
    change = Put(state.type, state.values, state.id)
    identifier = _identify(descriptor, change, state.values, f"{handle}.", errors)
    if identifier not in {None, state.id}:
        field = "target" if descriptor.id_field is None else descriptor.id_field.name
        yield FieldError(
            f"{handle}.{field}",
            "immutable_key",
            f"{handle}.{field} gives this node the id {identifier!r}; a node's IRI follows "
            "from its key, and an edge's from its ends and key",
            identifier,
            state.id,
        )
    yield from errors


def _batch_prefix(descriptor: TypeDescriptor, change: Put) -> str:
    """The prefix that names a node in the errors of a batch."""
    if change.label is not None:
        return change.label
    key = descriptor.id_field
    name = change.values.get(key.name) if key is not None else change.id
    return f"{descriptor.name}/{name if name is not None else '?'}."


def _exists(
    descriptor: TypeDescriptor, change: Put, handle: str, wanted: Wanted, label: str
) -> FieldError:
    if descriptor.edge is not None and descriptor.key is not None:
        field = descriptor.key.name
        value = wanted.values.get(field)
        what = f"an edge between these two nodes with {field} {value!r} already exists"
    elif descriptor.edge is not None:
        field = "target"
        what = "an edge between these two nodes already exists"
    else:
        field = descriptor.key.name if descriptor.key is not None else "id"
        what = f"{handle} already exists"
    advice = "update or upsert it"
    if change.label is not None:
        advice = "load it with mode 'merge' to change it"
    path = label + field
    return FieldError(path, "unique", f"{path}: {what}; {advice}", wanted.id, True)


def _merge(
    stored: Mapping[str, object],
    loaded: Mapping[str, object],
    wanted: Mapping[str, object],
    descriptor: TypeDescriptor,
) -> dict[str, object]:
    """The stored values with only the fields replaced that the caller changed."""
    merged = dict(stored)
    for field in descriptor.fields:
        value = wanted.get(field.name)
        if value != loaded.get(field.name):
            if value is None:
                merged.pop(field.name, None)
            else:
                merged[field.name] = value
    return merged


def _changed_identity(
    descriptor: TypeDescriptor,
    before: Mapping[str, object],
    after: Mapping[str, object],
    label: str,
) -> list[FieldError]:
    """Violations by changed keys and changed ends of edges."""
    fixed: list[PredicateDescriptor] = [field for field in descriptor.fields if field.key]
    if descriptor.edge is not None:
        fixed += [descriptor.by_name["source"], descriptor.by_name["target"]]
    return [
        FieldError(
            label + field.name,
            "immutable_key",
            f"{label}{field.name} identifies the node and can't change from "
            f"{before.get(field.name)!r}; make a new node and delete this one",
            str(after.get(field.name)),
            str(before.get(field.name)),
        )
        for field in fixed
        if before.get(field.name) != after.get(field.name)
    ]


def change_of(nodes: PendingNodes, node: object, *, upsert: bool) -> Put | None:
    """The put that saves an instance; None if its fields were never loaded."""
    descriptor = getattr(type(node), "__trails__", None)
    state = getattr(node, "__dict__", {}).get("_trails_state")
    if descriptor is None or state is None:
        raise TransactionError(f"{node!r} is not an instance of a node type")
    if state.stored and not is_unfolded(node):  # type: ignore[arg-type]
        return None
    own = node.__dict__
    values = {name: value for name in descriptor.by_name if (value := own.get(name)) is not None}
    visible = nodes.visible.schema.by_name.get(descriptor.name)
    if visible is not None and visible is not descriptor:
        values = _said(visible, descriptor, values)
        values.update(_kept(visible, descriptor, state.loaded if state.stored else None))
    if state.stored:
        return Put(descriptor.name, values, state.id, "update", state.loaded)
    return Put(descriptor.name, values, state.id, "upsert" if upsert else "create")


def _said(
    visible: TypeDescriptor, descriptor: TypeDescriptor, values: dict[str, object]
) -> dict[str, object]:
    """The values of an instance without defaults for fields that the branch does not have.

    A branch can differ from the declared types: parts can be hidden, or its data needs old ones.
    """
    return {
        name: value
        for name, value in values.items()
        if name in visible.by_name or value not in ([], _own_default(descriptor.by_name[name]))
    }


def _kept(
    visible: TypeDescriptor, descriptor: TypeDescriptor, loaded: Mapping[str, object] | None
) -> dict[str, object]:
    """Loaded values of fields that the branch has and the declared type does not."""
    return {
        name: value
        for name, value in (loaded or {}).items()
        if name in visible.by_name and name not in descriptor.by_name
    }


def _own_default(field: PredicateDescriptor) -> object:
    """The value of an unset field in a new instance."""
    many = field.many and isinstance(field.default, list | tuple)
    return list(field.default) if many else field.default  # type: ignore[call-overload]


def remember(node: object, state: NodeState, outcome: WriteOutcome) -> None:
    """Record in an instance what is stored, provided that its write succeeds."""
    known = state_of(node)  # type: ignore[arg-type]
    known.id, known.handle = state.id, state.handle
    known.remember(stored=True, values=state.values, outcome=outcome)


def request_of(node: object, *, upsert: bool) -> list[object]:
    """The request to save an instance, as it counts for an idempotency key.

    A retrying program creates its new instances again, so the random id of an instance that was
    not read from the graph does not count.
    """
    descriptor = getattr(type(node), "__trails__", None)
    state = getattr(node, "__dict__", {}).get("_trails_state")
    if descriptor is None or state is None:
        return []  # saving it is refused
    own = node.__dict__
    values = {name: value for name in descriptor.by_name if (value := own.get(name)) is not None}
    return [descriptor.name, None if state.ctx is None else state.id, values, upsert]
