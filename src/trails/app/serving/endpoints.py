"""What ``trails serve`` says when it is ready."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trails.app.clients.servers import entry_name
from trails.app.serving.web import Standing
from trails.app.settings import DATA_FOLDER, Settings
from trails.surfaces.cli.operations import Endpoint, Served


def describe(settings: Settings, folder: Path, url: str, standing: Standing) -> Served:
    """A server at a URL, and who has the data open."""
    return Served(
        project=settings.project.name,
        data=str(folder / DATA_FOLDER),
        url=url,
        graphs=_endpoints(settings, url, standing.quarantined),
        owner=standing.here,
        pid=standing.pid,
        quarantined=standing.quarantined,
        access=standing.access,
    )


def _endpoints(settings: Settings, url: str, without: Mapping[str, str]) -> list[Endpoint]:
    """Where each graph's MCP endpoint is, and how a client is told of it."""
    endpoints = []
    for graph in settings.graphs:
        if graph not in without:
            name = entry_name(settings, graph)
            at = f"{url}/graphs/{graph}/mcp"
            endpoints.append(Endpoint(graph, at, f"claude mcp add --transport http {name} {at}"))
    return endpoints
