"""Change the types of a branch: compare the declared schema with the stored one, commit the change.

A change is refused if the stored data does not fit it. Fields that become required are filled
with their default first.
"""

from __future__ import annotations

import sqlite3
from time import monotonic

from trails.engine.graph.checkouts import Checkout, Misfit
from trails.engine.graph.graph import Graph
from trails.engine.graph.schema_changes import (
    ACTOR,
    change_message,
    describe_changes,
    lost_data,
    new_defaults,
    refuse_misfit,
    with_defaults,
)
from trails.engine.schema.rule_check import broken_rules, group_violations
from trails.engine.write.write import Write
from trails.errors import SchemaMismatchError
from trails.model.history import GENESIS
from trails.model.types import Schema

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
