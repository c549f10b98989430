"""The ``trails`` command: the command line on top of the real operations."""

from __future__ import annotations

import sys

from trails import __version__
from trails.app.local import LocalOperations
from trails.surfaces.cli.commands import build_cli
from trails.surfaces.cli.reporting import INTERRUPTED


def main() -> None:
    """Run the command line."""
    try:
        build_cli(LocalOperations(), __version__)()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
