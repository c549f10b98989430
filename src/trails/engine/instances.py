"""Instances of node types on their way into a write: what saving one asks for, and leaves in it."""

from __future__ import annotations

from collections.abc import Mapping

from trails.authoring.nodes import Fate, is_unfolded, state_of
from trails.engine.puts import Put
from trails.engine.write.pending import PendingNodes
from trails.errors import TransactionError
from trails.model.nodes import NodeState
from trails.model.types import PredicateDescriptor, TypeDescriptor


def change_of(nodes: PendingNodes, node: object, *, upsert: bool) -> Put | None:
    """What saving an instance asks for; None when none of its fields was ever looked at."""
    descriptor = getattr(type(node), "__trails__", None)
    state = getattr(node, "__dict__", {}).get("_trails_state")
    if descriptor is None or state is None:
        raise TransactionError(f"{node!r} is not an instance of a node type")
    if state.stored and not is_unfolded(node):  # type: ignore[arg-type]
        return None
    own = node.__dict__
    values = {name: value for name in descriptor.by_name if (value := own.get(name)) is not None}
    seen = nodes.seen.schema.by_name.get(descriptor.name)
    if seen is not None and seen is not descriptor:
        values = _said(seen, descriptor, values)
        values.update(_kept(seen, descriptor, state.loaded if state.stored else None))
    if state.stored:
        return Put(descriptor.name, values, state.id, "update", state.loaded)
    return Put(descriptor.name, values, state.id, "upsert" if upsert else "create")


def _said(
    seen: TypeDescriptor, descriptor: TypeDescriptor, values: dict[str, object]
) -> dict[str, object]:
    """The values of an instance without those that it has by itself and the branch has not.

    A branch has other types than are declared where some are hidden, or its data needs them.
    """
    return {
        name: value
        for name, value in values.items()
        if name in seen.by_name or value not in ([], _own_default(descriptor.by_name[name]))
    }


def _kept(
    seen: TypeDescriptor, descriptor: TypeDescriptor, loaded: Mapping[str, object] | None
) -> dict[str, object]:
    """What was loaded into fields that the branch has and the declared type has not."""
    return {
        name: value
        for name, value in (loaded or {}).items()
        if name in seen.by_name and name not in descriptor.by_name
    }


def _own_default(field: PredicateDescriptor) -> object:
    """What a new instance has in a field that nobody set."""
    many = field.many and isinstance(field.default, list | tuple)
    return list(field.default) if many else field.default  # type: ignore[call-overload]


def remember(node: object, state: NodeState, fate: Fate) -> None:
    """Let an instance know what is stored of it, if its write lands."""
    known = state_of(node)  # type: ignore[arg-type]
    known.id, known.handle = state.id, state.handle
    known.remember(stored=True, values=state.values, fate=fate)


def request_of(node: object, *, upsert: bool) -> list[object]:
    """What saving an instance asks for, as an idempotency key sees it.

    A program that tries again makes its new instances again; so the random id of one that was
    not read from the graph does not count.
    """
    descriptor = getattr(type(node), "__trails__", None)
    state = getattr(node, "__dict__", {}).get("_trails_state")
    if descriptor is None or state is None:
        return []  # which saving it refuses
    own = node.__dict__
    values = {name: value for name in descriptor.by_name if (value := own.get(name)) is not None}
    return [descriptor.name, None if state.ctx is None else state.id, values, upsert]
