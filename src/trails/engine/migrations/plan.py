"""What migrations would do to a branch, in order, before any of them is applied.

The steps of all migrations up to the first function are checked against the data together, as they
will be applied one after the other. What comes after a function depends on what it does, so those
steps are only checked against the types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import Graph
from trails.engine.migrations.runner import MigrationRun
from trails.engine.migrations.segments import Segment, Sponsor, function_name, try_function
from trails.engine.schema.effects import effect_of
from trails.engine.schema.plan import plan_change
from trails.engine.schema.resolve import resolve
from trails.errors import FieldError, ValidationError
from trails.model.changes.steps import ChangePlan, Offense, Step
from trails.model.operations.migrations import PlannedMigration, PlannedStep
from trails.model.types import Schema


def plan_runs(
    graph: Graph,
    checkout: Checkout,
    runs: Sequence[MigrationRun],
    sponsor: Sponsor,
    *,
    functions: bool,
) -> tuple[PlannedMigration, ...]:
    """What each run would do; with ``functions``, a function that comes first is tried out too."""
    outlines = _outline(checkout.schema, runs)
    leading = _leading_steps(runs)
    counted: ChangePlan | None = None
    if leading:
        counted = plan_change(graph, checkout, leading, ask=sponsor.ask, call=sponsor.call)
    planned: list[PlannedMigration] = []
    place = 0
    for run, outline in zip(runs, outlines, strict=True):
        steps = list(outline)
        offenses: list[Offense] = []
        for at, segment in enumerate(_flat(run.segments)):
            if not isinstance(segment, tuple):
                if functions and place == 0 == at and not planned:
                    steps[at], broken = _tried(graph, checkout, segment, sponsor, steps[at])
                    offenses += broken
                place = len(leading) + 1  # nothing after a function is counted
            elif counted is not None and place < len(leading):
                found = counted.steps[place]
                steps[at] = PlannedStep(
                    found.summary, found.effect, found.nodes, found.lost, found.offending
                )
                offenses += [
                    msgspec.structs.replace(each, step=at)
                    for each in counted.offenses
                    if each.step == place
                ]
                place += 1
        planned.append(
            PlannedMigration(
                run.file.name,
                run.direction,
                tuple(steps),
                run.file.description.partition("\n")[0],
                tuple(offenses),
            )
        )
    return tuple(planned)


def _flat(segments: Sequence[Segment]) -> Iterator[Segment]:
    """Each step and each function for itself."""
    for each in segments:
        if isinstance(each, tuple):
            yield from ((step,) for step in each)
        else:
            yield each


def _leading_steps(runs: Sequence[MigrationRun]) -> list[Step]:
    """The steps of all runs up to the first function."""
    found: list[Step] = []
    for run in runs:
        for segment in run.segments:
            if not isinstance(segment, tuple):
                return found
            found += segment
    return found


def _outline(schema: Schema, runs: Sequence[MigrationRun]) -> Iterator[list[PlannedStep]]:
    """What is known of all steps without the data; ValidationError for steps that do not fit."""
    for run in runs:
        steps = [step for segment in run.segments if isinstance(segment, tuple) for step in segment]
        try:
            schemas = [schema, *resolve(schema, steps)]
        except ValidationError as error:
            raise ValidationError(_located(run, each) for each in error.fields) from None
        outline: list[PlannedStep] = []
        done = 0
        for segment in _flat(run.segments):
            if isinstance(segment, tuple):
                effect, summary = effect_of(segment[0], schemas[done], schemas[done + 1])
                outline.append(PlannedStep(summary, effect))
                done += 1
            else:
                outline.append(PlannedStep(f"Run {function_name(segment)}.", "needs_data"))
        schema = schemas[-1]
        yield outline


def _located(run: MigrationRun, error: FieldError) -> FieldError:
    return msgspec.structs.replace(
        error, field=f"{run.file.name}.{error.field}", message=f"{run.file.name}: {error.message}"
    )


def _tried(
    graph: Graph, checkout: Checkout, function: Segment, sponsor: Sponsor, step: PlannedStep
) -> tuple[PlannedStep, list[Offense]]:
    assert not isinstance(function, tuple)  # noqa: S101 - the caller has checked
    nodes, errors = try_function(graph, checkout, function, sponsor)
    offenses = []
    for each in errors:
        node, _, field = each.field.rpartition(".")
        offenses.append(Offense(0, node, field, each.code, each.message, each.value))
    return msgspec.structs.replace(step, nodes=nodes, offending=len(errors)), offenses


def refuse_plan(planned: Sequence[PlannedMigration], *, allow_data_loss: bool) -> None:
    """Raise what forbids a plan: violations, or a loss of data that is not allowed."""
    errors = [
        FieldError(
            f"{each.node}.{each.field}".rstrip("."), each.rule, f"{one.name}: {each.message}"
        )
        for one in planned
        for each in one.offenses
    ]
    if not errors and not allow_data_loss:
        errors = [
            FieldError(
                f"{one.name}.steps[{at}]",
                "data_loss",
                f"{one.name}: {step.summary[:-1]} ({step.lost} would be lost); allow that with "
                "allow_data_loss, or keep them",
                step.lost,
            )
            for one in planned
            for at, step in enumerate(one.steps)
            if step.lost
        ]
    if errors:
        raise ValidationError(errors)
