"""What is said about programs that speak MCP and their configuration."""

from __future__ import annotations

from typing import Literal

import msgspec

Scope = Literal["user", "project"]
Outcome = Literal["installed", "replaced", "present", "removed", "absent", "shown"]


class ClientPlace(msgspec.Struct, frozen=True):
    """A file in which a client looks for servers."""

    client: str
    title: str
    scope: Scope
    file: str
    exists: bool


class InstallRequest(msgspec.Struct, frozen=True):
    """Which graph goes into which client's configuration, and how it is reached there."""

    client: str
    graph: str | None = None
    name: str | None = None
    scope: Scope = "user"
    http: bool = False
    force: bool = False


class Installation(msgspec.Struct, frozen=True):
    """What became of a request, and what the entry is."""

    client: str
    title: str
    outcome: Outcome
    name: str
    scope: Scope
    file: str
    snippet: str
    """What one would paste into the file by hand."""
    backup: str | None = None
    """The copy of the file as it was."""
    difference: str = ""
    """How an entry that was there differed, line by line."""
    after: str = ""
    """What makes the client notice."""
    lacks: str = ""
    """What must be added to the entry by hand, because it is not for files that others read."""
