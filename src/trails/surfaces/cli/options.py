"""What commands share: the root, options, and the session that a command on one graph opens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from trails.errors import QueryError
from trails.surfaces.cli.operations import Operations, ProjectLocation, Session
from trails.surfaces.cli.output.reporting import Reporting
from trails.surfaces.cli.shell.catalog import SUMMARY

SERVER_VARIABLE: Final = "TRAILS_SERVER"

_FOLDER = typer.Option("--project", "-p", help="The project folder.", show_default="current folder")
ProjectOption = Annotated[Path, _FOLDER]
FolderOption = Annotated[Path | None, _FOLDER]
"""None if the option is not given: the command may use a server instead."""
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        help="URL of a running server, instead of a project folder.",
        metavar="URL",
        show_default=f"${SERVER_VARIABLE} if set and --project is not given",
    ),
]
GraphOption = Annotated[
    str | None,
    typer.Option("--graph", "-g", help="The graph to use.", show_default="the only one, or main"),
]
GraphsOption = Annotated[
    str | None, typer.Option("--graph", "-g", help="Only this graph.", show_default="all")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
BranchOption = Annotated[str, typer.Option("--branch", "-b", help="The branch to use.")]
SnapshotOption = Annotated[
    str | None,
    typer.Option("--snapshot", help="Read the graph as of this commit.", metavar="COMMIT"),
]
MessageOption = Annotated[str, typer.Option("--message", "-m", help="The commit message.")]
ExpectedHeadOption = Annotated[
    str | None,
    typer.Option(help="Fail unless the branch is at this commit.", metavar="COMMIT"),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would happen without writing.")
]
ProposeOption = Annotated[
    bool, typer.Option("--propose", help="Write to a new branch, to be reviewed and merged.")
]
IdempotencyKeyOption = Annotated[
    str | None,
    typer.Option(help="A retry with the same key does not repeat the write.", metavar="KEY"),
]


def place_of(project: Path | None, server: str | None) -> ProjectLocation:
    """The project of a command: from its options, the environment, or the current folder."""
    if project is not None and server is not None:
        raise QueryError("--project and --server are mutually exclusive; give one of them")
    if project is None and server is None:
        server = os.environ.get(SERVER_VARIABLE) or None
    return ProjectLocation(Path() if project is None else project, server)


@contextmanager
def open_session(
    operations: Operations,
    project: Path | None,
    server: str | None,
    graph: str | None,
    *,
    as_json: bool,
    declared: bool = False,
) -> Iterator[tuple[Reporting, Session]]:
    """Open a graph of a project or server for the body of a command.

    ``declared``: the command needs the types and capabilities that the project's code declares.
    """
    with (
        Reporting(as_json=as_json) as report,
        operations.open(
            place_of(project, server), graph, report.progress, declared=declared
        ) as session,
    ):
        yield report, session


def build_root() -> typer.Typer:
    """Build ``trails`` without commands; ``shell.catalog`` prints its help."""
    cli = typer.Typer(
        name="trails",
        help=SUMMARY,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,  # help and errors quote what people typed, which is not markup
        pretty_exceptions_enable=False,
    )
    cli.callback()(lambda: None)  # with one command only, it would be that command
    return cli
