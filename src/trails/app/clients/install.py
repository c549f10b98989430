"""Write a server into a client's configuration, or remove it.

One place of the file is changed and a backup is kept. A change that can't be made safely is
refused, with the text to paste by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

import msgspec

from trails.app.clients.catalog import (
    CLIENTS,
    Client,
    Entry,
    Places,
    entry_name,
    find_client,
    launch_server,
    make_entry,
    same_server,
    server_address,
)
from trails.app.clients.configuration import Configuration, spell_entry
from trails.app.settings import DATA_FOLDER, Settings, choose_graph, read_settings
from trails.errors import InstallError
from trails.identity.tokens import TokenFile
from trails.model.upkeep import ClientPlace, Installation, InstallRequest, Outcome, Scope

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class EntryTarget:
    """One entry: a client's file, and a name in it."""

    client: Client
    scope: Scope
    file: Path
    name: str


def find_target(
    client: Client, scope: Scope, name: str, folder: Path, places: Places
) -> EntryTarget:
    """Find the entry that a request means."""
    if _NAME.fullmatch(name) is None:
        raise InstallError(
            f"{name!r} is not a valid server name: use 1 to 64 letters, digits, - and _"
        )
    if scope == "user":
        return EntryTarget(client, scope, client.user(places), name)
    if client.project is None:
        raise InstallError(f"{client.title} has no configuration per project; use --scope user")
    return EntryTarget(client, scope, folder.resolve() / client.project, name)


def show(target: EntryTarget, entry: Entry) -> Installation:
    """Return what would be written; nothing is changed."""
    return _tell(target, "shown", entry)


def install(target: EntryTarget, entry: Entry, *, force: bool) -> Installation:
    """Write an entry, unless it exists or its name is taken."""
    try:
        file = Configuration.read(target.client, target.file)
        present = file.entry(target.name)
        if same_server(present, entry):
            return _tell(target, "present", entry)
        difference = "" if present is None else _differences(present, entry)
        if difference and not force:
            raise _taken(target, difference)
        backup = file.write(file.put(target.name, entry))
    except InstallError as error:
        if error.data:
            raise
        snippet = spell_entry(target.client, target.name, entry)
        raise InstallError(
            f"{error.message}. Nothing was changed; add this by hand:\n{snippet}",
            file=str(target.file),
            snippet=snippet,
        ) from None
    return _tell(target, "replaced" if difference else "installed", entry, backup, difference)


def uninstall(target: EntryTarget, entries: Sequence[Entry]) -> Installation:
    """Remove an entry that is one of these; if none are given, remove any."""
    file = Configuration.read(target.client, target.file)
    present = file.entry(target.name)
    if present is None:
        return _tell(target, "absent")
    if entries and not any(same_server(present, each) for each in entries):
        raise InstallError(
            f"{target.name!r} in {target.file} is not the server of this graph; "
            "use --force to remove it anyway"
        )
    return _tell(target, "removed", backup=file.write(file.drop(target.name)))


def _taken(target: EntryTarget, difference: str) -> InstallError:
    return InstallError(
        f"{target.file} has another server called {target.name!r}; use --force to replace it, "
        f"or --name to choose another name. The difference:\n{difference}",
        file=str(target.file),
        difference=difference,
    )


def _differences(present: object, entry: Entry) -> str:
    """Return a line-by-line diff."""
    old, new = (json.dumps(each, indent=2, default=str).split("\n") for each in (present, entry))
    return "\n".join(unified_diff(old, new, "there", "wanted", lineterm="", n=99))


def _tell(
    target: EntryTarget,
    outcome: Outcome,
    entry: Entry | None = None,
    backup: Path | None = None,
    difference: str = "",
) -> Installation:
    client = target.client
    return Installation(
        client=client.name,
        title=client.title,
        outcome=outcome,
        name=target.name,
        scope=target.scope,
        file=str(target.file),
        snippet="" if entry is None else spell_entry(client, target.name, entry),
        backup=None if backup is None else str(backup),
        difference=difference,
        after=client.after if outcome in {"installed", "replaced", "removed"} else "",
    )


def list_clients(folder: Path) -> list[ClientPlace]:
    """List every client, with every file in which it looks for servers."""
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
    """Write a graph into a client's configuration; ``dry``: only return what would be written."""
    client = find_client(request.client)
    settings = read_settings(folder)
    graph = choose_graph(settings.graphs, request.graph)
    name = request.name or entry_name(settings, graph)
    target = find_target(client, request.scope, name, folder, Places.here())
    entry = _entry(client, folder, settings, graph, http=request.http)
    done = show(target, entry) if dry else install(target, entry, force=request.force)
    return msgspec.structs.replace(done, lacks=_missing_token(folder, settings, http=request.http))


def uninstall_client(folder: Path, request: InstallRequest) -> Installation:
    """Remove a graph from a client's configuration.

    With a name and ``force`` the project is not read: it may no longer exist.
    """
    client = find_client(request.client)
    if request.name is not None and request.force:
        return uninstall(
            find_target(client, request.scope, request.name, folder, Places.here()), ()
        )
    settings = read_settings(folder)
    graph = choose_graph(settings.graphs, request.graph)
    name = request.name or entry_name(settings, graph)
    target = find_target(client, request.scope, name, folder, Places.here())
    entries = [_entry(client, folder, settings, graph, http=False)]
    if client.http and settings.server.port:
        entries.append(_entry(client, folder, settings, graph, http=True))
    return uninstall(target, () if request.force else entries)


def _missing_token(folder: Path, settings: Settings, *, http: bool) -> str:
    """Say that a token is missing, if the project requires one: only its holder knows it."""
    oauth = settings.auth.oauth
    if (http and oauth is not None and oauth.advertise) or not (
        oauth is not None or TokenFile(folder / DATA_FOLDER).read()
    ):
        return ""
    advice = "This project requires a token ('trails token new' makes one): add it to the entry's "
    if http:
        return advice + "header 'Authorization: Bearer <token>'"
    return advice + "environment as TRAILS_TOKEN=<token>"


def _entry(client: Client, folder: Path, settings: Settings, graph: str, *, http: bool) -> Entry:
    if not http:
        return make_entry(client.dialect, launch_server(folder, graph))
    if not client.http:
        raise InstallError(
            f"{client.title} does not support addresses in its file, only servers that it "
            "starts itself; omit --http"
        )
    return make_entry(client.dialect, server_address(settings, graph))
