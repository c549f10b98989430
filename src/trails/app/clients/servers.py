"""How a client reaches a graph of a project: by starting a server, or at an address."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trails.app.clients.entries import Address, Launch
from trails.app.settings import Settings
from trails.errors import InstallError


def entry_name(settings: Settings, graph: str) -> str:
    """What the entry is called if nobody says: after the project, and its graph if not main."""
    project = settings.project.name
    return project if graph == "main" else f"{project}-{graph}"


def launch_server(folder: Path, graph: str) -> Launch:
    """A server over standard streams, by paths that hold wherever the client starts it."""
    where = str(folder.resolve())
    try:
        where.encode()
    except UnicodeEncodeError:
        raise InstallError(f"the folder {where!r} has a name that is not text") from None
    command, *start = trails_command()
    return Launch(command, (*start, "serve", "--stdio", "--graph", graph, "--project", where))


def server_address(settings: Settings, graph: str) -> Address:
    """Where ``trails serve`` listens for this graph."""
    server = settings.server
    if server.port == 0:
        raise InstallError(
            "[server] port = 0 lets the system choose another port at every start, so no "
            "address can be written down; give a port in trails.toml, or leave --http out"
        )
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)  # noqa: S104 - a comparison
    shown = f"[{host}]" if ":" in host else host
    return Address(f"http://{shown}:{server.port}/graphs/{graph}/mcp")


def trails_command() -> tuple[str, ...]:
    """The command that runs this very installation, whatever the search path says."""
    python = Path(os.path.abspath(sys.executable))  # noqa: PTH100 - links are kept: they lead to the environment
    script = python.with_name("trails.exe" if sys.platform == "win32" else "trails")
    return (str(script),) if script.is_file() else (str(python), "-m", "trails")
