"""The ``trails`` command: what its parts add up to."""

from __future__ import annotations

from typing import Annotated

import typer

from trails.surfaces.cli.branches import add_branch_commands
from trails.surfaces.cli.calls import add_call_commands
from trails.surfaces.cli.clients import add_client_commands
from trails.surfaces.cli.commits import add_commit_commands
from trails.surfaces.cli.files import add_file_commands
from trails.surfaces.cli.instances import add_get_command
from trails.surfaces.cli.mutations import add_mutate_command
from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.project import add_project_commands
from trails.surfaces.cli.queries import add_query_commands
from trails.surfaces.cli.serving import add_serve_command
from trails.surfaces.cli.upkeep import add_upkeep_commands


def build_cli(operations: Operations, version: str) -> typer.Typer:
    """The ``trails`` command on top of some operations."""
    cli = typer.Typer(
        name="trails",
        help="A knowledge graph that agents can operate and author, safely.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )

    @cli.callback(invoke_without_command=True)
    def root(
        *,
        show_version: Annotated[
            bool,
            typer.Option("--version", help="Print the version and exit.", is_eager=True),
        ] = False,
    ) -> None:
        if show_version:
            print(f"trails {version}")  # noqa: T201 - this is the command's output
            raise typer.Exit

    add_project_commands(cli, operations)
    add_serve_command(cli, operations)
    add_query_commands(cli, operations)
    add_get_command(cli, operations)
    add_call_commands(cli, operations)
    add_mutate_command(cli, operations)
    add_file_commands(cli, operations)
    add_branch_commands(cli, operations)
    add_commit_commands(cli, operations)
    add_upkeep_commands(cli, operations)
    add_client_commands(cli, operations)
    return cli
