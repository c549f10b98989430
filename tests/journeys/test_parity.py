"""One operation, one result: over MCP and over REST, and always the struct that is declared.

Walks the table of operations. Everything that an agent can do, a program can do by a route, and
gets the same; what only programs can do is the struct of its declaration too.
"""

from __future__ import annotations

import json
from functools import partial
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import pytest
from tests.surfaces.rest.test_routes import note
from tests.worlds.clients import RestClient, served
from tests.worlds.projects import NOTES, NOTES_QUERIES, PERMIT_ALL, give_token, make_project
from tests.worlds.surfaces import message_of

from trails.model.capabilities import SCOPES
from trails.model.changes.file_diffs import text_digest
from trails.projections.results import struct_types
from trails.request.operations import OPERATIONS
from trails.surfaces.cli.commands import build_cli

VOLATILE = {"cursor", "after", "expires", "export", "created", "download", "time", "commit", "id"}
"""Members that two calls do not share."""
NOTE = "trails://kg/Note/a"
DUE = {"step": "add_field", "type": "Note", "field": {"name": "due", "type": "date | None"}}
TITLES = "#+ description: All titles.\nSELECT ?t { ?n a :Note ; :title ?t }"
SCHEMA = '{"title": "Thing", "properties": {"size": {"type": "integer"}}}'

RENAME = {"step": "rename_field", "type": "Note", "field": "title", "to": "name"}

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
    "trails_meta_impact": {"steps": [DUE]},
    "trails_meta_schema_diff": {"to": "work"},
    "trails_meta_schema_export": {"format": "python"},
    "trails_meta_schema_plan": {"steps": [DUE]},
    "trails_meta_gen_app": {"graph": "other"},
    "trails_meta_gen_capability": {
        "id": "notes.make",
        "description": "Make a note.",
        "does": "create",
        "type": "Note",
    },
    "trails_meta_gen_edgetype": {"name": "Link", "source": "Note", "target": "Note"},
    "trails_meta_gen_migration": {"name": "rename_title", "steps": [RENAME]},
    "trails_meta_gen_nodetype": {"name": "Thing", "fields": [{"name": "size", "type": "int"}]},
    "trails_meta_gen_plugin": {"name": "geo"},
    "trails_meta_gen_policy": {"name": "readers", "actions": ["Read"], "group": "readers"},
    "trails_meta_gen_query": {"name": "titles", "description": "All titles.", "type": "Note"},
    "trails_meta_gen_shape": {"name": "Period", "fields": [{"name": "days", "type": "int"}]},
    "trails_meta_policy_explain": {"actor": "ann", "action": "Read"},
    "trails_meta_policy_test": {"cases": [{"actor": "ann", "action": "Read", "expect": "allow"}]},
    "trails_meta_query_add": {"name": "titles", "text": TITLES},
    "trails_meta_query_check": {"name": "titles", "text": TITLES},
    "trails_meta_query_explain": {"name": "by_status"},
    "trails_meta_schema_import": {"text": SCHEMA, "file": "thing.json"},
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
    "schema_apply": {"steps": [DUE], "branch": "SURFACE"},
    "trails_meta_files_apply": {
        "files": [
            {
                "path": "queries/SURFACE.rq",
                "change": "create",
                "digest": text_digest(TITLES),
                "content": TITLES,
            }
        ]
    },
    "trails_meta_schema_apply": {"steps": [DUE], "branch": "SURFACE"},
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
    folder = make_project(
        tmp_path_factory.mktemp("parity"),
        NOTES,
        queries=NOTES_QUERIES,
        policies={"all.cedar": PERMIT_ALL},
    )
    token = give_token(folder, scopes=SCOPES)
    with served(folder, env={"TRAILS_MCP_SCOPES": ",".join(SCOPES)}) as desk:
        rest = RestClient(urlsplit(desk.url).port, token)
        rest.post("mutate", {"operations": [note("a"), note("b", stars=2)]})
        rest.post("branches", {"name": "work"})
        rest.post("mutate", {"operations": [note("a", stars=5)], "branch": "work"})
        yield partial(desk.ask, "POST", "/graphs/main/mcp", token), rest


def over_mcp(world, name, arguments):
    """What an agent gets."""
    ask, _ = world
    body = message_of(None, "tools/call", {"name": name, "arguments": arguments})
    reply = ask(body, [("MCP-Protocol-Version", "2025-06-18")]).json
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


NO_RESULT = {"trails_meta_migrate_rollback"}
"""What can't succeed here: the branch has no migration."""


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if each.name not in NO_RESULT],
    ids=lambda each: each.name,
)
def test_a_result_is_the_same_struct_on_every_surface(world, operation):
    """What an agent gets, a program gets, as it is declared."""
    name, found = operation.name, []
    for surface in ("mcp", "rest"):
        own = f"{name}-{surface}"
        given = json.loads(json.dumps({**READS, **WRITES}.get(name, {})).replace("SURFACE", own))
        if name in {"branch_delete", "branch_merge"} or name.endswith("schema_apply"):
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
    # An agent sees the beginning of an export at once; doctor counts what happened until then; a
    # reload makes a new version.
    if name not in {"export_records", "trails_meta_doctor", "trails_meta_reload"}:
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
