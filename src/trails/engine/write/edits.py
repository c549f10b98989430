"""Change one node of a write: put it, or remove it and see to what refers to it."""

from __future__ import annotations

from collections.abc import Iterator

from trails.engine.puts import Put, check_put, settle_put
from trails.engine.write.pending import PendingNodes
from trails.errors import NotFoundError, ValidationError
from trails.model.nodes import NodeState
from trails.model.types import PredicateDescriptor


def put(
    nodes: PendingNodes, change: Put, *, prefix: str = "", alone: bool = False
) -> NodeState | None:
    """Create or change one node now; violations of its own rules raise at once.

    ``alone``: nothing else follows that could mend what other nodes' rules find, so a
    refusal tells that as well.
    """
    nodes.check_type(change.type)
    seen = nodes.seen
    wanted = check_put(seen.schema, seen.validator, change, prefix, nodes.exist)
    before = None
    if wanted.handle is not None:
        before = nodes.index.find(nodes.db, wanted.handle)
    state = settle_put(seen.schema, change, wanted, nodes.shown(before))
    if state is not None and (alone or not wanted.errors):
        nodes.store(before, state.handle, nodes.completed(before, state))
    if wanted.errors:
        if alone:
            nodes.rules.settle(wanted.errors)
        raise ValidationError(wanted.errors)
    return state


def remove(nodes: PendingNodes, handle: str, *, cascade: bool) -> None:
    """Delete a node; what points at it is dealt with, or refused when the write ends."""
    pending = [handle]
    while pending:
        current = pending.pop()
        before = nodes.index.find(nodes.db, current)
        if nodes.shown(before) is None or before is None:
            if current == handle:
                raise NotFoundError(f"{handle} does not exist", handle=handle)
            continue
        nodes.store(before, current, None)
        if cascade:
            pending.extend(_release(nodes, before.state))


def _release(nodes: PendingNodes, gone: NodeState) -> Iterator[str]:
    """Empty the references to a deleted node; yield the nodes that can't live without."""
    for holder, field in list(nodes.rules.inbound(gone)):
        stored = nodes.index.find(nodes.db, holder)
        if stored is None:
            continue
        left = _without(stored.state, field, gone.handle)
        if left is None:
            yield holder
        else:
            nodes.release(stored, holder, left)


def _without(state: NodeState, field: PredicateDescriptor, handle: str) -> NodeState | None:
    """The node with one reference dropped; None when it can't stand without it."""
    values = dict(state.values)
    if field.many:
        left = tuple(each for each in values.get(field.name, ()) if each != handle)  # type: ignore[attr-defined]
        if len(left) < field.min_count:
            return None
        values[field.name] = left
        if not left:
            del values[field.name]
    elif field.required:
        return None
    else:
        values.pop(field.name, None)
    return NodeState(state.type, state.id, values)
