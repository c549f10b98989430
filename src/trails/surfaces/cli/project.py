"""Commands about a whole project: create, check, back up, restore, recover and clean it.

``new``, ``doctor``, ``verify``, ``backup``, ``restore``, ``recover``, ``cleanup``, ``optimize``.
The work itself is in the ``Operations`` that the application passes in.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.core import TyperGroup

from trails.errors import QueryError
from trails.model.texts import count
from trails.model.upkeep import Manifest, Recovery, RestoreRequest
from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.options import (
    FolderOption,
    GraphsOption,
    JsonOption,
    ProjectOption,
    ServerOption,
    place_of,
)
from trails.surfaces.cli.output.markup import escape
from trails.surfaces.cli.output.reporting import Reporting
from trails.surfaces.cli.output.tables import TextTable
from trails.surfaces.cli.values import short, size, when


def add_project_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""

    @cli.command(epilog="Example: trails new acme")
    def new(
        folder: Annotated[Path, typer.Argument(help="The folder to create.")],
        *,
        name: Annotated[
            str | None, typer.Option(help="The project's name.", show_default="the folder's name")
        ] = None,
        schema: Annotated[
            Literal["python", "graph"],
            typer.Option(
                help="Where types are declared: in Python, or in the graph itself, without any "
                "code."
            ),
        ] = "python",
        as_json: JsonOption = False,
    ) -> None:
        """Create a project with example types, a capability and settings."""
        with Reporting(as_json=as_json) as report:
            path, files = operations.new(folder, name, schema)
            report.value = {"project": str(path), "files": files}
            python, trails = _commands()
            first = {f"{python} app.py": "save and query some data"}
            if schema == "graph":
                first = {f"{trails} schema apply add-type Task title:str": "declare a type"}
            steps = {**first, f"{trails} doctor": "check the project"}
            width = max(map(len, steps))
            report.text = [
                f"Created [bold]{escape(str(path))}[/] with {', '.join(map(escape, files))}.",
                "",
                f"  cd {escape(shlex.quote(str(path)))}",
                *(
                    f"  {escape(step.ljust(width))}      [dim]# {what}[/]"
                    for step, what in steps.items()
                ),
            ]

    @cli.command(epilog="Example: trails doctor -p acme card.json")
    def doctor(
        documents: Annotated[
            list[Path] | None,
            typer.Argument(
                help="Stored cards, OpenAPI documents or lists of tools, to compare with what is "
                "declared.",
                metavar="[DOCUMENT]...",
            ),
        ] = None,
        *,
        project: FolderOption = None,
        server: ServerOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Check the project, what is served of it, and stored documents; suggest fixes."""
        with Reporting(as_json=as_json) as report:
            place = place_of(project, server)
            report.show_reports(operations.doctor(place, documents or [], report.progress))

    @cli.command(epilog="Example: trails verify --repair")
    def verify(
        *,
        project: ProjectOption = Path(),
        repair: Annotated[
            bool, typer.Option("--repair", help="Rebuild views that differ from the log.")
        ] = False,
        as_json: JsonOption = False,
    ) -> None:
        """Verify the digests of the log, and that the views match the log."""
        with Reporting(as_json=as_json) as report:
            report.show_reports(operations.verify(project, repair=repair, progress=report.progress))


def _commands() -> tuple[str, str]:
    """The shell commands for this Python and this program: short names if they are on PATH."""
    here = Path(sys.executable).parent
    found = shutil.which("python")
    is_found = found is not None and Path(found).parent == here
    python = "python" if is_found else shlex.quote(sys.executable)
    program = shutil.which("trails")
    is_found = program is not None and Path(program).parent == here
    return python, "trails" if is_found else f"{python} -m trails"


class _CreateByDefault(TyperGroup):
    """``trails backup DEST`` is ``trails backup create DEST``."""

    def parse_args(  # type: ignore[override]  # its own Context is private
        self, ctx: typer.Context, args: list[str]
    ) -> list[str]:
        """Insert ``create`` if the first argument is not a command."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["create", *args]
        return super().parse_args(ctx, args)


def add_backup_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""
    backup = typer.Typer(cls=_CreateByDefault, no_args_is_help=True)
    cli.add_typer(
        backup,
        name="backup",
        help="Create and list backups; 'trails backup DEST' creates one.",
        epilog="Example: trails backup /backups/acme",
    )

    @backup.command("create", epilog="Example: trails backup --to /backups/acme")
    def create(
        target: Annotated[
            Path | None,
            typer.Argument(help="The backup folder; created if it does not exist.", metavar="DEST"),
        ] = None,
        *,
        to: Annotated[
            Path | None, typer.Option("--to", help="Same as DEST.", metavar="DEST")
        ] = None,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Back up all graphs: fully into a new folder, incrementally into an existing one."""
        with Reporting(as_json=as_json) as report:
            folder = target or to
            if folder is None or (target and to):
                raise QueryError("give one folder for the backup: trails backup DEST")
            made = operations.backup(project, folder, report.progress)
            report.value = {"backup": str(folder), "graphs": made}
            for name, manifest in made.items():
                what = "no changes since the last backup." if manifest is None else _sum(manifest)
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
        """List the backups in a folder; checks manifests, file names and sizes."""
        with Reporting(as_json=as_json) as report:
            found = operations.list_backups(source, report.progress, check=check)
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
                help="Restore the state at a commit, log position or time.",
                metavar="COMMIT|SEQ|TIME",
                show_default="the last backup",
            ),
        ] = None,
        force: Annotated[
            bool, typer.Option("--force", help="Move existing data aside and keep it.")
        ] = False,
        graph: Annotated[
            str | None,
            typer.Option(
                "--graph", "-g", help="Only this graph.", show_default="all in the backup"
            ),
        ] = None,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Restore the graphs of a backup, after checking all digests."""
        with Reporting(as_json=as_json) as report:
            wanted = RestoreRequest(force, graph, at)
            done = operations.restore(project, source, report.progress, wanted)
            report.value = {
                "graphs": {
                    name: {"moved_aside": None if aside is None else str(aside)}
                    for name, aside in done.items()
                }
            }
            for name, aside in done.items():
                kept = "" if aside is None else f" The previous data is in {escape(str(aside))}."
                report.text.append(f"[bold]{escape(name)}[/]: restored.{kept}")


def _sum(manifest: Manifest) -> str:
    at = f"commit {short(manifest.commit)}" if manifest.commit else "no commit yet"
    return (
        f"backup {manifest.number}, {count(len(manifest.heads), 'branch', 'branches')}, at {at}; "
        f"{count(len(manifest.files), 'file')}, {size(manifest.bytes)}."
    )


def _table(manifests: Sequence[Manifest]) -> TextTable:
    table = TextTable("backup", "made", "commits", "newest", "size")
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


_SHOWN = 5


def add_recover_command(cli: typer.Typer, operations: Operations) -> None:
    """Add it to the command line."""

    @cli.command(epilog="Example: trails recover --dry-run")
    def recover(
        *,
        dry_run: Annotated[
            bool,
            typer.Option(
                "--dry-run", help="Show what would be recovered without changing anything."
            ),
        ] = False,
        accept_loss: Annotated[
            bool,
            typer.Option(
                "--accept-loss", help="Continue without commits that cannot be recovered."
            ),
        ] = False,
        project: ProjectOption = Path(),
        graph: GraphsOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Recover lost commits from the log's tail and the views; damaged files are kept."""
        with Reporting(as_json=as_json) as report:
            done = operations.recover(
                project, graph, report.progress, dry_run=dry_run, accept_loss=accept_loss
            )
            report.value = {"graphs": {each.graph: each for each in done}}
            report.code = int(any(each.status == "lost" and each.copy is None for each in done))
            for each in done:
                report.text += list(_lines(each))


def _lines(found: Recovery) -> Iterator[str]:
    """The report on one graph."""
    name = f"[bold]{escape(found.graph)}[/]"
    if found.status == "sound":
        yield f"{name}: nothing is missing. Use 'trails verify' to check every commit."
        return
    would = "would be " if found.copy is None else ""
    yield (
        f"{name}: {count(len(found.restored), 'commit')} {would}recovered exactly, "
        f"{count(len(found.rebuilt), 'branch', 'branches')} {would}rebuilt from views."
    )
    for branch, commit in found.rebuilt.items():
        yield f"  {escape(branch)}: changes found only in its view are now in commit {commit}."
    if found.without_history is not None:
        first, last = found.without_history
        which = f"commit {first}" if first == last else f"commits {first} to {last}"
        yield (
            f"  [yellow]not recovered[/]: the history of {which} (authors, times, messages and "
            "the states between them). Only the data in the views was recovered."
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
        yield f"  [red]lost[/]: {', '.join(found.lost[:_SHOWN])}{more} cannot be recovered."
    if found.copy is not None:
        yield f"  The damaged files are in {escape(found.copy)}; delete them when done."
    elif found.status == "lost":
        yield (
            "  Nothing was changed. Restore a backup, or continue without these commits: "
            "trails recover --accept-loss"
        )


def add_upkeep_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""

    @cli.command(epilog="Example: trails cleanup --keep 2 --dry-run")
    def cleanup(
        *,
        keep: Annotated[int, typer.Option(min=0, help="Recently used snapshots to keep.")] = 8,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Show what would be removed without deleting.")
        ] = False,
        project: ProjectOption = Path(),
        graph: GraphsOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Free disk space: remove cached files and archive old activities."""
        with Reporting(as_json=as_json) as report:
            done = operations.cleanup(project, graph, report.progress, keep=keep, dry_run=dry_run)
            report.value = {"graphs": done}
            for name, found in done.items():
                what = (
                    f"{count(len(found.snapshots), 'snapshot')}, "
                    f"{count(len(found.folders), 'folder')} of deleted branches, "
                    f"scratch space of {count(len(found.runs), 'killed server')}"
                )
                if found.exports:
                    what += f", {count(len(found.exports), 'expired export')}"
                verb = "would remove" if dry_run else "removed"
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
        """Compact the files of the log and views. This can take a while on a large graph."""
        with Reporting(as_json=as_json) as report:
            done = operations.optimize(project, graph, report.progress)
            report.value = {"graphs": done}
            report.text += [
                f"[bold]{escape(name)}[/]: {size(each.before)} before, {size(each.after)} now."
                for name, each in done.items()
            ]
