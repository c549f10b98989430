"""What is written into a client's configuration leads to a server that answers."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
from mcp import Client, StdioServerParameters

from trails.app.local import LocalOperations
from trails.model.upkeep import InstallRequest


async def ask(server):
    """Let the official client in: whom it meets, and what a built-in says."""
    async with asyncio.timeout(150), Client(server) as client:
        health = await client.call_tool("graph_health", {})
        return client.server_info.name, health.structured_content["status"]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A new project of a user whose folder is empty."""
    for variable in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    LocalOperations().new(tmp_path / "a b" / "acme", None)
    return tmp_path / "a b" / "acme"


def installed(project, **more):
    """The entry that Claude Code would read."""
    done = LocalOperations().install_client(
        project, InstallRequest("claude-code", **more), dry=False
    )
    with open(done.file, encoding="utf-8") as file:  # noqa: PTH123 - as a client would
        return json.load(file)["mcpServers"]["acme"]


@pytest.mark.req("G20")
def test_the_command_starts_a_server_from_anywhere(project, tmp_path, monkeypatch):
    """A client that starts the entry's command in another folder meets the graph."""
    entry = installed(project)
    monkeypatch.chdir(tmp_path)
    server = StdioServerParameters(
        command=entry["command"], args=entry["args"], env=dict(os.environ)
    )
    assert asyncio.run(ask(server)) == ("acme/main", "ok")


@pytest.mark.req("G20")
def test_the_address_is_that_of_the_server(project):
    """A client that calls the entry's URL meets the graph that 'trails serve' serves."""
    with subprocess.Popen(
        [sys.executable, "-m", "trails", "serve", "--port=0", "--json", "--project", project],
        stdout=subprocess.PIPE,
    ) as server:
        port = json.loads(server.stdout.readline())["url"].rpartition(":")[2]
        settings = project / "trails.toml"
        settings.write_text(settings.read_text() + f"\n[server]\nport = {port}\n")
        try:
            entry = installed(project, http=True)
            assert asyncio.run(ask(entry["url"])) == ("acme/main", "ok")
        finally:
            server.terminate()
