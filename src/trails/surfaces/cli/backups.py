"""``trails backup`` and ``trails restore``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

from trails.errors import QueryError
from trails.model.upkeep import Manifest, RestoreRequest
from trails.model.wording import count
from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.options import JsonOption, ProjectOption
from trails.surfaces.cli.reporting import Reporting
from trails.surfaces.cli.texts import plain_table, short, size, when


class _CreateByDefault(TyperGroup):
    """``trails backup DEST`` is ``trails backup create DEST``."""

    def parse_args(  # type: ignore[override]  # its own Context is private
        self, ctx: typer.Context, args: list[str]
    ) -> list[str]:
        """Name the command that is meant where none is named."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["create", *args]
        return super().parse_args(ctx, args)


def add_backup_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""
    backup = typer.Typer(cls=_CreateByDefault, no_args_is_help=True, rich_markup_mode="rich")
    cli.add_typer(
        backup,
        name="backup",
        help="Backups: create, list. `trails backup DEST` creates one.",
        epilog="Example: trails backup /backups/acme",
    )

    @backup.command("create", epilog="Example: trails backup --to /backups/acme")
    def create(
        target: Annotated[
            Path | None,
            typer.Argument(help="A folder with backups, or a new one.", metavar="DEST"),
        ] = None,
        *,
        to: Annotated[
            Path | None, typer.Option("--to", help="The same as DEST.", metavar="DEST")
        ] = None,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Back up all graphs: whole into a new folder, else what is new since the last backup."""
        with Reporting(as_json=as_json) as report:
            folder = target or to
            if folder is None or (target and to):
                raise QueryError("name one folder for the backup: trails backup DEST")
            made = operations.backup(project, folder, report.tell)
            report.value = {"backup": str(folder), "graphs": made}
            for name, manifest in made.items():
                what = "nothing new since the last backup." if manifest is None else _sum(manifest)
                report.text.append(f"[bold]{escape(name)}[/]: {what}")

    @backup.command("list", epilog="Example: trails backup list /backups/acme --check")
    def list_backups(
        source: Annotated[Path, typer.Argument(help="A folder with backups.", metavar="SRC")],
        *,
        check: Annotated[
            bool, typer.Option("--check", help="Read every file and compare its digest.")
        ] = False,
        as_json: JsonOption = False,
    ) -> None:
        """List the backups in a folder; all manifests, names and sizes are checked."""
        with Reporting(as_json=as_json) as report:
            found = operations.list_backups(source, report.tell, check=check)
            report.value = {"backup": str(source), "checked": check, "graphs": found}
            for name, manifests in found.items():
                report.text += [f"[bold]{escape(name)}[/]", _table(manifests)]

    @cli.command(epilog="Example: trails restore /backups/acme --at 2026-01-31T12:00:00Z --force")
    def restore(
        source: Annotated[Path, typer.Argument(help="A folder with backups.", metavar="SRC")],
        *,
        at: Annotated[
            str | None,
            typer.Option(
                "--at",
                help="As of a commit, a place in the log, or a time.",
                metavar="COMMIT|SEQ|TIME",
                show_default="the last backup",
            ),
        ] = None,
        force: Annotated[
            bool, typer.Option("--force", help="Move data that is there aside, and keep it.")
        ] = False,
        graph: Annotated[
            str | None,
            typer.Option(
                "--graph", "-g", help="Which graph.", show_default="all that the backup has"
            ),
        ] = None,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Put back the graphs of a backup, after comparing all digests."""
        with Reporting(as_json=as_json) as report:
            wanted = RestoreRequest(force, graph, at)
            done = operations.restore(project, source, report.tell, wanted)
            report.value = {
                "graphs": {
                    name: {"moved_aside": None if aside is None else str(aside)}
                    for name, aside in done.items()
                }
            }
            for name, aside in done.items():
                kept = "" if aside is None else f" What was there is in {escape(str(aside))}."
                report.text.append(f"[bold]{escape(name)}[/]: restored.{kept}")


def _sum(manifest: Manifest) -> str:
    at = f"commit {short(manifest.commit)}" if manifest.commit else "no commit yet"
    return (
        f"backup {manifest.number}, {count(len(manifest.heads), 'branch', 'branches')}, at {at}; "
        f"{count(len(manifest.files), 'file')}, {size(manifest.bytes)}."
    )


def _table(manifests: Sequence[Manifest]) -> Table:
    table = plain_table("backup", "made", "commits", "newest", "size")
    before = 0
    for each in manifests:
        table.add_row(
            f"{each.number:06}",
            when(each.made),
            str(each.seq - before) if each.seq else "",
            short(each.commit) if each.commit else "",
            size(each.bytes),
        )
        before = each.seq
    return table
