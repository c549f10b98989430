"""The parts of a migration: schema steps that belong together, and functions, each one commit.

A function runs inside of the write of its part, with classes made from the types that the parts
before it left. Whatever it saves takes the normal write path, and what breaks a rule is refused
with the same errors as anywhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from traceback import walk_tb
from typing import Any

import msgspec

from trails.authoring.migrations import DataFunction, Operation, RunPython
from trails.authoring.synthesis import make_classes
from trails.engine.graph.activities import CallRecord
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import Graph
from trails.engine.graph.migrations import AppliedMigration
from trails.engine.schema.diff import reverse
from trails.engine.schema.expressions import Ask
from trails.engine.schema.plan import ChangeRequest, MakeWrite, apply_change
from trails.engine.session.context import GraphContext
from trails.engine.write.write import Write
from trails.errors import (
    FieldError,
    MigrationError,
    NotFoundError,
    TrailsError,
    ValidationError,
)
from trails.model.changes.steps import Step
from trails.model.history import Commit
from trails.model.names import suggest
from trails.model.types import Schema
from trails.registry.migrations import MigrationFile
from trails.registry.registry import Registry

Segment = tuple[Step, ...] | DataFunction
"""Steps that are applied together, or one function."""


def split(operations: Iterable[Operation]) -> list[Segment]:
    """Operations as parts; a migration without any has one, of no steps."""
    found: list[Segment] = []
    for each in operations:
        if isinstance(each, RunPython):
            found.append(each.forward)
        elif found and isinstance(found[-1], tuple):
            found[-1] = (*found[-1], each)
        else:
            found.append((each,))
    return found or [()]


def schema_steps(file: MigrationFile) -> tuple[Step, ...]:
    """The steps of a migration that change types."""
    return tuple(each for each in file.migration.forward if not isinstance(each, RunPython))


def forward_segments(file: MigrationFile) -> list[Segment]:
    """The parts that apply a migration."""
    return split(file.migration.forward)


def reverse_segments(graph: Graph, file: MigrationFile, applied: AppliedMigration) -> list[Segment]:
    """The parts that roll a migration back; MigrationError if it can't be undone.

    Steps are undone with what their commits removed, as far as history has it.
    """
    if not applied.mark.checksum:
        raise MigrationError(
            f"{file.name} can't be rolled back here: this graph was created with types that have "
            "it already; write a new migration that undoes it"
        )
    if file.migration.reverse is not None:
        return split(file.migration.reverse)
    backward = {
        each.forward: each.reverse for each in file.migration.forward if isinstance(each, RunPython)
    }
    lasting = [each for each, undo in backward.items() if undo is None]
    if lasting:
        raise MigrationError(
            f"{file.name} can't be rolled back: {function_name(lasting[0])} has no reverse; give "
            "RunPython a second function, or the migration a reverse"
        )
    found: list[Segment] = []
    for segment, commit in zip(forward_segments(file), _parts(graph, applied), strict=True):
        undo: Segment | None
        if isinstance(segment, tuple):
            former = graph.compiled(graph.ancestry.schema_at(commit.first_parent)).schema
            undo = reverse(segment, former, commit.id)
        else:
            undo = backward[segment]
        if undo is not None:
            found.insert(0, undo)
    return found


def _parts(graph: Graph, applied: AppliedMigration) -> list[Commit]:
    """The commits of an applied migration, in order."""
    found = [applied.commit]
    while len(found) < applied.mark.parts:
        found.insert(0, graph.ancestry.commit(found[0].first_parent))
    return found


class DataContext(GraphContext):
    """A ``MigrationContext``: one branch, with the types that it has at this moment."""

    def node_type(self, name: str) -> type[Any]:
        """The class of a type."""
        found = self.registry.classes.get(name)
        if found is None:
            hint = suggest(name, self.registry.classes) if self.registry.classes else ""
            raise NotFoundError(f"there is no type {name!r} at this point of the migration; {hint}")
        return found


class Sponsor(msgspec.Struct, frozen=True):
    """On whose behalf a migration runs, and what it may do."""

    actor: str
    call: CallRecord | None = None
    ask: Ask | None = None
    """Computes the expressions of steps."""
    allow_data_loss: bool = False


def apply_segment(
    graph: Graph,
    checkout: Checkout,
    segment: Segment,
    sponsor: Sponsor,
    make_write: MakeWrite,
    message: str,
) -> str:
    """Apply one part to a branch; its commit."""
    if isinstance(segment, tuple) and segment:
        asked = ChangeRequest(
            steps=segment,
            actor=sponsor.actor,
            message=message,
            allow_data_loss=sponsor.allow_data_loss,
            ask=sponsor.ask,
            call=sponsor.call,
            make_write=make_write,
        )
        commit = apply_change(graph, checkout, asked).commit
        assert commit is not None  # noqa: S101 - a write with a mark always commits
        return commit
    write = make_write(graph, checkout, actor=sponsor.actor, message=message, call=sponsor.call)
    write.begin()
    try:
        if not isinstance(segment, tuple):
            run_function(graph, write, segment, sponsor)
    except BaseException:
        write.abandon()
        raise
    made = write.finish()
    assert made is not None  # noqa: S101 - the same
    return made.id


def try_function(
    graph: Graph, checkout: Checkout, function: DataFunction, sponsor: Sponsor
) -> tuple[int, list[FieldError]]:
    """Run a function and undo it: how many nodes it changes, and which rules it breaks."""
    write = Write(graph, checkout, actor=sponsor.actor, call=sponsor.call)
    write.begin()
    errors: list[FieldError] = []
    try:
        run_function(graph, write, function, sponsor)
        write.nodes.rules.settle(errors)
        return sum(1 for _ in write.nodes.edits.differences()), errors
    except ValidationError as error:
        return 0, list(error.fields)
    finally:
        write.abandon()


def run_function(graph: Graph, write: Write, function: DataFunction, sponsor: Sponsor) -> None:
    """Run a function inside of a write."""
    ctx = DataContext(
        graph,
        _registry_of(write.checkout.schema),
        actor=sponsor.actor,
        checkout=write.checkout,
        call=sponsor.call,
    )
    with ctx.kg.within(write):
        try:
            function(ctx)
        except TrailsError:
            raise
        except Exception as error:
            raise MigrationError(_explain(function, error)) from error


def _registry_of(schema: Schema) -> Registry:
    types, shapes = make_classes(schema, "trails_migration")
    return Registry(types=types, shapes=shapes)


def _explain(function: DataFunction, error: Exception) -> str:
    """Which line of the function's file failed, with which kind of error; values are not shown."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [
        line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == file
    ]
    where = f" in line {lines[-1]}" if lines else ""
    return (
        f"{function_name(function)} failed{where}: {type(error).__name__}; nothing was written. "
        "Correct it, and apply again"
    )


def function_name(function: DataFunction) -> str:
    """How messages and plans name a function."""
    return f"{getattr(function, '__name__', type(function).__name__)}()"
