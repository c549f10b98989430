"""``trails serve``: serve a project to MCP clients and programs, over HTTP or stdio.

``trails reload``: have a running server read changed declarations.

``trails mcp``: add a graph to the configuration of MCP clients, or remove it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from trails.errors import TrailsError
from trails.model.upkeep import Installation, InstallRequest, ReloadReport, Scope
from trails.surfaces.cli.operations import Operations, ServeCommand, Served
from trails.surfaces.cli.options import (
    FolderOption,
    GraphOption,
    GraphsOption,
    JsonOption,
    ProjectOption,
    ServerOption,
    place_of,
)
from trails.surfaces.cli.output.markup import escape
from trails.surfaces.cli.output.plain import INTERRUPTED, print_status
from trails.surfaces.cli.output.reporting import Reporting, escape_json, print_text


def add_serve_command(cli: typer.Typer, server: ServeCommand) -> None:
    """Add it to the command line."""

    @cli.command(epilog="Examples: trails serve --port 8321 · trails serve --stdio --graph main")
    def serve(
        *,
        stdio: Annotated[
            bool,
            typer.Option("--stdio", help="Serve one MCP client on standard input and output."),
        ] = False,
        server_url: Annotated[
            str | None,
            typer.Option(
                "--server",
                help="With --stdio: pass all messages on to this Trails server, with the token in "
                "TRAILS_TOKEN.",
                metavar="URL",
            ),
        ] = None,
        graph: GraphOption = None,
        host: Annotated[
            str | None,
            typer.Option(
                help="Address to listen on; other than loopback only with credentials.",
                show_default="[server] host",
            ),
        ] = None,
        port: Annotated[
            int | None,
            typer.Option(
                help="Port to listen on; 0 picks a free one.",
                min=0,
                max=65535,
                show_default="[server] port",
            ),
        ] = None,
        read_only: Annotated[bool, typer.Option("--read-only", help="Refuse all writes.")] = False,
        project: FolderOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Serve the project to MCP clients; several processes can serve it at once."""
        code, folder = 0, project or Path()
        with Reporting(as_json=as_json) as report:
            if stdio and (host is not None or port is not None or as_json):
                raise TrailsError("--host, --port and --json cannot be combined with --stdio")
            if server_url is not None:
                if not stdio or project is not None or read_only:
                    raise TrailsError(
                        "--server requires --stdio, and cannot be combined with --project and "
                        "--read-only"
                    )
                code = server.serve_remote(server_url, graph, print_status)
            elif stdio:
                code = server.serve_stdio(folder, graph, print_status, read_only=read_only)
            else:
                if graph is not None:
                    raise TrailsError("--graph requires --stdio; HTTP serves all graphs")
                show = _print_json if as_json else _print
                code = server.serve_http(
                    folder, host, port, show, print_status, read_only=read_only
                )
            report.silent = True
        if code == signal.SIGINT:
            raise typer.Exit(INTERRUPTED)


def _print_json(served: Served) -> None:
    """One line, so that a program can wait for it."""
    sys.stdout.buffer.write(escape_json(msgspec.json.encode(served)) + b"\n")
    sys.stdout.buffer.flush()


def _print(served: Served) -> None:
    through = "" if served.owner else f", through process {served.pid}, which owns the project"
    lines = [
        f"[bold]{escape(served.project)}[/] is served at {escape(served.url)}{through}.",
        f"  data: {escape(served.data)}",
    ]
    for each in served.graphs:
        lines += [
            f"  graph [bold]{escape(each.graph)}[/]: {escape(each.url)}",
            f"    {escape(each.add)}",
        ]
    lines += [f"  access: {escape(line)}" for line in served.access]
    lines += [
        f"  [red]graph {escape(graph)} is not served:[/] {escape(reason)}"
        for graph, reason in served.quarantined.items()
    ]
    print_text(*lines, "Press Ctrl-C to stop.")


ClientArgument = Annotated[
    str, typer.Argument(help="The MCP client; 'trails mcp clients' lists them.", metavar="CLIENT")
]
NameOption = Annotated[
    str | None,
    typer.Option(help="Name of the server in the client.", show_default="the project's name"),
]
RemoteOption = Annotated[
    str | None,
    typer.Option(
        "--server", help="URL of a running server, whose graph it is instead.", metavar="URL"
    ),
]
ScopeOption = Annotated[
    Scope, typer.Option(help="Install for all your work, or for the project folder only.")
]


def add_reload_command(cli: typer.Typer, operations: Operations) -> None:
    """Add it to the command line."""

    @cli.command(epilog="Example: trails reload -p acme")
    def reload(
        *,
        apply_schema: Annotated[
            bool,
            typer.Option(
                "--apply-schema",
                help="Apply changed types to the stored data, if they fit it. Development does so "
                "in any case.",
            ),
        ] = False,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphsOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Have the running server read the changed module, queries and policies."""
        with Reporting(as_json=as_json) as report:
            place = place_of(project, server)
            done = operations.reload(place, graph, report.progress, apply_schema=apply_schema)
            report.value = {"served": done is not None, "graphs": done or []}
            if done is None:
                report.text = ["No process serves this project; the next one reads the files."]
            else:
                report.text = [line for each in done for line in _reloaded(each)]
                report.code = 1 if any(each.error for each in done) else 0


def _reloaded(report: ReloadReport) -> Iterator[str]:
    graph, error = escape(report.graph), report.error
    if error is not None:
        yield f"Graph {graph} was not reloaded; the declarations before stay in use."
        yield f"  {escape(str(error))}"
        return
    yield f"Reloaded graph {graph}: {escape(report.summary())}."
    yield from (f"  stored types: {escape(each)}" for each in report.schema)


def add_client_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""
    mcp = typer.Typer(no_args_is_help=True)
    cli.add_typer(mcp, name="mcp", help="Add this project to MCP clients, or remove it.")

    @mcp.command(epilog="Example: trails mcp install claude-code")
    def install(
        client: ClientArgument,
        *,
        graph: GraphOption = None,
        name: NameOption = None,
        scope: ScopeOption = "user",
        server: RemoteOption = None,
        http: Annotated[
            bool, typer.Option("--http", help="Connect to a running 'trails serve' over HTTP.")
        ] = False,
        dry: Annotated[
            bool, typer.Option("--print", help="Print the configuration without changing any file.")
        ] = False,
        force: Annotated[
            bool, typer.Option("--force", help="Replace a different server with the same name.")
        ] = False,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Add a graph to a client's configuration; other entries are not changed."""
        with Reporting(as_json=as_json) as report:
            request = InstallRequest(client, graph, name, scope, http, force, server)
            done = operations.install_client(project, request, dry=dry)
            report.value = done
            report.text += _describe(done)

    @mcp.command(epilog="Example: trails mcp uninstall claude-code")
    def uninstall(
        client: ClientArgument,
        *,
        graph: GraphOption = None,
        name: NameOption = None,
        scope: ScopeOption = "user",
        server: RemoteOption = None,
        force: Annotated[
            bool, typer.Option("--force", help="Remove the entry even if it is a different server.")
        ] = False,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Remove a graph from a client's configuration."""
        with Reporting(as_json=as_json) as report:
            request = InstallRequest(client, graph, name, scope, force=force, server=server)
            done = operations.uninstall_client(project, request)
            report.value = done
            report.text += _describe(done)

    @mcp.command(epilog="Example: trails mcp clients")
    def clients(*, project: ProjectOption = Path(), as_json: JsonOption = False) -> None:
        """List the supported MCP clients and their configuration files."""
        with Reporting(as_json=as_json) as report:
            found = operations.clients(project)
            report.value = {"clients": found}
            for each in found:
                missing = "" if each.exists else "  [dim](does not exist yet)[/]"
                report.text.append(
                    f"[bold]{each.client:15}[/] {each.scope:8} {escape(each.file)}{missing}"
                )


def _describe(done: Installation) -> list[str]:
    """The outcome of a request, line by line."""
    name, title, file = (escape(each) for each in (done.name, done.title, done.file))
    if done.outcome == "shown":
        lines = [f"[dim]Add this to[/] {file}[dim]:[/]", escape(done.snippet.rstrip())]
        return [*lines, escape(done.lacks)] if done.lacks else lines
    text = {
        "installed": f"Added [bold]{name}[/] to {title}: {file}",
        "replaced": f"Replaced [bold]{name}[/] in {title}: {file}",
        "present": f"[bold]{name}[/] is already installed in {title}: {file}",
        "removed": f"Removed [bold]{name}[/] from {title}: {file}",
        "absent": f"{title} has no server [bold]{name}[/]: {file}",
    }
    lines = [text[done.outcome]]
    if done.difference:
        lines.append(escape(done.difference))
    if done.backup:
        lines.append(f"[dim]Backup of the previous file: {escape(done.backup)}[/]")
    if done.lacks and done.outcome != "present":
        lines.append(escape(done.lacks))
    if done.after:
        lines.append(escape(done.after))
    return lines
