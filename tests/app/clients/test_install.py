"""``trails mcp install``: a client's file gets one entry, and loses nothing."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from trails.app.clients.configuration import read_configuration, replace_configuration
from trails.app.local import LocalOperations
from trails.errors import InstallError, NotFoundError, SettingsError, TrailsError
from trails.identity.tokens import TokenFile
from trails.model.actors import TokenRequest
from trails.model.upkeep import InstallRequest

ZED = """\
// Zed settings
{
  "theme": "One Dark", // dark
  "context_servers": {
    "github": { "command": "gh-mcp" } // keep this
  },
}
"""


class Home:
    """A user with a project, and the operations of the command line on it."""

    def __init__(self, folder):
        self.folder = folder
        self.project = folder / "work" / "acme"
        self.operations = LocalOperations()
        self.operations.new(self.project, None)

    def install(self, client, *, dry=False, **more):
        """Write the project into a client's configuration."""
        return self.operations.install_client(self.project, InstallRequest(client, **more), dry=dry)

    def uninstall(self, client, **more):
        """Take it out."""
        return self.operations.uninstall_client(self.project, InstallRequest(client, **more))

    def file(self, name, text=None, mode=0o644):
        """A file of the user."""
        path = self.folder / name
        if text is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            path.chmod(mode)
        return path

    def files(self):
        """All that is in the user's folder, but for the project."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file() and self.project not in path.parents
        }


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user whose folder is empty."""
    for variable in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "OPENCODE_CONFIG_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return Home(tmp_path)


@pytest.mark.parametrize(
    ("http", "told"),
    [(False, "environment as TRAILS_TOKEN=<token>"), (True, "'Authorization: Bearer <token>'")],
)
def test_a_token_that_is_asked_for_is_told_of(home, http, told):
    """An entry has none, and without it the client would only learn that it may not."""
    assert home.install("claude-code", dry=True, http=http).lacks == ""
    TokenFile(home.project / ".trails").issue(TokenRequest(actor="ada"))
    assert home.install("claude-code", dry=True, http=http).lacks.endswith(told)
    assert home.install("claude-code", http=http).lacks.endswith(told)
    shown = run(home, "install", "cursor", "--print", *(["--http"] if http else []))
    assert told in " ".join(shown.stdout.split())


def run(home, *arguments, code=0):
    """The real command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "trails", "mcp", *arguments],
        cwd=home.project,
        env={**os.environ, "HOME": str(home.folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.req("G20")
def test_the_command_installs_says_so_and_uninstalls(home):
    """Three runs of the real command: installed, already installed, taken out."""
    first = json.loads(run(home, "install", "claude-code", "--json").stdout)
    file = home.file(".claude.json")
    entry = json.loads(file.read_text())["mcpServers"]["acme"]
    assert first["outcome"] == "installed"
    assert first["file"] == str(file)
    assert entry["type"] == "stdio"
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-6:] == [
        "serve", "--stdio", "--graph", "main", "--project", str(home.project)
    ]  # fmt: skip
    assert "already installed" in run(home, "install", "claude-code").stdout
    assert "Removed acme from" in run(home, "uninstall", "claude-code").stdout
    assert json.loads(file.read_text()) == {"mcpServers": {}}


def test_a_server_elsewhere(home):
    """A client that speaks HTTP gets the address, one that starts commands a command."""
    server = "https://graphs.example:8443/acme/"
    home.project = home.folder  # no project is needed
    url = "https://graphs.example:8443/acme/graphs/sales/mcp"
    given = {"server": server, "graph": "sales"}
    done = home.install("cursor", **given)
    entry = json.loads(home.file(".cursor/mcp.json").read_text())["mcpServers"]["trails-sales"]
    assert entry == {"url": url}
    assert done.lacks.endswith("header 'Authorization: Bearer <token>'")
    assert home.install("cursor", **given).outcome == "present"
    assert home.uninstall("cursor", **given).outcome == "removed"
    started = json.loads(
        run(home, "install", "claude-desktop", "--server", server, "--json").stdout
    )
    assert started["lacks"].endswith("environment as TRAILS_TOKEN=<token>")
    entry = json.loads(Path(started["file"]).read_text())["mcpServers"]["trails"]
    assert entry["args"][-6:] == [
        "serve", "--stdio", "--server", "https://graphs.example:8443/acme", "--graph", "main"
    ]  # fmt: skip
    for wrong, says in (
        ({"server": "example"}, "is not a server address"),
        ({"server": server, "http": True}, "--http is for the server of this project"),
        ({"server": server, "graph": "a/../b"}, "can't name a project or graph"),
    ):
        with pytest.raises(TrailsError, match=says):
            home.install("cursor", **wrong)


@pytest.mark.req("G20")
def test_print_changes_nothing(home):
    """The snippet and its place are printed, and no file appears."""
    before = home.files()
    text = run(home, "install", "codex", "--print").stdout
    where, snippet = text.split("\n", 1)
    assert str(home.file(".codex/config.toml")) in where
    assert tomllib.loads(snippet)["mcp_servers"]["acme"]["args"][0] == "serve"
    assert home.files() == before


@pytest.mark.req("G20")
def test_refusals_are_told_in_full(home):
    """Another server of that name: exit code 2, the difference, and the file as it was."""
    text = '{"mcpServers": {"acme": {"command": "/usr/bin/other"}}}'
    file = home.file(".cursor/mcp.json", text)
    done = run(home, "install", "cursor", code=2)
    assert '-  "command": "/usr/bin/other"' in done.stderr
    assert "--force" in done.stderr
    assert file.read_text() == text
    problem = json.loads(run(home, "install", "cursr", "--json", code=2).stdout)["error"]
    assert problem["code"] == "not_found"
    assert "did you mean 'cursor'" in problem["message"]


def test_the_clients_are_listed_with_their_files(home):
    """Each with the file of the user and, where there is one, of the project."""
    home.file(".cursor/mcp.json", "{}")
    listed = json.loads(run(home, "clients", "--json").stdout)["clients"]
    there = {(each["client"], each["scope"]): each for each in listed}
    assert there["cursor", "user"]["exists"]
    assert there["cursor", "project"]["file"] == str(home.project / ".cursor/mcp.json")
    assert ("windsurf", "project") not in there


@pytest.mark.req("G20")
def test_a_file_is_kept_as_it_was_beside_the_new_one(home):
    """The copy has the old bytes and mode, and the new file the old mode."""
    file = home.file(".config/zed/settings.json", ZED, mode=0o640)
    done = home.install("zed")
    assert Path(done.backup).read_text() == ZED
    assert Path(done.backup).name.startswith("settings.json.bak-")
    assert {path.stat().st_mode & 0o777 for path in (file, Path(done.backup))} == {0o640}
    assert file.read_text().startswith(ZED[: ZED.index(" // keep this")] + ", // keep this")
    assert file.read_text().endswith("  },\n}\n")
    assert len(list(file.parent.iterdir())) == 2


@pytest.mark.req("G20")
def test_a_second_time_nothing_is_written(home):
    """Not even a copy is made."""
    home.install("zed")
    before = home.files()
    assert home.install("zed").outcome == "present"
    assert home.files() == before


@pytest.mark.req("G20")
def test_two_copies_of_one_second_have_two_names(home):
    """No copy is ever written over."""
    home.file(".cursor/mcp.json", "{}")
    copies = [home.install("cursor", name=f"n{number}").backup for number in range(4)]
    assert len(set(copies)) == 4
    assert all(Path(each).exists() for each in copies)


def test_what_the_user_added_to_the_entry_stays(home):
    """An entry with a variable of its own is still this server."""
    home.install("claude-code")
    file = home.file(".claude.json")
    said = json.loads(file.read_text())
    said["mcpServers"]["acme"]["env"] = {"TOKEN": "t"}
    file.write_text(json.dumps(said))
    assert home.install("claude-code").outcome == "present"
    assert home.uninstall("claude-code").outcome == "removed"


@pytest.mark.req("G20")
def test_force_replaces_that_entry_alone(home):
    """And says what was there."""
    home.file(
        ".gemini/settings.json", '{"a": 1, "mcpServers": {"acme": {"command": "x"}, "b": {}}}'
    )
    done = home.install("gemini-cli", force=True, http=True)
    said = json.loads(home.file(".gemini/settings.json").read_text())
    assert done.outcome == "replaced"
    assert '-  "command": "x"' in done.difference
    assert said == {
        "a": 1,
        "mcpServers": {"acme": {"httpUrl": "http://127.0.0.1:8321/graphs/main/mcp"}, "b": {}},
    }


@pytest.mark.req("G20")
def test_links_are_followed(home):
    """A file that is a link stays one; what it leads to is changed."""
    real = home.file("dotfiles/mcp.json", "{}\n")
    link = home.file(".cursor/mcp.json")
    link.parent.mkdir()
    link.symlink_to(real)
    home.install("cursor")
    assert link.is_symlink()
    assert "acme" in json.loads(real.read_text())["mcpServers"]


@pytest.mark.req("G20")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"mcpServers": {', "can't be changed safely: line 1"),
        ('{"mcpServers": [], "a": 1}', "'mcpServers' is not an object"),
        (b"{\xff}", "not UTF-8 text: byte 1"),
        ('{"mcpServers": {"a": 1}, "mcpServers": {}}', "occurs twice"),
    ],
)
def test_a_file_that_is_wrong_is_left_alone(home, content, reason):
    """The reason is told, and the text to paste by hand."""
    home.file(".cursor/mcp.json", content)
    before = home.files()
    with pytest.raises(InstallError) as caught:
        home.install("cursor")
    assert reason in caught.value.message
    assert json.loads(caught.value.data["snippet"])["mcpServers"]["acme"]
    assert caught.value.data["snippet"] in caught.value.message
    assert home.files() == before


@pytest.mark.parametrize(
    "content",
    [
        'mcp_servers = { other = { command = "x" } }\n',
        '[mcp_servers]\nacme = { command = "x" }\n',
        "a = [",
    ],
)
def test_tables_that_can_not_be_changed_safely_are_left_alone(home, content):
    """TOML has more ways to say a table than are changed here; the others are refused."""
    home.file(".codex/config.toml", content)
    before = home.files()
    with pytest.raises(InstallError, match="can't be changed safely") as caught:
        home.install("codex", force=True)
    assert "[mcp_servers.acme]" in caught.value.data["snippet"]
    assert home.files() == before


@pytest.mark.req("G20")
def test_a_table_in_two_places_is_left_alone(home):
    """Taking it out would take out what stands between: the new text says too little."""
    text = '[mcp_servers.acme]\nurl = "x"\n[tools]\nweb = true\n[mcp_servers.acme.env]\nA = "1"\n'
    home.file(".codex/config.toml", text)
    with pytest.raises(InstallError, match="its formatting is unusual"):
        home.uninstall("codex", force=True, name="acme")
    assert home.file(".codex/config.toml").read_text() == text


@pytest.mark.req("G20")
def test_what_is_no_file_is_left_alone(home):
    """A folder where the file should be, a link in a circle, a file where its folder should be."""
    home.file(".cursor/mcp.json").mkdir(parents=True)
    with pytest.raises(InstallError, match="is not a file"):
        home.install("cursor")
    loop = home.file(".claude.json")
    loop.symlink_to(loop)
    with pytest.raises(InstallError, match="can't be read"):
        home.install("claude-code")
    home.file(".codex", "")
    with pytest.raises(InstallError, match=r"can't be (read|written)"):
        home.install("codex")


@pytest.mark.req("G20")
def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path):
    """What another program wrote between reading and writing stays."""
    path = tmp_path / "settings.json"
    path.write_bytes(b"{}")
    old = read_configuration(path)
    path.write_bytes(b'{"new": 1}')
    with pytest.raises(InstallError, match="meanwhile"):
        replace_configuration(path, old, b"{} ")
    assert path.read_bytes() == b'{"new": 1}'
    assert list(tmp_path.iterdir()) == [path]


def test_another_server_is_not_taken_out(home):
    """Unless it is asked for with force; then the project may even be gone."""
    home.file(".cursor/mcp.json", '{"mcpServers": {"acme": {"command": "x"}}}')
    with pytest.raises(InstallError, match="not the server of this graph"):
        home.uninstall("cursor")
    home.project = home.folder / "gone"
    assert home.uninstall("cursor", name="acme", force=True).outcome == "removed"
    assert home.uninstall("cursor", name="acme", force=True).outcome == "absent"
    with pytest.raises(SettingsError):
        home.uninstall("cursor")


def test_a_project_has_its_own_file_where_the_client_has_one(home):
    """``--scope project`` writes below the project folder."""
    done = home.install("vscode", scope="project")
    assert done.file == str(home.project / ".vscode/mcp.json")
    with pytest.raises(InstallError, match="--scope user"):
        home.install("claude-desktop", scope="project")


def test_a_graph_beside_main_has_a_name_of_its_own(home):
    """Each graph is its own entry; one that does not exist is refused."""
    settings = home.project / "trails.toml"
    settings.write_text(settings.read_text() + "\n[graphs.archive]\n")
    assert home.install("cursor").name == "acme"
    assert home.install("cursor", graph="archive").name == "acme-archive"
    said = json.loads(home.file(".cursor/mcp.json").read_text())["mcpServers"]
    assert [entry["args"][-3] for entry in said.values()] == ["main", "archive"]
    with pytest.raises(NotFoundError, match="this project has main, archive"):
        home.install("cursor", graph="archiv")


@pytest.mark.parametrize("name", ["a b", "ä", "a" * 65, "a.b"])
def test_a_name_that_clients_would_not_take_is_refused(home, name):
    """Letters, digits, - and _ are taken by all of them."""
    with pytest.raises(InstallError, match="not a valid server name"):
        home.install("cursor", name=name)


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ('host = "0.0.0.0"\nport = 9000', "http://127.0.0.1:9000/graphs/main/mcp"),
        ('host = "::"', "http://[::1]:8321/graphs/main/mcp"),
        ('host = "trails.example"', "http://trails.example:8321/graphs/main/mcp"),
    ],
)
def test_the_address_is_one_that_can_be_called(home, server, address):
    """It follows the settings; a host that means all of them is called on this machine."""
    settings = home.project / "trails.toml"
    settings.write_text(settings.read_text() + f"\n[server]\n{server}\n")
    assert address in home.install("zed", http=True, dry=True).snippet


def test_an_address_that_can_not_be_known_is_refused(home):
    """A port that is chosen at every start, or a client that only starts servers itself."""
    with pytest.raises(InstallError, match="omit --http"):
        home.install("claude-desktop", http=True)
    settings = home.project / "trails.toml"
    settings.write_text(settings.read_text() + "\n[server]\nport = 0\n")
    with pytest.raises(InstallError, match="port = 0"):
        home.install("zed", http=True)
