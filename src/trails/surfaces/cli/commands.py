"""The commands: arguments in, text or JSON out, an exit code that scripts can trust.

0 is fine, 1 means that a check found problems, 2 that the request could not be
carried out. With ``--json`` standard output holds one JSON document and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Self

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from trails.errors import TrailsError
from trails.model.reports import Report
from trails.surfaces.cli.operations import Operations

_MARKS = {"ok": "[green]✓[/]", "note": "[yellow]•[/]", "problem": "[red]✗[/]"}

ProjectOption = Annotated[
    Path, typer.Option("--project", "-p", help="The project folder.", show_default="here")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def build_cli(operations: Operations, version: str) -> typer.Typer:
    """The ``trails`` command on top of some operations."""
    cli = typer.Typer(
        name="trails",
        help="A knowledge graph that agents can operate and author, safely.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )

    @cli.callback(invoke_without_command=True)
    def root(
        *,
        show_version: Annotated[
            bool,
            typer.Option("--version", help="Print the version and exit.", is_eager=True),
        ] = False,
    ) -> None:
        if show_version:
            print(f"trails {version}")  # noqa: T201 - this is the command's output
            raise typer.Exit

    @cli.command()
    def new(
        folder: Annotated[Path, typer.Argument(help="The folder to make.")],
        *,
        name: Annotated[
            str | None, typer.Option(help="The project's name; the folder's, if not given.")
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Make a new project that runs: types, a capability, settings."""
        with _Reporting(as_json=as_json) as report:
            path, files = operations.new(folder, name)
            report.value = {"project": str(path), "files": files}
            report.text = [
                f"Made [bold]{escape(str(path))}[/] with {', '.join(map(escape, files))}.",
                "",
                f"  cd {escape(str(path))}",
                "  python app.py      [dim]# save and query something[/]",
                "  trails doctor      [dim]# see how the project is[/]",
            ]

    @cli.command()
    def doctor(*, project: ProjectOption = Path(), as_json: JsonOption = False) -> None:
        """Look at the project and say how it is and what to do about it."""
        with _Reporting(as_json=as_json) as report:
            report.show_reports(operations.doctor(project))

    @cli.command()
    def verify(
        *,
        project: ProjectOption = Path(),
        repair: Annotated[
            bool, typer.Option("--repair", help="Rebuild views that differ from the log.")
        ] = False,
        as_json: JsonOption = False,
    ) -> None:
        """Prove the log's digests, and that the views are what the log says."""
        with _Reporting(as_json=as_json) as report:
            report.show_reports(
                operations.verify(project, repair=repair, progress=_progress(as_json=as_json))
            )

    return cli


def _progress(*, as_json: bool) -> Callable[[str], None]:
    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        return _silent
    return lambda text: console.print(f"[dim]… {escape(text)}[/]")


def _silent(text: str) -> None:
    del text


class _Reporting:
    """Prints what a command found, or its error, in the form that was asked for."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self.value: object = None
        self.text: list[str] = []
        self._code = 0

    def __enter__(self) -> Self:
        return self

    def show_reports(self, reports: list[Report]) -> None:
        """Take the findings of a check; a problem makes the exit code 1."""
        healthy = all(report.healthy for report in reports)
        self._code = 0 if healthy else 1
        self.value = {"healthy": healthy, "reports": reports}
        for report in reports:
            self.text.append(f"[bold]{escape(report.subject)}[/]")
            for finding in report.findings:
                mark = _MARKS[finding.status]
                self.text.append(f"  {mark} {finding.name}: {escape(finding.detail)}")
                if finding.fix:
                    self.text.append(f"      → {escape(finding.fix)}")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TrailsError):
            self._fail(error)
            raise typer.Exit(2) from None
        if error is not None:
            return
        if self._as_json:
            _print_json(self.value)
        else:
            console = Console(soft_wrap=True)
            for line in self.text:
                console.print(line, highlight=False)
        if self._code:
            raise typer.Exit(self._code)

    def _fail(self, error: TrailsError) -> None:
        if self._as_json:
            _print_json({"error": {"code": error.code, "message": error.message}})
        else:
            console = Console(stderr=True, soft_wrap=True)
            console.print(f"[red]trails:[/] {escape(error.message)}", highlight=False)


def _print_json(value: object) -> None:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.buffer.write(text + b"\n")
    sys.stdout.buffer.flush()
