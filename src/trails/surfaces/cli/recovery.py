"""``recover``: put back what a log has lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from trails.model.upkeep import Recovery
from trails.model.wording import count
from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.options import GraphsOption, JsonOption, ProjectOption
from trails.surfaces.cli.reporting import Reporting

_SHOWN = 5


def add_recover_command(cli: typer.Typer, operations: Operations) -> None:
    """Add it to the command line."""

    @cli.command(epilog="Example: trails recover --dry-run")
    def recover(
        *,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Say what would come back, and change nothing.")
        ] = False,
        accept_loss: Annotated[
            bool,
            typer.Option("--accept-loss", help="Go on without what can't be put back."),
        ] = False,
        project: ProjectOption = Path(),
        graph: GraphsOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Put back what a log has lost, from its tail and the views; damaged files are kept."""
        with Reporting(as_json=as_json) as report:
            done = operations.recover(
                project, graph, report.tell, dry_run=dry_run, accept_loss=accept_loss
            )
            report.value = {"graphs": {each.graph: each for each in done}}
            report.code = int(any(each.status == "lost" and each.copy is None for each in done))
            for each in done:
                report.text += list(_lines(each))


def _lines(found: Recovery) -> Iterator[str]:
    """The report on one graph."""
    name = f"[bold]{escape(found.graph)}[/]"
    if found.status == "sound":
        yield f"{name}: nothing is missing. 'trails verify' checks every commit."
        return
    would = "would be " if found.copy is None else ""
    yield (
        f"{name}: {count(len(found.restored), 'commit')} {would}put back exactly, "
        f"{count(len(found.rebuilt), 'branch', 'branches')} {would}rebuilt from views."
    )
    for branch, commit in found.rebuilt.items():
        yield f"  {escape(branch)}: changes that only its view had are now in commit {commit}."
    if found.without_history is not None:
        first, last = found.without_history
        which = f"commit {first}" if first == last else f"commits {first} to {last}"
        yield (
            f"  [yellow]not recovered[/]: the history of {which} (authors, times, messages and "
            "the states between them). Only the data that the views held is back."
        )
    if found.log_problem is not None:
        yield (
            "  [yellow]not recovered[/]: idempotency keys, and activities that can't be read: "
            f"log.db {escape(found.log_problem)}."
        )
    for each in found.unusable:
        yield f"  not used: {escape(each)}"
    if found.lost:
        more = f" and {len(found.lost) - _SHOWN} more" if len(found.lost) > _SHOWN else ""
        yield f"  [red]lost[/]: nothing is left of {', '.join(found.lost[:_SHOWN])}{more}."
    if found.copy is not None:
        yield f"  The damaged files are in {escape(found.copy)}; delete them when you are sure."
    elif found.status == "lost":
        yield (
            "  Nothing was changed. Restore a backup, or go on without them: "
            "trails recover --accept-loss"
        )
