"""``trails.meta.migrate.*`` and ``trails.meta.gen.migration``: versioned changes of types and data.

A new migration is made from steps alone, which are written as literals, so whoever calls these
operations can't bring code into the project. Files with functions are written by people, and their
code runs in the process that owns the project when migrations are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from trails.authoring.migrations import Migration
from trails.engine.graph.graph import Graph
from trails.engine.graph.migrations import applied_migrations
from trails.engine.migrations.segments import (
    Sponsor,
    forward_segments,
    reverse_segments,
    schema_steps,
)
from trails.engine.migrations.state import compare_migrations
from trails.engine.schema.diff import diff_schemas, likely_renames
from trails.engine.schema.resolve import resolve
from trails.engine.session.context import GraphContext
from trails.errors import FieldError, ValidationError
from trails.imports import later
from trails.model.changes.file_diffs import FileDiff, make_diff
from trails.model.changes.steps import Step
from trails.model.operations.migrations import (
    MigratedTo,
    MigrationOutcome,
    MigrationPlan,
    MigrationStatus,
    PlannedMigration,
)
from trails.model.results import QueryAnswer
from trails.projections.python.migrations import project_migration
from trails.projections.tools import BRANCH, MAX_CHARS
from trails.registry.migrations import MigrationFile, make_migration, next_name
from trails.request.builtins.declare import (
    READER,
    WRITER,
    ToolContext,
    field,
    meta_operation,
)
from trails.request.meta.schema import read_steps
from trails.request.workspace import Workspace, need_workspace

if TYPE_CHECKING:
    from trails.engine.migrations import plan, runner
    from trails.engine.migrations.runner import MigrationRun, Migrator
else:
    plan = later("trails.engine.migrations.plan")
    runner = later("trails.engine.migrations.runner")

_STEP: Final = '{"step": "rename_field", "type": "Task", "field": "state", "to": "status"}'


class _Proposal:
    """A migration that a call makes, after those that have files."""

    hints: tuple[str, ...] = ()
    """What the difference of declarations could mean, too."""

    def __init__(
        self,
        tool: ToolContext,
        ctx: GraphContext,
        files: Sequence[MigrationFile],
        name: str | None,
        steps: Sequence[Mapping[str, object]],
        description: str | None,
    ) -> None:
        workspace = need_workspace(tool.options.workspace)
        if name is None:
            message = "name: give words that say what the migration does, like 'rename_state'"
            raise ValidationError([FieldError("name", "required", message)])
        full = next_name(files, name)
        after = files[-1].name if files else None
        made = list(read_steps(steps)) or self._find_steps(
            tool.service.graph, ctx, workspace, files
        )
        text = project_migration(full, after, made, description or "")
        self._path = f"{workspace.layout.migrations}/{full}.py"
        self._text = text
        self.diff = make_diff({self._path: (workspace.read(self._path), text)})
        migration = Migration(after=after, forward=made)
        self.file = make_migration(full, migration, text, (description or "").strip())

    def _find_steps(
        self,
        graph: Graph,
        ctx: GraphContext,
        workspace: Workspace,
        files: Sequence[MigrationFile],
    ) -> list[Step]:
        """The steps from the types that all migrations leave to those that are declared."""
        applied = applied_migrations(graph, ctx.checkout.head.commit)
        schema = ctx.checkout.schema
        for file in files:
            if file.name not in applied:
                schema = resolve(schema, schema_steps(file))[-1]
        declared = workspace.declared().schema
        found = list(diff_schemas(schema, declared))
        if not found:
            message = (
                "steps: the declared types are those that the graph has with all migrations; "
                f"change the declarations first, or give steps, like {_STEP}"
            )
            raise ValidationError([FieldError("steps", "required", message)])
        self.hints = tuple(
            f"{msgspec.json.encode(each).decode()} could be meant: as a step, it keeps the values"
            for each in likely_renames(schema, declared)
        )
        return found

    def withdraw(self) -> FileDiff:
        """What removes the file again."""
        return make_diff({self._path: (self._text, None)})


def _migrator(
    tool: ToolContext, ctx: GraphContext, files: Sequence[MigrationFile], sponsor: Sponsor
) -> Migrator:
    return runner.Migrator(tool.service.graph, ctx.checkout.name, files, sponsor)


def _sponsor(tool: ToolContext, ctx: GraphContext, *, allow_data_loss: bool = False) -> Sponsor:
    def ask(text: str) -> QueryAnswer:
        return tool.service.untrusted.run(ctx.checkout, text, caller=ctx.actor)

    return Sponsor(ctx.actor, ctx.call, ask, allow_data_loss)


def _status(tool: ToolContext, ctx: GraphContext) -> MigrationStatus:
    files = need_workspace(tool.options.workspace).migrations()
    applied = _migrator(tool, ctx, files, _sponsor(tool, ctx)).applied()
    states = compare_migrations(files, applied)
    return MigrationStatus(
        ctx.checkout.name,
        ctx.checkout.head.commit,
        states,
        sum(each.state == "pending" for each in states),
        runner.interrupted_migrations(tool.service.graph, ctx.checkout.name),
    )


def _forward(migrator: Migrator, to: str | None) -> list[MigrationRun]:
    return [
        runner.MigrationRun(each, "forward", forward_segments(each))
        for each in migrator.find_pending(to)
    ]


def _backward(tool: ToolContext, migrator: Migrator, to: str | None) -> list[MigrationRun]:
    """The runs that roll back; refuses before anything happens if one of them can't be undone."""
    graph = tool.service.graph
    return [
        runner.MigrationRun(file, "reverse", reverse_segments(graph, file, applied))
        for file, applied in migrator.find_applied(to)
    ]


def _plan(
    tool: ToolContext,
    ctx: GraphContext,
    *,
    to: str | None,
    rollback: bool,
    name: str | None,
    steps: Sequence[Mapping[str, object]],
    description: str | None,
) -> MigrationPlan:
    workspace = need_workspace(tool.options.workspace)
    files: Sequence[MigrationFile] = workspace.migrations()
    proposal = None
    if steps or name is not None:
        proposal = _Proposal(tool, ctx, files, name, steps, description)
        files = (*files, proposal.file)
    sponsor = _sponsor(tool, ctx)
    migrator = _migrator(tool, ctx, files, sponsor)
    runs = _backward(tool, migrator, to) if rollback else _forward(migrator, to)
    planned = plan.plan_runs(tool.service.graph, ctx.checkout, runs, sponsor, functions=False)
    return MigrationPlan(
        ctx.checkout.name,
        ctx.checkout.head.commit,
        planned,
        any(step.lost for each in planned for step in each.steps),
        None if proposal is None else proposal.diff,
        () if proposal is None else proposal.hints,
    )


def _apply(
    tool: ToolContext,
    ctx: GraphContext,
    *,
    to: str | None,
    name: str | None,
    steps: Sequence[Mapping[str, object]],
    description: str | None,
    dry_run: bool,
    allow_data_loss: bool,
) -> MigrationOutcome:
    workspace = need_workspace(tool.options.workspace)
    files: Sequence[MigrationFile] = workspace.migrations()
    proposal = None
    if steps or name is not None:
        proposal = _Proposal(tool, ctx, files, name, steps, description)
        files = (*files, proposal.file)
    sponsor = _sponsor(tool, ctx, allow_data_loss=allow_data_loss)
    migrator = _migrator(tool, ctx, files, sponsor)
    with migrator.exclusively():
        runs = _forward(migrator, to)
        if dry_run:
            return _planned(tool, ctx, migrator, runs, sponsor)
        if proposal is None:
            return _perform(tool, ctx, migrator, runs, sponsor)
        workspace.apply(proposal.diff)
        try:
            return _perform(tool, ctx, migrator, runs, sponsor)
        except Exception:
            if proposal.file.name not in migrator.applied():
                workspace.apply(proposal.withdraw())
            raise


def _rollback(
    tool: ToolContext, ctx: GraphContext, *, to: str | None, dry_run: bool, allow_data_loss: bool
) -> MigrationOutcome:
    files = need_workspace(tool.options.workspace).migrations()
    sponsor = _sponsor(tool, ctx, allow_data_loss=allow_data_loss)
    migrator = _migrator(tool, ctx, files, sponsor)
    with migrator.exclusively():
        runs = _backward(tool, migrator, to)
        if dry_run:
            return _planned(tool, ctx, migrator, runs, sponsor)
        return _perform(tool, ctx, migrator, runs, sponsor)


def _planned(
    tool: ToolContext,
    ctx: GraphContext,
    migrator: Migrator,
    runs: Sequence[MigrationRun],
    sponsor: Sponsor,
) -> MigrationOutcome:
    planned = plan.plan_runs(tool.service.graph, ctx.checkout, runs, sponsor, functions=True)
    plan.refuse_plan(planned, allow_data_loss=sponsor.allow_data_loss)
    return _outcome(ctx, migrator, (), planned, dry_run=True)


def _perform(
    tool: ToolContext,
    ctx: GraphContext,
    migrator: Migrator,
    runs: Sequence[MigrationRun],
    sponsor: Sponsor,
) -> MigrationOutcome:
    """Do all runs; what forbids one of them is found before the first, as far as it can be."""
    if len(runs) > 1 or any(len(each.segments) > 1 for each in runs):
        planned = plan.plan_runs(tool.service.graph, ctx.checkout, runs, sponsor, functions=False)
        plan.refuse_plan(planned, allow_data_loss=sponsor.allow_data_loss)
    if ctx.call is not None:
        ctx.call.change()
    done = []
    left = len(migrator.find_pending(None)) if runs and runs[0].direction == "forward" else 0
    for at, run in enumerate(runs, 1):
        more = at < max(len(runs), left)
        commit = migrator.perform(run, more=more)
        done.append(MigratedTo(run.file.name, run.direction, commit.id))
    return _outcome(ctx, migrator, tuple(done), ())


def _outcome(
    ctx: GraphContext,
    migrator: Migrator,
    done: tuple[MigratedTo, ...],
    planned: tuple[PlannedMigration, ...],
    *,
    dry_run: bool = False,
) -> MigrationOutcome:
    return MigrationOutcome(
        ctx.checkout.name,
        ctx.checkout.head.commit,
        done,
        len(migrator.find_pending(None)),
        dry_run,
        planned,
    )


def _generate(
    tool: ToolContext,
    ctx: GraphContext,
    name: str,
    steps: Sequence[Mapping[str, object]],
    description: str | None,
) -> FileDiff:
    workspace = need_workspace(tool.options.workspace)
    return _Proposal(tool, ctx, workspace.migrations(), name, steps, description).diff


_TO = "Up to this migration, by name or number."
_NAME = field("name", "What it does, in words: rename_state.", max_length=80)
_STEPS = field("steps", f"Like {_STEP}", "Map", many=True, max_count=1_000)
_DESCRIPTION = field("description", "For its readers.", max_length=2_000)
_DRY_RUN = field("dry_run", "Check and count, write nothing.", "Bool", default=False)
_LOSS = field("allow_data_loss", "Permit steps that remove values.", "Bool", default=False)

STATUS: Final = meta_operation(
    "trails.meta.migrate.status",
    "builder",
    title="List migrations",
    description=(
        "List the migrations of a branch: applied (with commit, time and actor), pending, changed "
        "(edited after they were applied) and unknown (applied, but the file is missing)."
    ),
    controls=(BRANCH, MAX_CHARS),
    result=MigrationStatus,
    hints=READER,
    action="Read",
    whole=True,
    run=_status,
    command="migrate status",
)

PLAN: Final = meta_operation(
    "trails.meta.migrate.plan",
    "builder",
    title="Plan migrations",
    description=(
        "What applying the pending migrations of a branch would do, or rolling back: each step "
        "with its effect, how many nodes it changes, what it loses, and the nodes that forbid it. "
        "With name and steps it plans a new migration and returns the diff of its file; with name "
        "alone, the steps lead to the declared types. Writes nothing."
    ),
    fields=(
        field("to", _TO, max_length=100),
        field("rollback", "Plan to roll back instead.", "Bool", default=False),
        _NAME,
        _STEPS,
        _DESCRIPTION,
    ),
    controls=(BRANCH, MAX_CHARS),
    result=MigrationPlan,
    hints=READER,
    action="Read",
    whole=True,
    run=_plan,
    command="migrate plan",
)

APPLY: Final = meta_operation(
    "trails.meta.migrate.apply",
    "builder",
    title="Apply migrations",
    description=(
        "Apply the pending migrations of a branch in order, each whole or not at all. With name "
        "and steps, add a migration of these steps first. Try it on a branch, inspect the result, "
        "then merge the branch: main gets the migrations with it."
    ),
    fields=(field("to", _TO, max_length=100), _NAME, _STEPS, _DESCRIPTION, _DRY_RUN, _LOSS),
    controls=(BRANCH, MAX_CHARS),
    result=MigrationOutcome,
    hints=WRITER,
    action="SchemaApply",
    whole=True,
    run=_apply,
    command="migrate apply",
)

ROLLBACK: Final = meta_operation(
    "trails.meta.migrate.rollback",
    "builder",
    title="Roll migrations back",
    description=(
        "Undo the last migration of a branch, or all after one: types and values as before, in "
        "new commits; history stays. Refused, before anything happens, if one can't be undone."
    ),
    fields=(
        field("to", "Keep this one and those before it; 0 keeps none.", max_length=100),
        _DRY_RUN,
        _LOSS,
    ),
    controls=(BRANCH, MAX_CHARS),
    result=MigrationOutcome,
    hints=WRITER,
    action="SchemaApply",
    whole=True,
    run=_rollback,
    command="migrate rollback",
)

GENERATE: Final = meta_operation(
    "trails.meta.gen.migration",
    "builder",
    title="Write a migration",
    description=(
        "The diff of a file with a migration of these steps, numbered after the last one; without "
        "steps, of those that lead to the declared types. Nothing is written; "
        "trails_meta_migrate_apply with the same name and steps writes and applies it."
    ),
    fields=(
        field("name", "What it does, in words: rename_state.", required=True, max_length=80),
        _STEPS,
        _DESCRIPTION,
    ),
    result=FileDiff,
    hints=READER,
    action="Read",
    whole=True,
    run=_generate,
)

META: Final = (STATUS, PLAN, APPLY, ROLLBACK, GENERATE)
