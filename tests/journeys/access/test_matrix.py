"""Who sees and reaches what: seven actors, everything there is, every surface.

One decision for lists and calls, and what is denied answers as what does not exist.
"""

import json
from collections.abc import Callable, Mapping
from itertools import product
from typing import NamedTuple
from urllib.parse import quote

import pytest
from tests.journeys.access.shop import (
    ACTORS,
    AGENTS,
    BRANCHES,
    CHANGES,
    EVERYTHING,
    LISTED,
    NOWHERE,
    QUERIES,
    READS,
    SEEN,
    WIRES,
    Ask,
    Shop,
    call,
    is_unknown,
    phantom_of,
    put_back,
    read,
)

from trails.model.names import portable_name

PAIRS = list(product(ACTORS, WIRES))


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The shop, served."""
    with Shop(tmp_path_factory.mktemp("matrix") / "shop") as shop:
        yield shop


@pytest.mark.req("G5")
@pytest.mark.parametrize(("name", "wire"), PAIRS)
def test_what_is_listed_is_what_can_be_called(shop, name, wire):
    """A tool is listed exactly where a call of it is not answered as unknown."""
    actor = ACTORS[name]
    (listed,) = shop.ask(wire, actor, [Ask("tools/list", {}, ("GET", "/capabilities", None))])
    result = listed.message.get("result", listed.message)
    tools = {each["name"] for each in result.get("tools", result.get("capabilities"))}
    assert tools == LISTED[name]
    answers = shop.ask(wire, actor, [call(tool) for tool in EVERYTHING])
    known = {tool for tool, reply in zip(EVERYTHING, answers, strict=True) if not is_unknown(reply)}
    assert known == tools


@pytest.mark.req("G6")
@pytest.mark.parametrize(("name", "wire"), PAIRS)
def test_a_denied_tool_answers_as_an_unknown_one(shop, name, wire):
    """Status, headers and bytes are the same, also for the spelling without dots."""
    denied = sorted(set(EVERYTHING) - LISTED[name])
    denied += [portable_name(each) for each in denied if "." in each]
    arguments = {"params": {}, "branch": "dev"}
    asked = [call(tool, arguments) for tool in denied]
    phantoms = [call(phantom_of(tool), arguments) for tool in denied]
    actor = ACTORS[name]
    found = zip(denied, shop.ask(wire, actor, asked), shop.ask(wire, actor, phantoms), strict=True)
    for tool, reply, phantom in found:
        assert is_unknown(reply), tool
        assert reply == put_back(phantom, phantom_of(tool), tool)


# --- branches ------------------------------------------------------------------------------


class Probe(NamedTuple):
    """A request about a branch, and where each actor may make it; None where it has no such."""

    name: str
    ask: Callable[[str], Ask]
    where: Mapping[str, frozenset[str]]
    wires: tuple[str, ...] = WIRES

    def __str__(self):
        return self.name


def _tool(tool, where, **arguments):
    """A call of a tool; the argument whose value is ``...`` is the branch."""

    def ask(branch):
        given = {key: branch if value is ... else value for key, value in arguments.items()}
        return call(tool, given)

    named = next(key for key, value in arguments.items() if value is ...)
    return Probe(
        f"{tool}-{named}", ask, {each: where[each] for each in where if tool in LISTED[each]}
    )


def _uri(path, where=READS):
    return Probe(
        f"read-{path}",
        lambda branch: read(f"trails://branch/{quote(branch, safe='')}/{path}"),
        where,
        WIRES[:-1],
    )


def _path(method, path, where, document=None):
    def ask(branch):
        spelled = quote(branch, safe="")
        body = document and {k: branch if v is ... else v for k, v in document.items()}
        return Ask("ping", {}, (method, path.replace("{}", spelled), body))

    return Probe(f"{method} {path}", ask, where, ("rest",))


# Who may neither read nor change a branch does not learn of it by calling something there.
EXPORTS = {**READS, "writer": frozenset()}
FORKS = {"admin": READS["admin"], "writer": SEEN}
RENAMES = {
    **NOWHERE,
    **{each: CHANGES[each] for each in ("admin", "clerk")},
    "asker": {"main"},
}
ASKS = {**READS, "writer": frozenset(), "asker": frozenset({"main"})}
RUNS = {"admin": READS["admin"], "runner": frozenset({"main"}), "clerk": SEEN}
MERGED = {"admin": READS["admin"], "writer": SEEN}
INTO = {"admin": READS["admin"], "writer": AGENTS}
QUERY = "ASK { ?s ?p ?o }"
HARMLESS = "DELETE { ?t :title ?t } WHERE { ?t a :Nothing }"
PROBES = [
    _tool("graph_snapshot", READS, branch=...),
    _tool("schema_get", READS, branch=..., types=["Task"]),
    _tool("graph_query", READS, branch=..., query=QUERY),
    _tool("node_get", READS, branch=..., record="Task/T-1"),
    _tool("node_list", READS, branch=..., type="Task"),
    _tool("search", READS, branch=..., query="task"),
    _tool("read_record_field", READS, branch=..., record="T-1", type="Task", field="title"),
    Probe(
        "fetch-uri",
        lambda branch: call(
            "fetch", {"id": f"trails://branch/{quote(branch, safe='')}/kg/Task/T-1"}
        ),
        {each: READS[each] for each in READS if "fetch" in LISTED[each]},
    ),
    _tool("commit_list", READS, branch=...),
    _tool("commit_get", READS, commit=...),
    _tool("export_records", EXPORTS, branch=...),
    _tool("graph_mutate", CHANGES, branch=..., operations=[]),
    _tool("graph_load", CHANGES, branch=..., data=""),
    _tool("branch_merge", MERGED, source=..., target="agents/ada", dry_run=True),
    _tool("branch_merge", INTO, source="dev", target=..., dry_run=True),
    _tool("task_titles", ASKS, branch=...),
    _tool("tasks.count", RUNS, branch=...),
    *map(_uri, ("schema", "stats", "kg/types", "kg/Task", "kg/Task/T-1")),
    _path("GET", "/snapshot?branch={}", READS),
    _path("GET", "/kg/Task?branch={}", READS),
    _path("GET", "/kg/Task/T-1?branch={}", READS),
    _path("GET", "/kg/Task/T-1/fields/title?branch={}", READS),
    _path("GET", "/export?branch={}", EXPORTS),
    _path("POST", "/export", EXPORTS, {"branch": ...}),
    _path(
        "POST",
        "/query",
        {k: v for k, v in READS.items() if "graph_query" in LISTED[k]},
        {"query": QUERY, "branch": ...},
    ),
    _path("GET", "/commits?branch={}", READS),
    _path("GET", "/commits/{}", READS),
    _path("GET", "/branches/{}/diff", READS),
    _path("GET", "/diff?from={}&to=main", READS),
    _path("POST", "/mutate", CHANGES, {"operations": [], "branch": ...}),
    _path("POST", "/load?format=ndjson&branch={}", CHANGES, {}),
    _path("POST", "/queries/task_titles", ASKS, {"branch": ...}),
    _path("GET", "/queries/task_titles?branch={}", ASKS),
]
"""What changes nothing where it is allowed."""
REFUSED = [
    _tool("branch_create", FORKS, name="agents/new", **{"from": ...}),
    _tool("branch_delete", {"writer": AGENTS}, name=...),
    _tool("graph_load", FORKS, branch="agents/new", data="", **{"from": ...}),
    _path("POST", "/branches", FORKS, {"name": "agents/new", "from": ...}),
    _path("DELETE", "/branches/{}", {"writer": AGENTS}),
    _path("POST", "/branches/merge", INTO, {"source": "dev", "target": ...}),
]
"""What is only asked where it is denied."""


@pytest.mark.req("G5", "G6")
@pytest.mark.parametrize(
    ("probe", "wire"),
    [(probe, wire) for probe in PROBES + REFUSED for wire in probe.wires],
    ids=str,
)
def test_a_denied_branch_answers_as_one_that_does_not_exist(shop, probe, wire):
    """For every actor, way to name a branch, and branch; allowed ones are found."""
    for name, where in probe.where.items():
        denied = [each for each in BRANCHES if each not in where]
        asked = [probe.ask(each) for each in denied]
        phantoms = [probe.ask(phantom_of(each)) for each in denied]
        found = shop.ask(wire, ACTORS[name], asked), shop.ask(wire, ACTORS[name], phantoms)
        for branch, reply, phantom in zip(denied, *found, strict=True):
            assert reply.body == put_back(phantom, phantom_of(branch), branch).body, (name, branch)
            assert reply.status == phantom.status
            assert reply.headers == phantom.headers
            if where:
                assert b"there is no branch" in reply.body
        if probe in REFUSED:
            continue
        for reply in shop.ask(wire, ACTORS[name], [probe.ask(each) for each in where]):
            assert b"there is no branch" not in reply.body, (name, where)
            assert b"unknown tool" not in reply.body


# --- commits -------------------------------------------------------------------------------


COMMITS = {
    "main": frozenset({"main", "dev", "agents/ada", "canary-branch"}),
    "dev": {"dev"},
    "agents/ada": AGENTS,
    "canary-branch": {"canary-branch"},
    "agents/gone": {"agents/gone"},
    "canary-gone": {"canary-gone"},
}
"""Commits by the branch that they were made on, with those that contain them or did."""
PAST = {name: where | {"agents/gone"} for name, where in READS.items() if where}
PAST["admin"] |= {"canary-gone"}
AT = [
    lambda commit: call("graph_snapshot", {"snapshot": commit}),
    lambda commit: call("schema_get", {"snapshot": commit, "types": ["Task"]}),
    lambda commit: call("node_list", {"snapshot": commit, "type": "Task"}),
    lambda commit: call("search", {"snapshot": commit, "query": "task"}),
    lambda commit: call("fetch", {"id": f"trails://at/{commit}/kg/Task/T-1"}),
    lambda commit: call("commit_get", {"commit": commit}),
    lambda commit: call("commit_list", {"branch": commit}),
    lambda commit: read(f"trails://at/{commit}/kg/types"),
    lambda commit: read(f"trails://at/{commit}/kg/Task"),
    lambda commit: Ask("ping", {}, ("GET", f"/commits/{commit}", None)),
    lambda commit: Ask("ping", {}, ("GET", f"/kg/Task?snapshot={commit}", None)),
    lambda commit: Ask("ping", {}, ("GET", f"/diff?from={commit}&to={commit}", None)),
    lambda commit: Ask("ping", {}, ("GET", f"/snapshot?snapshot={commit}", None)),
]


@pytest.mark.req("G5", "G6")
@pytest.mark.parametrize("wire", ["fast", "sdk", "lines", "rest"])
@pytest.mark.parametrize("digits", [32, 12])
def test_a_commit_is_seen_from_the_branches_that_contain_it(shop, wire, digits):
    """Where none may be read it is as unknown as any; one that none contains has its own."""
    phantom = "0123456789abcdef0123456789abcdef"[:digits]
    for name, where in PAST.items():
        for ask in AT:
            if (ask("x").method == "ping") != (wire == "rest"):
                continue
            for branch, contained in COMMITS.items():
                commit = shop.commits[branch][:digits]
                reply, other = shop.ask(wire, ACTORS[name], [ask(commit), ask(phantom)])
                if contained & where:
                    assert b"there is no " not in reply.body, (name, branch)
                else:
                    assert reply == put_back(other, phantom, commit), (name, branch)


def test_lists_of_commits_show_what_may_be_seen(shop):
    """All branches together, the latest, and completion show the same commits."""
    for name, where in PAST.items():
        expected = {shop.commits[each] for each, of in COMMITS.items() if of & where}
        asked = [
            call("commit_list", {"all_branches": True, "limit": 1000}),
            read("trails://prov/latest"),
            Ask(
                "completion/complete",
                {
                    "ref": {"type": "ref/resource", "uri": "trails://at/{commit}/kg/{type}/{id}"},
                    "argument": {"name": "commit", "value": ""},
                },
            ),
        ]
        listed, latest, completed = shop.ask("sdk", ACTORS[name], asked)
        seen = {each["commit"] for each in listed.message["result"]["structuredContent"]["commits"]}
        assert seen & set(shop.commits.values()) == expected
        document = json.loads(latest.message["result"]["contents"][0]["text"])
        lately = {each["commit"] for each in document["commits"]}
        assert lately & set(shop.commits.values()) == expected
        values = set(completed.message["result"]["completion"]["values"])
        assert values & set(shop.commits.values()) == expected


# --- resources -----------------------------------------------------------------------------


ON_MAIN = ("kg/types", "schema", "stats")
OF_THE_GRAPH = ("branches", "prov/latest")
DOCUMENTS = {
    **{
        name: {*ON_MAIN, *OF_THE_GRAPH, "kg/Person", "kg/Task"}
        for name, where in READS.items()
        if where
    },
    **{name: set() for name, where in READS.items() if not where},
}
DOCUMENTS["admin"] |= {"doctor", "kg/CanaryVault"}
for _name in ("reader", "writer"):
    DOCUMENTS[_name] |= {"kg/CanaryVault"}
SEEN_QUERIES = {name: LISTED[name] & {"task_titles", "task_rename"} for name in LISTED}
SEEN_QUERIES["admin"] |= {"canary_pay", "canary_all"}
URIS = [f"trails://{each}" for each in sorted(DOCUMENTS["admin"])]
IDS = {"Person": "ann", "Task": "T-1", "CanaryVault": "V-1"}


@pytest.mark.req("G5", "G6", "G18")
@pytest.mark.parametrize(("name", "wire"), [(n, w) for n, w in PAIRS if w != "rest"])
def test_resources_are_listed_where_they_can_be_read(shop, name, wire):
    """Documents, types, instances and queries; what is denied is as unknown as nonsense."""
    actor = ACTORS[name]
    (listed,) = shop.ask(wire, actor, [Ask("resources/list", {})])
    uris = {each["uri"] for each in listed.message["result"]["resources"]}
    assert uris == {f"trails://{each}" for each in DOCUMENTS[name]}
    for uri, reply in zip(URIS, shop.ask(wire, actor, [read(each) for each in URIS]), strict=True):
        assert ("result" in reply.message) == (uri in uris), uri
    denied = [uri for uri in URIS if uri not in uris]
    named = [
        f"trails://kg/{kind}/{one}" for kind, one in IDS.items() if f"trails://kg/{kind}" in denied
    ]
    queries = [f"trails://queries/{each}" for each in QUERIES if each not in SEEN_QUERIES[name]]
    for uri in (*denied, *named, *queries):
        other = _phantom_uri(uri)
        reply, phantom = shop.ask(wire, actor, [read(uri), read(other)])
        assert "error" in reply.message, uri
        assert reply == put_back(phantom, _last(other), _last(uri)), uri
    seen = [read(f"trails://queries/{each}") for each in SEEN_QUERIES[name]]
    assert all("result" in reply.message for reply in shop.ask(wire, actor, seen))


def _last(uri):
    """The part of a URI that names something."""
    parts = uri.removeprefix("trails://").split("/")
    return parts[1] if parts[0] in {"kg", "queries"} else "/".join(parts)


def _phantom_uri(uri):
    """The same, about nothing; a document becomes another word, a type another name."""
    part = _last(uri)
    return uri.replace(part, phantom_of(part))


@pytest.mark.req("G6", "G18")
def test_templates_and_completion_show_what_can_be_read(shop):
    """Templates of hidden types are not there, and no value is offered that is hidden."""
    expected = {
        "admin": ({"Person", "Task", "CanaryVault"}, set(BRANCHES), set(QUERIES)),
        "reader": ({"Person", "Task", "CanaryVault"}, SEEN, {"task_titles"}),
        "clerk": ({"Person", "Task"}, SEEN, {"task_titles", "task_rename"}),
        "asker": (set(), None, {"task_titles", "task_rename"}),
        "nobody": (set(), None, None),
    }
    for name, (types, branches, queries) in expected.items():
        (listed,) = shop.ask("fast", ACTORS[name], [Ask("resources/templates/list", {})])
        templates = {each["uriTemplate"] for each in listed.message["result"]["resourceTemplates"]}
        own = {each for each in templates if each.startswith("trails://kg/") and "/{id}" in each}
        assert own == {f"trails://kg/{each}/{{id}}" for each in types}
        placed = "trails://branch/{branch}/kg/{type}/{id}"
        assert _complete(shop, name, placed, "branch") == branches
        assert _complete(shop, name, placed, "type") == (types or None)
        assert _complete(shop, name, "trails://queries/{name}", "name") == queries


def _complete(shop, name, template, variable):
    """The values for a variable; None where there is no such template."""
    ask = Ask(
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": template},
            "argument": {"name": variable, "value": ""},
        },
    )
    (reply,) = shop.ask("sdk", ACTORS[name], [ask])
    if "error" in reply.message:
        assert "there is no template" in reply.message["error"]["message"]
        return None
    return set(reply.message["result"]["completion"]["values"])


@pytest.mark.req("G6")
def test_what_can_not_be_read_can_not_be_watched(shop):
    """A hidden type and branch are refused as what does not exist."""
    for name, uri in product(ACTORS, ("trails://kg/CanaryVault", "trails://kg/Task/T-1")):
        actor, other = ACTORS[name], _phantom_uri(uri)
        refused, phantom = (shop.kernel.refuse_watch(actor, each) for each in (uri, other))
        kind = "/".join(uri.removeprefix("trails://").split("/")[:2])
        if kind in DOCUMENTS[name]:
            assert refused is None
        else:
            assert repr(refused) == repr(phantom).replace(_last(other), _last(uri))
    for name, where in READS.items():
        for branch in BRANCHES:
            at = "trails://branch/{}/kg/Task"
            uri, other = (at.format(quote(each, safe="")) for each in (branch, phantom_of(branch)))
            refused = shop.kernel.refuse_watch(ACTORS[name], uri)
            if branch in where:
                assert refused is None
                continue
            phantom = repr(shop.kernel.refuse_watch(ACTORS[name], other))
            for form in (str, lambda each: quote(each, safe="")):
                phantom = phantom.replace(form(phantom_of(branch)), form(branch))
            assert repr(refused) == phantom
