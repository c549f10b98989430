"""A running server follows its files, over every transport; in production on request."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.worlds.clients import Desk, Door, meta_of
from tests.worlds.processes import Shell, Stdio, Web, command, run_command, wait_until
from tests.worlds.projects import PERMIT_ALL, give_token, make_project
from tests.worlds.surfaces import MODERN, message_of

from trails.model.capabilities import SCOPES

ALL_SCOPES = {"TRAILS_MCP_SCOPES": ",".join(SCOPES)}
APP = '''
from __future__ import annotations

import time
from pathlib import Path

from trails import Context, Node, capability, node_type, predicate


@node_type
class Note(Node):
    """A note."""

    text: str = predicate(key=True, label=True)


@capability("notes.slow", side_effects=["none"])
def slow(ctx: Context, file: str) -> str:
    """Wait for a file."""
    Path(f"{file}.begun").touch()
    while not Path(file).exists():
        time.sleep(0.02)
    return "first"
'''
MORE = '''

@node_type
class Tag(Node):
    """A tag."""

    name: str = predicate(key=True)


@capability("notes.more", side_effects=["none"])
def more(ctx: Context) -> str:
    """Say more."""
    return "more"
'''
QUERY = "#+ name: all_tags\n#+ description: All tags.\nSELECT ?tag WHERE { ?tag a :Tag }\n"
BROKEN = "\n\nnobody\n"
BROKEN_AT = f"app.py:{APP.count(chr(10)) + 3}"


def edit(folder, text, name="app.py"):
    """Replace a file as editors do."""
    draft = folder / f".{name.rpartition('/')[2]}.tmp"
    draft.write_text(text, encoding="utf-8")
    (folder / name).parent.mkdir(exist_ok=True)
    draft.replace(folder / name)


@pytest.fixture
def folder(tmp_path):
    """A project."""
    return make_project(tmp_path / "acme", APP)


def listen(door):
    """A stream of changed lists."""
    wanted = {"toolsListChanged": True, "resourcesListChanged": True}
    params = {"notifications": wanted, "_meta": meta_of(None)}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
    body = message_of(None, "subscriptions/listen", params, 7)
    stream = door.stream("POST", "/graphs/main/mcp", body, headers)
    stream.wait_for("acknowledged")
    return stream


class Visitor:
    """A client of a server's graph: over REST, and calls over MCP."""

    def __init__(self, web, token=None):
        self.desk, self.token = Desk(web), token

    def get(self, path):
        """A document of the graph."""
        return self.desk.ask("GET", f"/graphs/main/{path}", self.token)

    @property
    def tools(self):
        """The names of all tools."""
        return {each["name"] for each in self.get("capabilities").json["capabilities"]}

    def call(self, name, **arguments):
        """What a call over MCP gives."""
        return self.desk.call(name, self.token, **arguments).json["result"]["structuredContent"]

    def findings(self, code):
        """What doctor finds: over REST, as a resource, and by its operation."""
        reports = [self.get("doctor").json, self.call("trails_meta_doctor")]
        body = message_of(None, "resources/read", {"uri": "trails://doctor"})
        headers = [("MCP-Protocol-Version", "2025-06-18")]
        read = self.desk.ask("POST", "/graphs/main/mcp", self.token, body, headers).json
        reports.append(json.loads(read["result"]["contents"][0]["text"]))
        return [
            [each for each in report["findings"] if each.get("code") == code] for report in reports
        ]


@pytest.mark.req("T8")
def test_an_edit_is_served_over_http(folder, tmp_path):
    """Tools, types, resources, card and OpenAPI; clients are notified, calls under way go on."""
    with Web(folder) as web, Door(web.url, None) as door, ThreadPoolExecutor() as pool:
        client, stream, file = Visitor(web), listen(door), tmp_path / "go"
        before = client.tools, client.get("card").json
        pending = pool.submit(client.call, "notes.slow", file=str(file))
        wait_until((tmp_path / "go.begun").exists, "the call")
        edit(folder, QUERY, "queries/all_tags.rq")
        edit(folder, APP.replace('"first"', '"second"') + MORE)
        stream.wait_for("notifications/tools/list_changed")
        stream.wait_for("notifications/resources/list_changed")
        assert client.tools - before[0] == {"notes.more", "all_tags"}
        assert client.get("card").json != before[1]
        paths = client.desk.ask("GET", "/openapi.json").json["paths"]
        assert any("notes.more" in each for each in paths)
        assert client.get("kg/Tag").json["instances"] == []
        file.write_text("", encoding="utf-8")
        assert pending.result() == {"result": "first"}
        assert client.call("notes.slow", file=str(file)) == {"result": "second"}
        assert web.errors.count("added capability notes.more") == 1


@pytest.mark.req("T8")
def test_an_edit_is_served_over_standard_streams(folder):
    """The process that owns the folder watches it; its client is notified."""
    with Stdio(folder) as client:
        client.initialize()
        client.request("tools/list")
        edit(folder, APP + MORE)
        client.wait_for("notifications/tools/list_changed")
        client.wait_for("notifications/resources/list_changed")
        tools = {each["name"] for each in client.request("tools/list")["tools"]}
        assert "notes.more" in tools
        assert client.call("notes.more") == {"result": "more"}


@pytest.fixture
def token(folder):
    """Of somebody who may do everything."""
    edit(folder, PERMIT_ALL, "policies/all.cedar")
    return give_token(folder, scopes=SCOPES)


def test_a_broken_edit_is_reported_and_changes_nothing(folder, token):
    """In the log once, by doctor on every surface, and to callers with a scope for it."""
    plain = give_token(folder, "bob")
    with Web(folder, env=ALL_SCOPES) as web:
        client, shell = Visitor(web, token), Shell(folder)
        edit(folder, APP + BROKEN)
        wait_until(lambda: "not reloaded" in web.errors, "the report")
        assert "notes.slow" in client.tools
        for found in client.findings("reload_failed"):
            (finding,) = found
            assert (finding["where"], "NameError" in finding["detail"]) == (BROKEN_AT, True)
            assert finding["fix"]
        assert BROKEN_AT in shell.run("doctor", code=1).stdout
        assert BROKEN_AT in client.call("graph_health")["notice"]
        assert "notice" not in Visitor(web, plain).call("graph_health")
        assert shell.run("reload", code=1).stdout.count(BROKEN_AT) == 1
        assert web.errors.count("not reloaded") == 1
        edit(folder, APP + MORE)
        wait_until(lambda: "notes.more" in client.tools, "the repair")
        assert client.findings("reload_failed") == [[], [], []]
        assert "notice" not in client.call("graph_health")


def test_a_graph_in_quarantine_is_served_when_its_file_is_fixed(folder):
    """Over each way in, without a restart."""
    edit(folder, APP + BROKEN)
    with Web(folder) as web, Door(web.url, None) as door:
        client = Visitor(web)
        assert client.get("card").status == 503
        assert client.desk.call("graph_health", None).status == 503
        assert BROKEN_AT in Shell(folder).run("doctor", code=1).stdout
        edit(folder, APP)
        wait_until(lambda: client.get("card").status == 200, "the graph")
        assert client.call("graph_health")["status"] == "ok"
        stream = listen(door)
        edit(folder, APP + MORE)
        stream.wait_for("notifications/tools/list_changed")
        assert client.call("notes.more") == {"result": "more"}


def test_in_production_files_are_read_on_request(folder, token):
    """By a command, by SIGHUP and by an operation; types only if the request says so."""
    text = '[project]\nname = "acme"\nenv = "production"\n'
    (folder / "trails.toml").write_text(text, encoding="utf-8")
    shell = Shell(folder)
    assert shell.json("reload") == {"served": False, "graphs": []}
    with Web(folder, env=ALL_SCOPES) as web:
        client = Visitor(web, token)
        edit(folder, APP.replace('"""Wait for a file."""', '"""Wait."""'))
        (report,) = shell.json("reload")["graphs"]
        assert (report["status"], report["changed"]) == ("reloaded", ["capability notes.slow"])
        edit(folder, APP + MORE)
        assert "--apply-schema" in shell.run("reload", code=1).stdout
        assert "notes.more" not in client.tools
        assert "type Tag" in shell.out("reload", "--apply-schema", "--graph", "main")
        assert "notes.more" in client.tools
        edit(folder, (APP + MORE).replace("notes.more", "notes.most"))
        os.kill(web.pid, signal.SIGHUP)
        wait_until(lambda: "notes.most" in client.tools, "the reload")
        edit(folder, APP + MORE)
        reply = client.desk.ask("POST", "/graphs/main/admin/reload", token, {})
        assert reply.status == 200, reply.body
        assert reply.json["added"] == ["capability notes.more"]
        edit(folder, APP + MORE + BROKEN)
        assert client.call("trails_meta_reload")["error"]["code"] == "declaration"
        edit(folder, APP + MORE)
        asked = ["reload", "--server", web.url, "--graph", "main", "--json"]
        done = run_command(asked, folder, environment={"TRAILS_TOKEN": token})
        assert json.loads(done.stdout)["graphs"][0]["status"] == "reloaded", done.stderr
        assert web.errors.count("reloaded, registry") == 5


def test_a_hangup_of_the_terminal_still_stops_a_server(folder):
    """SIGHUP reloads only while the terminal that it was started in is there."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, command("serve", "-p", folder, "--port", "0"))  # noqa: S606
    seen = b""
    while b"Ctrl-C" not in seen:
        seen += os.read(terminal, 4096)
    os.kill(pid, signal.SIGHUP)
    while b"reloaded, registry" not in seen:
        seen += os.read(terminal, 4096)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in {0, 128 + 15, -15}


def test_a_series_of_saves_makes_no_noise(folder):
    """With halves of the file between, it ends with the last content."""
    with Web(folder) as web:
        client, text = Visitor(web), APP + MORE
        for size in (len(text) // 3, len(text) // 2, len(text)):
            (folder / "app.py").write_text(text[:size], encoding="utf-8")
        wait_until(lambda: "notes.more" in client.tools, "the last content")
        assert "not reloaded" not in web.errors
