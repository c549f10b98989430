"""What is written about a server: one entry, in the words of the client that reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Dialect = Literal["typed", "plain", "windsurf", "gemini", "opencode"]
Entry = dict[str, object]

WAYS: Final = frozenset({"type", "command", "args", "url", "httpUrl", "serverUrl"})
"""The keys that say how a server is reached; the others are the user's own."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A server that the client starts and talks to over its standard streams."""

    command: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """A server that runs already."""

    url: str


def make_entry(dialect: Dialect, server: Launch | Address) -> Entry:
    """The entry for a server in a client's words."""
    if isinstance(server, Address):
        return _ADDRESSES[dialect](server.url)
    if dialect == "opencode":
        return {"type": "local", "command": [server.command, *server.arguments], "enabled": True}
    plain: Entry = {"command": server.command, "args": list(server.arguments)}
    return {"type": "stdio", **plain} if dialect == "typed" else plain


def same_server(present: object, entry: Mapping[str, object]) -> bool:
    """Whether an entry reaches the same server; what the user added to it does not matter."""
    if not isinstance(present, dict) or any(present.get(key) != entry[key] for key in entry):
        return False
    return not (present.keys() - entry.keys()) & WAYS


_ADDRESSES: Final = {
    "typed": lambda url: {"type": "http", "url": url},
    "plain": lambda url: {"url": url},
    "windsurf": lambda url: {"serverUrl": url},
    "gemini": lambda url: {"httpUrl": url},
    "opencode": lambda url: {"type": "remote", "url": url, "enabled": True},
}
