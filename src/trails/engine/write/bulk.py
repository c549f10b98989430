"""Change many nodes of a write, streamed: memory does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from trails.engine.puts import Put, check_put, settle_put
from trails.engine.write.pending import CHUNK, PendingNodes
from trails.errors import FieldError, ValidationError
from trails.model.nodes import NodeState
from trails.views.nodes.index import Replacement

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
    types, guard = nodes.seen, nodes.guard
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
