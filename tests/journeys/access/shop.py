"""A project with actors of every kind, and its graph on every surface.

What each actor may do is said twice: in Cedar, for the server, and in plain sets, for the
tests. Names that begin with ``canary`` are hidden from everybody but the admin.
"""

import asyncio
import json
from typing import Any, NamedTuple

import msgspec
from tests.worlds.surfaces import MODERN, Doors, OneCaller, Reply, ask_app, headers_of, message_of

from trails.app.app import App
from trails.app.kernels import kernel_of
from trails.model.actors import Actor
from trails.model.writes import LoadRequest
from trails.request.pipeline import Kernel
from trails.surfaces.mcp.streams import serve_stream
from trails.surfaces.rest.routes import build_app

APP = '''
"""Tasks, people, and what nobody has to know of."""

from __future__ import annotations

from trails import Context, Node, capability, meta_capability, node_type, predicate


@node_type
class Person(Node):
    """Somebody."""

    slug: str = predicate(key=True)
    name: str = predicate(label=True)
    canary_salary: int | None = predicate()


@node_type
class Task(Node):
    """Something to do."""

    code: str = predicate(key=True)
    title: str = predicate(label=True)
    owner: Person | None = predicate()


@node_type
class CanaryVault(Node):
    """What is hidden."""

    code: str = predicate(key=True)
    content: str = predicate()


@capability("tasks.count", side_effects=["none"])
def count(ctx: Context) -> int:
    """How many tasks there are."""
    return Task.objects(ctx).count()


@capability("tasks.add")
def add(ctx: Context, code: str, title: str) -> Task:
    """Add a task."""
    task = Task(code=code, title=title)
    task.save(ctx)
    return task


@capability("people.show", side_effects=["none"])
def show(ctx: Context, person: Person) -> Person:
    """Show somebody."""
    return person


@capability("canary.open", side_effects=["none"])
def open_vault(ctx: Context, vault: CanaryVault) -> CanaryVault:
    """Open a vault."""
    return vault


@meta_capability("trails.meta.shop.build", scope="builder")
def build(ctx: Context) -> str:
    """Build."""
    raise AssertionError("it ran")


@meta_capability("trails.meta.shop.debug", scope="dev")
def debug(ctx: Context) -> str:
    """Debug."""
    raise AssertionError("it ran")
'''

QUERIES = {
    "task_titles": "#+ description: All titles.\nSELECT ?title { ?t a :Task ; :title ?title }\n",
    "canary_pay": (
        "#+ description: Who has how much.\n"
        "SELECT ?name ?s { ?p a :Person ; :name ?name ; :canary_salary ?s }\n"
    ),
    "canary_all": "#+ description: All there is.\nSELECT ?s ?p ?o { ?s ?p ?o }\n",
    "task_rename": (
        "#+ description: Rename all.\n"
        "DELETE { ?t :title ?old } INSERT { ?t :title 'x' } WHERE { ?t a :Task ; :title ?old }\n"
    ),
}

POLICIES = """
@id("admins") permit(principal in Group::"admins", action, resource);

@id("readers") permit(
  principal in Group::"readers", action in [Action::"Read", Action::"Export"], resource
) unless { context.branch like "canary-*" };
@id("readers ask") permit(
  principal in Group::"readers", action == Action::"InvokeQuery", resource == Query::"task_titles"
) unless { context.branch like "canary-*" };

@id("writers read") permit(
  principal in Group::"writers", action == Action::"Read", resource
) unless { context.branch like "canary-*" };
@id("writers") permit(
  principal in Group::"writers", action in [Action::"Change", Action::"BranchDelete"], resource
) when { context.branch like "agents/*" };
@id("writers fork and merge") permit(
  principal in Group::"writers",
  action in [Action::"BranchCreate", Action::"BranchMerge"], resource
) when { context.target like "agents/*" };

@id("askers") permit(
  principal in Group::"askers", action == Action::"InvokeQuery", resource
) when { resource in [Query::"task_titles", Query::"task_rename"] };
@id("typists") permit(
  principal in Group::"typists", action == Action::"Read", resource in Type::"Task"
);
@id("typists ask") permit(
  principal in Group::"typists", action == Action::"InvokeQuery", resource == Query::"task_titles"
);
@id("stewards and porters") permit(
  principal, action in [Action::"Read", Action::"InvokeCapability"], resource
) when { principal in Group::"stewards" || principal in Group::"porters" };
@id("no vaults for them") forbid(
  principal, action == Action::"Read", resource == Type::"CanaryVault"
) when { principal in Group::"stewards" || principal in Group::"porters" };
@id("no salaries for porters") forbid(
  principal in Group::"porters", action == Action::"Read", resource == Field::"Person.canary_salary"
);
@id("devs") permit(
  principal in Group::"devs", action == Action::"Read", resource == Graph::"main"
) when { context.branch == "dev" };
@id("devs know tasks") permit(
  principal in Group::"devs", action == Action::"Read", resource in Type::"Task"
);
@id("runners") permit(
  principal in Group::"runners", action == Action::"InvokeCapability",
  resource == Capability::"tasks.count"
);

@id("clerks") permit(
  principal in Group::"clerks",
  action in [
    Action::"Read", Action::"Export", Action::"Change", Action::"InvokeQuery",
    Action::"InvokeCapability"
  ],
  resource
) unless { context.branch like "canary-*" };
@id("no salaries") forbid(
  principal in Group::"clerks", action == Action::"Read", resource == Field::"Person.canary_salary"
);
@id("no vaults") forbid(
  principal in Group::"clerks", action == Action::"Read", resource == Type::"CanaryVault"
);
"""

SERVER = """
permit(principal in Group::"admins", action == Action::"GraphList", resource);
"""

BRANCHES = ("main", "dev", "agents/ada", "canary-branch")
SEEN = frozenset({"main", "dev", "agents/ada"})
AGENTS = frozenset({"agents/ada"})


def actor(name, *, scopes=("runtime",), group=None):
    """Somebody with a credential."""
    groups = frozenset({group or f"{name}s"})
    return Actor(name, frozenset(scopes), groups, f"token-of-{name}")


ACTORS = {
    each.name: each
    for each in (
        *(actor(name) for name in ("admin", "reader", "writer", "asker", "runner", "clerk")),
        Actor("nobody", credential="token-of-nobody"),
    )
}
ALWAYS = frozenset({"graph_health", "trails_meta_ping"})
READING = frozenset(
    {
        *("branch_list", "commit_get", "commit_list", "graph_snapshot", "schema_get"),
        *("fetch", "node_blame", "node_get", "node_list", "read_record_field", "search"),
    }
)
QUERYING = frozenset({"graph_query"})
EXPORTING = frozenset({"export_records"})
CHANGING = frozenset({"graph_load", "graph_mutate"})
BRANCHING = frozenset({"branch_create", "branch_delete", "branch_merge"})
OWN = frozenset({"tasks.count", "tasks.add", "people.show"})
EVERYTHING = (
    *(ALWAYS | READING | EXPORTING | QUERYING | CHANGING | BRANCHING | OWN | set(QUERIES)),
    "canary.open",
)
LISTED = {
    "admin": frozenset(EVERYTHING),
    "reader": ALWAYS | READING | EXPORTING | QUERYING | {"task_titles"},
    "writer": ALWAYS | READING | QUERYING | CHANGING | BRANCHING,
    "asker": ALWAYS | {"task_titles", "task_rename"},
    "runner": ALWAYS | {"tasks.count"},
    "clerk": ALWAYS | READING | EXPORTING | CHANGING | OWN | {"task_titles", "task_rename"},
    "nobody": ALWAYS,
}
"""The tools of each, with the scope runtime."""
READS = {
    "admin": frozenset(BRANCHES),
    **dict.fromkeys(("reader", "writer", "clerk"), SEEN),
    **dict.fromkeys(("asker", "runner", "nobody"), frozenset()),
}
"""Where each may read."""
CHANGES = {
    **dict.fromkeys(READS, frozenset()),
    "admin": frozenset(BRANCHES),
    "writer": AGENTS,
    "clerk": SEEN,
}
NOWHERE = dict.fromkeys(READS, frozenset())


def make_shop(folder):
    """The project, with data on every branch."""
    folder.mkdir(parents=True)
    (folder / "trails.toml").write_text(
        "[project]\nname = 'shop'\n[server]\npolicies = 'server'\n[graphs.main]\n"
    )
    (folder / "app.py").write_text(APP)
    folders = {"queries": QUERIES, "policies": {"shop": POLICIES}, "server": {"server": SERVER}}
    for name, texts in folders.items():
        (folder / name).mkdir()
        for each, text in texts.items():
            suffix = "rq" if name == "queries" else "cedar"
            (folder / name / f"{each}.{suffix}").write_text(text)
    return folder


def fill_shop(app):
    """Data; returns commits by what they are about."""
    kept = {"main": _load(app, "main", ["T-1"], salary=1)}
    for name in BRANCHES[1:]:
        app.versions().create_branch(name)
        kept[name] = _load(app, name, [f"T-{name.partition('/')[0]}"])
    for name in ("agents/gone", "canary-gone"):
        app.versions().create_branch(name)
        kept[name] = _load(app, name, [f"T-{name[-4:]}"])
        app.versions().delete_branch(name, force=True)
    return kept


def _load(app, branch, tasks, salary=None):
    lines = [{"type": "Task", "data": {"code": each, "title": f"Do {each}"}} for each in tasks]
    if salary is not None:
        person = {"slug": "ann", "name": "Ann", "canary_salary": salary}
        lines += [
            {"type": "Person", "data": person},
            {"type": "CanaryVault", "data": {"code": "V-1", "content": "canary-content"}},
        ]
    text = "\n".join(map(json.dumps, lines)).encode()
    request = LoadRequest(files=([text],), format="ndjson", branch=branch)
    return app.load(request).commit


class Ask(NamedTuple):
    """A request: of MCP, and of REST where it has one."""

    method: str
    params: dict[str, Any]
    rest: tuple[str, str, dict[str, Any] | None] | None = None


def call(tool, arguments=None):
    """Call a tool."""
    given = arguments or {}
    return Ask("tools/call", {"name": tool, "arguments": given}, ("POST", f"/invoke/{tool}", given))


def read(uri):
    """Read a resource."""
    return Ask("resources/read", {"uri": uri})


WIRES = ("fast", "sdk", "legacy", "lines", "rest")


class Surfaces:
    """A kernel on every surface."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.doors = Doors(lambda: self.kernel)
        self.rest_app = build_app({"main": self.kernel})

    def __enter__(self):
        self.doors.__enter__()
        return self

    def __exit__(self, *_):
        self.doors.__exit__()
        self.kernel.close()

    def ask_in(self, revision, actor, asked):
        """The answers of the fast door in some revision; None is an absent header."""
        return self.doors.run(self._by_http("fast", actor, asked, revision))

    def ask(self, wire, actor, asked):
        """The answers to some requests, in order; None for what a surface does not have."""
        ways = {"lines": self._by_lines, "rest": self._by_rest}
        return self.doors.run(ways.get(wire, self._by_http)(wire, actor, asked))

    async def _by_http(self, wire, actor, asked, revision=...):
        app = self.doors.apps[0 if wire == "fast" else 1]
        if revision is ...:
            revision = "2025-06-18" if wire == "legacy" else MODERN
        answers = []
        for each in asked:
            headers = headers_of(revision, each.method, each.params)
            body = json.dumps(message_of(revision, each.method, each.params)).encode()
            answers.append(await ask_app(app, headers, [body], **{"trails.actor": actor}))
        return answers

    async def _by_lines(self, wire, actor, asked):
        del wire
        messages = (message_of(MODERN, each.method, each.params, 1) for each in asked)
        waiting = [json.dumps(each).encode() for each in messages]
        said, answered = [], asyncio.Event()

        async def receive():
            # One at a time, so that all have the same id and the same bytes.
            if len(waiting) < len(asked):
                await answered.wait()
                answered.clear()
            return waiting.pop(0) if waiting else None

        async def send(line):
            said.append(Reply(200, [], line))
            answered.set()

        await serve_stream(self.kernel, receive, send, callers=OneCaller(actor))
        return said

    async def _by_rest(self, wire, actor, asked):
        del wire
        answers = []
        for each in asked:
            if each.rest is None:
                answers.append(None)
                continue
            method, path, document = each.rest
            path, _, query = path.partition("?")
            full = f"/graphs/main{path}"
            body = b"" if document is None else json.dumps(document).encode()
            headers = [(b"host", b"x"), (b"content-type", b"application/json")]
            scope = {"path": full, "raw_path": full.encode(), "query_string": query.encode()}
            answers.append(
                await ask_app(
                    self.rest_app, headers, [body], method, **{"trails.actor": actor}, **scope
                )
            )
        return answers


class Shop(Surfaces):
    """The project, with its graph on every surface."""

    def __init__(self, folder):
        self.folder = make_shop(folder)
        self.app = App.open(self.folder)
        self.commits = fill_shop(self.app)
        super().__init__(kernel_of(self.app))

    def __exit__(self, *error):
        super().__exit__(*error)
        self.app.close()

    def load(self, branch, tasks):
        """Add tasks to a branch; the commit."""
        return _load(self.app, branch, tasks)

    def with_mode(self, mode):
        """The same graph, whose stored queries are offered in another way."""
        options = msgspec.structs.replace(self.kernel._options, stored_query_mode=mode)
        return Surfaces(Kernel(self.app.service(), options))


def is_unknown(reply):
    """Whether an answer says that there is no such tool or resource."""
    message = reply.message
    said = message["error"]["message"] if "error" in message else message.get("detail", "")
    return str(said).startswith("unknown tool: ")


def phantom_of(name):
    """A name of the same form that stands for nothing."""
    return "".join(each if each in "/-._" else "q" for each in name)


def put_back(reply, phantom, name):
    """An answer about a phantom, as it would be about something else."""
    body = reply.body.replace(phantom.encode(), name.encode())
    body = body.replace(phantom.replace("/", "%2F").encode(), name.replace("/", "%2F").encode())
    return Reply(reply.status, reply.headers, body)
