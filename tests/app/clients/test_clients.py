"""Each client gets its own words, in its own file, on each system."""

import json
import os
import tomllib
from pathlib import Path, PurePosixPath

import pytest

from trails.app.clients.catalog import (
    CLIENTS,
    Launch,
    Places,
    RunningServer,
    find_client,
    make_entry,
    same_server,
)
from trails.app.clients.configuration import spell_entry
from trails.errors import NotFoundError

GOLDEN = Path(__file__).parents[2] / "golden" / "clients"
SYSTEMS = {
    "linux": {"HOME": "/home/ann"},
    "darwin": {"HOME": "/Users/ann"},
    "win32": {"USERPROFILE": "C:/Users/Ann", "APPDATA": "C:/Users/Ann/AppData/Roaming"},
}
LAUNCH = Launch("/opt/trails", ("serve", "--stdio", "--graph", "main", "--project", "/srv/acme"))
ADDRESS = RunningServer("http://127.0.0.1:8321/graphs/main/mcp")


def describe(client):
    """All that is known about a client, as text."""
    lines = [f"{client.title}\n"]
    for system, environment in SYSTEMS.items():
        file = PurePosixPath(client.user(Places(system, environment)))
        lines.append(f"{system:8} {file}")
    lines += [f"project  {client.project or 'none'}", "", spell(client, LAUNCH)]
    if client.http:
        lines.append(spell(client, ADDRESS))
    return "\n".join(lines)


def spell(client, server):
    """An entry as a file."""
    return spell_entry(client, "acme", make_entry(client.dialect, server))


@pytest.mark.req("G20")
@pytest.mark.parametrize("client", CLIENTS.values(), ids=list(CLIENTS))
def test_each_client_is_as_its_golden_file_says(client):
    """Where the file is and what is written into it (TRAILS_UPDATE_GOLDEN=1 writes it anew)."""
    file = GOLDEN / f"{client.name}.txt"
    if os.environ.get("TRAILS_UPDATE_GOLDEN"):
        file.write_text(describe(client), encoding="utf-8")
    assert describe(client) == file.read_text(encoding="utf-8")


def test_every_golden_file_has_its_client():
    """No file is left of a client that is gone."""
    assert {file.stem for file in GOLDEN.iterdir()} == set(CLIENTS)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=list(CLIENTS))
def test_what_is_spelled_is_read_by_others(client):
    """The standard readers of JSON and TOML find the entry at the client's path."""
    text = spell(client, LAUNCH)
    found = tomllib.loads(text) if client.syntax == "toml" else json.loads(text)
    for key in (*client.path, "acme"):
        found = found[key]
    assert found == make_entry(client.dialect, LAUNCH)


@pytest.mark.parametrize(
    ("variables", "client", "file"),
    [
        ({"XDG_CONFIG_HOME": "/x"}, "zed", "/x/zed/settings.json"),
        ({"XDG_CONFIG_HOME": "/x"}, "vscode", "/x/Code/User/mcp.json"),
        ({"CLAUDE_CONFIG_DIR": "/x"}, "claude-code", "/x/.claude.json"),
        ({"CODEX_HOME": "/x"}, "codex", "/x/config.toml"),
        ({"OPENCODE_CONFIG_DIR": "/x"}, "opencode", "/x/opencode.json"),
        ({"CODEX_HOME": ""}, "codex", "/home/ann/.codex/config.toml"),
    ],
)
def test_variables_move_files(variables, client, file):
    """Where a client follows a variable, so do we."""
    places = Places("linux", {"HOME": "/home/ann", **variables})
    assert CLIENTS[client].user(places) == Path(file)


def test_a_file_with_comments_is_kept_in_use(tmp_path):
    """Opencode reads .json and .jsonc; the one that is there is changed."""
    places = Places("linux", {"OPENCODE_CONFIG_DIR": str(tmp_path)})
    assert CLIENTS["opencode"].user(places).name == "opencode.json"
    (tmp_path / "opencode.jsonc").touch()
    assert CLIENTS["opencode"].user(places).name == "opencode.jsonc"


@pytest.mark.parametrize(
    ("given", "near"), [("claude", "claude-code"), ("VSCode", "vscode"), ("gemini", "gemini-cli")]
)
def test_an_unknown_client_is_told_the_nearest(given, near):
    """And all that are known."""
    with pytest.raises(NotFoundError, match=f"did you mean '{near}'") as caught:
        find_client(given)
    assert all(name in caught.value.message for name in CLIENTS)


@pytest.mark.parametrize(
    ("more", "same"),
    [
        ({}, True),
        ({"env": {"TOKEN": "t"}, "disabled": True}, True),
        ({"url": "http://elsewhere"}, False),
        ({"command": "/usr/bin/other"}, False),
    ],
)
def test_what_a_user_added_makes_no_other_server(more, same):
    """An entry is another server only if it is reached in another way."""
    entry = make_entry("plain", LAUNCH)
    assert same_server({**entry, **more}, entry) is same
