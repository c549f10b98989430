"""The ``trails`` command: what its parts add up to."""

from __future__ import annotations

import typer

from trails.surfaces.cli.backups import add_backup_commands
from trails.surfaces.cli.branches import add_branch_commands
from trails.surfaces.cli.calls import add_call_commands
from trails.surfaces.cli.clients import add_client_commands
from trails.surfaces.cli.commits import add_commit_commands
from trails.surfaces.cli.files import add_file_commands
from trails.surfaces.cli.instances import add_get_command
from trails.surfaces.cli.mutations import add_mutate_command
from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.policies import add_policy_commands
from trails.surfaces.cli.project import add_project_commands
from trails.surfaces.cli.queries import add_query_commands
from trails.surfaces.cli.recovery import add_recover_command
from trails.surfaces.cli.root import build_root
from trails.surfaces.cli.serving import add_serve_command
from trails.surfaces.cli.tokens import add_token_commands
from trails.surfaces.cli.upkeep import add_upkeep_commands


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
