"""The root of the ``trails`` command, to which ``commands.py`` adds all commands."""

from __future__ import annotations

from typing import Annotated

import typer


def build_root(version: str) -> typer.Typer:
    """Build the root command with ``--version``."""
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

    return cli
