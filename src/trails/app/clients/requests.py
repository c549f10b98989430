"""Carry out what the command line asks for about clients."""

from __future__ import annotations

from pathlib import Path

import msgspec

from trails.app.clients.catalog import CLIENTS, Client, find_client
from trails.app.clients.entries import Entry, make_entry
from trails.app.clients.install import aim, install, show, uninstall
from trails.app.clients.places import Places
from trails.app.clients.servers import entry_name, launch_server, server_address
from trails.app.settings import DATA_FOLDER, Settings, choose_graph, read_settings
from trails.errors import InstallError
from trails.identity.token_files import TokenFile
from trails.model.clients import ClientPlace, Installation, InstallRequest


def list_clients(folder: Path) -> list[ClientPlace]:
    """Every client, and every file in which it looks for servers."""
    places = Places.here()
    found = []
    for client in CLIENTS.values():
        user = client.user(places)
        found.append(ClientPlace(client.name, client.title, "user", str(user), user.exists()))
        if client.project is not None:
            file = folder.resolve() / client.project
            found.append(
                ClientPlace(client.name, client.title, "project", str(file), file.exists())
            )
    return found


def install_client(folder: Path, request: InstallRequest, *, dry: bool) -> Installation:
    """Write a graph into a client's configuration; ``dry``: only say what would be written."""
    client = find_client(request.client)
    settings = read_settings(folder)
    graph = choose_graph(settings.graphs, request.graph)
    name = request.name or entry_name(settings, graph)
    target = aim(client, request.scope, name, folder, Places.here())
    entry = _entry(client, folder, settings, graph, http=request.http)
    done = show(target, entry) if dry else install(target, entry, force=request.force)
    return msgspec.structs.replace(done, lacks=_lacks(folder, settings, http=request.http))


def uninstall_client(folder: Path, request: InstallRequest) -> Installation:
    """Take a graph out of a client's configuration.

    With a name and ``force`` the project is not asked: it may be gone.
    """
    client = find_client(request.client)
    if request.name is not None and request.force:
        return uninstall(aim(client, request.scope, request.name, folder, Places.here()), ())
    settings = read_settings(folder)
    graph = choose_graph(settings.graphs, request.graph)
    name = request.name or entry_name(settings, graph)
    target = aim(client, request.scope, name, folder, Places.here())
    entries = [_entry(client, folder, settings, graph, http=False)]
    if client.http and settings.server.port:
        entries.append(_entry(client, folder, settings, graph, http=True))
    return uninstall(target, () if request.force else entries)


def _lacks(folder: Path, settings: Settings, *, http: bool) -> str:
    """The token, where the project asks for one: it is known to nobody but who has it."""
    oauth = settings.auth.oauth
    if (http and oauth is not None and oauth.advertise) or not (
        oauth is not None or TokenFile(folder / DATA_FOLDER).read()
    ):
        return ""
    told = "This project asks for a token ('trails token new' makes one): add it to the entry's "
    if http:
        return told + "header 'Authorization: Bearer <token>'"
    return told + "environment as TRAILS_TOKEN=<token>"


def _entry(client: Client, folder: Path, settings: Settings, graph: str, *, http: bool) -> Entry:
    if not http:
        return make_entry(client.dialect, launch_server(folder, graph))
    if not client.http:
        raise InstallError(
            f"{client.title} can't be given an address in its file, only a server that it "
            "starts itself; leave --http out"
        )
    return make_entry(client.dialect, server_address(settings, graph))
