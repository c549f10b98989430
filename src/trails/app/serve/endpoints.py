"""The start message of ``trails serve``: URLs, and commands to add them to a client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trails.app.clients.catalog import entry_name
from trails.app.serve.web import ServerStatus
from trails.app.settings import DATA_FOLDER, Settings
from trails.surfaces.cli.operations import Endpoint, Served


def describe(
    settings: Settings, folder: Path, url: str, standing: ServerStatus, *, guarded: bool
) -> Served:
    """Describe a server at a URL; ``guarded``: it requires credentials."""
    return Served(
        project=settings.project.name,
        data=str(folder / DATA_FOLDER),
        url=url,
        graphs=_endpoints(settings, url, standing.quarantined, guarded=guarded),
        owner=standing.here,
        pid=standing.pid,
        quarantined=standing.quarantined,
        access=standing.access,
    )


def _endpoints(
    settings: Settings, url: str, without: Mapping[str, str], *, guarded: bool
) -> list[Endpoint]:
    """Describe each graph's MCP endpoint, and how to add it to a client."""
    oauth = settings.auth.oauth
    signs_in = oauth is not None and oauth.advertise  # a header would disable that
    header = ' --header "Authorization: Bearer $TRAILS_TOKEN"' if guarded and not signs_in else ""
    endpoints = []
    for graph in settings.graphs:
        if graph not in without:
            name = entry_name(settings, graph)
            at = f"{url}/graphs/{graph}/mcp"
            add = f"claude mcp add --transport http {name} {at}{header}"
            endpoints.append(Endpoint(graph, at, add))
    return endpoints
