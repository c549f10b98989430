"""``trails log copy``: move the log of a graph to PostgreSQL, or back to a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from trails.model.texts import count
from trails.model.upkeep import MovedLog
from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.options import GraphsOption, JsonOption, ProjectOption
from trails.surfaces.cli.output.markup import escape
from trails.surfaces.cli.output.plain import INTERRUPTED
from trails.surfaces.cli.output.reporting import Reporting, complain


def add_log_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""
    log = typer.Typer(no_args_is_help=True)
    cli.add_typer(
        log,
        name="log",
        help="Move the log of a graph to PostgreSQL, or back to a file in the project.",
        epilog="Example: trails log copy --to postgresql://trails@db.example.org/trails",
    )

    @log.callback()
    def group() -> None:
        """Keep ``copy`` a command of its own, although it is the only one."""

    @log.command("copy", epilog="Example: trails log copy --to file --graph main")
    def copy(
        *,
        to: Annotated[
            str,
            typer.Option(
                "--to",
                help="A PostgreSQL URL; postgresql: the one in the settings or in TRAILS_LOG_URL; "
                "file: the project.",
                metavar="URL|postgresql|file",
            ),
        ],
        project: ProjectOption = Path(),
        graph: GraphsOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Copy the log to another place, compare the copy, and use it from then on.

        Nothing may have the project open, nor the log on the server. A copy that is interrupted
        goes on where it stopped when the command is run again. The old log is kept, and refuses to
        be used.
        """
        with Reporting(as_json=as_json) as report:
            done: list[MovedLog] = []
            try:
                for each in operations.copy_log(project, graph, to, report.progress):
                    done.append(each)
                    report.text += list(_lines(each, to))
            except KeyboardInterrupt:
                complain("interrupted; nothing is lost: run the command again to go on")
                raise typer.Exit(INTERRUPTED) from None
            report.value = {"graphs": {each.graph: each for each in done}}


def _lines(done: MovedLog, to: str) -> Iterator[str]:
    name, place = f"[bold]{escape(done.graph)}[/]", escape(done.place)
    if not done.changed:
        yield f"{name}: nothing to copy; the log is in {place} already."
    elif not done.unused:
        yield f"{name}: the log is in {place} again; the unfinished copy was not used."
    else:
        rate = f", {done.copied / done.seconds:,.0f} a second" if done.seconds >= 1 else ""
        yield (
            f"{name}: the log is in {place} now: {count(done.commits, 'commit')}, of which "
            f"{done.copied:,} were copied now{rate}; every digest was compared."
        )
    if done.to == "postgresql":
        if to != "postgresql":
            yield (
                f"  Next: set url in \\[graphs.{escape(done.graph)}.log] of trails.toml, or "
                "TRAILS_LOG_URL, to the URL; until then the graph can't be opened."
            )
        if done.unused:
            yield f"  The old log is in {escape(done.unused)}; delete it when it is not needed."
    else:
        yield (
            f"  Next: remove url from \\[graphs.{escape(done.graph)}.log] of trails.toml, or "
            "TRAILS_LOG_URL, if it is still set."
        )
        if done.unused:
            yield f"  The old log stays in {escape(done.unused)} and takes no writes."
