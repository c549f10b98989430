"""``trails branch``: list, create, delete, merge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from trails.model.merges import MergeRequest
from trails.surfaces.cli.merges import read_resolutions, read_side, show_merge
from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.options import (
    ExpectedHeadOption,
    FolderOption,
    GraphOption,
    IdempotencyKeyOption,
    JsonOption,
    MessageOption,
    ServerOption,
    place_of,
)
from trails.surfaces.cli.reporting import Reporting
from trails.surfaces.cli.sessions import open_session
from trails.surfaces.cli.texts import plain_table, short, when

NameArgument = Annotated[str, typer.Argument(help="The branch.")]


def add_branch_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""
    branch = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
    cli.add_typer(branch, name="branch", help="Branches: list, create, delete, merge.")

    @branch.command("list", epilog="Example: trails branch list")
    def list_branches(
        *,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """List the branches with their newest commits."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            found = session.branches()
            report.value = {"branches": found}
            table = plain_table("branch", "commit", "time", "actor", "message")
            for each in found:
                table.add_row(
                    escape(each.name),
                    short(each.commit) or "-",
                    when(each.time),
                    escape(each.actor),
                    escape(each.message),
                )
            report.text = [table]

    @branch.command(epilog="Example: trails branch create review --from main")
    def create(
        name: NameArgument,
        *,
        source: Annotated[
            str, typer.Option("--from", help="Where it begins.", metavar="BRANCH|COMMIT")
        ] = "main",
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Make a branch where another branch is, or at any commit."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            made = session.create_branch(name, source)
            report.value = {"branch": made}
            where = f"commit {short(made.commit)}" if made.commit else "the empty graph"
            report.text = [f"Made branch [bold]{escape(name)}[/] at {where}."]

    @branch.command(epilog="Example: trails branch delete review")
    def delete(
        name: NameArgument,
        *,
        force: Annotated[
            bool, typer.Option("--force", help="Even if it has commits that are merged nowhere.")
        ] = False,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Delete a branch. Its commits stay in the log, where their ids find them."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            gone = session.delete_branch(name, force=force)
            report.value = {"branch": gone, "deleted": True}
            where = f"; it was at commit {short(gone.commit)}" if gone.commit else ""
            report.text = [f"Deleted branch [bold]{escape(name)}[/]{where}."]

    @branch.command(
        epilog="Example: trails branch merge plan --resolve divergent_field:Task/t1.priority=ours"
    )
    def merge(
        source: Annotated[str, typer.Argument(help="The branch or commit to merge.")],
        *,
        into: Annotated[str, typer.Option(help="The branch that gets the changes.")] = "main",
        message: MessageOption = "",
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Say what would happen, and write nothing.")
        ] = False,
        resolve: Annotated[
            list[str] | None,
            typer.Option(
                help="Settle a conflict, as often as needed.",
                metavar="ID=ours|theirs|value:JSON",
            ),
        ] = None,
        resolutions: Annotated[
            Path | None,
            typer.Option(help='The same in a file: {"ID": "ours", …}.', metavar="FILE.json"),
        ] = None,
        ours: Annotated[
            bool, typer.Option("--ours", help="Settle all other conflicts with the target's side.")
        ] = False,
        theirs: Annotated[
            bool,
            typer.Option("--theirs", help="Settle all other conflicts with the source's side."),
        ] = False,
        expected_head: ExpectedHeadOption = None,
        idempotency_key: IdempotencyKeyOption = None,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Merge a branch, field by field. With conflicts nothing is written (exit code 1)."""
        with Reporting(as_json=as_json) as report:
            request = MergeRequest(
                source,
                into,
                message,
                read_resolutions(resolve or [], resolutions),
                dry_run,
                expected_head,
                idempotency_key,
                read_side(ours=ours, theirs=theirs),
            )
            with operations.open(
                place_of(project, server), graph, report.tell, declared=False
            ) as session:
                given = {"--project": project, "--server": server, "--graph": graph}
                show_merge(report, session.merge(request), request, session.nodes, given)
