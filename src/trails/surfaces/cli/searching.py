"""``trails search``: records by their texts, with the evidence and the command that reads on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, cast

import typer

from trails.model.texts import count
from trails.surfaces.cli.operations import Operations
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
from trails.surfaces.cli.reading import NearOption, highlight, read_near, spell_command
from trails.surfaces.cli.values import short

_MAIN: Final = "main"
_EPILOG: Final = (
    'Examples: trails search "heat flux" -t Paper · trails search "title:wing" --json · '
    "trails search 'turbulen* -wind' · trails search --near 'embedding=slow trains' -t Paper"
)


def add_search_command(cli: typer.Typer, operations: Operations) -> None:
    """Add it to the command line."""

    @cli.command(epilog=_EPILOG)
    def search(
        query: Annotated[
            str | None,
            typer.Argument(
                help='Words, "a phrase", prefix*, fuzzy~, field:word, -without, OR.',
                metavar="QUERY",
            ),
        ] = None,
        *,
        near: NearOption = None,
        types: Annotated[
            list[str] | None,
            typer.Option("--type", "-t", help="Only this type; repeat for several."),
        ] = None,
        fields: Annotated[
            list[str] | None,
            typer.Option("--field", "-f", help="Only in this field; repeat for several."),
        ] = None,
        where: Annotated[
            str | None,
            typer.Option(help="Only records with this value; needs --type.", metavar="FIELD=VALUE"),
        ] = None,
        limit: Annotated[
            int | None,
            typer.Option("--limit", "-n", help="Maximum number of records.", show_default="10"),
        ] = None,
        cursor: Annotated[
            str | None, typer.Option(help="Continue after the previous page.")
        ] = None,
        branch: BranchOption = _MAIN,
        snapshot: SnapshotOption = None,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Find records by their texts, with the text around each match."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            place = {"branch": None if branch == _MAIN else branch, "snapshot": snapshot}
            options = {"where": where, "limit": limit, **place}
            arguments = {
                "query": query,
                "near": None if near is None else read_near(near),
                "types": types,
                "fields": fields,
                "cursor": cursor,
                **options,
            }
            given = {name: value for name, value in arguments.items() if value not in (None, [])}
            found = session.record("search", given)
            report.value = found
            where_to = {"project": project, "server": server, "graph": graph}
            again = ["trails", "search", *([] if query is None else [query])]
            for name, values in (
                ("--near", None if near is None else [near]),
                ("--type", types),
                ("--field", fields),
            ):
                again += [word for value in values or () for word in (name, value)]
            report.text = [
                *_show_hits(found, where_to),
                *_show_end(found, again, {**options, **where_to}),
            ]


def _show_hits(found: Mapping[str, object], where_to: Mapping[str, object]) -> Iterator[Part]:
    for hit in cast(Sequence[Mapping[str, object]], found["results"]):
        name, title = str(hit["id"]), str(hit["title"])
        yield f"[bold]{escape(title)}[/]  [dim]{escape(name)}[/]"
        evidence, call = hit["evidence"], cast(Mapping[str, object], hit["read"])
        arguments = cast(Mapping[str, object], call["arguments"])
        if isinstance(evidence, Mapping):
            yield _show_window(evidence)
            words = ["trails", "read", name, str(evidence["field"])]
            parts = {name: evidence.get(name) for name in ("item", "path")}
            more = {**parts, "cursor": arguments["cursor"]}
        else:
            yield f"  {escape(str(hit['notice']))}"
            words, more = ["trails", "get", name], {}
        yield f"  [dim]Read:[/] {escape(spell_command(words, {**more, **where_to}))}"
        yield ""


def _show_window(evidence: Mapping[str, object]) -> str:
    """The text around the match, on lines of its own, with what is left out marked."""
    text, start = str(evidence["text"]), cast(int, evidence["start"])
    matches = cast(Sequence[Mapping[str, int]], evidence["matches"])
    shown = highlight(text, [(each["start"] - start, each["end"] - start) for each in matches])
    item = evidence.get("item")
    field = f"{evidence['field']}{'' if item is None else f'[{item}]'}{evidence.get('path', '')}"
    before = "…" if start > 0 else ""
    after = "…" if cast(int, evidence["end"]) < cast(int, evidence["total"]) else ""
    return f"  [dim]{escape(field)}:[/] {before}{shown}{after}"


def _show_end(
    found: Mapping[str, object], again: Sequence[str], options: Mapping[str, object]
) -> Iterator[Part]:
    hits = cast(Sequence[object], found["results"])
    if not hits:
        yield "Nothing was found."
    if "notice" in found:
        yield f"[dim]{escape(str(found['notice']))}[/]"
    if hits:
        at = short(str(found["commit"]))
        yield f"[dim]{count(len(hits), 'record')}, at commit {at}[/]"
    call = found.get("next")
    if isinstance(call, Mapping):
        cursor = call["arguments"]["cursor"]
        yield f"[dim]Next:[/] {escape(spell_command(again, {'cursor': cursor, **options}))}"
