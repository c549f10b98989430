"""Take over a schema: compare it with the stored one, and commit the difference."""

from __future__ import annotations

import sqlite3
from time import monotonic

from trails.engine.graph.checkouts import Checkout, Misfit
from trails.engine.graph.graph import Graph
from trails.engine.graph.schema_changes import (
    ACTOR,
    describe_changes,
    lost_data,
    new_defaults,
    refuse_misfit,
    told_change,
    with_defaults,
)
from trails.engine.schema.rule_check import broken_rules, group_violations
from trails.engine.write.write import Write
from trails.errors import SchemaMismatchError
from trails.model.history import GENESIS
from trails.model.types import Schema

_PATIENCE = 10
"""How many times longer than it took types are not tried again that did not fit a branch."""


def adopt_schema(graph: Graph, schema: Schema, *, apply: bool) -> None:
    """Use ``schema`` from now on; a difference is applied as a commit, or refused.

    On a graph without data any schema fits. A new graph takes its first schema even
    where ``apply`` is false, because there is nothing to protect yet.
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
    """Before a branch is written with declared types: take over those that ``main`` has.

    A branch that left ``main`` before its types changed would else refuse what the
    declarations allow. Other differences wait for a merge or a migration. Where the data of
    the branch does not fit, this raises SchemaMismatchError, and the branch keeps its types.
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
            # Looking at all the data again with every write would take most of the time.
            until = monotonic() + _PATIENCE * (monotonic() - started)
            checkout.misfit = Misfit(schema.digest, error.message, until)
            raise
        checkout.misfit = None


def apply_schema(graph: Graph, checkout: Checkout, schema: Schema) -> None:
    """Give a branch other types, in a commit of its own, if its data fits them."""
    write = Write(graph, checkout, actor=ACTOR, message=told_change(checkout.schema, schema))
    write.begin()
    try:
        _change(graph, write, schema)
    except BaseException:
        write.abandon()
        raise
    write.finish()


def _change(graph: Graph, write: Write, schema: Schema) -> None:
    """Take over a schema inside a write, if every rule of it holds.

    Nodes without a value for a field that has to have one get the field's default first.
    """
    checkout = write.checkout
    old = checkout.schema
    with graph.file.writer() as db:
        refuse_misfit(lost_data(checkout, db, schema))
        write.change_schema(schema)
        _fill_defaults(write, db, old)
        refuse_misfit(group_violations(broken_rules(checkout.nodes, db, checkout.compiled, [old])))


def _fill_defaults(write: Write, db: sqlite3.Connection, old: Schema) -> None:
    checkout = write.checkout
    for new in checkout.schema.types:
        before = old.by_name.get(new.name)
        if before is None or not new_defaults(before, new):
            continue
        for stored in checkout.nodes.stored(db, (new.name,)):
            filled = with_defaults(checkout.validator, new_defaults(before, new), stored.state)
            if filled is not stored.state:
                write.nodes.store(stored, filled.handle, filled)
