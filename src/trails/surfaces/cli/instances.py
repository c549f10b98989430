"""``trails get``: instances of a type, or one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import unquote

import typer
from rich.markup import escape

from trails.errors import QueryError
from trails.model.wording import count
from trails.surfaces.cli.operations import Listing, Operations, View
from trails.surfaces.cli.options import (
    BranchOption,
    FolderOption,
    GraphOption,
    JsonOption,
    ServerOption,
    SnapshotOption,
    place_of,
)
from trails.surfaces.cli.reporting import Reporting
from trails.surfaces.cli.texts import plain_table
from trails.surfaces.cli.values import show_members


def add_get_command(cli: typer.Typer, operations: Operations) -> None:
    """Add it to the command line."""

    @cli.command(epilog="Examples: trails get Task --where status=open · trails get Task t1 --json")
    def get(
        type_name: Annotated[str, typer.Argument(help="A type.", metavar="TYPE")],
        identifier: Annotated[
            str | None, typer.Argument(help="The id of one instance.", metavar="ID")
        ] = None,
        *,
        where: Annotated[
            str | None,
            typer.Option(help="Only those with this value.", metavar="FIELD=VALUE"),
        ] = None,
        limit: Annotated[
            int | None, typer.Option("--limit", "-n", help="How many.", show_default="100")
        ] = None,
        cursor: Annotated[str | None, typer.Option(help="Go on where a page ended.")] = None,
        branch: BranchOption = "main",
        snapshot: SnapshotOption = None,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Get the instances of a type as a table, or one of them; --json gives it as JSON-LD."""
        with Reporting(as_json=as_json) as report:
            listing = Listing(type_name, where, limit, None, cursor)
            if identifier is not None and listing != Listing(type_name):
                raise QueryError("--where, --limit and --cursor are for lists; leave out the id")
            view = View(branch, snapshot)
            with operations.open(
                place_of(project, server), graph, report.tell, declared=False
            ) as session:
                if identifier is not None:
                    found = session.instance(view, type_name, identifier)
                    report.value = found
                    report.text = list(show_members(_named(found), session.nodes))
                    return
                page = session.instances(view, listing)
            report.value = page
            table = plain_table("id", "label")
            for each in page.instances:
                table.add_row(escape(unquote(each.iri.rpartition("/")[2])), escape(each.label))
            report.text = [table] if page.instances else [f"No {escape(type_name)}."]
            if page.instances:
                shown = count(len(page.instances), "instance")
                more = "" if page.next is None else " on this page"
                report.text += ["", f"[dim]{shown}{more}[/]"]
            if page.next is not None:
                report.text.append(f"[dim]For the next page, add[/] --cursor {escape(page.next)}")


def _named(document: Mapping[str, object]) -> dict[str, object]:
    """A JSON-LD document with the short names of its properties."""
    found: dict[str, object] = {}
    for name, value in document.items():
        short = name.rpartition("#" if "#" in name else "/")[2].removeprefix("@")
        found[short] = (
            [_plain(each) for each in value] if isinstance(value, list) else _plain(value)
        )
    return found


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return value.get("@value", value.get("@id"))
    return value.rpartition("#")[2] if isinstance(value, str) else value
