"""The ``trails`` command: the command line on top of the real operations."""

from __future__ import annotations

import sys

import typer

from trails import __version__
from trails.surfaces.cli.reporting import INTERRUPTED


def main() -> None:
    """Run the command line."""
    try:
        _build(sys.argv[1:2])()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _build(first: list[str]) -> typer.Typer:
    """All commands; for ``serve``, whose client waits, that one alone, which imports least."""
    if first == ["serve"]:
        from trails.app.serving.commands import LocalServer  # noqa: PLC0415
        from trails.surfaces.cli.root import build_root  # noqa: PLC0415
        from trails.surfaces.cli.serving import add_serve_command  # noqa: PLC0415

        cli = build_root(__version__)
        add_serve_command(cli, LocalServer())
        return cli
    from trails.app.local import LocalOperations  # noqa: PLC0415
    from trails.surfaces.cli.commands import build_cli  # noqa: PLC0415

    return build_cli(LocalOperations(), __version__)
