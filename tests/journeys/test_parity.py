"""One operation, one result: over MCP and over REST, and always the struct that is declared.

Walks the table of operations. Everything that an agent can do, a program can do by a route, and
gets the same; what only programs can do is the struct of its declaration too.
"""

from __future__ import annotations

import json
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import pytest
from tests.surfaces.rest.test_routes import note
from tests.worlds.clients import RestClient, served
from tests.worlds.projects import NOTES, NOTES_QUERIES, make_project
from tests.worlds.surfaces import message_of

from trails.projections.results import struct_types
from trails.request.builtins import OPERATIONS
from trails.surfaces.cli.commands import build_cli

VOLATILE = {"cursor", "after", "expires", "export", "created", "download", "time", "commit", "id"}
"""Members that two calls do not share."""
NOTE = "trails://kg/Note/a"

READS = {
    "branch_list": {},
    "commit_list": {"limit": 2},
    "commit_get": {"commit": "main"},
    "graph_diff": {"from": "main", "to": "work"},
    "graph_changes": {"since": "0"},
    "fetch": {"id": NOTE},
    "graph_query": {"query": "SELECT ?n ?t { ?n a :Note ; :title ?t } ORDER BY ?t"},
    "graph_health": {},
    "graph_snapshot": {},
    "node_get": {"record": NOTE},
    "node_list": {"type": "Note", "fields": ["title"]},
    "schema_get": {},
    "node_blame": {"record": "a", "type": "Note"},
    "node_select": {"type": "Note"},
    "prov_list": {"limit": 3},
    "read_record_field": {"record": "a", "type": "Note", "field": "title", "length": 3},
    "search": {"query": "note"},
    "stored_query_list": {"detail_level": "full"},
    "stored_query_run": {"name": "by_status", "params": {"status": "open"}},
    "stored_query_link": {"name": "by_status", "params": {"status": "open"}},
}
WRITES = {
    "branch_create": {"name": "SURFACE"},
    "branch_delete": {"name": "SURFACE"},
    "branch_merge": {"source": "SURFACE", "dry_run": True},
    "export_records": {"types": ["Note"]},
    "graph_load": {"data": '{"type": "Note", "data": {"key": "SURFACE", "title": "Text"}}'},
    "graph_mutate": {"operations": [note("new-SURFACE")]},
}
NO_ROUTE = {"graph_health", "graph_load", "node_get", "node_list", "schema_get"}
"""Tools that programs reach by ``invoke``: their own routes are those of resources and files."""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A server with notes, a branch and a difference."""
    folder = make_project(tmp_path_factory.mktemp("parity"), NOTES, queries=NOTES_QUERIES)
    with served(folder) as desk:
        rest = RestClient(urlsplit(desk.url).port)
        rest.post("mutate", {"operations": [note("a"), note("b", stars=2)]})
        rest.post("branches", {"name": "work"})
        rest.post("mutate", {"operations": [note("a", stars=5)], "branch": "work"})
        yield desk, rest


def over_mcp(world, name, arguments):
    """What an agent gets."""
    desk, _ = world
    body = message_of(None, "tools/call", {"name": name, "arguments": arguments})
    headers = [("MCP-Protocol-Version", "2025-06-18")]
    reply = desk.ask("POST", "/graphs/main/mcp", None, body, headers).json
    assert "result" in reply, reply
    answer = reply["result"]
    assert not answer.get("isError"), answer
    return answer["structuredContent"]


def over_rest(world, operation, arguments):
    """What a program gets, by the first route of an operation."""
    _, rest = world
    route, given = operation.routes[0], dict(arguments)
    parts = [
        quote(str(given.pop(part[1:-1])), safe="") if part.startswith("{") else part
        for part in route.path.split("/")
    ]
    path, body, headers = "/graphs/main/" + "/".join(parts), None, {}
    if route.method == "POST":
        body, headers = json.dumps(given).encode(), {"content_type": "application/json"}
    else:
        given = given.pop(route.gathers) if route.gathers else given
        path += f"?{urlencode(given, doseq=True)}"
    got = rest.send(route.method, path, body, **headers)
    assert got.status < 300, got.body
    return json.loads(got.body)


def lasting(value):
    """A result without what differs between two calls."""
    if isinstance(value, dict):
        return {name: lasting(each) for name, each in value.items() if name not in VOLATILE}
    return [lasting(each) for each in value] if isinstance(value, list) else value


def conforms(operation, body):
    """Whether a result is what is declared: no member more, none less."""
    for struct in struct_types(operation.result):
        try:
            found = msgspec.convert(body, struct)
        except msgspec.ValidationError:
            continue
        return json.loads(msgspec.json.encode(found)) == body
    return False


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_a_result_is_the_same_struct_on_every_surface(world, operation):
    """What an agent gets, a program gets, as it is declared."""
    name, found = operation.name, []
    for surface in ("mcp", "rest"):
        own = f"{name}-{surface}"
        given = json.loads(json.dumps({**READS, **WRITES}.get(name, {})).replace("SURFACE", own))
        if name in {"branch_delete", "branch_merge"}:
            world[1].post("branches", {"name": own})
        if surface == "mcp" and operation.offered == "always" and name != "stored_query_run":
            found.append(over_mcp(world, name, given))
        elif surface == "rest" and name in NO_ROUTE:
            found.append(world[1].post(f"invoke/{name}", given))
        elif surface == "rest" and operation.routes:
            found.append(over_rest(world, operation, given))
    for body in found:
        assert conforms(operation, body), body
    first, *rest = [json.dumps(lasting(each)).replace("rest", "mcp") for each in found] or [""]
    if name != "export_records":  # an agent sees the beginning of the file at once
        assert all(each == first for each in rest)


def test_every_tool_has_a_route():
    """Of its own, by invoke, or as a resource; the list is what is known to have none."""
    lacking = {each.name for each in OPERATIONS if each.offered != "never" and not each.routes}
    assert lacking == NO_ROUTE


def test_every_command_of_the_table_exists():
    """A declaration names a command that the CLI has."""
    cli = build_cli(None)
    known = {str(each.name or each.callback.__name__) for each in cli.registered_commands}
    groups = {
        each.name: {
            str(one.name or one.callback.__name__)
            for one in each.typer_instance.registered_commands
        }
        for each in cli.registered_groups
    }
    for each in OPERATIONS:
        if each.command is not None:
            group, _, name = each.command.rpartition(" ")
            assert name in (groups[group] if group else known), each.command
