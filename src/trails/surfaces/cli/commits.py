"""``trails commit`` and ``trails diff``: what changed, when, and by whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.markup import escape

from trails.errors import QueryError
from trails.model.history import Commit
from trails.model.versions import CommitDetail, CommitFilter, Difference, FieldChange
from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.options import (
    FolderOption,
    GraphOption,
    JsonOption,
    ServerOption,
    place_of,
)
from trails.surfaces.cli.reporting import Reporting
from trails.surfaces.cli.sessions import open_session
from trails.surfaces.cli.texts import plain_table, short, spell, when

_MARKS: Final = {"created": "[green]+[/]", "updated": "[yellow]~[/]", "deleted": "[red]−[/]"}
_NONE: Final = "[dim]none[/]"

ChangesOption = Annotated[int, typer.Option("--limit", "-n", help="Nodes to show at most.")]


def add_commit_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""
    commit = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
    cli.add_typer(commit, name="commit", help="Commits: list them, look into one.")

    @commit.command("list", epilog="Example: trails commit list --node Task/42 --limit 5")
    def list_commits(
        *,
        branch: Annotated[
            str | None,
            typer.Option(
                "--branch", "-b", help="A branch, or a commit: what led to it.", show_default="main"
            ),
        ] = None,
        everything: Annotated[
            bool, typer.Option("--all", help="Of all branches, and of deleted ones.")
        ] = False,
        actor: Annotated[str | None, typer.Option(help="Only what this actor did.")] = None,
        node: Annotated[
            str | None, typer.Option(help="Only what changed this node.", metavar="TYPE/ID")
        ] = None,
        limit: Annotated[int, typer.Option("--limit", "-n", help="How many.")] = 20,
        after: Annotated[
            str | None, typer.Option(help="Go on where a page ended.", metavar="CURSOR")
        ] = None,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """List commits, newest first."""
        with Reporting(as_json=as_json) as report:
            if everything and branch is not None:
                raise QueryError("--all and --branch exclude each other; give one of them")
            wanted = CommitFilter(None if everything else branch or "main", actor, node)
            with operations.open(
                place_of(project, server), graph, report.tell, declared=False
            ) as session:
                page = session.commits(wanted, after=after, limit=limit)
            report.value = page
            table = plain_table("commit", "time", "actor", "message")
            for each in page.commits:
                where = f"[dim]{escape(each.branch)}:[/] " if everything else ""
                table.add_row(
                    short(each.id), when(each.time), escape(each.actor), where + _message(each)
                )
            report.text = [table] if page.commits else ["No commits."]
            if page.next is not None:
                report.text += ["", f"[dim]There are more: add[/] --after {page.next}"]

    @commit.command(epilog="Example: trails commit show 4f6c2a91b7d0")
    def show(
        reference: Annotated[
            str,
            typer.Argument(help="A commit's id or its beginning, or a branch.", metavar="COMMIT"),
        ],
        *,
        limit: ChangesOption = 50,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Show a commit, and what it changed per node and field."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            detail = session.commit(reference, limit=limit)
            report.value = detail
            report.text = [*_facts(detail), "", *_changes(detail.difference, session.nodes)]

    @cli.command(epilog="Example: trails diff main review")
    def diff(
        start: Annotated[str, typer.Argument(help="A branch or commit.", metavar="A")],
        end: Annotated[str, typer.Argument(help="Another one.", metavar="B")],
        *,
        limit: ChangesOption = 50,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Show what turns the state of A into that of B, per node and field."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            difference = session.diff(start, end, limit=limit)
            report.value = difference
            report.text = [_counts(difference), *_changes(difference, session.nodes)]


def _message(commit: Commit) -> str:
    return escape(commit.message) or f"[dim]+{commit.added} −{commit.removed} statements[/]"


def _facts(detail: CommitDetail) -> Iterator[str]:
    commit = detail.commit
    yield f"commit   [bold]{commit.id}[/]"
    if commit.parents:
        yield f"parents  {', '.join(map(short, commit.parents))}"
    yield f"branch   {escape(commit.branch)}"
    yield f"actor    {escape(commit.actor)}"
    yield f"time     {when(commit.time)}"
    if commit.message:
        yield f"message  {escape(commit.message)}"
    yield f"changed  {_counts(detail.difference)} (+{commit.added} −{commit.removed} statements)"


def _counts(difference: Difference) -> str:
    return (
        f"{difference.created} created, {difference.updated} updated, {difference.deleted} deleted"
    )


def _changes(difference: Difference, nodes: str) -> Iterator[str]:
    for node in difference.changes:
        yield f"{_MARKS[node.change]} [bold]{escape(node.handle)}[/]"
        for field in node.fields:
            yield f"    {escape(field.field)}  {_field(field, node.change, nodes)}"
    if difference.truncated:
        left = difference.created + difference.updated + difference.deleted
        yield f"[dim]… {left - len(difference.changes):,} more nodes; --limit shows more[/]"


def _field(field: FieldChange, change: str, nodes: str) -> str:
    if field.removed or field.added:
        parts = [f"[red]−[/] {spell(each, nodes)}" for each in field.removed]
        parts += [f"[green]+[/] {spell(each, nodes)}" for each in field.added]
        return "  ".join(parts)
    before, after = (
        _NONE if value is None else spell(value, nodes) for value in (field.before, field.after)
    )
    if change == "updated":
        return f"{before} → {after}"
    return after if change == "created" else before
