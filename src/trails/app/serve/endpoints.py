"""What ``trails serve`` says when it is ready."""

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
    """A server at a URL, and who has the data open; ``guarded``: it asks for credentials."""
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
    """Where each graph's MCP endpoint is, and how a client is told of it."""
    oauth = settings.auth.oauth
    signs_in = oauth is not None and oauth.advertise  # with a header it would not
    header = ' --header "Authorization: Bearer $TRAILS_TOKEN"' if guarded and not signs_in else ""
    endpoints = []
    for graph in settings.graphs:
        if graph not in without:
            name = entry_name(settings, graph)
            at = f"{url}/graphs/{graph}/mcp"
            add = f"claude mcp add --transport http {name} {at}{header}"
            endpoints.append(Endpoint(graph, at, add))
    return endpoints
