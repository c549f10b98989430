"""Mutate by typed operations: create, update, upsert, delete, in order, in one write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from trails.engine.mutate.forms import Operation, read_operation
from trails.engine.puts import Mode, Put, check_put, settle_put
from trails.engine.rules import RuleError
from trails.engine.write.bulk import MAX_ERRORS
from trails.engine.write.edits import remove
from trails.engine.write.opened import Opening
from trails.engine.write.pending import PendingNodes
from trails.engine.write.states import apply_states
from trails.errors import FieldError, ValidationError
from trails.model.constraints import showable
from trails.model.iris import id_problem, normal_id
from trails.model.mutations import Applied, Mutation
from trails.model.nodes import NodeState, make_handle, split_handle
from trails.model.types import Schema
from trails.model.wording import with_article

MAX_OPERATIONS: Final = 10_000
"""Typed operations of one call; more than that is a load."""


class Nodes(Protocol):
    """The nodes of a branch, as the open write sees them."""

    def find(self, type_name: str, reference: object) -> NodeState | None:
        """The node that a reference means."""

    def describe_missing(self, type_name: str, reference: object) -> str:
        """Why there is none."""


def mutate_typed(opening: Opening, there: Nodes, operations: Sequence[object]) -> Mutation:
    """Take typed operations in order; each may build on those before it."""
    if not 0 < len(operations) <= MAX_OPERATIONS:
        found = f"operations has {len(operations)} items"
        code = "max_count" if operations else "min_count"
        message = f"{found}; give 1 to {MAX_OPERATIONS}, and load larger sets"
        raise ValidationError([FieldError("operations", code, message, len(operations))])
    run = _Run(there)
    try:
        with opening(request=["operations", operations]) as opened:
            if not opened.replayed:
                run.take(opened.write.nodes, operations)
                opened.answer({"applied": run.applied})
    except ValidationError as error:
        raise ValidationError(map(run.place, error.fields)) from None
    applied = msgspec.convert(opened.result.get("applied", ()), tuple[Applied, ...])
    return Mutation(opened.commit_id, applied, replayed=opened.replayed)


class _Run:
    """One list of operations on its way into a write."""

    def __init__(self, there: Nodes) -> None:
        self._there = there
        self._schema = Schema()
        self._errors: list[FieldError] = []
        self._touched: dict[str, int] = {}
        """Which operation last touched a node, and failing that an edge at it."""
        self._ends: dict[str, int] = {}
        self.applied: list[Applied] = []

    def take(self, nodes: PendingNodes, operations: Sequence[object]) -> None:
        """Make every operation's change; all violations raise together."""
        self._schema = nodes.seen.schema
        for at, operation in enumerate(operations):
            read = read_operation(
                self._schema.by_name, operation, f"operations[{at}]", self._errors
            )
            state = None if read is None else self._take(nodes, read, at)
            if read is not None and state is not None:
                self.applied.append(Applied(read.op, state.type, state.id, state.handle))
            if len(self._errors) >= MAX_ERRORS:
                break
        if self._errors:
            # Only a part was made: a transaction around this can't be committed any more.
            nodes.spoil()
            nodes.rules.settle(self._errors)
            raise ValidationError(self._errors)

    def _take(self, nodes: PendingNodes, read: Operation, at: int) -> NodeState | None:
        path = f"operations[{at}]"
        nodes.check_type(read.type)
        if read.op == "create" or (read.op == "upsert" and read.reference is None):
            return self._put(nodes, self._new(read, read.id), at)
        found = self._there.find(read.type, read.reference or "")
        if found is None and read.op == "upsert":
            return self._upsert_new(nodes, read, at)
        if found is None:
            missing = self._there.describe_missing(read.type, read.reference)
            message = f"{path}.{read.named}: {missing}"
            self._error(f"{path}.{read.named}", "reference", message, read.reference)
            return None
        if read.op == "delete":
            return self._delete(nodes, found, at, cascade=read.cascade)
        if read.op == "upsert":
            values = self._filled(found.type, read.data)
        else:
            merged = {**found.values, **read.data}
            values = {name: value for name, value in merged.items() if value is not None}
        return self._put(nodes, Put(found.type, values, found.id, "update"), at)

    def _new(self, read: Operation, identifier: str | None) -> Put:
        mode: Mode = "create" if read.op == "create" else "upsert"
        return Put(read.type, self._filled(read.type, read.data), identifier, mode)

    def _filled(self, type_name: str, data: Mapping[str, object]) -> dict[str, object]:
        """What was given, and defaults for the rest: as an instance made in Python has them."""
        values = {name: value for name, value in data.items() if value is not None}
        for name, default, _ in self._schema.by_name[type_name].defaults:
            if default is not None:
                values.setdefault(name, default)
        return values

    def _upsert_new(self, nodes: PendingNodes, read: Operation, at: int) -> NodeState | None:
        """A node that an upsert names and that is not there: its id has to fit its key."""
        references = nodes.seen.validator.references
        handle = references.exact(read.reference)
        other, identifier = split_handle(handle or make_handle(read.type, read.reference or ""))
        path = f"operations[{at}].{read.named}"
        identifier = normal_id(identifier)
        problem = id_problem(identifier)
        if other != read.type:
            problem = f"it names {with_article(other)}"
        if problem is not None:
            message = f"{path}: {read.reference!r} can't name a new {read.type}: {problem}"
            self._error(path, "datatype", message, read.reference)
            return None
        return self._put(nodes, self._new(read, identifier), at)

    def _put(self, nodes: PendingNodes, change: Put, at: int) -> NodeState | None:
        path = f"operations[{at}]."
        wanted = check_put(self._schema, nodes.seen.validator, change, path, nodes.exist)
        if wanted.id is not None and change.id not in {None, wanted.id}:
            message = (
                f"{path}id is {change.id!r}, but this node's key or ends make it {wanted.id!r}; "
                "leave the id out"
            )
            wanted.errors.append(
                FieldError(f"{path}id", "immutable_key", message, change.id, wanted.id)
            )
        before = None if wanted.handle is None else nodes.find(wanted.handle)
        state = settle_put(self._schema, change, wanted, before)
        self._errors.extend(wanted.errors)
        if state is not None:
            # Also what is refused goes in, with its valid values: later operations may
            # refer to it, and shall not be told that it is missing. All is rolled back.
            apply_states(nodes, {state.handle: state}, [], validate=False, alone=False)
            self._touch(state, at)
        return state

    def _delete(
        self, nodes: PendingNodes, found: NodeState, at: int, *, cascade: bool
    ) -> NodeState:
        remove(nodes, found.handle, cascade=cascade)
        self._touch(found, at)
        return found

    def _touch(self, state: NodeState, at: int) -> None:
        self._touched[state.handle] = at
        if self._schema.by_name[state.type].edge is not None:
            for side in ("source", "target"):
                self._ends[str(state.values.get(side))] = at

    def _error(self, path: str, code: str, message: str, value: object) -> None:
        self._errors.append(FieldError(path, code, message, showable(value)))

    def place(self, error: FieldError) -> FieldError:
        """Name the operation that a rule between nodes speaks of."""
        if error.field.startswith("operations"):
            return error
        at = None
        if isinstance(error, RuleError):
            breaker = error.nodes[-1]
            at = self._touched.get(breaker, self._ends.get(breaker))
        path = "operations" if at is None else f"operations[{at}]"
        joint = "." if error.message.startswith(error.field) else ": "
        return msgspec.structs.replace(
            error, field=f"{path}.{error.field}", message=f"{path}{joint}{error.message}"
        )
