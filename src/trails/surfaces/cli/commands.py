"""The ``trails`` command, assembled from the modules of this package."""

from __future__ import annotations

import typer

from trails.surfaces.cli.access import add_policy_commands, add_token_commands
from trails.surfaces.cli.calls import add_call_commands, add_get_command
from trails.surfaces.cli.clients import add_client_commands
from trails.surfaces.cli.files import add_file_commands
from trails.surfaces.cli.history import add_branch_commands, add_commit_commands
from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.project import (
    add_backup_commands,
    add_project_commands,
    add_recover_command,
    add_upkeep_commands,
)
from trails.surfaces.cli.queries import add_mutate_command, add_query_commands
from trails.surfaces.cli.root import build_root
from trails.surfaces.cli.serving import add_serve_command


def build_cli(operations: Operations, version: str) -> typer.Typer:
    """The ``trails`` command on top of some operations."""
    cli = build_root(version)
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
    add_backup_commands(cli, operations)
    add_recover_command(cli, operations)
    add_client_commands(cli, operations)
    add_token_commands(cli, operations)
    add_policy_commands(cli, operations)
    return cli
