"""Change one node of a write: put it, or remove it and see to what refers to it.

Change many nodes of a write, streamed: memory does not grow with their number.

Bring nodes of a write into states that were made elsewhere: from statements, by a merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Protocol

from trails.engine.graph.schema_changes import changed_reading
from trails.engine.validation.rules import RuleError, of_node
from trails.engine.write.pending import CHUNK, PendingNodes
from trails.engine.write.puts import Put, check_put, misnamed, settle_put
from trails.errors import FieldError, NotFoundError, ValidationError
from trails.model.nodes import NodeState
from trails.model.types import PredicateDescriptor, Schema
from trails.views.nodes.index import Replacement


def put(
    nodes: PendingNodes, change: Put, *, prefix: str = "", alone: bool = False
) -> NodeState | None:
    """Create or change one node now; violations of its own rules raise at once.

    ``alone``: nothing else follows that could mend what other nodes' rules find, so a
    refusal tells that as well.
    """
    nodes.check_type(change.type)
    visible = nodes.visible
    wanted = check_put(visible.schema, visible.validator, change, prefix, nodes.exist)
    before = None
    if wanted.handle is not None:
        before = nodes.index.find(nodes.db, wanted.handle)
    state = settle_put(visible.schema, change, wanted, nodes.shown(before))
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


MAX_ERRORS: Final = 1000
"""With so many violations there is no point in looking for more."""

Done = Callable[[Put, NodeState], None]
"""Told of each node that was put, with the state that its actor sees."""


def put_all(
    nodes: PendingNodes,
    changes: Iterable[Put],
    done: Done,
    found: list[FieldError] | None = None,
) -> int:
    """Create or change many nodes: each at most once in a write; how many there were.

    Violations are raised, or added to ``found`` by a caller who goes on and then judges.
    """
    errors: list[FieldError] = [] if found is None else found
    count = 0
    stream = iter(changes)
    while chunk := list(islice(stream, CHUNK)):
        nodes.go_on()
        count += len(chunk)
        _put_chunk(nodes, chunk, errors, done)
        if len(errors) >= MAX_ERRORS:
            break
    if not errors or found is not None:
        return count
    nodes.rules.settle(errors)
    raise ValidationError(errors)


def _put_chunk(nodes: PendingNodes, chunk: list[Put], errors: list[FieldError], done: Done) -> None:
    puts = _settled(nodes, chunk, errors, done)
    # Also what is refused goes into the index, with those of its values that are valid:
    # the rules between nodes are then told of every node, and all is rolled back.
    nodes.rules.weigh(nodes.index.put_all(nodes.seq, puts))
    nodes.news.add_puts(puts)
    changes = [(None if put.before is None else put.before.state, put.after) for put in puts]
    if not errors:
        nodes.delta.stream(changes)
    for old, new in changes:
        nodes.rules.watch(old, new)


def _settled(
    nodes: PendingNodes, chunk: list[Put], errors: list[FieldError], done: Done
) -> list[Replacement]:
    """What the nodes of a chunk shall be, of those that can be put and are not so already."""
    types, guard = nodes.visible, nodes.guard
    if guard is not None:
        for name in dict.fromkeys(change.type for change in chunk):
            nodes.check_type(name)
    wanted = [
        check_put(types.schema, types.validator, change, None, nodes.exist) for change in chunk
    ]
    handles = [each.handle for each in wanted if each.handle is not None]
    there = nodes.index.find_all(nodes.db, handles)
    seen: set[str] = set()
    puts: list[Replacement] = []
    for change, each in zip(chunk, wanted, strict=True):
        before = None if each.handle is None else there.get(each.handle)
        shown = before if guard is None else guard.show(before)
        state = settle_put(types.schema, change, each, shown)
        errors.extend(each.errors)
        if state is None:
            continue
        handle = each.handle or ""
        if handle in seen or (before is not None and before.seq == nodes.seq):
            message = f"{handle} appears twice in this batch; give each node once"
            errors.append(FieldError(handle, "unique", message, handle))
            continue
        seen.add(handle)
        done(change, state)
        if guard is not None:
            state = guard.complete(before, state)
        if before is None or before.state.values != state.values:
            if guard is not None:
                nodes.check(None if before is None else before.state, state)
            puts.append(Replacement(before, handle, state))
    return puts


def remove_all(nodes: PendingNodes, handles: Iterable[str]) -> int:
    """Delete many nodes; none of them was or will be put in this write."""
    count = 0
    stream = iter(handles)
    while chunk := list(islice(stream, CHUNK)):
        nodes.go_on()
        there = nodes.index.find_all(nodes.db, chunk)
        for stored in there.values():
            nodes.check(stored.state, None)
        puts = [Replacement(stored, handle, None) for handle, stored in there.items()]
        nodes.index.put_all(nodes.seq, puts)
        nodes.delta.stream((stored.state, None) for stored in there.values())
        nodes.news.add_puts(puts)
        for stored in there.values():
            nodes.rules.watch(stored.state, None)
        count += len(there)
    return count


States = Mapping[str, NodeState | None]
"""Nodes by handle as they shall be; None for those that shall not be."""


def apply_states(
    nodes: PendingNodes,
    states: States,
    errors: list[FieldError],
    *,
    validate: bool,
    alone: bool,
) -> None:
    """Put nodes into given states, as the actor sees them (from RDF statements).

    ``validate`` checks them, beside the violations that were found in the statements.
    """
    visible = nodes.visible
    for handle, state in states.items():
        before = nodes.index.find(nodes.db, handle)
        if state is not None and validate:
            checked = visible.validator.check(state.type, state.values, f"{handle}.", errors)
            errors.extend(misnamed(visible.schema, state))
            if not errors:
                state = NodeState(state.type, state.id, checked)  # noqa: PLW2901 - canonical values
        if state is not None:
            nodes.store(before, handle, nodes.completed(before, state))
        elif nodes.shown(before) is not None:
            nodes.store(before, handle, None)
    if errors:
        if alone:
            nodes.rules.settle(errors)
        raise ValidationError(errors)


def judge(nodes: PendingNodes, states: States) -> list[RuleError]:
    """Put nodes into states, and say what is wrong with them and between them."""
    checkout, found = nodes.checkout, list[RuleError]()
    stored = nodes.index.find_all(nodes.db, list(states))
    for at, (handle, state) in enumerate(states.items()):
        if at % CHUNK == 0:
            nodes.go_on()
        if state is not None:
            errors = list(misnamed(checkout.schema, state))
            checkout.validator.check(state.type, state.values, f"{handle}.", errors)
            found.extend(of_node(handle, error) for error in errors)
        before = stored.get(handle)
        if (None if before is None else before.state) != state:
            nodes.store(before, handle, state)
    found.extend(nodes.rules.violations(each_reference=True))
    return found


def put_states(nodes: PendingNodes, states: States) -> None:
    """Put nodes into states that were judged before; the write's end judges them again."""
    handles = iter(states)
    while some := list(islice(handles, CHUNK)):
        nodes.go_on()
        stored = nodes.index.find_all(nodes.db, some)
        for handle in some:
            before, state = stored.get(handle), states[handle]
            if (None if before is None else before.state) != state:
                nodes.store(before, handle, state)


class Changeable(Protocol):
    """A write, or a draft of one."""

    nodes: PendingNodes

    def change_schema(self, schema: Schema) -> None:
        """Go on with other types."""


def change_types(write: Changeable, states: States, schema: Schema) -> None:
    """Give a branch other types, which may be unable to read what some of its nodes hold.

    ``states`` has every node that loses something so.
    """
    nodes, gone = write.nodes, list[NodeState]()
    handles = iter(states)
    while some := list(islice(handles, CHUNK)):
        for handle, stored in nodes.index.find_all(nodes.db, some).items():
            before = stored.state
            lost = {
                field for field, _ in changed_reading(nodes.checkout.schema, schema, before.type)
            }
            if not lost & {"", *before.values}:
                continue
            kept = {name: value for name, value in before.values.items() if name not in lost}
            if "" in lost or states[handle] is None:
                gone.append(before)
                nodes.store(stored, handle, None)
            else:
                nodes.store(stored, handle, NodeState(before.type, before.id, kept))
    write.change_schema(schema)
    # The rules that came with the types have not seen these go.
    for before in gone:
        if before.type in schema.by_name:
            nodes.rules.watch(before, None)


def bypass(nodes: PendingNodes, removed: bytes, added: bytes, counts: tuple[int, int]) -> None:
    """Log these statements as they are, whatever state they lead to."""
    nodes.delta.write_raw(removed, added, counts)
    nodes.news.add_touched(nodes.touches)
    nodes.news.add_everything()
    nodes.touches.clear()
    nodes.rules.forget()
