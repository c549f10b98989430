"""The options that many commands share.

The frame of a command that works on one graph: its report, and its session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from trails.errors import QueryError
from trails.surfaces.cli.operations import Operations, ProjectLocation, Session
from trails.surfaces.cli.reporting import Reporting

SERVER_VARIABLE: Final = "TRAILS_SERVER"

_FOLDER = typer.Option("--project", "-p", help="The project folder.", show_default="here")
ProjectOption = Annotated[Path, _FOLDER]
FolderOption = Annotated[Path | None, _FOLDER]
"""None where none is named: then it may be a server that is meant."""
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        help="A running server instead of a folder.",
        metavar="URL",
        show_default=f"${SERVER_VARIABLE}, if set and no folder is named",
    ),
]
GraphOption = Annotated[
    str | None,
    typer.Option("--graph", "-g", help="Which graph.", show_default="the only one, or main"),
]
GraphsOption = Annotated[
    str | None, typer.Option("--graph", "-g", help="Which graph.", show_default="all")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
BranchOption = Annotated[str, typer.Option("--branch", "-b", help="Which branch.")]
SnapshotOption = Annotated[
    str | None,
    typer.Option(
        "--snapshot", help="Read the past: the graph as of this commit.", metavar="COMMIT"
    ),
]
MessageOption = Annotated[str, typer.Option("--message", "-m", help="Why; kept in the commit.")]
ExpectedHeadOption = Annotated[
    str | None,
    typer.Option(help="Refuse if the branch is not at this commit.", metavar="COMMIT"),
]
IdempotencyKeyOption = Annotated[
    str | None,
    typer.Option(help="Repeated with the same key, nothing is done twice.", metavar="KEY"),
]


def place_of(project: Path | None, server: str | None) -> ProjectLocation:
    """Where a command works: what it names, else what the environment names, else here."""
    if project is not None and server is not None:
        raise QueryError("--project and --server exclude each other; give one of them")
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
    """Open a graph of a project or server, and report what its session says.

    ``declared``: the command needs what the project's own code declares.
    """
    with (
        Reporting(as_json=as_json) as report,
        operations.open(
            place_of(project, server), graph, report.tell, declared=declared
        ) as session,
    ):
        yield report, session
