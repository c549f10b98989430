"""``trails mcp``: let programs that speak MCP in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from trails.model.upkeep import Installation, InstallRequest, Scope
from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.options import GraphOption, JsonOption, ProjectOption
from trails.surfaces.cli.reporting import Reporting

ClientArgument = Annotated[
    str, typer.Argument(help="Which program; 'trails mcp clients' lists them.", metavar="CLIENT")
]
NameOption = Annotated[
    str | None, typer.Option(help="What the server is called there.", show_default="the project")
]
ScopeOption = Annotated[
    Scope, typer.Option(help="For all that you do, or for work in the project folder.")
]


def add_client_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""
    mcp = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
    cli.add_typer(mcp, name="mcp", help="Let programs that speak MCP in.")

    @mcp.command(epilog="Example: trails mcp install claude-code")
    def install(
        client: ClientArgument,
        *,
        graph: GraphOption = None,
        name: NameOption = None,
        scope: ScopeOption = "user",
        http: Annotated[
            bool, typer.Option("--http", help="Write the address of 'trails serve'.")
        ] = False,
        dry: Annotated[
            bool, typer.Option("--print", help="Print what goes where, and change nothing.")
        ] = False,
        force: Annotated[
            bool, typer.Option("--force", help="Replace another server of the same name.")
        ] = False,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Write a graph into a program's configuration. All else in it stays as it is."""
        with Reporting(as_json=as_json) as report:
            request = InstallRequest(client, graph, name, scope, http, force)
            done = operations.install_client(project, request, dry=dry)
            report.value = done
            report.text += _told(done)

    @mcp.command(epilog="Example: trails mcp uninstall claude-code")
    def uninstall(
        client: ClientArgument,
        *,
        graph: GraphOption = None,
        name: NameOption = None,
        scope: ScopeOption = "user",
        force: Annotated[
            bool, typer.Option("--force", help="Even if it is another server of that name.")
        ] = False,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Take a graph out of a program's configuration."""
        with Reporting(as_json=as_json) as report:
            request = InstallRequest(client, graph, name, scope, force=force)
            done = operations.uninstall_client(project, request)
            report.value = done
            report.text += _told(done)

    @mcp.command(epilog="Example: trails mcp clients")
    def clients(*, project: ProjectOption = Path(), as_json: JsonOption = False) -> None:
        """List the programs, and the files in which they look for servers."""
        with Reporting(as_json=as_json) as report:
            found = operations.clients(project)
            report.value = {"clients": found}
            for each in found:
                missing = "" if each.exists else "  [dim](not there yet)[/]"
                report.text.append(
                    f"[bold]{each.client:15}[/] {each.scope:8} {escape(each.file)}{missing}"
                )


def _told(done: Installation) -> list[str]:
    """What became of a request, in words."""
    name, title, file = (escape(each) for each in (done.name, done.title, done.file))
    if done.outcome == "shown":
        lines = [f"[dim]This goes into[/] {file}[dim]:[/]", escape(done.snippet.rstrip())]
        return [*lines, escape(done.lacks)] if done.lacks else lines
    text = {
        "installed": f"[bold]{name}[/] is in {title} now: {file}",
        "replaced": f"[bold]{name}[/] in {title} is this graph now: {file}",
        "present": f"[bold]{name}[/] is already installed in {title}: {file}",
        "removed": f"[bold]{name}[/] is no longer in {title}: {file}",
        "absent": f"{title} has no [bold]{name}[/]: {file}",
    }
    lines = [text[done.outcome]]
    if done.difference:
        lines.append(escape(done.difference))
    if done.backup:
        lines.append(f"[dim]As it was: {escape(done.backup)}[/]")
    if done.lacks and done.outcome != "present":
        lines.append(escape(done.lacks))
    if done.after:
        lines.append(escape(done.after))
    return lines
