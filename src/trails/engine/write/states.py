"""Bring nodes of a write into states that were made elsewhere: from statements, by a merge."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Protocol

from trails.engine.puts import misnamed
from trails.engine.rules import RuleError, of_node
from trails.engine.schema_change import changed_reading
from trails.engine.write.pending import CHUNK, PendingNodes
from trails.errors import FieldError, ValidationError
from trails.model.nodes import NodeState
from trails.model.types import Schema

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
    seen = nodes.seen
    for handle, state in states.items():
        before = nodes.index.find(nodes.db, handle)
        if state is not None and validate:
            checked = seen.validator.check(state.type, state.values, f"{handle}.", errors)
            errors.extend(misnamed(seen.schema, state))
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
    line, found = nodes.line, list[RuleError]()
    stored = nodes.index.find_all(nodes.db, list(states))
    for at, (handle, state) in enumerate(states.items()):
        if at % CHUNK == 0:
            nodes.go_on()
        if state is not None:
            errors = list(misnamed(line.schema, state))
            line.validator.check(state.type, state.values, f"{handle}.", errors)
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
            lost = {field for field, _ in changed_reading(nodes.line.schema, schema, before.type)}
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
