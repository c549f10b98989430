"""The ``trails`` command: the command line on top of the real operations.

Imports are delayed until a command needs them. A client that starts ``trails serve --stdio``
waits for the first answer, so that command is served without the libraries for options and
colours, unless there is something to print.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from trails.app.memory import without_gc
from trails.surfaces.cli.plain import INTERRUPTED, print_status

_STDIO_OPTIONS: Final = {
    "--project": "project",
    "-p": "project",
    "--graph": "graph",
    "-g": "graph",
    "--server": "server",
}


def main() -> None:
    try:
        with without_gc():
            run = _plain_stdio(sys.argv[1:]) or _command_line(sys.argv[1:2])
        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _command_line(first: Sequence[str]) -> Callable[[], object]:
    """Return all commands; for ``serve`` only that one."""
    from trails import __version__  # noqa: PLC0415

    if first == ["serve"]:
        from trails.app.serve.commands import LocalServer  # noqa: PLC0415
        from trails.surfaces.cli.options import build_root  # noqa: PLC0415
        from trails.surfaces.cli.serving import add_serve_command  # noqa: PLC0415

        cli = build_root(__version__)
        add_serve_command(cli, LocalServer())
        return cli
    from trails.app.local import LocalOperations  # noqa: PLC0415
    from trails.surfaces.cli.commands import build_cli  # noqa: PLC0415

    return build_cli(LocalOperations(), __version__)


def _plain_stdio(arguments: Sequence[str]) -> Callable[[], object] | None:
    """Run ``serve --stdio`` if the arguments are plain; return whether it was run."""
    if list(arguments[:2]) != ["serve", "--stdio"]:
        return None
    options, values = arguments[2::2], arguments[3::2]
    given = {_STDIO_OPTIONS.get(option, ""): value for option, value in zip(options, values)}  # noqa: B905
    if len(options) != len(values) or len(given) != len(options) or "" in given:
        return None
    if {"project", "server"} <= given.keys():
        return None
    from trails.errors import TrailsError  # noqa: PLC0415

    def serve() -> None:
        try:
            number = _serve_stdio(given)
        except TrailsError:
            _command_line(["serve"])()  # the full command line meets it again and reports it
        else:
            sys.exit(INTERRUPTED if number == signal.SIGINT else 0)

    return serve


def _serve_stdio(given: Mapping[str, str]) -> int:
    """Serve a project, or a server elsewhere, which needs less to be imported."""
    if "server" in given:
        from trails.app.serve.relay.remote import serve_remote  # noqa: PLC0415

        return serve_remote(given["server"], given.get("graph"), print_status)
    from trails.app.serve.commands import LocalServer  # noqa: PLC0415

    folder = Path(given.get("project", "."))
    return LocalServer().serve_stdio(folder, given.get("graph"), print_status)
