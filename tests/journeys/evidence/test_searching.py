"""Search as callers meet it: over MCP, REST and the command line, with a way on from every hit."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import pytest
from tests.worlds.clients import Desk, served
from tests.worlds.processes import Shell
from tests.worlds.projects import give_token, make_project

from trails import App

APP = """
from trails import Node, node_type, predicate

@node_type
class Page(Node):
    "A page."
    name: str = predicate(key=True)
    title: str = predicate(label=True)
    body: str | None = predicate(search=True, language="english")
    secret: str | None = predicate(search=True)

@node_type
class Vault(Node):
    "A thing that only some may see."
    name: str = predicate(key=True)
    body: str | None = predicate(search=True)
"""
POLICY = """
permit(principal in Group::"admins", action, resource);
permit(principal in Group::"clerks", action == Action::"Read", resource);
forbid(principal in Group::"clerks", action == Action::"Read", resource == Field::"Page.secret");
forbid(principal in Group::"clerks", action == Action::"Read", resource == Type::"Vault");
"""
BODY = (
    "Nothing yet. " * 80 + "Compressible boundary layers\r\nseparate from wings. " + "Later. " * 80
)
TOKENS: dict[str, str] = {}
Ask = Callable[..., dict]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with texts, some of which are not for everybody."""
    made = make_project(
        tmp_path_factory.mktemp("searching") / "acme", APP, policies={"p.cedar": POLICY}
    )
    with App.open(made) as app:
        page, vault = (app.registry().classes[name] for name in ("Page", "Vault"))
        nodes = [page(name="a/b ä", title="Hello [b]you[/]", body=BODY, secret="wing hush")]
        nodes += [page(name=f"p{at:02}", title=f"P{at}", body=f"A flap {at}.") for at in range(25)]
        app.context(actor="test").kg.save_all([*nodes, vault(name="v", body="wing hush")])
    return made


@pytest.fixture(scope="module")
def desk(folder: Path):
    """A server, for an admin and for a clerk who sees less."""
    for name, group in {"ann": "admins", "bob": "clerks"}.items():
        TOKENS[name] = give_token(folder, name, groups=(group,))
    with served(folder) as found:
        yield found


def over_mcp(desk: Desk, folder: Path) -> Ask:
    """Both forms of an answer say the same."""
    del folder

    def ask(query: str, actor: str = "ann", **more: object) -> dict:
        answer = desk.call("search", TOKENS[actor], query=query, **more).json["result"]
        assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]
        return answer["structuredContent"]

    return ask


def over_rest(desk: Desk, folder: Path) -> Ask:
    """The arguments are in the query string."""
    del folder

    def ask(query: str, actor: str = "ann", **more: object) -> dict:
        path = f"/graphs/main/search?{urlencode({'query': query, **more}, doseq=True)}"
        reply = desk.ask("GET", path, TOKENS[actor])
        assert reply.status == 200, reply.json
        return reply.json

    return ask


def over_cli(desk: Desk, folder: Path) -> Ask:
    """The options have the names of the arguments."""
    del desk

    def ask(query: str, **more: object) -> dict:
        words = [part for name, value in more.items() for part in (f"--{name}", str(value))]
        return Shell(folder).json("search", query, *words)

    return ask


SURFACES = pytest.mark.parametrize("surface", [over_mcp, over_rest, over_cli])


@pytest.mark.req("E1", "E2", "E8", "E9")
@SURFACES
def test_a_hit_has_its_evidence_on_every_surface(desk, folder, surface):
    """The window, the offsets, and the call that reads on."""
    found = surface(desk, folder)("boundary layer separation")
    (hit,) = found["results"]
    shown = hit["evidence"]
    assert hit["id"] == "trails://kg/Page/a%2Fb%20%C3%A4"
    assert shown["field"] == "body"
    assert BODY[shown["start"] : shown["end"]] == shown["text"]
    assert [each["text"] for each in shown["matches"]] == ["boundary", "layers", "separate"]
    assert all(BODY[each["start"] : each["end"]] == each["text"] for each in shown["matches"])
    assert shown["truncated"]
    assert hit["read"]["tool"] == "read_record_field"
    if surface is not over_cli:  # its cursors are for the owner of the folder
        read = desk.call("read_record_field", TOKENS["ann"], **hit["read"]["arguments"])
        assert read.json["result"]["structuredContent"]["start"] == shown["start"]


@pytest.mark.req("E4")
@SURFACES
def test_pages_have_every_hit_once(desk, folder, surface):
    """By the cursor of each."""
    ask, ids = surface(desk, folder), []
    page = ask("flap", limit=10)
    while True:
        ids += [each["id"] for each in page["results"]]
        if "next" not in page:
            break
        page = ask("flap", limit=10, cursor=page["next"]["arguments"]["cursor"])
    assert sorted(ids) == [f"trails://kg/Page/p{at:02}" for at in range(25)]


@pytest.mark.req("E11b")
@pytest.mark.parametrize("surface", [over_mcp, over_rest])
def test_what_is_hidden_is_not_found(desk, folder, surface):
    """By nobody who may not read it, and it leaves no trace."""
    ask = surface(desk, folder)
    assert len(ask("hush")["results"]) == 2
    assert ask("hush", "bob")["results"] == []
    assert "secret" not in json.dumps(ask("wing", "bob"))
    assert "Vault" not in json.dumps(ask("wing", "bob"))


@pytest.mark.req("E9")
def test_the_command_line_prints_the_commands_that_go_on(desk, folder):
    """They work as they are; data is shown as it is, not interpreted."""
    del desk
    shell = Shell(folder)
    plain = shell.run("search", "boundary layer").stdout
    assert "Hello [b]you[/]" in plain
    assert "…" in plain
    (line,) = [each for each in plain.splitlines() if each.strip().startswith("Read: ")]
    words = shlex.split(line.strip().removeprefix("Read: "))
    read = shell.run(*words[1:])
    assert "Compressible boundary layers" in read.stdout
    more = shell.run("search", "flap", "--limit", "20").stdout
    (line,) = [each for each in more.splitlines() if each.startswith("Next: ")]
    rest = shell.run(*shlex.split(line.removeprefix("Next: "))[1:]).stdout
    assert "5 records" in rest
    assert "Nothing was found." in shell.run("search", "zeppelin").stdout
