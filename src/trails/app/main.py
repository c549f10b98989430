"""The ``trails`` command: the command line on top of the real operations.

Imports are delayed until a command needs them. A client that starts ``trails serve --stdio``
waits for the first answer, so that command is served without the libraries for options and
colours, unless there is something to print.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from trails.app.memory import without_gc
from trails.surfaces.cli.output.plain import INTERRUPTED, USAGE, print_status
from trails.surfaces.cli.shell.catalog import names_plugins, print_help

if TYPE_CHECKING:
    from trails.surfaces.cli.operations import Operations

_HELP: Final = ("--help", "-h", "help")
_STDIO_OPTIONS: Final = {
    "--project": "project",
    "-p": "project",
    "--graph": "graph",
    "-g": "graph",
    "--server": "server",
}


def main() -> None:
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except OSError as error:  # what reads our output ended, as `head` does, or can't take it
        code = 1 if isinstance(error, BrokenPipeError) else USAGE
        if code == USAGE:
            print_status(f"the output can't be written: {error.strerror or error}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code."""
    if "_TRAILS_COMPLETE" in os.environ:
        from trails.surfaces.cli.shell.completion import complete  # noqa: PLC0415

        complete(_operations(), arguments)
        return 0
    if not arguments or arguments[0] in _HELP:
        print_help(_plugin_commands())
        return 0 if arguments else USAGE
    if arguments[0] == "--version":
        from trails import __version__  # noqa: PLC0415

        print(f"trails {__version__}")  # noqa: T201 - this is the command's output
        return 0
    with without_gc():
        serve = _plain_stdio(arguments)
        if serve is None:
            from trails.surfaces.cli.commands import run_command  # noqa: PLC0415
    return run_command(_operations(), arguments) if serve is None else serve()


def _plugin_commands() -> dict[str, str]:
    """The commands of the plugins of this folder's project; without any, nothing is imported."""
    if not names_plugins(Path()):
        return {}
    return {each.name: each.summary for each in _operations().plugin_commands(Path())}


def _operations() -> Operations:
    return cast("Operations", _DelayedOperations())


class _DelayedOperations:
    """The operations on folders and servers, imported when a command begins its work."""

    def __getattr__(self, name: str) -> object:
        with without_gc():
            if name.startswith("serve_"):
                from trails.app.serve.commands import LocalServer as Found  # noqa: PLC0415
            else:
                from trails.app.local import LocalOperations as Found  # noqa: PLC0415
        return getattr(Found(), name)


def _plain_stdio(arguments: Sequence[str]) -> Callable[[], int] | None:
    """Return ``serve --stdio`` if the arguments are plain, as clients write them."""
    if list(arguments[:2]) != ["serve", "--stdio"]:
        return None
    options, values = arguments[2::2], arguments[3::2]
    given = {_STDIO_OPTIONS.get(option, ""): value for option, value in zip(options, values)}  # noqa: B905
    if len(options) != len(values) or len(given) != len(options) or "" in given:
        return None
    if {"project", "server"} <= given.keys():
        return None
    from trails.errors import TrailsError  # noqa: PLC0415

    def serve() -> int:
        try:
            number = _serve_stdio(given)
        except TrailsError:
            from trails.surfaces.cli.commands import run_command  # noqa: PLC0415

            return run_command(_operations(), arguments)  # meets it again and reports it
        return INTERRUPTED if number == signal.SIGINT else 0

    return serve


def _serve_stdio(given: Mapping[str, str]) -> int:
    """Serve a project, or a server elsewhere, which needs less to be imported."""
    if "server" in given:
        from trails.app.serve.relay.remote import serve_remote  # noqa: PLC0415

        return serve_remote(given["server"], given.get("graph"), print_status)
    from trails.app.serve.commands import LocalServer  # noqa: PLC0415

    folder = Path(given.get("project", "."))
    return LocalServer().serve_stdio(folder, given.get("graph"), print_status)
