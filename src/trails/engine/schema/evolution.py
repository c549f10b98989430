"""Change the types of a branch: compare the declared schema with the stored one, commit the change.

A change is refused if the stored data does not fit it. Fields that become required are filled with
their default first. A write checks only what it changes; ``broken_rules`` checks everything that a
new rule applies to, when a schema changes or a graph is verified. Nodes are streamed and the node
index decides the rules between them, so memory grows only with the number of violations.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TypeVar

import msgspec

from trails.engine.graph.changes import (
    ACTOR,
    BrokenRule,
    change_message,
    describe_changes,
    lost_data,
    new_defaults,
    refuse_misfit,
    with_defaults,
)
from trails.engine.graph.checkouts import Checkout, CompiledSchema, Misfit
from trails.engine.graph.graph import Graph
from trails.engine.validation.rules import (
    RuleError,
    Rules,
    count_error,
    dangling_error,
    duplicate_error,
    of_node,
)
from trails.engine.write.puts import misnamed
from trails.engine.write.write import Write
from trails.errors import FieldError, SchemaMismatchError
from trails.model.history import GENESIS
from trails.model.types import PredicateDescriptor, Schema
from trails.views.nodes.index import NodeIndex, Stored
from trails.views.nodes.rows import MISSING, all_slots, handle_key, slot_name

_Limits = tuple[int, int | None]
K = TypeVar("K")
V = TypeVar("V")


def broken_rules(
    nodes: NodeIndex,
    db: sqlite3.Connection,
    compiled: CompiledSchema,
    since: Sequence[Schema] | None = None,
) -> Iterator[RuleError]:
    """Every violation among the nodes of a branch, under the types of its index.

    With ``since``, only rules that are missing in one of these schemas are checked.
    """
    schema = compiled.schema
    rules = _rules_since(schema, since)
    for each in schema.types:
        name, own = each.name, each.name in rules.own
        references = [field for field in each.fields if (name, field.name) in rules.references]
        after = 0
        while (own or references) and (page := nodes.page(db, name, after)):
            after = page[-1].nid
            if own:
                yield from _own(compiled, page)
            yield from _dangling(nodes, db, schema, references, page)
    for slot, fields in {slot: fields for (_, slot), fields in rules.unique.items()}.items():
        for key in nodes.crowded_keys(db, slot, 1):
            error = duplicate_error(nodes, db, slot, key, fields)
            if error is not None:
                yield error
    for (edge, side), (types, limits) in rules.ends.items():
        for error in _too_many(nodes, db, edge, side, limits):
            # What is no end of such edges is reported once, as a wrong reference.
            if error.nodes[0].partition("/")[0] in types:
                yield error
        if limits[0]:
            for name in types:
                yield from _too_few(nodes, db, edge, side, name, limits)


def broken_around(
    nodes: NodeIndex, db: sqlite3.Connection, compiled: CompiledSchema, handles: Sequence[str]
) -> Iterator[RuleError]:
    """Every violation that involves some nodes: of their own rules, and of those between nodes."""
    schema, book = compiled.schema, compiled.rules
    ends: set[tuple[str, str, str]] = set()
    for stored in nodes.find_all(db, handles).values():
        state = stored.state
        yield from _own(compiled, [stored])
        yield from _dangling(nodes, db, schema, book.references[state.type], [stored])
        for slot in nodes.unique_slots(state.type):
            for key in slot.extract(state.values):
                error = duplicate_error(nodes, db, slot.name, key, slot.unique)
                if key != MISSING and error is not None:
                    yield error
        ends.update((edge, side, state.handle) for edge, side, _, _ in book.ends[state.type])
        if schema.by_name[state.type].edge is not None:
            ends.update(
                (name, side, str(state.values[side]))
                for name in schema.lineage(state.type)
                for side in ("source", "target")
            )
    for edge, side, handle in sorted(ends):
        yield from _miscounted(nodes, db, compiled, edge, side, handle)


def _miscounted(
    nodes: NodeIndex,
    db: sqlite3.Connection,
    compiled: CompiledSchema,
    edge: str,
    side: str,
    handle: str,
) -> Iterator[RuleError]:
    for name, end, low, high in compiled.rules.ends.get(handle.partition("/")[0], ()):
        if (name, end) == (edge, side) and nodes.exists(db, handle):
            count = nodes.count_key(db, slot_name(edge, (side,)), handle_key(handle))
            error = count_error(edge, side, handle, (low, high), count)
            if error is not None:
                yield error


def broken_since(
    earlier: NodeIndex,
    nodes: NodeIndex,
    db: sqlite3.Connection,
    compiled: CompiledSchema,
    handles: Sequence[str],
) -> Iterator[RuleError]:
    """Violations of a state that an earlier state with the same types does not have.

    ``handles`` contains every node in which the two states differ.
    """
    rules = Rules(compiled.rules, nodes, db)
    before, after = earlier.find_all(db, handles), nodes.find_all(db, handles)
    for handle in handles:
        was, now = before.get(handle), after.get(handle)
        state = None if now is None else now.state
        rules.watch(None if was is None else was.state, state)
        if was is not None and state is None:
            for holder, field in rules.inbound(was.state):
                yield dangling_error(holder, field, handle, there=False)
    yield from _own(compiled, after.values())
    yield from (error for error in rules.violations() if error.code != "in_use")


def group_violations(violations: Iterable[RuleError]) -> list[BrokenRule]:
    """Group violations by rule, in the order of the first one."""
    found: dict[tuple[str, str, str, str], BrokenRule] = {}
    for each in violations:
        name = each.nodes[0].partition("/")[0]
        field = each.field.rpartition(".")[2].partition("[")[0]
        rule = found.setdefault(
            (name, field, each.code, repr(each.constraint)), BrokenRule(name, field, each.code)
        )
        rule.note(each.message)
    return list(found.values())


# --- which rules ------------------------------------------------------------------------


class _Rules(msgspec.Struct):
    """The rules of a schema by category, each with its definition."""

    own: dict[str, object] = msgspec.field(default_factory=dict)
    """Type → the rules for its own values."""
    references: dict[tuple[str, str], tuple[str, ...]] = msgspec.field(default_factory=dict)
    """(type, reference field) → the allowed target types."""
    unique: dict[tuple[str, str], tuple[str, ...]] = msgspec.field(default_factory=dict)
    """(type, slot) → the fields that are unique together."""
    ends: dict[tuple[str, str], tuple[tuple[str, ...], _Limits]] = msgspec.field(
        default_factory=dict
    )
    """(edge type, side) → the types at that end, and the limits of edges per node."""


def _rules(schema: Schema) -> _Rules:
    found = _Rules()
    for each in schema.types:
        found.own[each.name] = each.fields, schema.shapes_of(each.name)
        for field in each.fields:
            if field.target is not None:
                found.references[each.name, field.name] = schema.family(field.target)
        for slot in all_slots(schema)[each.name]:
            if slot.unique:
                found.unique[each.name, slot.name] = slot.unique
        if (edge := each.edge) is not None:
            for side, end, limits in (
                ("source", edge.source, edge.per_source),
                ("target", edge.target, edge.per_target),
            ):
                if limits != (0, None):
                    found.ends[each.name, side] = schema.family(end), limits
    return found


def _rules_since(schema: Schema, since: Sequence[Schema] | None) -> _Rules:
    """The rules of a schema; with ``since``, those that one of the earlier schemas lacks."""
    found = _rules(schema)
    if since is None:
        return found
    known = [_rules(each) for each in since]
    return _Rules(
        _new(found.own, [each.own for each in known]),
        _new(found.references, [each.references for each in known]),
        _new(found.unique, [each.unique for each in known]),
        _new(found.ends, [each.ends for each in known]),
    )


def _new(rules: dict[K, V], known: Iterable[Mapping[K, V]]) -> dict[K, V]:
    return {
        rule: meaning
        for rule, meaning in rules.items()
        if any(rule not in each or each[rule] != meaning for each in known)
    }


# --- checks by category ----------------------------------------------------------------


def _own(compiled: CompiledSchema, page: Iterable[Stored]) -> Iterator[RuleError]:
    for stored in page:
        state = stored.state
        errors: list[FieldError] = list(misnamed(compiled.schema, state))
        compiled.validator.check(state.type, state.values, f"{state.handle}.", errors)
        for error in errors:
            yield of_node(state.handle, error)


def _dangling(
    nodes: NodeIndex,
    db: sqlite3.Connection,
    schema: Schema,
    references: Sequence[PredicateDescriptor],
    page: Iterable[Stored],
) -> Iterator[RuleError]:
    found = [
        (stored.state.handle, field, str(handle))
        for stored in page
        for field in references
        for handle in _handles(stored.state.values.get(field.name))
    ]
    there = nodes.existing(db, list(dict.fromkeys(handle for _, _, handle in found)))
    for holder, field, handle in found:
        fits = schema.is_a(handle.partition("/")[0], field.target or "")
        if handle not in there or not fits:
            yield dangling_error(holder, field, handle, there=handle in there)


def _handles(value: object) -> tuple[object, ...]:
    return () if value is None else value if isinstance(value, tuple) else (value,)


def _too_many(
    nodes: NodeIndex, db: sqlite3.Connection, edge: str, side: str, limits: _Limits
) -> Iterator[RuleError]:
    if limits[1] is None:
        return
    slot = slot_name(edge, (side,))
    for key in nodes.crowded_keys(db, slot, limits[1]):
        stored = nodes.find(db, nodes.holders(db, slot, key, 1)[0])
        if stored is not None:
            handle = str(stored.state.values[side])
            error = count_error(edge, side, handle, limits, nodes.count_key(db, slot, key))
            if error is not None:
                yield error


def _too_few(
    nodes: NodeIndex, db: sqlite3.Connection, edge: str, side: str, name: str, limits: _Limits
) -> Iterator[RuleError]:
    slot, after = slot_name(edge, (side,)), 0
    while page := nodes.page(db, name, after):
        after = page[-1].nid
        keys = {handle_key(each.state.handle): each.state.handle for each in page}
        counts = nodes.count_keys(db, slot, list(keys))
        for key, handle in keys.items():
            if counts[key] < limits[0]:
                error = count_error(edge, side, handle, limits, counts[key])
                if error is not None:
                    yield error


_PATIENCE = 10
"""After a misfit, wait this many times the duration of the attempt before the next one."""


def adopt_schema(graph: Graph, schema: Schema, *, apply: bool) -> None:
    """Make ``schema`` the schema of main; a difference is committed, or refused.

    Any schema fits a graph without data. A new graph takes its first schema even if ``apply`` is
    false, because it has no data to protect.
    """
    checkout = graph.main
    old = checkout.schema
    if old.digest == schema.digest:
        return
    if graph.read_only is not None:
        raise type(graph.read_only.error())(
            "the declared types differ from the stored ones, and the change can't be applied: "
            + graph.read_only.reason,
            changes=describe_changes(old, schema),
        )
    if not apply and checkout.head.commit != GENESIS:
        changes = describe_changes(old, schema)
        raise SchemaMismatchError(
            "the declared types differ from the stored ones, and env is 'production': "
            + "; ".join(changes)
            + ". Open once with apply_schema=True to apply the change if it fits the data",
            changes=changes,
        )
    apply_schema(graph, checkout, schema)


def adopt_on_branch(graph: Graph, checkout: Checkout, schema: Schema) -> None:
    """Before a write with declared types: give a branch the types of ``main``.

    A branch from before a change of types would otherwise refuse what the declarations allow.
    Other differences wait for a merge or a migration. If the data of the branch does not fit,
    this raises SchemaMismatchError, and the branch keeps its types.
    """
    if checkout is graph.main or checkout.fixed or checkout.schema.digest == schema.digest:
        return
    if schema.digest == graph.main.schema.digest:
        known = checkout.misfit
        if known is not None and known.schema == schema.digest and monotonic() < known.until:
            raise SchemaMismatchError(known.reason)
        started = monotonic()
        try:
            apply_schema(graph, checkout, schema)
        except SchemaMismatchError as error:
            # Checking all the data again with every write would take most of the time.
            until = monotonic() + _PATIENCE * (monotonic() - started)
            checkout.misfit = Misfit(schema.digest, error.message, until)
            raise
        checkout.misfit = None


def apply_schema(graph: Graph, checkout: Checkout, schema: Schema) -> None:
    """Change the types of a branch in a separate commit, if its data fits them."""
    write = Write(graph, checkout, actor=ACTOR, message=change_message(checkout.schema, schema))
    write.begin()
    try:
        _change(graph, write, schema)
    except BaseException:
        write.abandon()
        raise
    write.finish()


def _change(graph: Graph, write: Write, schema: Schema) -> None:
    """Change the types inside a write, if the data satisfies every rule.

    Nodes without a value for a required field get its default first.
    """
    checkout = write.checkout
    old = checkout.schema
    with graph.file.writer() as db:
        refuse_misfit(lost_data(checkout, db, schema))
        write.change_schema(schema)
        # A default may break rules that are not new, such as that of a unique field.
        since = None if _fill_defaults(write, db, old) else [old]
        refuse_misfit(group_violations(broken_rules(checkout.nodes, db, checkout.compiled, since)))


def _fill_defaults(write: Write, db: sqlite3.Connection, old: Schema) -> bool:
    """Give nodes the defaults of fields that they lack; whether there were any."""
    checkout, found = write.checkout, False
    for new in checkout.schema.types:
        before = old.by_name.get(new.name)
        if before is None or not new_defaults(before, new):
            continue
        for stored in checkout.nodes.stored(db, (new.name,)):
            filled = with_defaults(checkout.validator, new_defaults(before, new), stored.state)
            if filled is not stored.state:
                write.nodes.store(stored, filled.handle, filled)
                found = True
    return found
