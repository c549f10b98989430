"""``trails serve``: serve a project to MCP clients and programs, over HTTP or stdio."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape

from trails.errors import TrailsError
from trails.surfaces.cli.operations import ServeCommand, Served
from trails.surfaces.cli.options import GraphOption, JsonOption, ProjectOption
from trails.surfaces.cli.plain import INTERRUPTED, tell
from trails.surfaces.cli.reporting import Reporting
from trails.surfaces.cli.terminal import Terminal, escape_json


def add_serve_command(cli: typer.Typer, server: ServeCommand) -> None:
    """Add it to the command line."""

    @cli.command(epilog="Example: trails serve --port 8321, or trails serve --stdio --graph main")
    def serve(
        *,
        stdio: Annotated[
            bool,
            typer.Option("--stdio", help="Serve one MCP client on standard input and output."),
        ] = False,
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
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Serve the project to MCP clients; several processes can serve it at once."""
        code = 0
        with Reporting(as_json=as_json) as report:
            if stdio:
                if host is not None or port is not None or as_json:
                    raise TrailsError("--host, --port and --json cannot be combined with --stdio")
                code = server.serve_stdio(project, graph, tell, read_only=read_only)
            else:
                if graph is not None:
                    raise TrailsError("--graph requires --stdio; HTTP serves all graphs")
                show = _print_json if as_json else _print
                code = server.serve_http(project, host, port, show, tell, read_only=read_only)
            report.silent = True
        if code == signal.SIGINT:
            raise typer.Exit(INTERRUPTED)


def _print_json(served: Served) -> None:
    """One line, so that a program can wait for it."""
    sys.stdout.buffer.write(escape_json(msgspec.json.encode(served)) + b"\n")
    sys.stdout.buffer.flush()


def _print(served: Served) -> None:
    console = Terminal(soft_wrap=True)
    through = "" if served.owner else f", through process {served.pid}, which owns the project"
    console.print(f"[bold]{escape(served.project)}[/] is served at {escape(served.url)}{through}.")
    console.print(f"  data: {escape(served.data)}")
    for each in served.graphs:
        console.print(f"  graph [bold]{escape(each.graph)}[/]: {escape(each.url)}")
        console.print(f"    {escape(each.add)}")
    for line in served.access:
        console.print(f"  access: {escape(line)}")
    for graph, reason in served.quarantined.items():
        console.print(f"  [red]graph {escape(graph)} is not served:[/] {escape(reason)}")
    console.print("Press Ctrl-C to stop.")
