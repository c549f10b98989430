"""Upkeep: ``cleanup`` and ``optimize``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from trails.model.wording import count
from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.options import GraphsOption, JsonOption, ProjectOption
from trails.surfaces.cli.reporting import Reporting
from trails.surfaces.cli.texts import size


def add_upkeep_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""

    @cli.command(epilog="Example: trails cleanup --keep 2 --dry-run")
    def cleanup(
        *,
        keep: Annotated[int, typer.Option(min=0, help="Snapshots to keep, the last used.")] = 8,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Say what would go, and delete nothing.")
        ] = False,
        project: ProjectOption = Path(),
        graph: GraphsOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Free disk: drop what can be made again, and archive old activities."""
        with Reporting(as_json=as_json) as report:
            done = operations.cleanup(project, graph, report.tell, keep=keep, dry_run=dry_run)
            report.value = {"graphs": done}
            for name, found in done.items():
                what = (
                    f"{count(len(found.snapshots), 'snapshot')}, "
                    f"{count(len(found.folders), 'folder')} of branches that are gone, "
                    f"scratch space of {count(len(found.runs), 'killed server')}"
                )
                verb = "would drop" if dry_run else "dropped"
                report.text.append(f"[bold]{escape(name)}[/]: {verb} {what}.")
                moved = count(found.activities, "activity", "activities")
                if dry_run:
                    report.text.append(f"[bold]{escape(name)}[/]: would archive {moved}.")
                    continue
                files = "".join(f" activities/{escape(each)}" for each in found.archives)
                report.text.append(
                    f"[bold]{escape(name)}[/]: archived {moved}{files and ' in'}{files}; "
                    f"{size(found.bytes)} freed."
                )

    @cli.command(epilog="Example: trails optimize")
    def optimize(
        *, project: ProjectOption = Path(), graph: GraphsOption = None, as_json: JsonOption = False
    ) -> None:
        """Compact the files of log and views. It may take a while on a large graph."""
        with Reporting(as_json=as_json) as report:
            done = operations.optimize(project, graph, report.tell)
            report.value = {"graphs": done}
            report.text += [
                f"[bold]{escape(name)}[/]: {size(each.before)} before, {size(each.after)} now."
                for name, each in done.items()
            ]
