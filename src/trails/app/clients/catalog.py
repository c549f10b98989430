"""The MCP clients that can be configured: their files, and the form of their entries.

A client reaches a graph by starting a server (``Launch``) or at an address
(``RunningServer``); ``make_entry`` writes either in the client's own format.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal, Self

from trails.app.sessions.servers import parse_address, url_of
from trails.app.settings import Settings
from trails.errors import InstallError, NotFoundError


@dataclass(frozen=True, slots=True)
class Places:
    """The configuration folders of one user on one system."""

    system: str
    """``linux``, ``darwin`` or ``win32``; other systems are treated like ``linux``."""
    environment: Mapping[str, str]

    @classmethod
    def here(cls) -> Self:
        """Return the folders of this process's user."""
        return cls(sys.platform, os.environ)

    @property
    def home(self) -> Path:
        name = "USERPROFILE" if self.system == "win32" else "HOME"
        return self._folder(name) or Path.home()

    @property
    def config(self) -> Path:
        """Where programs that follow the XDG rules look, on every system."""
        return self._folder("XDG_CONFIG_HOME") or self.home / ".config"

    @property
    def programs(self) -> Path:
        """Where desktop programs keep their settings."""
        if self.system == "win32":
            return self._folder("APPDATA") or self.home / "AppData" / "Roaming"
        if self.system == "darwin":
            return self.home / "Library" / "Application Support"
        return self.config

    def folder(self, variable: str, fallback: Path) -> Path:
        """Return a folder that can be set by an environment variable."""
        return self._folder(variable) or fallback

    def _folder(self, variable: str) -> Path | None:
        given = self.environment.get(variable, "")
        return Path(given) if given else None


Dialect = Literal["typed", "plain", "windsurf", "gemini", "opencode"]
Entry = dict[str, object]

WAYS: Final = frozenset({"type", "command", "args", "url", "httpUrl", "serverUrl"})
"""The keys that say how to reach a server; all others belong to the user."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A server that the client starts and talks to over its standard streams."""

    command: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that is already running."""

    url: str


def make_entry(dialect: Dialect, server: Launch | RunningServer) -> Entry:
    """Return the entry for a server in a client's format."""
    if isinstance(server, RunningServer):
        return _ADDRESSES[dialect](server.url)
    if dialect == "opencode":
        return {"type": "local", "command": [server.command, *server.arguments], "enabled": True}
    plain: Entry = {"command": server.command, "args": list(server.arguments)}
    return {"type": "stdio", **plain} if dialect == "typed" else plain


def same_server(present: object, entry: Mapping[str, object]) -> bool:
    """Whether an entry reaches the same server; keys added by the user don't count."""
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


Syntax = Literal["json", "toml"]


@dataclass(frozen=True, slots=True)
class Client:
    name: str
    title: str
    user: Callable[[Places], Path]
    """The user's global file."""
    project: str | None
    """The file for one project, relative to its folder; ``None`` if the client has none."""
    path: tuple[str, ...]
    """The keys that lead to its servers."""
    dialect: Dialect
    after: str
    """What the user must do so that the client notices."""
    syntax: Syntax = "json"
    http: bool = True
    """Whether its file can name a running server."""


def find_client(name: str) -> Client:
    found = CLIENTS.get(name)
    if found is not None:
        return found
    near = get_close_matches(name.lower(), CLIENTS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise NotFoundError(f"unknown client {name!r}; {hint}supported are {', '.join(CLIENTS)}")


def _opencode(places: Places) -> Path:
    """The file may have either extension; an existing one is kept."""
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
        "Zed reloads its settings automatically; the agent panel's settings list it.",
    ),
    Client(
        "opencode",
        "opencode",
        _opencode,
        "opencode.json",
        ("mcp",),
        "opencode",
        "Restart opencode.",
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
        "Restart Gemini CLI; /mcp lists it.",
    ),
)
CLIENTS: Final = {each.name: each for each in _ALL}


def entry_name(settings: Settings, graph: str) -> str:
    """Return the default name of an entry: the project, and the graph unless it is main."""
    project = settings.project.name
    return project if graph == "main" else f"{project}-{graph}"


def launch_server(folder: Path, graph: str) -> Launch:
    """Return a server over standard streams, with absolute paths."""
    where = str(folder.resolve())
    try:
        where.encode()
    except UnicodeEncodeError:
        raise InstallError(f"the folder {where!r} has a name that is not valid Unicode") from None
    command, *start = trails_command()
    return Launch(command, (*start, "serve", "--stdio", "--graph", graph, "--project", where))


def server_address(settings: Settings, graph: str) -> RunningServer:
    """Return where ``trails serve`` listens for this graph."""
    server = settings.server
    if server.port == 0:
        raise InstallError(
            "[server] port = 0 lets the system choose a new port at every start, so no "
            "fixed address exists; set a port in trails.toml, or omit --http"
        )
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)  # noqa: S104 - a comparison
    shown = f"[{host}]" if ":" in host else host
    return RunningServer(f"http://{shown}:{server.port}/graphs/{graph}/mcp")


def remote_server(client: Client, server: str, graph: str) -> Launch | RunningServer:
    """Return how a client reaches a graph of a server elsewhere.

    A client that can only start commands gets one that passes its messages on.
    """
    url = url_of(parse_address(server))
    if client.http:
        return RunningServer(f"{url}/graphs/{graph}/mcp")
    command, *start = trails_command()
    return Launch(command, (*start, "serve", "--stdio", "--server", url, "--graph", graph))


def trails_command() -> tuple[str, ...]:
    """Return the command that runs this installation, whatever the search path says."""
    python = Path(os.path.abspath(sys.executable))  # noqa: PTH100 - links are kept: they lead to the environment
    script = python.with_name("trails.exe" if sys.platform == "win32" else "trails")
    return (str(script),) if script.is_file() else (str(python), "-m", "trails")
