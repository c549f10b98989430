"""The clients that can be configured: what each reads, and where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal

from trails.app.clients.entries import Dialect
from trails.app.clients.places import Places
from trails.errors import NotFoundError

Syntax = Literal["json", "toml"]


@dataclass(frozen=True, slots=True)
class Client:
    """A program that speaks MCP."""

    name: str
    title: str
    user: Callable[[Places], Path]
    """The file for all that this user does."""
    project: str | None
    """The file for work in one folder, relative to it; ``None`` if the client has no such."""
    path: tuple[str, ...]
    """The keys that lead to its servers."""
    dialect: Dialect
    after: str
    """What makes the client notice."""
    syntax: Syntax = "json"
    http: bool = True
    """Whether its file can name a server that runs already."""


def find_client(name: str) -> Client:
    """A client by its name."""
    found = CLIENTS.get(name)
    if found is not None:
        return found
    near = get_close_matches(name.lower(), CLIENTS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? If not, " if near else ""
    raise NotFoundError(f"no client is called {name!r}; {hint}there are {', '.join(CLIENTS)}")


def _opencode(places: Places) -> Path:
    """Its file may end in either way; one that is there is kept."""
    folder = places.folder("OPENCODE_CONFIG_DIR", places.config / "opencode")
    commented = folder / "opencode.jsonc"
    return commented if commented.exists() else folder / "opencode.json"


def _zed(places: Places) -> Path:
    base = {"win32": places.programs / "Zed", "darwin": places.home / ".config" / "zed"}
    return base.get(places.system, places.config / "zed") / "settings.json"


_SERVERS: Final = ("mcpServers",)
_ALL: Final = (
    Client(
        "claude-code",
        "Claude Code",
        lambda places: places.folder("CLAUDE_CONFIG_DIR", places.home) / ".claude.json",
        ".mcp.json",
        _SERVERS,
        "typed",
        "Start a new session; /mcp shows it.",
    ),
    Client(
        "claude-desktop",
        "Claude Desktop",
        lambda places: places.programs / "Claude" / "claude_desktop_config.json",
        None,
        _SERVERS,
        "plain",
        "Quit Claude Desktop and start it again.",
        http=False,
    ),
    Client(
        "cursor",
        "Cursor",
        lambda places: places.home / ".cursor" / "mcp.json",
        ".cursor/mcp.json",
        _SERVERS,
        "plain",
        "Restart Cursor, and switch the server on under MCP in its settings.",
    ),
    Client(
        "vscode",
        "VS Code",
        lambda places: places.programs / "Code" / "User" / "mcp.json",
        ".vscode/mcp.json",
        ("servers",),
        "typed",
        "Run 'MCP: List Servers' from the command palette and start it.",
    ),
    Client(
        "windsurf",
        "Windsurf",
        lambda places: places.home / ".codeium" / "windsurf" / "mcp_config.json",
        None,
        _SERVERS,
        "windsurf",
        "Refresh the servers in Cascade's MCP panel.",
    ),
    Client(
        "zed",
        "Zed",
        _zed,
        ".zed/settings.json",
        ("context_servers",),
        "plain",
        "Zed notices by itself; the agent panel's settings show it.",
    ),
    Client(
        "opencode",
        "opencode",
        _opencode,
        "opencode.json",
        ("mcp",),
        "opencode",
        "Start opencode again.",
    ),
    Client(
        "codex",
        "Codex",
        lambda places: places.folder("CODEX_HOME", places.home / ".codex") / "config.toml",
        ".codex/config.toml",
        ("mcp_servers",),
        "plain",
        "Start a new session; /mcp shows it.",
        syntax="toml",
    ),
    Client(
        "gemini-cli",
        "Gemini CLI",
        lambda places: places.home / ".gemini" / "settings.json",
        ".gemini/settings.json",
        _SERVERS,
        "gemini",
        "Start Gemini CLI again; /mcp shows it.",
    ),
)
CLIENTS: Final = {each.name: each for each in _ALL}
