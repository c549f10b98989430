"""``trails get`` and ``trails read``: lists of instances, one instance, and the text of a field.

``read`` writes the text alone to standard output, so that a file or pipe gets it unchanged; where
it is from, and the command that goes on, are printed on standard error.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, cast
from urllib.parse import unquote

import msgspec
import typer

from trails.errors import QueryError
from trails.model.texts import count
from trails.model.uris import HERE, SCHEME, InstanceAddress, ReadPoint, parse_address
from trails.surfaces.cli.operations import InstancePage, Listing, Operations, ReadState, RecordName
from trails.surfaces.cli.options import (
    BranchOption,
    FolderOption,
    GraphOption,
    JsonOption,
    ServerOption,
    SnapshotOption,
    open_session,
)
from trails.surfaces.cli.output.markup import escape, has_colour, render
from trails.surfaces.cli.output.reporting import Part, print_text
from trails.surfaces.cli.output.tables import TextTable
from trails.surfaces.cli.values import short, spell

_MAIN: Final = "main"
_CALLS: Final = {"next": "Next", "previous": "Previous", "next_match": "Next match"}
"""Calls of an answer that go on, as they are printed."""


NearOption = Annotated[
    str | None,
    typer.Option(
        help="Only the nearest by a Vector field: to a text, to [numbers], or to those in @FILE.",
        metavar="FIELD=TEXT",
    ),
]


def read_near(text: str) -> dict[str, object]:
    """What ``--near`` asks for: ``field=text``, ``field=[0.1, 0.2]`` or ``field=@file.json``."""
    field, equals, value = text.partition("=")
    if not equals or not field or not value:
        raise QueryError(f"--near {text[:100]!r} is not FIELD=TEXT or FIELD=[NUMBERS]")
    if value.startswith("@"):
        path = Path(value[1:])
        try:
            value = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise QueryError(f"--near: {path} can't be read: {error}") from None
    elif not value.startswith("["):
        return {"field": field, "text": value}
    try:
        return {"field": field, "vector": msgspec.json.decode(value, type=list[float])}
    except msgspec.MsgspecError:
        raise QueryError("--near: the vector is not a list of numbers in JSON") from None


def read_name(text: str, nodes: str, view: ReadState) -> RecordName:
    """The record that ``Type/id``, a URI or an IRI names; a URI may name a branch or commit."""
    if text.startswith(SCHEME) or (nodes and text.startswith(nodes)):
        address = parse_address(text, nodes or SCHEME)
        if not isinstance(address, InstanceAddress):
            raise QueryError(f"{text[:200]!r} does not name one record; write Type/id")
        return RecordName(address.type, address.id, _view(address.place, view))
    type_name, slash, identifier = text.partition("/")
    if not slash or not type_name or not identifier:
        raise QueryError(f"{text[:200]!r} is not a record; write Type/id")
    is_handle = identifier.isascii() and "/" not in identifier
    return RecordName(type_name, text if is_handle else identifier, view)


def _view(place: ReadPoint, view: ReadState) -> ReadState:
    if place == HERE:
        return view
    named = ReadState(place.branch or _MAIN, place.commit)
    if view not in (ReadState(), named):
        raise QueryError("the URI names another branch or commit than the options; omit those")
    return named


def add_reading_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""

    @cli.command(
        epilog="Examples: trails get Task --where status=open · trails get Task -f title,priority "
        "· trails get Task/t1"
    )
    def get(
        type_name: Annotated[
            str,
            typer.Argument(help="The type of the instances, or one record.", metavar="TYPE[/ID]"),
        ],
        identifier: Annotated[
            str | None, typer.Argument(help="Show only the instance with this id.", metavar="ID")
        ] = None,
        *,
        where: Annotated[
            str | None,
            typer.Option(help="Only instances with this value.", metavar="FIELD=VALUE"),
        ] = None,
        near: NearOption = None,
        fields: Annotated[
            list[str] | None,
            typer.Option(
                "--fields",
                "-f",
                help="Show these fields, separated by commas.",
                metavar="FIELD,...",
                show_default="all of one record, the labels of a list",
            ),
        ] = None,
        limit: Annotated[
            int | None,
            typer.Option("--limit", "-n", help="Maximum number of instances.", show_default="100"),
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
        """List the instances of a type, or show one; --json prints it as JSON-LD."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            view, names = ReadState(branch, snapshot), _split_names(fields)
            listing = Listing(type_name, where, limit, None, cursor, names)
            if identifier is not None or "/" in type_name:
                if near is not None or listing != Listing(type_name, fields=names):
                    raise QueryError(
                        "--where, --near, --limit and --cursor apply to lists; leave out the id"
                    )
                named = (
                    read_name(type_name, session.nodes, view)
                    if identifier is None
                    else RecordName(type_name, identifier, view)
                )
                report.value = found = session.instance(named, fields=names, as_json_ld=as_json)
                report.text = [] if as_json else list(_show_record(found, session.nodes))
            elif near is not None:
                if names:
                    raise QueryError("--fields and --near are mutually exclusive")
                given: dict[str, object] = {
                    "type": type_name,
                    "near": read_near(near),
                    "where": where,
                    "limit": limit,
                    "cursor": cursor,
                    "branch": None if branch == _MAIN else branch,
                    "snapshot": snapshot,
                }
                given = {name: each for name, each in given.items() if each is not None}
                report.value = nearest = session.call("node_list", given)
                report.text = list(_show_nearest(nearest, type_name))
            else:
                report.value = page = session.instances(view, listing)
                report.text = list(_show_page(page, listing, session.nodes))

    @cli.command(epilog="Example: trails read Document/handbook body --offset 12000")
    def read(
        record: Annotated[
            str, typer.Argument(help="The record: Type/id, its URI or its IRI.", metavar="RECORD")
        ],
        field: Annotated[str, typer.Argument(help="The field.", metavar="FIELD")],
        *,
        offset: Annotated[
            int | None, typer.Option(help="The character to begin with.", show_default="0")
        ] = None,
        length: Annotated[
            int | None, typer.Option(help="Characters to read.", show_default="8000")
        ] = None,
        before: Annotated[
            int | None, typer.Option(help="Characters to add before the offset.")
        ] = None,
        item: Annotated[int | None, typer.Option(help="Of a list: which item, from 0.")] = None,
        path: Annotated[
            str | None, typer.Option(help="Of JSON: a JSON pointer.", metavar="/NAME/0")
        ] = None,
        query: Annotated[
            str | None,
            typer.Option("--query", "-q", help="Begin before a match of these words."),
        ] = None,
        match: Annotated[
            int | None, typer.Option(help="Which match, from 1.", show_default="1")
        ] = None,
        cursor: Annotated[
            str | None, typer.Option(help="Go on where an earlier read ended, at its commit.")
        ] = None,
        branch: BranchOption = _MAIN,
        snapshot: SnapshotOption = None,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Read a part of a field's text, as it is stored."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            named = read_name(record, session.nodes, ReadState(branch, snapshot))
            options = {"item": item, "path": path, "query": query, "length": length}
            view = named.view
            arguments: dict[str, object] = {
                "type": named.type,
                "record": named.id,
                "field": field,
                "offset": offset,
                "cursor": cursor,
                "match": match,
                "before": before,
                **options,
                "branch": None if view.branch == _MAIN else view.branch,
                "snapshot": view.snapshot,
            }
            given = {name: value for name, value in arguments.items() if value is not None}
            found = session.record("read_record_field", given)
            report.value = found
            if as_json:
                return
            report.silent = True
            places = {
                "branch": None if branch == _MAIN else branch,
                "snapshot": snapshot,
                "project": project,
                "server": server,
                "graph": graph,
            }
            again = ["trails", "read", record, field]
            show_window(found, again, {**options, **places})


def _split_names(given: Sequence[str] | None) -> tuple[str, ...]:
    names = [name.strip() for text in given or () for name in text.split(",")]
    if "" in names:
        raise QueryError("--fields has an empty name; write --fields one,another")
    return tuple(dict.fromkeys(names))


def _show_record(found: Mapping[str, object], nodes: str) -> Iterator[Part]:
    """A record as ``trails diff`` shows one: its name, and a line for each field with a value."""
    yield f"[bold]{escape(_handle(str(found['iri']), nodes))}[/]"
    for name, value in found.items():
        if name not in {"iri", "type"} and value not in (None, []):
            yield f"    {escape(name)}  {spell(value, nodes)}"


def _show_page(page: InstancePage, listing: Listing, nodes: str) -> Iterator[Part]:
    if not page.instances:
        yield f"No instances of {escape(listing.type)}."
        return
    table = TextTable("id", *(listing.fields or ("label",)))
    for each in page.instances:
        handle = unquote(each.iri.rpartition("/")[2])
        values = each.values or {}
        cells = [_value(values.get(name), nodes) for name in listing.fields]
        table.add_row(escape(handle), *(cells or [escape(each.label)]))
    yield table
    yield ""
    more = "" if page.next is None else " on this page"
    yield f"[dim]{count(len(page.instances), 'instance')}{more}[/]"
    if page.next is not None:
        yield f"[dim]For the next page, add[/] --cursor {escape(page.next)}"


def _value(value: object, nodes: str) -> str:
    if value is None or value == []:
        return ""
    if isinstance(value, str) and not value.startswith(nodes):
        return escape(value)
    return spell(value, nodes)


def _handle(iri: str, nodes: str) -> str:
    return unquote(iri.removeprefix(nodes)) if nodes else iri


def _show_nearest(found: Mapping[str, object], type_name: str) -> Iterator[Part]:
    records = cast(Sequence[Mapping[str, object]], found["records"])
    if not records:
        yield f"No instances of {escape(type_name)} have a vector in this field."
        return
    table = TextTable("score", "id", "label")
    for each in records:
        identifier = unquote(str(each["id"]).rpartition("/")[2])
        table.add_row(f"{each['score']:.6g}", escape(identifier), escape(str(each["title"])))
    yield table
    call = found.get("next")
    yield ""
    more = "" if call is None else " on this page"
    yield f"[dim]{count(len(records), 'instance')}{more}, the nearest first[/]"
    if isinstance(call, Mapping):
        cursor = str(call["arguments"]["cursor"])
        yield f"[dim]For the next page, add[/] --cursor {escape(cursor)}"


def show_window(
    found: Mapping[str, object], again: Sequence[str], options: Mapping[str, object]
) -> None:
    """Print a window on a text, and on standard error where it is and how to go on."""
    text, start = str(found["text"]), cast(int, found["start"])
    if sys.stdout.isatty():
        spans = cast(Sequence[Mapping[str, int]], found.get("matches", ()))
        shown = highlight(text, [(each["start"] - start, each["end"] - start) for each in spans])
        sys.stdout.write(render(shown, colour=has_colour(sys.stdout)))
        sys.stdout.flush()
    else:
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
    notes = [] if text.endswith("\n") else [""]
    notes.append(f"[dim]{escape(_describe(found))}[/]")
    for key, word in _CALLS.items():
        call = found.get(key)
        if isinstance(call, Mapping):
            command = spell_command(again, _going_on(call["arguments"], options))
            notes.append(f"[dim]{word}:[/] {escape(command)}")
    print_text(*notes, stream=sys.stderr)


def _going_on(arguments: Mapping[str, object], options: Mapping[str, object]) -> dict[str, object]:
    """The options of a command that makes a call; a cursor knows its commit, a match does not."""
    if "cursor" in arguments:
        return {**options, "cursor": arguments["cursor"]}
    commit = str(arguments["record"]).removeprefix(f"{SCHEME}at/").partition("/")[0]
    return {**options, "branch": None, "snapshot": commit, "match": arguments["match"]}


def _describe(found: Mapping[str, object]) -> str:
    total, commit = cast(int, found["total"]), short(str(found["commit"]))
    if found["complete"]:
        return f"All {count(total, 'character')}, at commit {commit}."
    return f"Characters {found['start']:,} to {found['end']:,} of {total:,}, at commit {commit}."


def highlight(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """A text for a terminal, with its matches in another style."""
    shown, at = "", 0
    for start, end in spans:
        shown += escape(text[at : max(at, start)])
        at = max(at, start)
        shown += f"[mark]{escape(text[at : max(at, end)])}[/]"
        at = max(at, end)
    return shown + escape(text[at:])


def spell_command(words: Sequence[str], options: Mapping[str, object]) -> str:
    """A command that can be pasted into a shell."""
    parts = list(words)
    for name, value in options.items():
        if value is not None:
            parts += [f"--{name}", str(value.resolve() if isinstance(value, Path) else value)]
    return shlex.join(parts)
