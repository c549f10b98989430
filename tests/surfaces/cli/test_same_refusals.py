"""An invalid write is refused alike over MCP, over REST, and by a command here or from afar."""

import json
import shutil
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.worlds.processes import Shell, Web
from tests.worlds.projects import make_project
from tests.worlds.surfaces import MODERN, headers_of, message_of

APP = '''\
"""Tasks, and a capability that stores one."""

from trails import Context, Node, Ref, capability, node_type, predicate


@node_type
class Task(Node):
    """Something to do."""

    key: str = predicate(key=True, pattern=r"^T-\\d+$")
    title: str = predicate(min_length=3, unique=True)
    state: str = predicate(one_of=["open", "done"])
    stars: int | None = predicate(min_value=1, max_value=5)
    after: Ref["Task"] | None = predicate()


@capability("tasks.put")
def put(ctx: Context, key: str, title: str, state: str, stars: int | None = None) -> Task:
    """Store a task."""
    task = Task(key=key, title=title, state=state, stars=stars)
    task.save(ctx)
    return task
'''
GOOD = {"key": "T-1", "title": "The first", "state": "open"}
WRONG = {"key": "7", "title": "x\u202e", "state": "lost", "stars": 9}


def create(data):
    """The arguments of a mutation that creates a task."""
    return {"operations": [{"op": "create", "type": "Task", "data": data}]}


WRITES = {
    "every rule of a capability": ("tasks.put", WRONG),
    "wrong arguments of a capability": ("tasks.put", {"key": 7, "tittle": "x", "stars": "many"}),
    "no arguments": ("tasks.put", {}),
    "a key that exists": ("tasks.put", {**GOOD, "title": "Another"}),
    "a title that exists": ("graph_mutate", create({**GOOD, "key": "T-2"})),
    "every rule of an operation": ("graph_mutate", create(WRONG)),
    "a field that is not declared": ("graph_mutate", create({**GOOD, "key": "T-2", "tittle": ""})),
    "a reference to nothing": (
        "graph_mutate",
        create({**GOOD, "key": "T-2", "title": "New", "after": "Task/T-9"}),
    ),
    "a type that is not declared": (
        "graph_mutate",
        {"operations": [{"op": "create", "type": "Tusk", "data": GOOD}]},
    ),
    "a node that does not exist": (
        "graph_mutate",
        {"operations": [{"op": "update", "type": "Task", "id": "T-9", "data": {"state": "done"}}]},
    ),
    "an update that breaks rules": (
        "graph_mutate",
        {"update": 'INSERT DATA { <trails://acme/main/Task/T-2> a :Task ; :key "T-2" ; :stars 9 }'},
    ),
    "an update that is not SPARQL": ("graph_mutate", {"update": "INSERT NONSENSE"}),
    "a branch that does not exist": ("graph_mutate", {**create(GOOD), "branch": "nowhere"}),
    "a head that moved": ("graph_mutate", {**create(GOOD), "expected_head": "0" * 64}),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Two copies of a project: one is only here, the other is served."""
    folder = tmp_path_factory.mktemp("refusals")
    here = make_project(folder / "here", {"app.py": APP})
    Shell(here).run("mutate", "--operations", "-", stdin=json.dumps(create(GOOD)["operations"]))
    there = shutil.copytree(here, folder / "there")
    with Web(there) as served:
        yield {"local": Shell(here), "beside": Shell(there), "afar": Shell(folder), "web": served}


def of_command(shell, *arguments, given=None):
    """What a command says of a write: code, message, fields, and what else is known."""
    stdin = given if isinstance(given, str) else json.dumps(given)
    error = shell.json(*arguments, code=2, stdin=stdin)["error"]
    data = error.get("data", {})
    return error["code"], error["message"], data.pop("fields", []), data


def ask(url, body, headers):
    """What a server answers: its status and its document."""
    request = Request(url, body, headers)  # noqa: S310 - our own server
    try:
        with urlopen(request) as response:  # noqa: S310 - likewise
            return response.status, json.load(response)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def of_rest(url, path, body, media_type="application/json"):
    """What REST says of it, in a problem."""
    status, problem = ask(f"{url}/graphs/main/{path}", body, {"Content-Type": media_type})
    assert status == problem["status"]
    assert 400 <= status < 500
    return problem["code"], problem["detail"], problem.get("fields", []), problem.get("data", {})


def of_mcp(url, tool, arguments):
    """What MCP says of it: an error of JSON-RPC for wrong values, or a result that is an error."""
    params = {"name": tool, "arguments": arguments}
    headers = {"content-type": "application/json"}
    for name, value in headers_of(MODERN, "tools/call", params):
        if name != b"host":
            headers[name.decode()] = value.decode()
    body = json.dumps(message_of(MODERN, "tools/call", params)).encode()
    _, message = ask(f"{url}/graphs/main/mcp", body, headers)
    if "error" in message:
        assert message["error"]["code"] == -32602
        data = message["error"]["data"]
        return data.pop("code"), message["error"]["message"], data.pop("fields", []), data
    result = message["result"]
    assert result["isError"] is True
    failure = result["_meta"]["dev.trails/error"]
    said = result["content"][0]["text"].partition("\n{")[0]
    return failure["code"], said, failure["data"].pop("fields", []), failure["data"]


def heads(places):
    """Where each copy of the project is."""
    return [places[name].json("branch", "list") for name in ("local", "beside")]


@pytest.mark.req("T21d")
@pytest.mark.parametrize("write", WRITES)
def test_an_invalid_write_fails_alike(places, write):
    """The same code, message, fields and data; nothing is written."""
    tool, arguments = WRITES[write]
    url = places["web"].url
    command = ["call", tool, "--json-args", "-"]
    before = heads(places)
    refused = of_command(places["local"], *command, given=arguments)
    assert refused == of_command(places["beside"], *command, given=arguments)
    assert refused == of_command(places["afar"], *command, "--server", url, given=arguments)
    assert refused == of_rest(url, f"invoke/{tool}", json.dumps(arguments).encode())
    assert refused == of_mcp(url, tool, arguments)
    assert heads(places) == before


LINES = (
    f"{json.dumps({'type': 'Task', 'data': GOOD})}\n{json.dumps({'type': 'Task', 'data': WRONG})}\n"
)
FILES = {
    "mutate": (["mutate", "--operations", "-"], create(WRONG)["operations"], "mutate"),
    "an update": (["mutate", "--file", "-"], "DELETE WHERE { ?t :state ?s }", "mutate"),
    "load": (["load", "-", "--format", "ndjson"], LINES, "load?format=ndjson"),
    "a file that is not one": (["load", "-", "--format", "ndjson"], "{", "load?format=ndjson"),
}


@pytest.mark.req("T21d")
@pytest.mark.parametrize("name", FILES)
def test_a_command_and_its_route_refuse_alike(places, name):
    """What has a command and a route of its own: updates, operations and files."""
    command, given, route = FILES[name]
    url = places["web"].url
    before = heads(places)
    refused = of_command(places["local"], *command, given=given)
    assert refused == of_command(places["beside"], *command, given=given)
    assert refused == of_command(places["afar"], *command, "--server", url, given=given)
    if isinstance(given, list):
        rest = of_rest(url, route, json.dumps({"operations": given}).encode())
    else:
        kind = "application/sparql-update" if route == "mutate" else "application/octet-stream"
        rest = of_rest(url, route, given.encode(), kind)
    assert refused == rest
    assert heads(places) == before
