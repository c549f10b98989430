"""Reading records and fields as callers meet it: over MCP, REST and the command line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

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
    body: str | None = predicate()
    secret: str | None = predicate()

@node_type
class Vault(Node):
    "A thing that only some may see."
    name: str = predicate(key=True)
    body: str | None = predicate()
"""
POLICY = """
permit(principal in Group::"admins", action, resource);
permit(principal in Group::"clerks", action == Action::"Read", resource);
forbid(principal in Group::"clerks", action == Action::"Read", resource == Field::"Page.secret");
forbid(principal in Group::"clerks", action == Action::"Read", resource == Type::"Vault");
"""
KEY = "a/b ä"
TEXT = "👩‍👩‍👧‍👦 né\r\n\0 שלום e\u0301 " * 700
HANDLE = "Page/a%2Fb%20%C3%A4"
TOKENS: dict[str, str] = {}
Walk = Callable[[str], Iterator[dict]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a long text and something to hide."""
    made = make_project(
        tmp_path_factory.mktemp("reading") / "acme", APP, policies={"p.cedar": POLICY}
    )
    with App.open(made) as app:
        page, vault = (app.registry().classes[name] for name in ("Page", "Vault"))
        nodes = [page(name=KEY, title="Hello", body=TEXT, secret="hush")]
        nodes += [page(name=f"p{at:03}", title=f"P{at}") for at in range(120)]
        app.context(actor="test").kg.save_all([*nodes, vault(name="v", body="hush")])
    return made


@pytest.fixture(scope="module")
def desk(folder: Path):
    """A server, for an admin and for a clerk who sees less."""
    for name, group in {"ann": "admins", "bob": "clerks"}.items():
        TOKENS[name] = give_token(folder, name, groups=(group,))
    with served(folder) as found:
        yield found


def call(desk: Desk, tool: str, actor: str = "ann", **arguments: object) -> dict:
    """What a tool answers, in both forms, which say the same."""
    answer = desk.call(tool, TOKENS[actor], **arguments).json["result"]
    text = answer["content"][0]["text"]
    assert json.loads(text) == answer["structuredContent"]
    assert len(text) <= arguments.get("max_chars", 32_768)
    return answer["structuredContent"]


def over_mcp(desk: Desk, folder: Path) -> Walk:
    """Follow the calls that answers have ready."""
    del folder

    def walk(key: str) -> Iterator[dict]:
        found = call(desk, "read_record_field", **start(key))
        while True:
            yield found
            if key not in found:
                return
            found = call(desk, found[key]["tool"], **found[key]["arguments"])

    return walk


def start(key: str) -> dict:
    """Where a walk begins."""
    given = {"record": HANDLE, "field": "body", "length": 3000}
    return {**given, "offset": len(TEXT)} if key == "previous" else given


def over_rest(desk: Desk, folder: Path) -> Walk:
    """The same arguments in the query string."""
    del folder

    def walk(key: str) -> Iterator[dict]:
        given = {"length": 3000, **({"offset": len(TEXT)} if key == "previous" else {})}
        while True:
            path = f"/graphs/main/kg/Page/{quote(KEY, safe='')}/fields/body?{urlencode(given)}"
            reply = desk.ask("GET", path, TOKENS["ann"])
            assert reply.status == 200, reply.json
            yield reply.json
            if key not in reply.json:
                return
            given = {**reply.json[key]["arguments"]}
            del given["record"], given["field"]

    return walk


def over_cli(desk: Desk, folder: Path) -> Walk:
    """By the command that is printed; once as text and once as JSON."""
    del desk

    def walk(key: str) -> Iterator[dict]:
        at = ["--offset", str(len(TEXT))] if key == "previous" else []
        words = ["trails", "read", HANDLE, "body", "--length", "9000", *at]
        mark = {"next": "Next: ", "previous": "Previous: "}[key]
        while words:
            found = Shell(folder).json(*words[1:])
            plain = Shell(folder).run(*words[1:])
            assert plain.stdout == found["text"]
            yield found
            lines = [each for each in plain.stderr.splitlines() if each.startswith(mark)]
            words = shlex.split(lines[0].removeprefix(mark)) if lines else []

    return walk


@pytest.mark.req("E5", "E6", "E10")
@pytest.mark.parametrize("surface", [over_mcp, over_rest, over_cli])
@pytest.mark.parametrize("key", ["next", "previous"])
def test_windows_join_on_every_surface(desk, folder, surface, key):
    """The same windows of one commit, forwards and backwards."""
    walk = list(surface(desk, folder)(key))
    if key == "previous":
        walk.reverse()
    assert "".join(each["text"] for each in walk) == TEXT
    assert len(walk) > 1
    assert len({each["commit"] for each in walk}) == 1
    for each in walk:
        assert each["text"] == TEXT[each["start"] : each["end"]]
        assert each["total"] == len(TEXT)
        assert each["id"] == f"trails://kg/{HANDLE}"
        assert each["title"] == "Hello"


@pytest.mark.req("E4")
def test_a_record_on_every_surface(desk, folder):
    """By id, by URI, and by IRI; with what is left out, and the calls for it."""
    fetched = call(desk, "fetch", id=HANDLE, max_chars=2000)
    reply = desk.ask("GET", f"/graphs/main/fetch?id={quote(HANDLE)}&max_chars=2000", TOKENS["ann"])
    assert reply.json["text"] == fetched["text"]
    (note,) = fetched["left_out"]
    rest = call(desk, note["read"]["tool"], **note["read"]["arguments"])
    assert rest["start"] == note["shown"]
    assert rest["text"].startswith(TEXT[note["shown"] :][:100])
    shell = Shell(folder)
    for reference in (HANDLE, f"trails://kg/{HANDLE}", fetched["url"], f"Page/{KEY}"):
        assert shell.json("get", reference)["@id"] == fetched["url"]
        assert shell.json("read", reference, "title")["text"] == "Hello"
    branch = f"trails://branch/main/kg/{HANDLE}"
    assert shell.json("read", branch, "title")["text"] == "Hello"
    assert "one record" in shell.error("read", "trails://kg/Page", "title")
    assert "Type/id" in shell.error("read", "Page", "title")
    assert "no field" in shell.error("read", HANDLE, "nope")


def test_errors_of_rest_are_typed(desk):
    """A status for each kind of error."""
    path = f"/graphs/main/kg/Page/{quote(KEY, safe='')}/fields"
    for query, status, code in (
        ("/nope", 422, "validation"),
        ("/body?cursor=abc", 400, "cursor"),
        ("/body?offset=-1", 422, "validation"),
        ("/body?branch=none", 404, "not_found"),
        ("/body?max_chars=1", 422, "validation"),
    ):
        reply = desk.ask("GET", path + query, TOKENS["ann"])
        assert (reply.status, reply.json["code"]) == (status, code), query


@pytest.mark.req("E10")
def test_a_cursor_is_for_one_actor_and_survives_a_restart(desk, folder):
    """Another token's actor is refused; another process of the same folder is not."""
    found = call(desk, "read_record_field", **start("next"))["next"]["arguments"]
    refused = desk.call("read_record_field", TOKENS["bob"], **found).json["result"]
    assert refused["isError"] is True
    assert "not valid here" in refused["content"][0]["text"]
    rest = call(desk, "node_list", type="Page", limit=100)
    assert len(call(desk, "node_list", **rest["next"]["arguments"])["records"]) == 21


@pytest.mark.req("E10")
def test_rights_that_were_lost_end_a_cursor(tmp_path):
    """The policies of now decide, not those of the first page."""
    folder = make_project(tmp_path / "acme", APP, policies={"p.cedar": POLICY})
    with App.open(folder) as app:
        page = app.registry().classes["Page"]
        page(name="p", title="P", body="b" * 99, secret="s" * 99).save(app.context(actor="test"))
    token = give_token(folder, "bob", groups=("admins",))
    with served(folder) as desk:
        asked = {"record": "Page/p", "field": "secret", "length": 9}
        first = desk.call("read_record_field", token, **asked).json["result"]["structuredContent"]
        listed = desk.call("node_list", token, type="Page", limit=1).json["result"]
        assert "structuredContent" in listed
    (folder / "policies" / "p.cedar").write_text(POLICY.replace("clerks", "admins"))
    with served(folder) as desk:
        later = desk.call("read_record_field", token, **first["next"]["arguments"]).json
        assert "sss" not in json.dumps(later)
        assert "no field" in json.dumps(later)


def test_what_is_hidden_is_unknown(desk):
    """A hidden field or type is refused in the words for one that does not exist."""

    def text(tool: str, **arguments: object) -> str:
        answer = desk.call(tool, TOKENS["bob"], **arguments).json
        return answer.get("error", {}).get("message") or answer["result"]["content"][0]["text"]

    for tool, there, gone in (
        ("read_record_field", {"record": HANDLE, "field": "secret"}, "secrex"),
        ("node_get", {"record": HANDLE, "fields": ["secret"]}, "secrex"),
        ("node_list", {"type": "Page", "fields": ["secret"]}, "secrex"),
        ("node_list", {"type": "Page", "where": "secret=hush"}, "secrex=hush"),
        ("node_list", {"type": "Page", "order": "secret"}, "secrex"),
        ("fetch", {"id": "Vault/v"}, "Vaulx/v"),
        ("node_list", {"type": "Vault"}, "Vaulx"),
        ("read_record_field", {"record": "Vault/v", "field": "body"}, "Vaulx/v"),
    ):
        last = (
            [*there][-1] if tool != "read_record_field" or "Vault" not in str(there) else "record"
        )
        other = {**there, last: [gone] if isinstance(there[last], list) else gone}
        wanted = text(tool, **other).replace("secrex", "secret").replace("Vaulx", "Vault")
        assert text(tool, **there) == wanted
    assert "hush" not in json.dumps(call(desk, "fetch", "bob", id=HANDLE))
    assert "hush" in json.dumps(call(desk, "node_get", record=HANDLE, fields=["secret"]))
