"""``trails blame``: who wrote each value of a record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, cast

import typer
from rich.console import RenderableType
from rich.markup import escape

from trails.model.uris import SCHEME
from trails.surfaces.cli.operations import Operations, ReadState
from trails.surfaces.cli.options import (
    BranchOption,
    FolderOption,
    GraphOption,
    JsonOption,
    ServerOption,
    SnapshotOption,
    open_session,
)
from trails.surfaces.cli.reading import read_name
from trails.surfaces.cli.values import plain_table, short, spell, when

_MAIN: Final = "main"
_RECORDS: Final = "/kg/"
"""In the URI of a record, before its type and id."""

Row = Mapping[str, object]


def add_provenance_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""

    @cli.command(epilog="Examples: trails blame Task/42 · trails blame Task/42 status --json")
    def blame(
        record: Annotated[
            str, typer.Argument(help="The record: Type/id, its URI or its IRI.", metavar="RECORD")
        ],
        field: Annotated[
            str | None, typer.Argument(help="Only this field.", metavar="FIELD")
        ] = None,
        *,
        branch: BranchOption = _MAIN,
        snapshot: SnapshotOption = None,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Show the commit, the actor and the call that wrote each value of a record."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            named = read_name(record, session.nodes, ReadState(branch, snapshot))
            arguments: dict[str, object | None] = {
                "type": named.type,
                "record": named.id,
                "field": field,
                "branch": None if named.view.branch == _MAIN else named.view.branch,
                "snapshot": named.view.snapshot,
            }
            given = {name: value for name, value in arguments.items() if value is not None}
            report.value = found = session.record("node_blame", given)
            values = cast(Sequence[Row], found["values"])
            report.text = list(_blamed(values)) if values else ["No values."]


def _blamed(values: Sequence[Row]) -> Iterator[RenderableType]:
    table = plain_table("commit", "time", "actor", "call", "field", "value", "message")
    for each in values:
        table.add_row(
            short(_text(each["commit"])) or "[dim]unknown[/]",
            when(_text(each["time"])),
            escape(_text(each["actor"])),
            escape(_text(each["call"])),
            escape(_text(each["field"])),
            _value(each["value"]),
            escape(_text(each["message"])),
        )
    yield table


def _value(value: object) -> str:
    if isinstance(value, str) and value.startswith(SCHEME):
        return escape(value.partition(_RECORDS)[2])
    return spell(value, SCHEME)


def _text(value: object) -> str:
    return "" if value is None else str(value)
