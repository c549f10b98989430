"""Compare the entries of MCP clients for a project with what ``trails mcp install`` writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from trails.app.clients.catalog import CLIENTS, Places, entry_name, same_server
from trails.app.clients.configuration import Configuration, EntryTarget, ProjectEntries
from trails.app.settings import Settings
from trails.errors import InstallError
from trails.model.upkeep import Finding, Scope, flag, passed


def examine_clients(folder: Path, settings: Settings) -> Iterator[Finding]:
    """Report entries that were edited by hand, or start another program than is installed."""
    places, sound = Places.here(), []
    for client in CLIENTS.values():
        targets = [("user", client.user(places))]
        if client.project is not None:
            targets.append(("project", folder / client.project))
        for scope, file in targets:
            for graph in settings.graphs if file.exists() else ():
                name = entry_name(settings, graph)
                target = EntryTarget(client, cast(Scope, scope), file, name)
                finding = _examine(ProjectEntries(target, folder, settings, graph))
                if finding is not None and finding.severity == "ok":
                    sound.append(finding.detail)
                elif finding is not None:
                    yield finding
    yield passed("clients", "; ".join(sound) or "no MCP client has an entry for this project")


def _examine(entries: ProjectEntries) -> Finding | None:
    client, name, where = entries.target.client, entries.target.name, str(entries.target.file)
    try:
        present = Configuration.read(client, entries.target.file).entry(name)
    except InstallError as error:
        fix = "correct the file by hand; it is not changed"
        return flag("client_unreadable", error.message, fix, where=where)
    if present is None:
        return None
    if any(same_server(present, each) for each in entries.all()):
        return passed("clients", f"{client.title}: {name}")
    option = f" --graph {entries.graph}" if len(entries.settings.graphs) > 1 else ""
    option += f" --scope {entries.target.scope}"
    return flag(
        "client_entry_edited",
        f"the entry {name!r} of {client.title} is not what 'trails mcp install' writes: it was "
        "edited by hand, or is of another project, port or Python",
        f"trails mcp install {client.name}{option} --force",
        where=where,
    )
