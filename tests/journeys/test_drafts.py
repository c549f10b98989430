"""Dry runs and proposals are the same on every surface."""

import json
from pathlib import Path

import pytest
from tests.request.drafts import shelf
from tests.request.drafts.shelf import log_of
from tests.worlds.processes import Shell
from tests.worlds.surfaces import LEGACY, MODERN, Wires, ask_app

from trails import App

WRITE = {"isbn": "01", "title": "First", "author": "ada"}
LINE = '{"type": "Book", "data": {"isbn": "02", "title": "Second"}}\n'
SHOWN = ("created", "updated", "deleted", "changes", "dry_run", "branch", "head", "result")


@pytest.fixture
def folder(tmp_path):
    """The shelf."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "shelf"\n')
    (tmp_path / "app.py").write_text(Path(shelf.__file__).read_text())
    return tmp_path


def load(wires, query):
    """Send a file over REST."""
    full = f"/graphs/{wires.graph}/load"
    headers = [(b"content-type", b"application/x-ndjson")]
    scope = {"path": full, "raw_path": full.encode(), "query_string": query}
    reply = wires.doors.run(ask_app(wires.rest_app, headers, [LINE.encode()], "POST", **scope))
    return reply.status, json.loads(reply.body)


def test_a_dry_run_is_the_same_on_every_surface(folder):
    """Both doors of MCP, lines, REST by name and by route, and the command line."""
    with App.open(folder, strict=True) as app, Wires(app) as wires:
        graph = app.graph("main")
        before = log_of(graph)
        params = {"name": "books.write", "arguments": {**WRITE, "dry_run": True}}
        found = [
            message["result"]["structuredContent"]
            for revision in (LEGACY[-1], MODERN)
            for message in (
                *(each.message for each in wires.by_doors(revision, "tools/call", params)),
                *wires.by_lines(revision, "tools/call", params),
            )
        ]
        reply = wires.rest("POST", "/invoke/books.write", params["arguments"])
        found.append(json.loads(reply.body))
        assert all(each == found[0] for each in found), found
        assert tuple(each for each in SHOWN if each in found[0]) == SHOWN
        operations = [{"op": "create", "type": "Author", "data": {"slug": "bob"}}]
        mutate = wires.rest("POST", "/mutate", {"operations": operations, "dry_run": True})
        assert json.loads(mutate.body)["created"] == 1
        assert load(wires, b"dry_run=true")[1]["created"] == 1
        deleted = wires.rest("DELETE", "/branches/none", query=b"dry_run=true")
        assert deleted.status == 404
        assert log_of(graph) == before
    shell = Shell(folder)
    options = [word for name, value in WRITE.items() for word in (f"--{name}", value)]
    by_command = shell.json("call", "books.write", *options, "--dry-run")
    assert {name: by_command[name] for name in SHOWN} == {name: found[0][name] for name in SHOWN}
    (folder / "books.ndjson").write_text(LINE)
    assert "Would change main: 1 created" in shell.out("load", "books.ndjson", "--dry-run")
    (folder / "bob.json").write_text(json.dumps(operations))
    said = shell.out("mutate", "--operations", "bob.json", "--dry-run")
    assert "Would change main: 1 created" in said
    assert "Author/bob" in said
    assert "Would have created" in shell.out("branch", "create", "x", "--dry-run")
    with App.open(folder, strict=True) as app:
        assert log_of(app.graph("main")) == before


def test_a_proposal_is_made_listed_and_merged_on_every_surface(folder):
    """What one surface proposes, the others list and merge."""
    with App.open(folder, strict=True) as app, Wires(app) as wires:
        params = {"name": "books.write", "arguments": {**WRITE, "propose": True}}
        fast, slow = wires.by_doors(MODERN, "tools/call", params)
        made = [each.message["result"]["structuredContent"] for each in (fast, slow)]
        status, sent = load(wires, b"propose=true")
        assert status == 200
        names = {each["proposal"] for each in (*made, sent)}
        assert len(names) == 3
        reply = json.loads(wires.rest("GET", "/proposals").body)
        assert {each["proposal"] for each in reply["proposals"]} == names
        params = {"name": "branch_list", "arguments": {"prefix": "proposals/"}}
        for _, message in wires.everywhere("tools/call", params):
            shown = message["result"]["structuredContent"]["proposals"]
            assert {each["proposal"] for each in shown} == names
        keyed = {**WRITE, "isbn": "03"}
        headers = [(b"content-type", b"application/json"), (b"idempotency-key", b"k")]
        path = f"/graphs/{wires.graph}/invoke/books.write"
        scope = {"path": path, "raw_path": path.encode()}
        first, second = (
            wires.doors.run(
                ask_app(wires.rest_app, headers, [json.dumps(keyed).encode()], "POST", **scope)
            ).body
            for _ in range(2)
        )
        assert first == second
    shell = Shell(folder)
    table = shell.out("proposals")
    assert all(name in table for name in names)
    found = shell.json("proposals")["proposals"]
    assert {each["proposal"] for each in found} == names
    command = next(each for each in found if each["proposal"] == sent["proposal"])["commands"][0]
    assert "Merged" in shell.out(*command.split()[1:])
    (folder / "more.ndjson").write_text(LINE.replace("02", "04"))
    said = shell.out("load", "more.ndjson", "--propose")
    assert "Proposed proposals/" in said
    left = shell.json("proposals")["proposals"]
    assert sent["proposal"] not in {each["proposal"] for each in left}
    assert len(left) == 3
    for each in left:
        shell.out(*each["commands"][1].split()[1:])
    assert "No open proposals." in shell.out("proposals")


def test_openapi_lists_the_arguments_in_full(folder):
    """A list of tools does not, unless the settings ask for proposals."""
    with App.open(folder, strict=True) as app, Wires(app) as wires:
        tools = wires.by_doors(MODERN, "tools/list", {})[0].message["result"]["tools"]
        (shown,) = [each for each in tools if each["name"] == "books.write"]
        assert "dry_run" not in shown["inputSchema"]["properties"]
        (listed,) = [
            each
            for each in json.loads(wires.rest("GET", "/capabilities").body)["capabilities"]
            if each["name"] == "books.write"
        ]
        assert set(listed["controls"]) == {
            "dry_run",
            "propose",
            "expected_head",
            "idempotency_key",
        }
