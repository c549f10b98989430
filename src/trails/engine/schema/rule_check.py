"""Check rules on everything that a branch holds.

A write checks only what it changes; ``broken_rules`` checks everything that a new rule applies to,
when a schema changes or a graph is verified. Nodes are streamed and the node index decides the
rules between them, so memory grows only with the number of violations.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

import msgspec

from trails.engine.graph.changes import (
    BrokenRule,
)
from trails.engine.graph.checkouts import CompiledSchema
from trails.engine.validation.rules import (
    RuleError,
    Rules,
    count_error,
    dangling_error,
    duplicate_error,
    of_node,
)
from trails.engine.write.puts import misnamed
from trails.errors import FieldError
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
    touched: AbstractSet[str] = frozenset(),
) -> Iterator[RuleError]:
    """Every violation among the nodes of a branch, under the types of its index.

    With ``since``, only rules that are missing in one of these schemas are checked, and those
    that concern ``touched`` types.
    """
    schema = compiled.schema
    rules = _rules_since(schema, since, touched)
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
        found.own[each.name] = each.fields, each.abstract, schema.shapes_of(each.name)
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


def _rules_since(
    schema: Schema, since: Sequence[Schema] | None, touched: AbstractSet[str]
) -> _Rules:
    """The rules of a schema; with ``since``, those that one of the earlier schemas lacks."""
    found = _rules(schema)
    if since is None:
        return found
    known = [_rules(each) for each in since]
    left = _Rules(
        _new(found.own, [each.own for each in known]),
        _new(found.references, [each.references for each in known]),
        _new(found.unique, [each.unique for each in known]),
        _new(found.ends, [each.ends for each in known]),
    )
    for name, fields in found.own.items():
        if name in touched:
            left.own[name] = fields
    for reference, targets in found.references.items():
        if not touched.isdisjoint((reference[0], *targets)):
            left.references[reference] = targets
    for slot, group in found.unique.items():
        if slot[0] in touched:
            left.unique[slot] = group
    for end, (types, limits) in found.ends.items():
        if not touched.isdisjoint((end[0], *types)):
            left.ends[end] = types, limits
    return left


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
        for handle in dict.fromkeys(_handles(stored.state.values.get(field.name)))
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
