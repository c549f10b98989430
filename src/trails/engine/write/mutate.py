"""Mutate a graph by typed operations or by SPARQL Update, in one write.

Typed operations (create, update, upsert, delete) are read and applied in order; all mistakes in
their form are reported at once.

**The race.** The effect of an update text depends on the state it is computed on, and computing
can take seconds, so it happens before the writer's lock is taken. Under the lock the head is
compared with the head before computing: if it moved, the effect is dropped and computed again.
After a few rounds it is computed under the lock, so a busy graph delays a caller but never rejects
it. Readers see a head only after the views have reached it, so an effect can be of a newer state
than the head that was read, which the comparison notices, but never of an older one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Final, Protocol, get_args

import msgspec
import pyoxigraph as ox

from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import Graph
from trails.engine.validation.rules import RuleError
from trails.engine.write.edits import MAX_ERRORS, apply_statements, remove
from trails.engine.write.pending import PendingNodes
from trails.engine.write.puts import Mode, Put, check_put, settle_put
from trails.engine.write.write import Opening, OutdatedError
from trails.errors import FieldError, QueryError, ValidationError
from trails.model.constraints import shorten, showable
from trails.model.iris import id_problem, normal_id
from trails.model.names import suggest
from trails.model.nodes import NodeState, make_handle, split_handle
from trails.model.sparql.tokens import tokenize, update_form
from trails.model.texts import with_article
from trails.model.types import Schema, TypeDescriptor
from trails.model.writes import Applied, Mutation, Op
from trails.sandbox.updates import effect_of
from trails.views.quads.view import QuadsView

_OPS: Final[tuple[str, ...]] = get_args(Op)
_KEYS: Final = {
    "create": ("op", "type", "id", "data"),
    "update": ("op", "type", "id", "iri", "data"),
    "upsert": ("op", "type", "id", "iri", "data"),
    "delete": ("op", "type", "id", "iri", "cascade"),
}


class TypedOperation(msgspec.Struct, frozen=True):
    """A typed operation whose form is right."""

    op: Op
    type: str
    data: Mapping[str, object]
    id: str | None
    """For create: the id that the caller chose."""
    reference: str | None
    """For the others: the id or IRI of the node."""
    named: str
    """Which key gave it: ``id`` or ``iri``."""
    cascade: bool


def read_operation(
    types: Mapping[str, TypeDescriptor], operation: object, path: str, errors: list[FieldError]
) -> TypedOperation | None:
    """The parts of an operation; None when its form is wrong, with every reason."""
    if not isinstance(operation, Mapping):
        _wrong(errors, path, "datatype", "is not an object with the key 'op'", operation)
        return None
    before = len(errors)
    op, type_name = operation.get("op"), operation.get("type")
    if op not in _OPS:
        _wrong(errors, f"{path}.op", "one_of", _choose(op, _OPS), op)
        return None
    if not isinstance(type_name, str) or type_name not in types:
        _wrong(errors, f"{path}.type", "one_of", _choose(type_name, types), type_name)
    for key in operation:
        if key not in _KEYS[op]:
            hint = _misplaced(str(key), op, types.get(str(type_name)))
            _wrong(errors, f"{path}.{key}", "unknown_field", f"is not a key of {op}; {hint}", key)
    data = operation.get("data", {})
    if op != "delete" and "data" not in operation:
        _wrong(errors, f"{path}.data", "required", "is missing; give the fields as an object", None)
    elif not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
        _wrong(errors, f"{path}.data", "datatype", "is not an object of fields", data)
    cascade = operation.get("cascade", False)
    if not isinstance(cascade, bool):
        _wrong(errors, f"{path}.cascade", "datatype", "is not true or false", cascade)
    reference, named = _reference(operation, op, path, errors)
    if len(errors) > before:
        return None
    made = normal_id(reference) if op == "create" and reference is not None else None
    return TypedOperation(op, str(type_name), data, made, reference, named, cascade)


def _reference(
    operation: Mapping[str, object], op: Op, path: str, errors: list[FieldError]
) -> tuple[str | None, str]:
    """The id or IRI of the node, and which of the two it is."""
    named = "iri" if "iri" in operation else "id"
    given = operation.get(named)
    where = f"{path}.{named}"
    if given is None:
        if op in {"update", "delete"}:
            problem = "is missing: the key, 'Type/id' or IRI of the node"
            _wrong(errors, f"{path}.id", "required", problem, None)
    elif not isinstance(given, str) or not given:
        _wrong(errors, where, "datatype", "is not a text", given)
    elif not _encodable(given):
        _wrong(errors, where, "datatype", "contains a lone surrogate (half of a character)", given)
    elif "id" in operation and "iri" in operation:
        _wrong(errors, where, "max_count", "can't be combined with 'id'; give one of them", given)
    elif op == "create" and (why := id_problem(normal_id(given))):
        _wrong(errors, where, "datatype", f"can't be an id: {why}", given)
    else:
        return given, named
    return None, named


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _misplaced(key: str, op: Op, descriptor: TypeDescriptor | None) -> str:
    """What to do with a key that an operation does not have."""
    if op != "delete" and descriptor is not None and key in descriptor.by_name:
        return "it is a field; put it into data"
    return suggest(key, _KEYS[op])


def _choose(given: object, known: Mapping[str, object] | tuple[str, ...]) -> str:
    if given is None:
        return f"is missing; choose from {', '.join(known)}"
    return f"must be one of {', '.join(known)}, not {shorten(given)}{_nearest(given, known)}"


def _nearest(given: object, known: Iterable[str]) -> str:
    near = get_close_matches(str(given), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _wrong(errors: list[FieldError], path: str, code: str, problem: str, value: object) -> None:
    errors.append(FieldError(path, code, f"{path} {problem}", showable(value)))


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
        self._edits: dict[str, int] = {}
        """Which operation last touched a node, and failing that an edge at it."""
        self._ends: dict[str, int] = {}
        self.applied: list[Applied] = []

    def take(self, nodes: PendingNodes, operations: Sequence[object]) -> None:
        """Make every operation's change; all violations raise together."""
        self._schema = nodes.visible.schema
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

    def _take(self, nodes: PendingNodes, read: TypedOperation, at: int) -> NodeState | None:
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

    def _new(self, read: TypedOperation, identifier: str | None) -> Put:
        mode: Mode = "create" if read.op == "create" else "upsert"
        return Put(read.type, self._filled(read.type, read.data), identifier, mode)

    def _filled(self, type_name: str, data: Mapping[str, object]) -> dict[str, object]:
        """What was given, and defaults for the rest: as an instance made in Python has them."""
        values = {name: value for name, value in data.items() if value is not None}
        for name, default, _ in self._schema.by_name[type_name].defaults:
            if default is not None:
                values.setdefault(name, default)
        return values

    def _upsert_new(self, nodes: PendingNodes, read: TypedOperation, at: int) -> NodeState | None:
        """A node that an upsert names and that is not there: its id has to fit its key."""
        references = nodes.visible.validator.references
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
        wanted = check_put(self._schema, nodes.visible.validator, change, path, nodes.exist)
        if wanted.id is not None and change.id not in {None, wanted.id}:
            message = (
                f"{path}id is {change.id!r}, but this node's key or ends make it {wanted.id!r}; "
                "leave the id out"
            )
            wanted.errors.append(
                FieldError(f"{path}id", "immutable_key", message, change.id, wanted.id)
            )
        before = None if wanted.handle is None else nodes.index.find(nodes.db, wanted.handle)
        state = settle_put(self._schema, change, wanted, nodes.shown(before))
        self._errors.extend(wanted.errors)
        if state is not None:
            # Also what is refused goes in, with its valid values: later operations may
            # refer to it without a report that it is missing. All is rolled back.
            nodes.store(before, state.handle, nodes.completed(before, state))
            self._touch(state, at)
        return state

    def _delete(
        self, nodes: PendingNodes, found: NodeState, at: int, *, cascade: bool
    ) -> NodeState:
        remove(nodes, found.handle, cascade=cascade)
        self._touch(found, at)
        return found

    def _touch(self, state: NodeState, at: int) -> None:
        self._edits[state.handle] = at
        if self._schema.by_name[state.type].edge is not None:
            for side in ("source", "target"):
                self._ends[str(state.values.get(side))] = at

    def _error(self, path: str, code: str, message: str, value: object) -> None:
        self._errors.append(FieldError(path, code, message, showable(value)))

    def place(self, error: FieldError) -> FieldError:
        """Name the operation that a violation between nodes belongs to."""
        if error.field.startswith("operations"):
            return error
        at = None
        if isinstance(error, RuleError):
            breaker = error.nodes[-1]
            at = self._edits.get(breaker, self._ends.get(breaker))
        path = "operations" if at is None else f"operations[{at}]"
        joint = "." if error.message.startswith(error.field) else ": "
        return msgspec.structs.replace(
            error, field=f"{path}.{error.field}", message=f"{path}{joint}{error.message}"
        )


_ROUNDS: Final = 3
"""How often an effect is computed without the lock before it is computed under it."""

Effect = Callable[[str], tuple[bytes, bytes]]
"""An update text → what it removes and adds, on the branch as it is now or was later."""


def mutate_sparql(
    graph: Graph, checkout: Checkout, opening: Opening, text: str, effect: Effect
) -> Mutation:
    """Write the effect of an update text."""
    update_form(tokenize(text))
    for attempt in range(_ROUNDS + 1):
        locked = attempt == _ROUNDS
        at = checkout.head.commit
        delta = (b"", b"") if locked else effect(text)
        with suppress(OutdatedError), opening(request=["update", text]) as opened:
            nodes = opened.write.nodes
            if nodes.changed:
                raise QueryError(
                    "a SPARQL update sees committed data only, and this transaction has "
                    "uncommitted changes; run it before the first change"
                )
            if not opened.replayed:
                if not locked and graph.log_head(checkout.name).commit != at:
                    raise OutdatedError
                if locked:
                    delta = effect(text)
                apply_statements(opened.write, *delta, validate=True, alone=True)
            break
    return Mutation(opened.commit_id, (), replayed=opened.replayed)


def local_effect(graph: Graph, checkout: Checkout) -> Effect:
    """Compute effects in this process: for graphs in memory, where no one else's text runs.

    Only an update of several operations changes the store while it is computed, so only
    that one gets a copy.
    """
    names = graph.names

    def effect(text: str) -> tuple[bytes, bytes]:
        alone = len(update_form(tokenize(text))) == 1

        def read(quads: QuadsView) -> tuple[bytes, bytes]:
            if alone:
                return effect_of(quads.store, text, names.prefixes, base=names.nodes)
            copy = ox.Store()
            copy.bulk_extend(quads.data())
            return effect_of(copy, text, names.prefixes, base=names.nodes)

        return graph.reading_quads(checkout, read)

    return effect
