"""``trails doctor``: what it finds in declarations, data, stored documents and running servers."""

import asyncio
import json
import sqlite3
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import msgspec
import pytest
from tests.worlds.processes import Web, run_command
from tests.worlds.projects import make_project

import trails
from trails import App
from trails.app.clients.check import examine_clients
from trails.app.clients.configuration import install_client
from trails.app.kernels import kernel_of
from trails.app.settings import read_settings
from trails.model.actors import LOCAL
from trails.model.upkeep import FINDINGS, InstallRequest

APP = '''
"""Notes."""

from __future__ import annotations

from trails import Context, Node, Shape, capability, node_type, policy_rule, predicate, shape


@node_type
class Note(Node):
    """A note."""

    slug: str = predicate(key=True)


@node_type
class Draft(Node):
    """A note to come."""

    slug: str = predicate(key=True)


@shape
class Unused(Shape):
    """Nothing uses it."""

    total: int


@policy_rule("four_eyes")
def four_eyes(ctx: Context) -> bool:
    """Nothing is judged by it."""
    return True


@capability("notes.add", deprecates=["notes.create", "notes.put"])
def add(ctx: Context, slug: str) -> Note:
    """Add a note."""
    return Note(slug=slug).save(ctx)


@capability("notes.put")
def put(ctx: Context, slug: str, api_key: str = "") -> Note:
    """Put a note."""
    return Note(slug=slug).save(ctx)


@capability("notes.lost")
def count(ctx: Context) -> int:
    """Lost, because another function has its name."""
    return 0


@capability("notes.count", side_effects=["none"])
def count(ctx: Context) -> int:
    """Count notes."""
    return 1
'''
DEEP = '{"items": ' * 9000 + '{"type": [5, null]}' + "}" * 9000 + "}]}"
DRAFT = APP[APP.index("@node_type\nclass Draft") : APP.index("@shape")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A project with declarations that are worth a note."""
    return make_project(tmp_path_factory.mktemp("doctor") / "acme", APP)


@pytest.fixture
def ask(tmp_path):
    """Run the command with a home of its own: its exit code, and findings by subject."""

    def run(folder, *arguments):
        home = {"HOME": str(tmp_path / "home")}
        done = run_command(("doctor", "--json", *arguments), folder, environment=home)
        assert done.returncode in {0, 1}, done.stderr
        found = json.loads(done.stdout)
        assert found["healthy"] is (done.returncode == 0)
        return done.returncode, {each["subject"]: each["findings"] for each in found["reports"]}

    return run


def flagged(findings):
    """What is not in order, with its place; each finding has a known code and its severity."""
    wrong = [each for each in findings if each["severity"] != "ok"]
    for each in wrong:
        assert FINDINGS[each["code"]].severity == each["severity"], each
    assert all("code" not in each for each in findings if each["severity"] == "ok")
    return {(each["code"], each.get("where", "")) for each in wrong}


@pytest.mark.req("W6")
def test_declarations_that_nothing_uses_are_notes(folder, ask):
    """Each with its code and place; none of them makes the check fail."""
    code, found = ask(folder)
    assert code == 0
    at = APP[: APP.index("def count")].count("\n") + 1
    assert flagged(found["Graph main"]) >= {
        ("shape_unused", "Unused"),
        ("rule_unused", "four_eyes"),
        ("deprecates_unknown", "notes.add"),
        ("deprecated_tool", "notes.put"),
        ("argument_secret", "notes.put"),
        ("declaration_shadowed", f"app.py:{at}"),
    }
    names = {each["name"] for each in found["Graph main"] if each["severity"] == "ok"}
    assert {"projections", "commit chain", "node index", "disk"} <= names


def test_data_of_a_type_that_is_not_declared_is_a_problem(tmp_path, ask):
    """Named with the number of instances."""
    folder = make_project(tmp_path / "acme", APP)
    with App.open(folder) as app:
        draft = app.registry().classes["Draft"]
        draft(slug="a").save(app.context())
    (folder / "app.py").write_text(APP.replace(DRAFT, ""), encoding="utf-8")
    code, found = ask(folder)
    assert code == 1
    assert {("types_pending", ""), ("type_undeclared", "Draft")} <= flagged(found["Graph main"])


def test_a_damaged_commit_is_found(tmp_path, ask):
    """One of the newest, by its digest."""
    folder = make_project(tmp_path / "acme", APP)
    with App.open(folder) as app:
        app.registry().classes["Note"](slug="a").save(app.context())
    with sqlite3.connect(folder / ".trails/graphs/main/log.db") as db:
        db.execute("DROP TRIGGER commits_UPDATE")
        change = "UPDATE commits SET record = replace(record, 'local', 'other') WHERE seq = 2"
        assert db.execute(change).rowcount == 1
    db.close()
    code, found = ask(folder)
    assert (code, ("digest_wrong", "") in flagged(found["Graph main"])) == (1, True)


def test_an_edited_entry_of_a_client_is_a_note(tmp_path, monkeypatch):
    """What 'mcp install' wrote is in order, also with a token of the user beside it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = make_project(tmp_path / "acme", APP).resolve()
    install_client(folder, InstallRequest("claude-code", scope="project"), dry=False)
    settings = read_settings(folder)

    def found():
        return flagged(msgspec.to_builtins(list(examine_clients(folder, settings))))

    assert found() == set()
    file = folder / ".mcp.json"
    written = json.loads(file.read_text())
    (entry,) = written["mcpServers"].values()
    entry["env"] = {**entry.get("env", {}), "TRAILS_TOKEN": "x"}
    file.write_text(json.dumps(written))
    assert found() == set()
    entry["args"] = [*entry["args"], "--graph", "other"]
    file.write_text(json.dumps(written))
    assert found() == {("client_entry_edited", str(file))}
    file.write_text("{")
    assert found() == {("client_unreadable", str(file))}


# --- what is served ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The project, served by a process of its own."""
    folder = make_project(tmp_path_factory.mktemp("served") / "acme", APP)
    with Web(folder) as web:
        yield SimpleNamespace(folder=folder, port=urlsplit(web.url).port)


def fetch(port, path):
    """A document of the server."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as got:
        return json.loads(got.read())


@pytest.mark.req("W6")
def test_beside_a_server_its_surfaces_are_compared(tmp_path, ask):
    """With each other, and with the files, which production reads on request only."""
    settings = '[project]\nname = "acme"\nenv = "production"\n'
    folder = make_project(tmp_path / "acme", APP, settings=settings)
    with Web(folder):
        _compare(folder, ask)


def _compare(folder, ask):
    code, found = ask(folder)
    assert (code, flagged(found["Graph main, as it is served"])) == (0, set())
    assert {"surfaces", "projections", "policies"} == {
        each["name"] for each in found["Graph main, as it is served"]
    }
    text = APP.replace('"""Count notes."""', '"""Count all notes."""')
    (folder / "app.py").write_text(text, encoding="utf-8")
    code, found = ask(folder)
    (note,) = [each for each in found["Graph main, as it is served"] if each["severity"] != "ok"]
    assert (code, note["code"]) == (0, "declarations_changed")
    assert note["detail"].endswith(": notes.count")


def test_policies_that_were_broken_since_the_start_are_found(served, ask):
    """A server keeps the last good ones, and would not start with these."""
    policies = served.folder / "policies"
    policies.mkdir()
    (policies / "a.cedar").write_text("permit(principal", encoding="utf-8")
    try:
        code, found = ask(served.folder)
    finally:
        (policies / "a.cedar").unlink()
        policies.rmdir()
    assert code == 1
    assert ("policy_broken", "") in flagged(found["Graph main, as it is served"])


@pytest.mark.req("W6")
@pytest.mark.parametrize("path", ["graphs/main/card", "graphs/main/capabilities", "openapi.json"])
def test_a_stored_document_that_was_edited_by_hand_is_found(served, ask, tmp_path, path):
    """By capability and field; one of other declarations is outdated, and no other is taken."""
    whole = fetch(served.port, f"/{path}")
    text = json.dumps(whole)
    sound, edited, old = (tmp_path / f"{name}.json" for name in ("sound", "edited", "old"))
    sound.write_text(text, encoding="utf-8")
    edited.write_text(text.replace("Count notes.", "Count my notes."), encoding="utf-8")
    digest = whole.get("trails:registry") or whole.get("registry")
    digest = digest or whole["info"]["x-trails-registry"]
    old.write_text(text.replace(digest, "0" * 16), encoding="utf-8")
    (tmp_path / "other.json").write_text('{"tools": [{"inputSchema": ' + DEEP, encoding="utf-8")
    names = [str(tmp_path / f"{name}.json") for name in ("sound", "edited", "old", "other", "gone")]
    code, found = ask(served.folder, *names)
    assert code == 1
    documents = found["Documents"]
    assert flagged(documents) == {
        ("projection_edited", names[1]),
        ("projection_outdated", names[2]),
        ("projection_unknown", names[3]),
        ("projection_unknown", names[4]),
    }
    (edit,) = [each for each in documents if each.get("code") == "projection_edited"]
    assert edit["detail"].startswith("notes.count: description of the ")


class Editing(BaseHTTPRequestHandler):
    """Passes requests on, and edits one kind of answer."""

    port, edits = 0, b""

    def _pass(self, body=None):
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{self.path}", body, method=self.command
        )
        for name in ("Accept", "Content-Type", "MCP-Protocol-Version"):
            if name in self.headers:
                asked.add_header(name, self.headers[name])
        with urllib.request.urlopen(asked, timeout=60) as got:  # noqa: S310
            answer, media = got.read(), got.headers["content-type"]
        if self.path.encode().endswith(self.edits):
            answer = answer.replace(b"Count notes.", b"Count my notes.")
        self.send_response(200)
        self.send_header("content-type", media)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self):
        """Pass a read on."""
        self._pass()

    def do_POST(self):
        """Pass a call on, whose body comes in chunks."""
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        self._pass(b"".join(parts))

    def log_message(self, *_):
        """Say nothing."""


@pytest.mark.req("W6")
@pytest.mark.parametrize(
    ("edits", "title"),
    [(b"/card", "card action"), (b"/mcp", "MCP tool"), (b"/openapi.json", "OpenAPI operation")],
)
def test_a_served_projection_that_something_edits_is_found(served, ask, edits, title):
    """Named with capability and field, by who asks the server as clients do."""
    own = type("Own", (Editing,), {"port": served.port, "edits": edits})
    with ThreadingHTTPServer(("127.0.0.1", 0), own) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        code, found = ask(served.folder, "--server", f"http://127.0.0.1:{proxy.server_port}")
        proxy.shutdown()
    (edit,) = [each for each in found["Graph main"] if each["severity"] == "problem"]
    assert (code, edit["code"], edit["where"]) == (1, "projection_diverges", "main: notes.count")
    assert edit["detail"].startswith(
        f"notes.count: description of the {title} is 'Count my notes.'"
    )


@pytest.mark.req("W6")
def test_a_tool_that_was_changed_in_the_process_is_found(tmp_path):
    """By the resource, since what is served is compared with its descriptor."""
    folder = make_project(tmp_path / "acme", APP)
    with App.open(folder) as app:
        kernel = kernel_of(app)
        try:
            entries = kernel._pin().entries
            entry = entries["notes.count"]
            demo = msgspec.structs.replace(entry.tool, description="For the demo.")
            entries["notes.count"] = msgspec.structs.replace(entry, tool=demo)
            (document,) = asyncio.run(kernel.read_whole(LOCAL, "trails://doctor"))
        finally:
            kernel.close()
    found = json.loads(document.text)
    wrong = [each for each in found["findings"] if each["severity"] == "problem"]
    assert found["healthy"] is False
    assert {each["code"] for each in wrong} == {"projection_diverges"}
    assert len(wrong) == 4  # on each surface
    assert all("notes.count: description" in each["detail"] for each in wrong)


def test_every_code_is_used():
    """Somewhere in the program, by its name."""
    sources = "".join(
        path.read_text(encoding="utf-8")
        for path in Path(trails.__file__).parent.rglob("*.py")
        if path.name != "upkeep.py" or path.parent.name != "model"
    )
    assert [code for code in FINDINGS if f'"{code}"' not in sources] == []
