"""Upkeep: ``cleanup``, ``optimize``, ``backup``, ``restore``."""

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
        with (
            Reporting(as_json=as_json) as report,
            operations.open_all(project, graph, report.tell) as sessions,
        ):
            done = {each.graph: each.cleanup(keep=keep, dry_run=dry_run) for each in sessions}
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
        with (
            Reporting(as_json=as_json) as report,
            operations.open_all(project, graph, report.tell) as sessions,
        ):
            done = {each.graph: each.optimize(report.tell) for each in sessions}
            report.value = {"graphs": done}
            report.text += [
                f"[bold]{escape(name)}[/]: {size(each.before)} before, {size(each.after)} now."
                for name, each in done.items()
            ]

    @cli.command(epilog="Example: trails backup /backups/acme-monday")
    def backup(
        target: Annotated[
            Path, typer.Argument(help="A folder that does not exist yet.", metavar="DEST")
        ],
        *,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Copy the logs of all graphs, each into a folder of its own, with digests."""
        with Reporting(as_json=as_json) as report:
            made = operations.backup(project, target, report.tell)
            report.value = {"backup": str(target), "graphs": made}
            for name, manifest in made.items():
                report.text.append(
                    f"[bold]{escape(name)}[/]: {count(len(manifest.heads), 'branch', 'branches')} "
                    f"and {count(len(manifest.files), 'file')} in {escape(str(target / name))}."
                )

    @cli.command(epilog="Example: trails restore /backups/acme-monday --force")
    def restore(
        source: Annotated[Path, typer.Argument(help="A backup.", metavar="SRC")],
        *,
        force: Annotated[
            bool, typer.Option("--force", help="Move data that is there aside, and keep it.")
        ] = False,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Put back every graph of a backup, after comparing all digests."""
        with Reporting(as_json=as_json) as report:
            done = operations.restore(project, source, report.tell, force=force)
            report.value = {
                "graphs": {
                    name: {"moved_aside": None if aside is None else str(aside)}
                    for name, aside in done.items()
                }
            }
            for name, aside in done.items():
                kept = "" if aside is None else f" What was there is in {escape(str(aside))}."
                report.text.append(f"[bold]{escape(name)}[/]: restored.{kept}")
