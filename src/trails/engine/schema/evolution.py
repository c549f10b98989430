"""Bring the types of a branch to what is declared: compare, and commit the difference.

``main`` follows the declarations when a project is opened. A branch follows ``main`` before a
write with declared types, unless it has changed its own types since the two parted: then it keeps
them until it is merged. What ``main`` renamed meanwhile is renamed on the branch as well.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from time import monotonic

from trails.engine.graph.changes import (
    ACTOR,
    change_message,
    describe_changes,
    lost_data,
    misfit,
    new_defaults,
    refuse_misfit,
    with_defaults,
)
from trails.engine.graph.checkouts import Checkout, Misfit
from trails.engine.graph.graph import MAIN, Graph
from trails.engine.graph.migrations import initial_mark, pending_names
from trails.engine.schema.diff import diff_schemas, likely_renames
from trails.engine.schema.plan import ChangeRequest, apply_change
from trails.engine.schema.rule_check import broken_rules, group_violations
from trails.engine.write.write import Write
from trails.errors import SchemaMismatchError, ValidationError
from trails.model.changes.steps import RenameField, RenameType
from trails.model.history import GENESIS, MigrationMark, Rename
from trails.model.types import Schema

_PATIENCE = 10
"""After a misfit, wait this many times the duration of the attempt before the next one."""


def adopt_schema(graph: Graph, schema: Schema, *, apply: bool) -> None:
    """Make ``schema`` the schema of main; a difference is committed, or refused.

    Any schema fits a graph without data. A new graph takes its first schema even if ``apply`` is
    false, because it has no data to protect.
    """
    checkout = graph.main
    old = graph.committed_schema(checkout.name)
    if old.digest == schema.digest:
        return
    if graph.read_only is not None:
        raise type(graph.read_only.error())(
            "the declared types differ from the stored ones, and the change can't be applied: "
            + graph.read_only.reason,
            changes=describe_changes(old, schema),
        )
    pending = pending_names(graph, checkout.head.commit)
    if checkout.head.commit == GENESIS:
        apply_schema(graph, checkout, schema, initial_mark(pending))
        return
    if graph.log.shared:
        changes = describe_changes(old, schema)
        raise SchemaMismatchError(
            f"the declared types differ from the stored ones: {'; '.join(changes)}. Other servers "
            "use this graph with the stored types, so the change is not applied by opening the "
            "project: run 'trails schema apply' or 'trails migrate apply', or stop the others "
            "first",
            changes=changes,
        )
    if pending:
        changes = describe_changes(old, schema)
        raise SchemaMismatchError(
            f"the declared types differ from the stored ones: {'; '.join(changes)}. Run 'trails "
            f"migrate apply' first, because there are pending migrations: {', '.join(pending)}",
            changes=changes,
            pending=list(pending),
        )
    if not apply:
        changes = describe_changes(old, schema)
        raise SchemaMismatchError(
            "the declared types differ from the stored ones, and env is 'production': "
            + "; ".join(changes)
            + ". Write a migration ('trails migrate plan') and run 'trails migrate apply'; or open "
            "once with apply_schema=True, or run 'trails reload --apply-schema', to apply the "
            "change if it fits the data",
            changes=changes,
        )
    try:
        apply_schema(graph, checkout, schema)
    except SchemaMismatchError as error:
        renames = likely_renames(old, schema)
        if not renames:
            raise
        message = f"{error.message}. {_name_renames(renames)}"
        raise SchemaMismatchError(message, **error.data) from error


def _name_renames(renames: Sequence[RenameType | RenameField]) -> str:
    """What to run if something was renamed, which can't be known from declarations."""
    spelled = [
        f"'trails schema plan rename-field {each.type}.{each.field} {each.to}'"
        if isinstance(each, RenameField)
        else f"'trails schema plan rename-type {each.type} {each.to}'"
        for each in renames
    ]
    return f"If this is a rename, {' and '.join(spelled)} shows what it does"


def adopt_on_branch(graph: Graph, checkout: Checkout, schema: Schema) -> None:
    """Before a write with declared types: give a branch the types of ``main``.

    A branch from before a change of types would otherwise refuse what the declarations allow.
    Types that were changed on the branch itself wait for its merge. If the data of the branch does
    not fit, this raises SchemaMismatchError, and the branch keeps its types.
    """
    if checkout is graph.main or checkout.fixed or checkout.schema.digest == schema.digest:
        return
    if schema.digest == graph.main.schema.digest and not has_own_types(graph, checkout):
        known = checkout.misfit
        if known is not None and known.schema == schema.digest and monotonic() < known.until:
            raise SchemaMismatchError(known.reason)
        started = monotonic()
        try:
            _follow_main(graph, checkout, schema)
        except SchemaMismatchError as error:
            # Checking all the data again with every write would take most of the time.
            until = monotonic() + _PATIENCE * (monotonic() - started)
            checkout.misfit = Misfit(schema.digest, error.message, until)
            raise
        checkout.misfit = None


def _follow_main(graph: Graph, checkout: Checkout, schema: Schema) -> None:
    """Give a branch the types of ``main``; what ``main`` renamed is renamed on the branch too."""
    renames = _renames_since(graph, checkout)
    if not renames:
        apply_schema(graph, checkout, schema)
        return
    old = checkout.schema
    asked = ChangeRequest(
        steps=diff_schemas(old, schema, renames), actor=ACTOR, message=change_message(old, schema)
    )
    try:
        apply_change(graph, checkout, asked)
    except ValidationError as error:
        raise misfit(
            [each.message for each in error.fields], len(error.fields) + error.more
        ) from error


def _renames_since(graph: Graph, checkout: Checkout) -> list[RenameType | RenameField]:
    """What ``main`` renamed since it had the types that a branch has."""
    main, wanted = graph.log_head(MAIN).commit, checkout.schema.digest
    path = graph.ancestry.path(graph.log_head(checkout.name).commit, main)
    since = 0
    for at, each in enumerate(path.redo):
        if each.schema == wanted:
            since = at + 1
    return [step_of(rename) for each in path.redo[since:] for rename in each.renames]


def step_of(rename: Rename) -> RenameType | RenameField:
    """A recorded rename as a step."""
    if rename.field:
        return RenameField(rename.type, rename.field, rename.to)
    return RenameType(rename.type, rename.to)


def has_own_types(graph: Graph, checkout: Checkout) -> bool:
    """Whether a branch has types that ``main`` did not have since the branch began."""
    pair = checkout.schema.digest, graph.main.schema.digest
    known = checkout.own_types
    if known is None or known[0] != pair:
        head = graph.log_head(checkout.name).commit
        path = graph.ancestry.path(head, graph.log_head(MAIN).commit)
        start = path.undo[-1].first_parent if path.undo else head
        had = {graph.ancestry.schema_at(start), *(each.schema for each in path.redo)}
        known = checkout.own_types = pair, pair[0] not in had
    return known[1]


def apply_schema(
    graph: Graph, checkout: Checkout, schema: Schema, mark: MigrationMark | None = None
) -> None:
    """Give a branch the declared types in a separate commit, if its data fits them."""
    write = Write(graph, checkout, actor=ACTOR, message=change_message(checkout.schema, schema))
    write.declared = True
    write.begin()
    if checkout.schema.digest == schema.digest:  # another server was faster
        write.abandon()
        return
    if mark is not None:
        write.mark(mark)
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
