"""Commands about a project as a whole: ``new``, ``doctor``, ``verify``."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.options import JsonOption, ProjectOption
from trails.surfaces.cli.reporting import Reporting


def add_project_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""

    @cli.command(epilog="Example: trails new acme")
    def new(
        folder: Annotated[Path, typer.Argument(help="The folder to make.")],
        *,
        name: Annotated[
            str | None, typer.Option(help="The project's name; the folder's, if not given.")
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Make a new project that runs: types, a capability, settings."""
        with Reporting(as_json=as_json) as report:
            path, files = operations.new(folder, name)
            report.value = {"project": str(path), "files": files}
            python, trails = _commands()
            steps = {
                f"{python} app.py": "save and query something",
                f"{trails} doctor": "see how the project is",
            }
            width = max(map(len, steps))
            report.text = [
                f"Made [bold]{escape(str(path))}[/] with {', '.join(map(escape, files))}.",
                "",
                f"  cd {escape(shlex.quote(str(path)))}",
                *(
                    f"  {escape(step.ljust(width))}      [dim]# {what}[/]"
                    for step, what in steps.items()
                ),
            ]

    @cli.command(epilog="Example: trails doctor -p acme")
    def doctor(*, project: ProjectOption = Path(), as_json: JsonOption = False) -> None:
        """Look at the project and say how it is and what to do about it."""
        with Reporting(as_json=as_json) as report:
            report.show_reports(operations.doctor(project, report.tell))

    @cli.command(epilog="Example: trails verify --repair")
    def verify(
        *,
        project: ProjectOption = Path(),
        repair: Annotated[
            bool, typer.Option("--repair", help="Rebuild views that differ from the log.")
        ] = False,
        as_json: JsonOption = False,
    ) -> None:
        """Prove the log's digests, and that the views are what the log says."""
        with Reporting(as_json=as_json) as report:
            report.show_reports(operations.verify(project, repair=repair, progress=report.tell))


def _commands() -> tuple[str, str]:
    """How to call this Python and this program: by name where a shell finds just these."""
    here = Path(sys.executable).parent
    found = shutil.which("python")
    is_found = found is not None and Path(found).parent == here
    python = "python" if is_found else shlex.quote(sys.executable)
    program = shutil.which("trails")
    is_found = program is not None and Path(program).parent == here
    return python, "trails" if is_found else f"{python} -m trails"
