"""A branch or commit that an actor may not use is answered as one that does not exist.

Two servers of the same project: one has a hidden branch and commits that the other never had.
Every tool, record, route, resource and completion is asked about them on both, and the bytes
are compared. The requests are made from the catalog, so nothing that is new is left out.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.worlds.surfaces import LEGACY, MODERN, ask_app, headers_of, message_of

from trails import App
from trails.app.kernels import ServedGraphs
from trails.app.serve.http.front import HttpInterface
from trails.app.serve.http.hosts import HostPolicy
from trails.identity.tokens import TokenBook, TokenFile
from trails.model.actors import LOCAL, TokenRequest
from trails.model.writes import LoadRequest
from trails.request.authenticate import Authenticator
from trails.surfaces.rest.routes import build_routes

SECRET = "secret/plan"
GROUPS = ("agents", "invokers", "blind", "writers", "admins")
_APP = '''
from trails import Context, Node, Ref, capability, node_type, predicate


@node_type
class Item(Node):
    """Something."""

    name: str = predicate(key=True)


@capability("items.count", side_effects=["none"])
def count(ctx: Context) -> int:
    """Count the items."""
    return Item.objects(ctx).count()


@capability("items.show", side_effects=["none"])
async def show(ctx: Context, item: Ref[Item]) -> str:
    """Show an item."""
    return item.name


@capability("items.add")
def add(ctx: Context, name: str) -> str:
    """Add an item."""
    Item(name=name).save(ctx)
    return name


@capability("items.twice", side_effects=["none"])
def twice(ctx: Context, number: int) -> int:
    """Compute something, without the graph."""
    return 2 * number
'''
_READS = "#+ description: All.\nSELECT ?name WHERE { ?i a :Item ; :name ?name } ORDER BY ?name\n"
_CHANGES = (
    "#+ description: Rename.\n#+ params:\n#+   to: String\n"
    'DELETE { ?i :name "none" } INSERT { ?i :name $to } WHERE { ?i a :Item ; :name "none" }\n'
)
_POLICIES = """
permit (principal in Group::"admins", action, resource);
permit (principal in Group::"invokers", action == Action::"Read", resource in Graph::"main")
when { context.branch == "main" };
permit (
  principal in Group::"invokers",
  action in [Action::"InvokeCapability", Action::"InvokeQuery", Action::"Export"],
  resource in Graph::"main"
);
permit (
  principal in Group::"blind",
  action in [Action::"InvokeCapability", Action::"InvokeQuery", Action::"Export"],
  resource in Graph::"main"
);
permit (principal in Group::"writers", action == Action::"Read", resource in Graph::"main")
when { context.branch == "main" || context.branch like "agents/*" };
permit (
  principal in Group::"writers",
  action in [Action::"Change", Action::"BranchDelete"],
  resource in Graph::"main"
) when { context.branch like "agents/*" };
permit (
  principal in Group::"writers",
  action in [Action::"BranchCreate", Action::"BranchMerge"],
  resource in Graph::"main"
) when { context.target like "agents/*" };
permit (
  principal in Group::"writers",
  action in [Action::"InvokeCapability", Action::"InvokeQuery"],
  resource in Graph::"main"
);
"""
BASE = {
    "branch_create": {"name": "agents/new"},
    "branch_delete": {"name": "agents/none"},
    "branch_merge": {"source": "main", "target": "agents/mine"},
    "commit_get": {"commit": "main"},
    "fetch": {"id": "Item/a"},
    "graph_diff": {"from": "main", "to": "main"},
    "graph_load": {"data": '{"type": "Item", "data": {"name": "l"}}'},
    "graph_mutate": {"operations": [{"op": "delete", "type": "Item", "id": "none"}]},
    "graph_query": {"query": "SELECT ?s { ?s a :Item }"},
    "items.add": {"name": "x"},
    "items.show": {"item": "a"},
    "items.twice": {"number": 4},
    "node_blame": {"record": "Item/a"},
    "node_get": {"record": "Item/a"},
    "node_list": {"type": "Item"},
    "read_record_field": {"record": "Item/a", "field": "name"},
    "rename": {"params": {"to": "z"}},
    "search": {"query": "a"},
    "stored_query_run": {"name": "names"},
    "stored_query_link": {"name": "names"},
}
"""Arguments with which each operation could be called; what needs none is not here."""
PLACES = ("branch", "snapshot", "from", "to", "source", "target", "commit", "name")


class Server:
    """A project, served by the interface that an owner has."""

    def __init__(self, folder, tokens):
        self.app = App.open(folder, strict=True)
        self._bearers = tokens
        self.graphs = ServedGraphs(self.app)
        self.interface = HttpInterface(
            self.graphs,
            self.app.settings.graphs,
            Authenticator(LOCAL, tokens=TokenBook(folder / ".trails")),
            HostPolicy.for_bind("127.0.0.1", credentials=True),
        )

    async def ask(self, group, surface, *request):
        """What a surface answers to an actor of a group."""
        return await getattr(self, surface)(group, *request)

    async def listed(self, method, name, *members):
        """What is offered to who may use everything."""
        found = json.loads((await self.mcp("admins", method, {})).body)["result"][name]
        return [{member: each[member] for member in members} for each in found]

    async def mcp(self, group, method, params, revision=MODERN):
        """What the MCP endpoint answers."""
        headers = [*headers_of(revision, method, params), self._bearers[group]]
        body = json.dumps(message_of(revision, method, params)).encode()
        return await ask_app(self.interface, headers, [body], path="/graphs/main/mcp")

    async def rest(self, group, method, path, document=None, query=""):
        """What REST answers."""
        headers = [(b"host", b"127.0.0.1"), self._bearers[group]]
        body = b""
        if document is not None:
            headers.append((b"content-type", b"application/json"))
            body = json.dumps(document).encode()
        return await ask_app(
            self.interface,
            headers,
            [body],
            method,
            path=path,
            raw_path=path.encode(),
            query_string=query.encode(),
        )


def make_project(folder):
    """A project with some data on main and on a branch of the agents."""
    (folder / "policies").mkdir(parents=True)
    (folder / "queries").mkdir()
    (folder / "trails.toml").write_text('[project]\nname = "acme"\n')
    (folder / "app.py").write_text(_APP)
    (folder / "queries" / "names.rq").write_text(_READS)
    (folder / "queries" / "rename.rq").write_text(_CHANGES)
    (folder / "policies" / "all.cedar").write_text(_POLICIES + documented_policies())
    with App.open(folder, strict=True) as app:
        load(app, "main", "a")
        app.versions().create_branch("agents/mine")
        load(app, "agents/mine", "b")
    tokens = TokenFile(folder / ".trails")
    return {
        group: (
            b"authorization",
            b"Bearer "
            + tokens.issue(TokenRequest(actor=group, groups=(group,))).token.reveal().encode(),
        )
        for group in GROUPS
    }


def documented_policies():
    """The first example of the how-to."""
    text = (Path(__file__).parents[3] / "docs" / "how-to" / "access.md").read_text()
    return re.search(r"```cedar\n(.*?)```", text, re.DOTALL)[1]


def load(app, branch, name):
    """Write an item; the commit."""
    line = b'{"type": "Item", "data": {"name": "%s"}}' % name.encode()
    return app.load(LoadRequest(files=([line],), format="ndjson", branch=branch)).commit


def hide(folder):
    """Make the hidden branch, and another one that is deleted; their commits."""
    with App.open(folder, strict=True) as app:
        versions = app.versions()
        versions.create_branch(SECRET)
        hidden = load(app, SECRET, "hush")
        versions.create_branch("secret/gone")
        gone = load(app, "secret/gone", "gone")
        versions.delete_branch("secret/gone", force=True)
    return hidden, gone


# --- requests -----------------------------------------------------------------------------


def requests(tools, templates, hidden):
    """Every request: what is called on a server, and with what."""
    for method in ("tools/list", "resources/list", "resources/templates/list"):
        yield "mcp", method, {}
    for name, arguments in tool_calls(tools, hidden):
        for revision in (MODERN, LEGACY[-1]):
            yield "mcp", "tools/call", {"name": name, "arguments": arguments}, revision
        yield "rest", "POST", f"/graphs/main/invoke/{name}", arguments
    for request in route_calls(build_routes({}), hidden[:2]):
        yield "rest", *request
    for uri in ("trails://stats", "trails://branches", *readings(templates, hidden)):
        yield "mcp", "resources/read", {"uri": uri}
    for params in completions(templates, hidden):
        yield "mcp", "completion/complete", params


def tool_calls(tools, hidden):
    """Each tool, with what is hidden in each of its texts."""
    for tool in tools:
        schema, given = tool["inputSchema"], BASE.get(tool["name"], {})
        missing = set(schema.get("required", ())) - given.keys()
        assert not missing, f"give {tool['name']} an entry in BASE"
        for name, each in schema["properties"].items():
            if "string" in str(each.get("type", each)) and name not in {"message", "data"}:
                for value in hidden:
                    yield tool["name"], {**given, name: value}


def route_calls(routes, hidden):
    """Each route, with what is hidden in its path, its query string and its body."""
    bodies = ("branch_create", "graph_query", "graph_mutate", "branch_merge")
    for route in routes:
        if route.path.endswith("/prov"):
            continue  # it lists these calls themselves; test_provenance compares it
        path = route.path.replace("{graph}", "main")
        for method, value in product(route.app._handlers, hidden):
            text = quote(value, safe="")
            there = filled(path, text)
            yield method, re.sub(r"{\w+}", text, path)
            for place in PLACES:
                yield method, there, None, f"{place}={text}&from=main"
                yield method, there, None, f"to=main&{place}={text}"
                if method == "POST":
                    yield from ((method, there, {**BASE[each], place: value}) for each in bodies)


def readings(templates, hidden):
    """Each template, with what is hidden as its branch or commit."""
    for template, value in product(templates, hidden):
        yield filled(template, quote(value, safe=""))


def filled(template, text):
    """A path or template that leads to something, but for its branch or commit."""
    known = {"type": "Item", "id": "a", "record": "a", "field": "name", "name": "names"}
    return re.sub(r"{\??(\w+)[^}]*}", lambda found: known.get(found[1], text), template)


def completions(templates, hidden):
    """Each variable of each template, with nothing typed and with a beginning."""
    for template in templates:
        beginnings = ("", *(each[:8] for each in hidden))
        for name, value in product(re.findall(r"{\??(\w+)", template), beginnings):
            reference = {"type": "ref/resource", "uri": template}
            yield {"ref": reference, "argument": {"name": name, "value": value}}


# --- answers ------------------------------------------------------------------------------


def is_refusal(reply):
    """Whether a request was refused, over whatever surface."""
    return reply.status >= 400 or b'"isError":true' in reply.body or b'"error":' in reply.body


def shown(reply):
    """An answer as it is compared: a refusal as it is, else without what is new each time."""
    headers = sorted(each for each in reply.headers if each[0] != b"date")
    body = reply.body
    if not is_refusal(reply):
        body = re.sub(rb"[0-9a-f]{32}|[0-9a-f-]{36}|20\d\d-[0-9T:.-]+Z", b"*", body)
        body = re.sub(rb'(?<=cursor)\\*":\\*"[\w-]+', b"*", body)
        headers = [each for each in headers if each[0] != b"content-length"]
    return reply.status, headers, body


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Every request to both servers: (request, with what is hidden, without it)."""
    whole, plain = (tmp_path_factory.mktemp("hidden") / each for each in ("whole", "plain"))
    tokens = make_project(whole)
    shutil.copytree(whole, plain)
    hidden = hide(whole)
    values = (SECRET, *hidden, hidden[0][:12])
    servers = [Server(folder, tokens) for folder in (whole, plain)]

    async def work():
        async with servers[0].interface.run(), servers[1].interface.run():
            tools = await servers[1].listed("tools/list", "tools", "name", "inputSchema")
            templates = await servers[1].listed(
                "resources/templates/list", "resourceTemplates", "uriTemplate"
            )
            asked = list(requests(tools, [each["uriTemplate"] for each in templates], values))
            return [
                (
                    f"{group}: {request}",
                    *[shown(await each.ask(group, *request)) for each in servers],
                )
                for group in GROUPS[:-1]
                for request in asked
            ]

    try:
        return asyncio.run(asyncio.wait_for(work(), 300))
    finally:
        for server in servers:
            server.graphs.close()
            server.app.close()


@pytest.mark.req("G5", "G6")
def test_what_is_hidden_is_answered_as_what_does_not_exist(answers):
    """Status, headers and body, byte for byte, for every operation on every surface."""
    different = [each for each in answers if each[1] != each[2]]
    told = "\n".join(f"{request}\n  {one}\n  {two}" for request, one, two in different[:5])
    assert not different, f"{len(different)} of {len(answers)} differ:\n{told}"


def test_the_comparison_reaches_every_kind_of_answer(answers):
    """Some requests are refused and some succeed, so both are compared."""
    refused = [one for _, one, _ in answers if one[0] >= 400]
    assert len(answers) > 2000
    assert 0 < len(refused) < len(answers)
    assert any(b"there is no branch" in one[2] for one in refused)
    assert any(b"there is no commit" in one[2] for one in refused)
