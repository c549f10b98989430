"""``trails changes``: list the commits of a branch after one, or follow it.

Following asks from the commit that the last answer ends with, and opens the project or server each
time: other commands can write meanwhile, and a server may be restarted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic, sleep
from typing import Annotated, Final, cast

import msgspec
import typer

from trails.errors import LockedError, UnavailableError, UnreachableError
from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.options import (
    BranchOption,
    FolderOption,
    GraphOption,
    JsonOption,
    ServerOption,
    open_session,
    place_of,
)
from trails.surfaces.cli.output.markup import escape
from trails.surfaces.cli.output.reporting import Reporting, complain, escape_json, print_text
from trails.surfaces.cli.values import short, when

_MARKS: Final = {"created": "[green]+[/]", "updated": "[yellow]~[/]", "deleted": "[red]-[/]"}
_WAIT: Final = 30
"""Seconds for which one request waits."""
_SHORTEST: Final = 1.0
"""Seconds between two requests without an event; a project without a server does not wait."""
_LONGEST: Final = 30.0
"""Seconds between two attempts to reach a server."""
_PASSING: Final = (UnreachableError, UnavailableError, LockedError)
"""What may be over at the next attempt."""

Row = Mapping[str, object]


def add_changes_command(cli: typer.Typer, operations: Operations) -> None:
    """Add it to the command line."""

    @cli.command(
        epilog="Examples: trails changes --since 4f6c2a91 · trails changes --follow --type Task"
    )
    def changes(
        *,
        since: Annotated[
            str | None,
            typer.Option(
                help="List the commits after this one; 0 for all of them.",
                metavar="COMMIT",
                show_default="the head of the branch with --follow, else 0",
            ),
        ] = None,
        follow: Annotated[
            bool, typer.Option("--follow", "-f", help="Wait for further changes.")
        ] = False,
        type_names: Annotated[
            list[str] | None,
            typer.Option("--type", help="Only changes of this type; may be repeated."),
        ] = None,
        limit: Annotated[
            int, typer.Option("--limit", "-n", help="Maximum number of commits in one answer.")
        ] = 100,
        branch: BranchOption = "main",
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """List changes, oldest first: each commit, and the nodes that it changed.

        With --follow and --json, each commit is one line of JSON.
        """
        asked: dict[str, object] = {"type": type_names or [], "limit": limit, "branch": branch}
        if not follow:
            with open_session(operations, project, server, graph, as_json=as_json) as (
                report,
                session,
            ):
                report.value = found = session.record(
                    "graph_changes", {**asked, "since": since or "0"}
                )
                report.text = list(_listed(found))
            return

        def ask(position: str | None) -> Row:
            given = asked if position is None else {**asked, "since": position, "wait": _WAIT}
            with operations.open(
                place_of(project, server), graph, report.progress, declared=False
            ) as session:
                return session.record("graph_changes", given)

        with Reporting(as_json=as_json) as report:
            report.silent = True
            _follow(ask, since, as_json=as_json)


def _follow(ask: Callable[[str | None], Row], since: str | None, *, as_json: bool) -> None:
    """Print changes until interrupted; a server that can't be reached is tried again."""
    position, failures = since, 0
    while True:
        begun = monotonic()
        try:
            found = ask(position)
        except _PASSING as error:
            failures += 1
            pause = min(_SHORTEST * 2 ** (failures - 1), _LONGEST)
            complain(f"{error.message}; trying again in {pause:g} s")
            sleep(pause)
            continue
        failures = 0
        events = cast(Sequence[Row], found["events"])
        for event in events:
            if as_json:
                sys.stdout.buffer.write(escape_json(msgspec.json.encode(event)) + b"\n")
            else:
                print_text(*_lines(event))
        sys.stdout.flush()
        if position is not None and not events:
            sleep(max(0.0, _SHORTEST - (monotonic() - begun)))
        position = str(found["since"])


def _listed(found: Row) -> Iterator[str]:
    events = cast(Sequence[Row], found["events"])
    for event in events:
        yield from _lines(event)
    if not events:
        yield "No changes."
    if not found["complete"]:
        yield f"[dim]For the next page, add[/] --since {escape(str(found['since']))}"


def _lines(event: Row) -> Iterator[str]:
    """A commit, and a line for each node."""
    message = escape(str(event["message"]).partition("\n")[0])
    made = f"{when(str(event['time']))}  {escape(str(event['actor']))}"
    head = f"{short(str(event['commit']))}  {made}"
    yield f"[bold]{head}[/]  {message}".rstrip()
    if event["schema_changed"]:
        yield "  [cyan]*[/] types changed"
    changes = cast(Sequence[Row], event["changes"])
    for each in changes:
        yield f"  {_MARKS[str(each['change'])]} {escape(str(each['handle']))}"
    if event["next"] is not None:
        counts = [event[name] for name in ("created", "updated", "deleted")]
        more = "" if None in counts else f"{sum(cast(list[int], counts)) - len(changes)} "
        yield f"  [dim]{more}more: trails commit show {short(str(event['commit']))}[/]"
