"""Write a server into a client's configuration, or take it out.

The file is changed in one spot, its former state is kept beside it, and what the new
text says is compared with what it should say before anything is written. Whatever can't
be done like that is refused, with the text to paste by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from trails.app.clients.catalog import Client
from trails.app.clients.configuration import Configuration, spell_entry
from trails.app.clients.entries import Entry, same_server
from trails.app.clients.places import Places
from trails.errors import InstallError
from trails.model.clients import Installation, Outcome, Scope

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Target:
    """The spot of one entry: a client's file and a name in it."""

    client: Client
    scope: Scope
    file: Path
    name: str


def aim(client: Client, scope: Scope, name: str, folder: Path, places: Places) -> Target:
    """The spot that a request means."""
    if _NAME.fullmatch(name) is None:
        raise InstallError(
            f"{name!r} can't be the name of a server: it takes 1 to 64 letters, digits, - and _"
        )
    if scope == "user":
        return Target(client, scope, client.user(places), name)
    if client.project is None:
        raise InstallError(f"{client.title} has no configuration per project; use --scope user")
    return Target(client, scope, folder.resolve() / client.project, name)


def show(target: Target, entry: Entry) -> Installation:
    """What would be written where; nothing is."""
    return _tell(target, "shown", entry)


def install(target: Target, entry: Entry, *, force: bool) -> Installation:
    """Write an entry, unless it is there already or another one has its name."""
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
            f"{error.message}. Nothing was changed; by hand, this goes into it:\n{snippet}",
            file=str(target.file),
            snippet=snippet,
        ) from None
    return _tell(target, "replaced" if difference else "installed", entry, backup, difference)


def uninstall(target: Target, entries: Sequence[Entry]) -> Installation:
    """Take an entry out that is one of these; if none are given, whatever it is."""
    file = Configuration.read(target.client, target.file)
    present = file.entry(target.name)
    if present is None:
        return _tell(target, "absent")
    if entries and not any(same_server(present, each) for each in entries):
        raise InstallError(
            f"{target.name!r} in {target.file} is not the server of this graph; "
            "--force takes it out all the same"
        )
    return _tell(target, "removed", backup=file.write(file.drop(target.name)))


def _taken(target: Target, difference: str) -> InstallError:
    return InstallError(
        f"{target.file} has another server called {target.name!r}; --force replaces it, "
        f"--name gives this one another name. The difference:\n{difference}",
        file=str(target.file),
        difference=difference,
    )


def _differences(present: object, entry: Entry) -> str:
    """Line by line, what is there and what would be."""
    old, new = (json.dumps(each, indent=2, default=str).split("\n") for each in (present, entry))
    return "\n".join(unified_diff(old, new, "there", "wanted", lineterm="", n=99))


def _tell(
    target: Target,
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
