"""``trails blame`` and ``trails prov``: who wrote each value of a record, and who called what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, cast

import typer

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
from trails.surfaces.cli.output.markup import escape
from trails.surfaces.cli.output.reporting import Part
from trails.surfaces.cli.output.tables import TextTable
from trails.surfaces.cli.reading import read_name
from trails.surfaces.cli.values import short, spell, when

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

    @cli.command(epilog="Example: trails prov --actor ada --since 2026-01-31 --outcome denied")
    def prov(
        *,
        actor: Annotated[str | None, typer.Option(help="Only calls by this actor.")] = None,
        node: Annotated[
            str | None,
            typer.Option(help="Only calls that changed or read this node.", metavar="TYPE/ID"),
        ] = None,
        commit: Annotated[
            str | None, typer.Option(help="Only the call that made this commit.")
        ] = None,
        capability: Annotated[
            str | None, typer.Option(help="Only calls of this capability or operation.")
        ] = None,
        outcome: Annotated[
            str | None, typer.Option(help="Only calls with this outcome: ok, or an error code.")
        ] = None,
        since: Annotated[
            str | None, typer.Option(help="Only calls from this time on.", metavar="TIME")
        ] = None,
        until: Annotated[
            str | None, typer.Option(help="Only calls up to this time.", metavar="TIME")
        ] = None,
        archived: Annotated[
            bool, typer.Option("--archived", help="Search archived calls too.")
        ] = False,
        limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number of calls.")] = 20,
        after: Annotated[
            str | None, typer.Option(help="Continue after the previous page.", metavar="CURSOR")
        ] = None,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """List calls, newest first: who called what, how it ended, and what it made."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            given = {
                "actor": actor,
                "node": node,
                "commit": commit,
                "capability": capability,
                "outcome": outcome,
                "since": since,
                "until": until,
                "archived": archived or None,
                "limit": limit,
                "after": after,
            }
            asked = {name: value for name, value in given.items() if value is not None}
            report.value = found = session.record("prov_list", asked)
            report.text = list(_calls(found))


def _calls(found: Row) -> Iterator[Part]:
    calls = cast(Sequence[Row], found["activities"])
    table = TextTable("ended", "actor", "surface", "call", "outcome", "made", "detail")
    for each in calls:
        times = each["calls"]
        table.add_row(
            when(_text(each["ended"])),
            escape(_text(each["actor"])),
            escape(_text(each["surface"])),
            escape(_text(each["name"])) + ("" if times == 1 else f" [dim]×{times}[/]"),
            escape(_text(each["outcome"])),
            " ".join(map(short, cast(Sequence[str], each["generated"]))),
            escape(_text(each["detail"])),
        )
    yield table if calls else "No calls."
    if found["archived"]:
        yield ""
        yield "[dim]Older calls are archived and were not searched; add[/] --archived"
    call = found.get("next")
    if isinstance(call, Mapping):
        yield ""
        yield f"[dim]For the next page, add[/] --after {escape(str(call['arguments']['after']))}"


def _blamed(values: Sequence[Row]) -> Iterator[Part]:
    table = TextTable("commit", "time", "actor", "call", "field", "value", "message")
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
