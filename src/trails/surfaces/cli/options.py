"""The options that many commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ProjectOption = Annotated[
    Path, typer.Option("--project", "-p", help="The project folder.", show_default="here")
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
