"""``trails migrate``: plan, apply and roll back versioned changes of types and data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec
import typer

from trails.errors import QueryError
from trails.model.operations.migrations import (
    MigrationOutcome,
    MigrationPlan,
    MigrationStatus,
    PlannedMigration,
)
from trails.model.texts import count
from trails.surfaces.cli.operations import Operations, Session
from trails.surfaces.cli.options import (
    BranchOption,
    FolderOption,
    GraphOption,
    JsonOption,
    ServerOption,
    open_session,
)
from trails.surfaces.cli.output.markup import escape
from trails.surfaces.cli.output.reporting import Part
from trails.surfaces.cli.output.tables import TextTable
from trails.surfaces.cli.values import read_json_text, short, when

R = TypeVar("R", MigrationOutcome, MigrationPlan, MigrationStatus)
_COLOURS: Final = {"applied": "green", "pending": "yellow", "changed": "red", "unknown": "red"}
_EFFECTS: Final = {"safe": "green", "needs_data": "yellow", "destructive": "red"}
_SHOWN: Final = 20
"""Violations that are printed of each migration."""

ToOption = Annotated[
    str | None,
    typer.Option("--to", help="Up to this migration, by name or number.", metavar="NAME"),
]
NameOption = Annotated[
    str | None,
    typer.Option("--name", help="A new migration: what it does.", metavar="WORDS"),
]
StepsOption = Annotated[
    Path | None,
    typer.Option(
        "--steps",
        help="Its steps as a JSON list; else those to the declared types.",
        metavar="FILE.json",
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Check and count, but write nothing.")
]
LossOption = Annotated[
    bool, typer.Option("--allow-data-loss", help="Permit steps that remove values.")
]


def add_migrate_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""
    migrate = typer.Typer(no_args_is_help=True)
    cli.add_typer(
        migrate, name="migrate", help="Plan, apply and roll back changes of types and data."
    )

    @migrate.command(epilog="Example: trails migrate status --branch review")
    def status(
        *,
        branch: BranchOption = "main",
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """List the migrations of a branch: applied, pending, changed or unknown."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            found = _call(session, MigrationStatus, "status", {"branch": branch})
            report.value = found
            report.text = list(_status(found))

    @migrate.command(epilog="Example: trails migrate plan --to 0003")
    def plan(
        *,
        to: ToOption = None,
        rollback: Annotated[
            bool, typer.Option("--rollback", help="Plan to roll back instead.")
        ] = False,
        name: NameOption = None,
        steps: StepsOption = None,
        branch: BranchOption = "main",
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Show what applying or rolling back would do; nothing is written."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            given = {"to": to, "rollback": rollback, "branch": branch, **_new(name, steps)}
            found = _call(session, MigrationPlan, "plan", given)
            report.value = found
            report.text = list(_plan(found.branch, found.migrations))
            if found.diff is not None:
                report.text += ["", *(escape(line) for line in found.diff.unified.splitlines())]
            report.text += [f"Hint: {escape(each)}" for each in found.hints]
            if any(each.offenses for each in found.migrations):
                report.code = 1

    @migrate.command(epilog="Example: trails migrate apply --branch review")
    def apply(
        *,
        to: ToOption = None,
        name: NameOption = None,
        steps: StepsOption = None,
        dry_run: DryRunOption = False,
        allow_data_loss: LossOption = False,
        branch: BranchOption = "main",
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Apply the pending migrations in order; each is applied whole, or not at all."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            given = {
                "to": to,
                "dry_run": dry_run,
                "allow_data_loss": allow_data_loss,
                "branch": branch,
                **_new(name, steps),
            }
            done = _call(session, MigrationOutcome, "apply", given)
            report.value = done
            report.text = list(_outcome(done))

    @migrate.command(epilog="Example: trails migrate rollback --to 0002")
    def rollback(
        *,
        to: Annotated[
            str | None,
            typer.Option(
                "--to",
                help="Keep this migration and those before it; 0 keeps none.",
                metavar="NAME",
                show_default="the one before the last",
            ),
        ] = None,
        dry_run: DryRunOption = False,
        allow_data_loss: LossOption = False,
        branch: BranchOption = "main",
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Undo the last migration, or all after one, in new commits; history stays."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            given = {
                "to": to,
                "dry_run": dry_run,
                "allow_data_loss": allow_data_loss,
                "branch": branch,
            }
            done = _call(session, MigrationOutcome, "rollback", given)
            report.value = done
            report.text = list(_outcome(done))


def _call(session: Session, wanted: type[R], operation: str, arguments: Mapping[str, object]) -> R:
    given = {name: value for name, value in arguments.items() if value is not None}
    return msgspec.convert(session.record(f"trails_meta_migrate_{operation}", given), wanted)


def _new(name: str | None, steps: Path | None) -> dict[str, object]:
    """The arguments of a new migration."""
    if steps is None:
        return {"name": name}
    found = read_json_text(steps)
    if not isinstance(found, list):
        raise QueryError(f"{steps} must contain a JSON list of steps")
    return {"name": name, "steps": found}


def _status(found: MigrationStatus) -> Iterator[Part]:
    if not found.migrations:
        yield f"Branch {escape(found.branch)} has no migrations."
        return
    table = TextTable("migration", "state", "commit", "time", "actor", "description")
    for each in found.migrations:
        colour = _COLOURS[each.state]
        table.add_row(
            escape(each.name),
            f"[{colour}]{each.state}[/]",
            short(each.commit),
            when(each.time),
            escape(each.actor),
            escape(each.description),
        )
    yield table
    for name in found.interrupted:
        yield f"{escape(name)} was interrupted; 'trails migrate apply' continues it."


def _plan(branch: str, planned: Sequence[PlannedMigration]) -> Iterator[Part]:
    if not planned:
        yield f"Branch {escape(branch)} has no pending migrations."
    for each in planned:
        back = " [dim](roll back)[/]" if each.direction == "reverse" else ""
        yield f"[bold]{escape(each.name)}[/]{back}  {escape(each.description)}"
        for step in each.steps:
            counted = "" if step.nodes is None else f"; {count(step.nodes, 'node')}"
            lost = f", [red]{count(step.lost, 'value')} lost[/]" if step.lost else ""
            yield (
                f"  [{_EFFECTS[step.effect]}]{step.effect}[/]  "
                f"{escape(step.summary.rstrip('.'))}{counted}{lost}"
            )
        for offense in each.offenses[:_SHOWN]:
            yield f"  [red]refused[/]  {escape(offense.message)}"
        if len(each.offenses) > _SHOWN:
            yield f"  … and {len(each.offenses) - _SHOWN} more"


def _outcome(done: MigrationOutcome) -> Iterator[Part]:
    branch = escape(done.branch)
    if done.dry_run:
        yield from _plan(done.branch, done.plan)
        yield "Nothing was written."
        return
    for each in done.migrations:
        verb = "Applied" if each.direction == "forward" else "Rolled back"
        yield f"{verb} [bold]{escape(each.name)}[/] at commit {short(each.commit)}."
    if not done.migrations:
        yield f"Branch {branch} is up to date."
    if done.pending:
        yield f"{count(done.pending, 'migration')} of branch {branch} left to apply."
