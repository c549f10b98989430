"""Mutate: change the graph in one call and one commit, by SPARQL Update or typed operations.

Both forms end on the one write path, so what they may not do is what no writer may. A
call that changes nothing makes no commit.

**The race.** The effect of an update text depends on the state that it is computed on,
and computing may take seconds, so it is done before the writer's lock is taken. Under the
lock the head is compared with the head before computing: if it moved, the effect is
thrown away and computed again. After a few rounds it is computed under the lock, so a
busy graph delays a caller but never turns it away. A head is shown to readers only after
the views have reached it, so an effect can be of a newer state than the head that was
read, which the comparison notices, never of an older one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol, get_args

import msgspec
import pyoxigraph as ox

from trails.engine.commit import MAX_ERRORS, Write
from trails.engine.graph import Graph
from trails.engine.lines import Line
from trails.engine.puts import Mode, Put, check_put, settle_put
from trails.engine.rules import RuleError
from trails.engine.statements import apply_statements
from trails.errors import FieldError, QueryError, ValidationError
from trails.model.constraints import showable
from trails.model.history import Commit
from trails.model.iris import id_problem, normal_id
from trails.model.mutations import Applied, Mutation, Op
from trails.model.names import suggest
from trails.model.nodes import NodeState
from trails.model.sparql import tokenize
from trails.model.types import Schema
from trails.model.updates import update_form
from trails.sandbox.updates import effect_of

MAX_OPERATIONS: Final = 10_000
"""Typed operations of one call; more than that is a load."""
_ROUNDS: Final = 3
"""How often an effect is computed without the lock before it is computed under it."""

_OPS: Final[tuple[str, ...]] = get_args(Op)
_KEYS: Final = {
    "create": ("op", "type", "id", "data"),
    "update": ("op", "type", "id", "iri", "data"),
    "upsert": ("op", "type", "id", "iri", "data"),
    "delete": ("op", "type", "id", "iri", "cascade"),
}

Effect = Callable[[str], tuple[bytes, bytes]]
"""An update text → what it removes and adds, on the branch as it is now or was later."""
Find = Callable[[str, str], NodeState | None]
"""(type, id or IRI) → the node as the open write sees it."""


class Opened(Protocol):
    """A write in progress and, once its block has ended, its commit."""

    write: Write
    commit: Commit | None


class Opening(Protocol):
    """Opens a write on one branch, for one actor, with a message and an idempotency key."""

    def __call__(self) -> AbstractContextManager[Opened]:
        """Take the writer's lock; the block's end commits, an error in it does not."""


# --- SPARQL Update ------------------------------------------------------------------------


def mutate_sparql(
    graph: Graph, line: Line, opening: Opening, text: str, effect: Effect
) -> Mutation:
    """Write the effect of an update text."""
    update_form(tokenize(text))
    for attempt in range(_ROUNDS + 1):
        locked = attempt == _ROUNDS
        at = line.head.commit
        delta = (b"", b"") if locked else effect(text)
        moved = False
        with opening() as opened:
            write = opened.write
            if write.changed:
                raise QueryError(
                    "an update sees what is committed, and this transaction has changes that are "
                    "not; update before the first change"
                )
            if write.replayed is None:
                moved = not locked and graph.log_head(line.name).commit != at
                if locked:
                    delta = effect(text)
                if not moved:
                    apply_statements(write, *delta, validate=True, alone=True)
        if not moved:
            break
    return _mutation(opened, ())


def local_effect(graph: Graph, line: Line) -> Effect:
    """Compute effects in this process: for graphs in memory, where no one else's text runs.

    Only an update of several operations changes the store while it is computed, so only
    that one gets a copy.
    """
    prefixes, base = {"": graph.names.vocabulary}, graph.names.base

    def effect(text: str) -> tuple[bytes, bytes]:
        alone = len(update_form(tokenize(text))) == 1

        def read(quads: _Quads) -> tuple[bytes, bytes]:
            if alone:
                return effect_of(quads.store, text, prefixes, base=base)
            copy = ox.Store()
            copy.bulk_extend(quads.data())
            return effect_of(copy, text, prefixes, base=base)

        return graph.reading_quads(line, read)

    return effect


class _Quads(Protocol):
    """What an effect needs of the quads view."""

    @property
    def store(self) -> ox.Store:
        """The store, for reading."""

    def data(self) -> Iterator[ox.Quad]:
        """Every statement of the branch."""


# --- typed operations ------------------------------------------------------------------------


def mutate_typed(
    graph: Graph, opening: Opening, find: Find, operations: Sequence[object]
) -> Mutation:
    """Take typed operations in order; each may build on those before it."""
    if not 0 < len(operations) <= MAX_OPERATIONS:
        found = f"operations has {len(operations)} items"
        code = "max_count" if operations else "min_count"
        message = f"{found}; give 1 to {MAX_OPERATIONS}, and load larger sets"
        raise ValidationError([FieldError("operations", code, message, len(operations))])
    run = _Run(graph, find)
    try:
        with opening() as opened:
            if opened.write.replayed is None:
                run.take(opened.write, operations)
    except ValidationError as error:
        raise ValidationError(map(run.place, error.fields)) from None
    return _mutation(opened, tuple(run.applied))


def _mutation(opened: Opened, applied: tuple[Applied, ...]) -> Mutation:
    commit = None if opened.commit is None else opened.commit.id
    return Mutation(commit, applied, replayed=opened.write.replayed is not None)


class _Run:
    """One list of operations on its way into a write."""

    def __init__(self, graph: Graph, find: Find) -> None:
        self._graph = graph
        self._find = find
        self._schema = Schema()
        self._errors: list[FieldError] = []
        self._touched: dict[str, int] = {}
        """Which operation last touched a node, and failing that an edge at it."""
        self._ends: dict[str, int] = {}
        self.applied: list[Applied] = []

    def take(self, write: Write, operations: Sequence[object]) -> None:
        """Put every operation's change into the write; all violations raise together."""
        self._schema = write.seen.schema
        for at, operation in enumerate(operations):
            read = _read(self._schema.by_name, operation, f"operations[{at}]", self._errors)
            state = None if read is None else self._take(write, read, at)
            if read is not None and state is not None:
                self.applied.append(Applied(read.op, state.type, state.id, state.handle))
            if len(self._errors) >= MAX_ERRORS:
                break
        if self._errors:
            # Only a part was made: a transaction around this can't be committed any more.
            write.spoil()
            write.apply_states({}, self._errors, validate=False, alone=True)

    def _take(self, write: Write, read: _Read, at: int) -> NodeState | None:
        path = f"operations[{at}]"
        write.check_type(read.type)
        if read.op == "create" or (read.op == "upsert" and read.reference is None):
            return self._put(write, self._new(read, read.id), at)
        found = self._find(read.type, read.reference or "")
        if found is None and read.op == "upsert":
            return self._upsert_new(write, read, at)
        if found is None:
            message = f"{path}.{read.named}: there is no {read.type} {read.reference!r}"
            self._error(f"{path}.{read.named}", "reference", message, read.reference)
            return None
        if read.op == "delete":
            return self._delete(write, found, at, cascade=read.cascade)
        if read.op == "upsert":
            values = self._filled(found.type, read.data)
        else:
            merged = {**found.values, **read.data}
            values = {name: value for name, value in merged.items() if value is not None}
        return self._put(write, Put(found.type, values, found.id, "update"), at)

    def _new(self, read: _Read, identifier: str | None) -> Put:
        mode: Mode = "create" if read.op == "create" else "upsert"
        return Put(read.type, self._filled(read.type, read.data), identifier, mode)

    def _filled(self, type_name: str, data: Mapping[str, object]) -> dict[str, object]:
        """What was given, and defaults for the rest: as an instance made in Python has them."""
        values = {name: value for name, value in data.items() if value is not None}
        for name, default, _ in self._schema.by_name[type_name].defaults:
            if default is not None:
                values.setdefault(name, default)
        return values

    def _upsert_new(self, write: Write, read: _Read, at: int) -> NodeState | None:
        """A node that an upsert names and that is not there: its id has to fit its key."""
        parsed = self._graph.names.parse_node(read.reference or "")
        identifier = normal_id(read.reference or "") if parsed is None else parsed[1]
        path = f"operations[{at}].{read.named}"
        problem = id_problem(identifier)
        if parsed is not None and parsed[0] != read.type:
            problem = f"it is the IRI of a {parsed[0]}"
        if problem is not None:
            message = f"{path}: {read.reference!r} can't name a new {read.type}: {problem}"
            self._error(path, "datatype", message, read.reference)
            return None
        return self._put(write, self._new(read, identifier), at)

    def _put(self, write: Write, change: Put, at: int) -> NodeState | None:
        path = f"operations[{at}]."
        wanted = check_put(self._schema, write.seen.validator, change, path)
        if wanted.id is not None and change.id not in {None, wanted.id}:
            message = (
                f"{path}id is {change.id!r}, but this node's key or ends make it {wanted.id!r}; "
                "leave the id out"
            )
            wanted.errors.append(
                FieldError(f"{path}id", "immutable_key", message, change.id, wanted.id)
            )
        before = None if wanted.handle is None else write.find(wanted.handle)
        state = settle_put(self._schema, change, wanted, before)
        self._errors.extend(wanted.errors)
        if state is not None:
            # Also what is refused goes in, with its valid values: later operations may
            # refer to it, and shall not be told that it is missing. All is rolled back.
            write.apply_states({state.handle: state}, [], validate=False, alone=False)
            self._touch(state, at)
        return state

    def _delete(self, write: Write, found: NodeState, at: int, *, cascade: bool) -> NodeState:
        write.remove(found.handle, cascade=cascade)
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


class _Read(msgspec.Struct, frozen=True):
    """A typed operation whose form is right."""

    op: Op
    type: str
    data: Mapping[str, object]
    id: str | None
    """For create: the id that the caller chose."""
    reference: str | None
    """For the others: the id or IRI of the node."""
    named: str
    """Which of the two it was."""
    cascade: bool


def _read(
    types: Mapping[str, object], operation: object, path: str, errors: list[FieldError]
) -> _Read | None:
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
            hint = suggest(str(key), _KEYS[op])
            _wrong(errors, f"{path}.{key}", "unknown_field", f"is no key of {op}; {hint}", key)
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
    return _Read(op, str(type_name), data, made, reference, named, cascade)


def _reference(
    operation: Mapping[str, object], op: Op, path: str, errors: list[FieldError]
) -> tuple[str | None, str]:
    """The id or IRI of the node, and which of the two it is."""
    named = "iri" if "iri" in operation else "id"
    given = operation.get(named)
    where = f"{path}.{named}"
    if given is None:
        if op in {"update", "delete"}:
            _wrong(errors, f"{path}.id", "required", "or 'iri' is missing: which node?", None)
    elif not isinstance(given, str) or not given:
        _wrong(errors, where, "datatype", "is not a text", given)
    elif not _encodable(given):
        _wrong(errors, where, "datatype", "has half a character in it", given)
    elif "id" in operation and "iri" in operation:
        _wrong(errors, where, "max_count", "stands beside 'id'; give one", given)
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


def _choose(given: object, known: Mapping[str, object] | tuple[str, ...]) -> str:
    if given is None:
        return f"is missing; choose from {', '.join(known)}"
    return f"is not one of those there are; {suggest(str(given), tuple(known))}"


def _wrong(errors: list[FieldError], path: str, code: str, problem: str, value: object) -> None:
    errors.append(FieldError(path, code, f"{path} {problem}", showable(value)))
