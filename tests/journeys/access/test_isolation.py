"""Isolation: two graphs of one process with the same names, ids and actors never meet."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from random import Random

import pytest
from tests.campaigns import sized
from tests.journeys.access.twins import GRAPHS, IBIS, ZEBRA, make_project, run
from tests.worlds.processes import files_opened_by
from tests.worlds.surfaces import LEGACY, MODERN, hello

from trails import App, Context, Node, capability, node_type, predicate
from trails.app.kernels import kernel_of
from trails.errors import QuarantineError
from trails.model.actors import LOCAL, Actor
from trails.model.results import Failure, Success

OTHER = {IBIS: ZEBRA, ZEBRA: IBIS}
TEXTS = "SELECT ?key ?text WHERE { ?n a :Note ; :key ?key ; :text ?text } ORDER BY ?key"


class Life:
    """One graph as it should be, and a client that does things to it and looks at them."""

    def __init__(self, twins, graph, seed):
        self.twins = twins
        self.graph = graph
        self.random = Random(f"{seed} {graph}")
        self.branches = {"main": {}}
        self.past = []
        self.made = {each.id for each in twins.app.graph(graph).log.newest()}
        self.count = self.keys = 0

    async def tool(self, name, arguments, *, fails=False):
        """What a tool gives, by some revision or REST; never a word of the other graph."""
        way = self.random.choice([*LEGACY, MODERN, MODERN, "rest"])
        if way == "rest":
            reply = await self.twins.rest(self.graph, "POST", f"/invoke/{name}", arguments)
            found = reply.message
        else:
            params = {"name": name, "arguments": arguments}
            reply = await self.twins.mcp(self.graph, "tools/call", params, way)
            found = reply.message.get("result", {}).get("structuredContent")
        self.look(reply)
        if fails:
            assert b"rror" in reply.body, reply.body
            return None
        assert found is not None, reply.body
        assert "error" not in found, reply.body
        if name == "graph_mutate":
            self.made.add(found["commit"])
        return found

    def look(self, reply):
        """Whatever is answered holds nothing of the other graph."""
        assert OTHER[self.graph].encode() not in reply.body, reply.body

    async def live(self, steps):
        """Do this and that."""
        for _ in range(steps):
            await self.random.choice(
                [
                    self.put,
                    self.put,
                    self.put,
                    self.retry,
                    self.delete,
                    self.read,
                    self.list,
                    self.list_commits,
                    self.ask,
                    self.ask_past,
                    self.fork,
                    self.drop,
                    self.export,
                    self.look_around,
                ]
            )()

    def somewhere(self):
        """A branch."""
        return self.random.choice(list(self.branches))

    async def put(self):
        """Write a note; the same ids are written in the other graph."""
        branch = self.somewhere()
        self.count += 1
        key, text = f"n{self.random.randrange(8)}", f"{self.graph}-{self.count}"
        op = "update" if key in self.branches[branch] else "create"
        data = {"text": text} if op == "update" else {"key": key, "text": text}
        change = {"op": op, "type": "Note", "data": data}
        if op == "update":
            change["id"] = key
        found = await self.tool("graph_mutate", {"operations": [change], "branch": branch})
        self.branches[branch][key] = text
        self.past.append((branch, found["commit"], dict(self.branches[branch])))

    async def retry(self):
        """Write with a key that the other graph uses as well."""
        notes, key = self.branches["main"], f"r{self.random.randrange(5)}"
        text = f"{self.graph} {key}"
        change = {"op": "create", "type": "Note", "data": {"key": key, "text": text}}
        arguments = {"operations": [change], "idempotency_key": f"once-{self.keys}"}
        if key in notes:
            return
        self.keys += 1
        first = await self.tool("graph_mutate", arguments)
        again = await self.tool("graph_mutate", arguments)
        assert first["commit"] == again["commit"]
        notes[key] = text

    async def delete(self):
        """Take a note away."""
        branch = self.somewhere()
        notes = self.branches[branch]
        if len(notes) > 5:
            key = self.random.choice(sorted(notes))
            change = {"op": "delete", "type": "Note", "id": key}
            await self.tool("graph_mutate", {"operations": [change], "branch": branch})
            del notes[key]

    async def read(self):
        """Read notes that are there, and some that are not."""
        branch, key = self.somewhere(), f"n{self.random.randrange(8)}"
        notes = self.branches[branch]
        uri = f"trails://branch/{branch}/kg/Note/{key}"
        reply = await self.twins.mcp(self.graph, "resources/read", {"uri": uri})
        self.look(reply)
        called = {"note": f"Note/{key}", "branch": branch}
        if key not in notes:
            assert "error" in reply.message
            await self.tool("notes.read", called, fails=True)
            return
        content, *_ = reply.message["result"]["contents"]
        assert notes[key] in content["text"]
        found = await self.tool("notes.read", called)
        assert found == {"result": f"{self.graph} read {notes[key]}"}
        assert await self.tool("notes.where", {}) == {"result": f"{self.graph} {self.graph}"}

    async def list(self):
        """Walk all pages, in one of two ways."""
        branch, labels, query = self.somewhere(), [], "limit=2"
        for _ in range(50):
            asked = f"{query}&branch={branch}"
            reply = await self.twins.rest(self.graph, "GET", "/kg/Note", query=asked)
            self.look(reply)
            labels += [each["label"] for each in reply.message["instances"]]
            following = reply.message["next"]
            if following is None:
                break
            query = f"limit=2&cursor={following}"
        assert sorted(labels) == sorted(self.branches[branch].values())

    async def list_commits(self):
        """Every commit is this graph's own."""
        found = await self.tool("commit_list", {"all_branches": True, "limit": 100})
        assert {each["commit"] for each in found["commits"]} <= self.made

    async def ask(self):
        """Query, by text and by name."""
        branch = self.somewhere()
        wanted = [[key, text] for key, text in sorted(self.branches[branch].items())]
        found = await self.tool("graph_query", {"query": TEXTS, "branch": branch})
        stored = await self.tool("texts", {"params": {}, "branch": branch})
        for each in (found, stored):
            assert [[row["key"], row["text"]] for row in each["rows"]] == wanted

    async def ask_past(self):
        """Read a snapshot."""
        if self.past:
            _, commit, notes = self.random.choice(self.past)
            found = await self.tool("graph_query", {"query": TEXTS, "snapshot": commit})
            assert {row["key"]: row["text"] for row in found["rows"]} == notes

    async def fork(self):
        """Make a branch; the other graph has one of that name, or not."""
        name = f"b{self.random.randrange(3)}"
        if name in self.branches:
            await self.tool("branch_create", {"name": name}, fails=True)
        else:
            await self.tool("branch_create", {"name": name})
            self.branches[name] = dict(self.branches["main"])

    async def drop(self):
        """Delete a branch."""
        name = f"b{self.random.randrange(3)}"
        gone = name not in self.branches
        await self.tool("branch_delete", {"name": name, "force": True}, fails=gone)
        self.branches.pop(name, None)
        self.past = [each for each in self.past if each[0] != name]
        listed = await self.tool("branch_list", {})
        assert {each["name"] for each in listed["branches"]} == set(self.branches)

    async def export(self):
        """The whole graph as a file."""
        reply = await self.twins.rest(self.graph, "GET", "/export", query="format=ndjson")
        self.look(reply)
        lines = [json.loads(line)["data"] for line in reply.body.splitlines()]
        assert {each["key"]: each["text"] for each in lines} == self.branches["main"]

    async def look_around(self):
        """What tells about a graph tells about this one."""
        for uri in ("stats", "prov/latest", "branches", "doctor", "schema", "kg/types"):
            self.look(
                await self.twins.mcp(self.graph, "resources/read", {"uri": f"trails://{uri}"})
            )
        for method in ("tools/list", "resources/list", "resources/templates/list"):
            self.look(await self.twins.mcp(self.graph, method, {}))


async def live_side_by_side(twins, seed, steps):
    """Both at once, each doing its own; then what is stored is what was done."""
    lives = [Life(twins, graph, seed) for graph in GRAPHS]
    await asyncio.gather(*(life.live(steps) for life in lives))
    for life in lives:
        await life.ask()
        await life.list()
        await life.look_around()


WORLDS = [(True, False), (True, True), (False, False), (False, True)]


@pytest.mark.req("G16")
@pytest.mark.parametrize(("alike", "same_base"), [(True, True), (False, False)])
def test_graphs_live_side_by_side(tmp_path, alike, same_base):
    """Whatever is done to both at once, each answers for itself, and tells nothing of the other."""
    folder = make_project(tmp_path, alike=alike, same_base=same_base)
    run(folder, lambda twins: live_side_by_side(twins, 1, 25))


@pytest.mark.long(cases=300)
@pytest.mark.parametrize("seed", range(sized(6, nightly=1)))
@pytest.mark.parametrize(("alike", "same_base"), WORLDS)
def test_graphs_live_side_by_side_for_long(tmp_path, alike, same_base, seed):
    """The same, for longer and in other orders."""
    folder = make_project(tmp_path, alike=alike, same_base=same_base)
    run(folder, lambda twins: live_side_by_side(twins, seed, 300))


# --- what one graph gives is nothing to the other --------------------------------------


async def write_one(twins, graph, at):
    """Write a note; its commit."""
    data = {"key": f"k{at}", "text": f"{graph}-{at}"}
    change = {"operations": [{"op": "create", "type": "Note", "data": data}]}
    reply = await twins.rest(graph, "POST", "/mutate", change)
    assert reply.status == 200, reply.body
    return reply.message["commit"]


async def write(twins, graph, number):
    """Write notes; the commit of the last."""
    return [await write_one(twins, graph, at) for at in range(number)][-1]


PLACES = [
    ("graph_snapshot", {"snapshot": "*"}),
    ("graph_query", {"query": TEXTS, "snapshot": "*"}),
    ("texts", {"params": {}, "snapshot": "*"}),
    ("notes.where", {"snapshot": "*"}),
    ("schema_get", {"snapshot": "*"}),
    ("commit_get", {"commit": "*"}),
    ("branch_create", {"name": "made", "from": "*"}),
    ("branch_merge", {"source": "*"}),
    ("graph_mutate", {"operations": [], "expected_head": "*"}),
]
PATHS = [
    "/commits/*",
    "/snapshot?snapshot=*",
    "/kg/Note?snapshot=*",
    "/diff?from=*&to=main",
    "/changes?since=*",
]
URIS = ["trails://at/*/kg/types", "trails://at/*/kg/Note", "trails://at/*/kg/Note/k1"]


@pytest.mark.req("G16")
@pytest.mark.parametrize("same_base", [False, True])
def test_a_commit_of_one_graph_is_unknown_in_the_other(tmp_path, same_base):
    """Byte for byte as one that nobody ever made, wherever a commit can be named."""
    invented = "0123456789abcdef0123456789abcdef"

    async def work(twins):
        await write(twins, ZEBRA, 2)
        commit = await write(twins, IBIS, 2)
        asked = [
            *(("mcp", "tools/call", {"name": name, "arguments": given}) for name, given in PLACES),
            *(("mcp", "resources/read", {"uri": uri}) for uri in URIS),
            *(("rest", "GET", path) for path in PATHS),
        ]
        for surface, method, rest in asked:
            answers = []
            for each in (commit, invented):
                given = json.loads(json.dumps(rest).replace("*", each))
                if surface == "mcp":
                    reply = await twins.mcp(ZEBRA, method, given)
                else:
                    path, _, query = given.partition("?")
                    reply = await twins.rest(ZEBRA, method, path, query=query)
                assert b"rror" in reply.body, (rest, reply.body)
                assert IBIS.encode() not in reply.body
                answers.append((reply.status, reply.body.replace(each.encode(), b"*")))
            assert answers[0] == answers[1], rest

    run(make_project(tmp_path, same_base=same_base), work)


@pytest.mark.req("G16")
@pytest.mark.parametrize("same_base", [False, True])
def test_a_cursor_of_one_graph_is_refused_by_the_other(tmp_path, same_base):
    """Of a list of instances and of a list of commits; at home it works."""

    async def work(twins):
        for graph in GRAPHS:
            await write(twins, graph, 5)
        for path in ("/kg/Note", "/commits"):
            page = await twins.rest(IBIS, "GET", path, query="limit=2")
            name = "cursor" if path == "/kg/Note" else "after"
            following = page.message["next"]
            cursor = following if name == "cursor" else following["arguments"][name]
            query = f"limit=2&{name}={cursor}"
            at_home = await twins.rest(IBIS, "GET", path, query=query)
            assert at_home.status == 200, at_home.body
            elsewhere = await twins.rest(ZEBRA, "GET", path, query=query)
            assert elsewhere.status in {400, 422}, elsewhere.body
            assert b"cursor" in elsewhere.body
        uri = f"trails://kg/Note?limit=2&{query.partition('&')[2].replace('after', 'cursor')}"
        reply = await twins.mcp(ZEBRA, "resources/read", {"uri": uri})
        assert "error" in reply.message

    run(make_project(tmp_path, same_base=same_base), work)


@pytest.mark.req("G16")
def test_an_idempotency_key_is_used_in_each_graph(tmp_path):
    """The same key, actor and change make a commit in both."""

    async def work(twins):
        change = {"op": "create", "type": "Note", "data": {"key": "k", "text": "same"}}
        given = {"operations": [change], "idempotency_key": "once"}
        made = {}
        for graph in (*GRAPHS, *GRAPHS):
            reply = await twins.rest(graph, "POST", "/mutate", given)
            assert reply.status == 200, reply.body
            made.setdefault(graph, set()).add(reply.message["commit"])
        assert [len(each) for each in made.values()] == [1, 1]
        assert made[IBIS] != made[ZEBRA]

    run(make_project(tmp_path), work)


@pytest.mark.req("G16")
def test_a_graph_is_named_by_the_path_alone(tmp_path):
    """No argument names another; instance IRIs of one mean nothing in the other."""

    async def work(twins):
        for graph in GRAPHS:
            await write(twins, graph, 1)
        given = {"name": "graph_snapshot", "arguments": {"graph": ZEBRA}}
        reply = await twins.mcp(IBIS, "tools/call", given)
        assert reply.message["error"]["data"]["fields"][0]["code"] == "unknown_field"
        own = twins.app.graph(ZEBRA).names.nodes + "Note/k0"
        for uri, found in ((own, True), (own.replace(ZEBRA, IBIS), False)):
            reply = await twins.mcp(ZEBRA, "resources/read", {"uri": uri})
            assert ("result" in reply.message) is found, reply.body
        call = {"name": "notes.read", "arguments": {"note": own}}
        assert "result" in (await twins.mcp(ZEBRA, "tools/call", call)).message
        assert "error" in (await twins.mcp(IBIS, "tools/call", call)).message

    run(make_project(tmp_path), work)


@pytest.mark.req("G16")
def test_no_word_of_another_graph_over_mcp(tmp_path):
    """Not in greetings, lists, completions or errors, on any revision, nor at a wrong path."""
    ref = {"type": "ref/resource", "uri": "trails://branch/{branch}/kg/types"}
    asked = [
        ("server/discover", {}),
        ("tools/list", {}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("completion/complete", {"ref": ref, "argument": {"name": "branch", "value": ""}}),
        ("tools/call", {"name": "graphs", "arguments": {}}),
        ("tools/call", {"name": "graph_health", "arguments": {}}),
        ("tools/call", {"name": "notes.where", "arguments": {"branch": ZEBRA[:3]}}),
        ("resources/read", {"uri": "trails://graphs"}),
        ("resources/read", {"uri": "trails://doctor"}),
        ("graphs/list", {}),
    ]

    async def work(twins):
        await write(twins, IBIS, 1)
        await write(twins, ZEBRA, 1)
        await twins.rest(ZEBRA, "POST", "/branches", {"name": "stripes"})
        for revision in (*LEGACY, MODERN):
            greeting = ("initialize", hello(revision))
            for method, params in (*asked, greeting):
                for actor in ("ann", "bob"):
                    reply = await twins.mcp(IBIS, method, params, revision, actor)
                    for word in (ZEBRA.encode(), b"stripes"):
                        assert word not in reply.body.replace(b"'zeb'", b""), (method, reply.body)
        wrong = await twins.mcp("gnu", "tools/list", {})
        assert wrong.status == 404
        assert not any(graph.encode() in wrong.body for graph in GRAPHS)

    run(make_project(tmp_path), work)


# --- what one graph does or suffers, the other does not -----------------------------------


@pytest.mark.req("G16")
def test_a_budget_that_is_used_up_in_one_graph_is_whole_in_the_other(tmp_path):
    """The same actor has an account in each."""
    extra = "".join(f"[graphs.{graph}.budgets]\ncalls_per_minute = 4\n" for graph in GRAPHS)

    async def work(twins):
        call = {"name": "notes.where", "arguments": {}}
        told = {}
        for graph in (IBIS, IBIS, IBIS, IBIS, IBIS, ZEBRA, ZEBRA, ZEBRA, ZEBRA, ZEBRA):
            reply = await twins.mcp(graph, "tools/call", call)
            told.setdefault(graph, []).append("result" in reply.message)
        assert told == dict.fromkeys(GRAPHS, [True] * 4 + [False])
        assert "result" in (await twins.mcp(IBIS, "tools/call", call, actor="bob")).message

    run(make_project(tmp_path, extra=extra), work)


@pytest.mark.req("G16")
def test_policies_decide_about_their_own_graph(tmp_path):
    """What one graph denies an actor, the other permits, whichever was asked first."""
    folder = make_project(tmp_path)
    (folder / f"{IBIS}-policies" / "bob.cedar").write_text(
        'forbid(principal == Actor::"bob", action == Action::"Change", resource);\n'
    )

    async def work(twins):
        change = {"op": "create", "type": "Note", "data": {"key": "k", "text": "x"}}
        call = {"name": "graph_mutate", "arguments": {"operations": [change]}}
        for _ in range(2):
            refused = await twins.mcp(IBIS, "tools/call", call, actor="bob")
            assert refused.message["error"]["message"] == "unknown tool: graph_mutate"
            allowed = await twins.mcp(ZEBRA, "tools/list", {}, actor="bob")
            assert b'"graph_mutate"' in allowed.body
            denied = await twins.mcp(IBIS, "tools/list", {}, actor="bob")
            assert b'"graph_mutate"' not in denied.body
        done = await twins.mcp(ZEBRA, "tools/call", call, actor="bob")
        assert "result" in done.message

    run(folder, work)


def workers_of(app, graph):
    """The processes that run queries on a graph."""
    sandbox = app.untrusted(graph).sandbox
    return {worker.pid for line in sandbox._groups.values() for worker in line._idle}


@pytest.mark.req("G16")
def test_graphs_have_workers_of_their_own(tmp_path):
    """Killing those of one leaves the other's as they are, and none opens the other's files."""

    async def work(twins):
        for graph in GRAPHS:
            await write(twins, graph, 2)
        ask = {"name": "graph_query", "arguments": {"query": TEXTS}}
        for graph in GRAPHS:
            reply = await twins.mcp(graph, "tools/call", ask)
            assert f"{graph}-1".encode() in reply.body
        pids = {graph: workers_of(twins.app, graph) for graph in GRAPHS}
        assert all(pids.values())
        assert not pids[IBIS] & pids[ZEBRA]
        for graph in GRAPHS:
            opened = [each for pid in pids[graph] for each in files_opened_by(pid)]
            assert not [each for each in opened if f"/graphs/{OTHER[graph]}" in each]
        for pid in pids[ZEBRA]:
            os.kill(pid, signal.SIGKILL)
        for graph in GRAPHS:
            reply = await twins.mcp(graph, "tools/call", ask)
            assert f"{graph}-1".encode() in reply.body
        assert workers_of(twins.app, IBIS) >= pids[IBIS]

    run(make_project(tmp_path), work)


@pytest.mark.req("G16")
def test_who_watches_one_graph_hears_nothing_of_the_other(tmp_path):
    """The same URI, the same id, the same actor."""

    async def work(twins):
        kernels = {graph: twins.graphs[graph] for graph in GRAPHS}
        ann = Actor("ann", credential="t")
        for graph in GRAPHS:
            await write(twins, graph, 1)
        uris = ["trails://kg/Note", "trails://kg/Note/k0", "trails://branches"]
        watchers = {graph: kernels[graph].watch(ann, uris[:2]) for graph in GRAPHS}
        woken = {graph: asyncio.Event() for graph in GRAPHS}
        for graph in GRAPHS:
            watchers[graph].wake = woken[graph].set
        data = {"text": f"{ZEBRA}-changed"}
        change = {"operations": [{"op": "update", "type": "Note", "id": "k0", "data": data}]}
        assert (await twins.rest(ZEBRA, "POST", "/mutate", change)).status == 200
        await asyncio.wait_for(woken[ZEBRA].wait(), 60)
        assert set(watchers[ZEBRA].take()) == set(uris[:2])
        await asyncio.sleep(0.1)
        assert not woken[IBIS].is_set()
        assert list(watchers[IBIS].take()) == []
        for each in watchers.values():
            each.close()

    run(make_project(tmp_path), work)


@pytest.mark.req("G16")
def test_a_registry_belongs_to_its_graph(tmp_path):
    """What is registered in one is no tool of the other, and nobody there is told."""

    @capability("notes.new")
    def new(ctx: Context) -> int:
        """Be new."""
        return 1

    async def work(twins):
        told = {graph: [] for graph in GRAPHS}
        ends = [
            twins.graphs[graph].listen(lambda graph=graph: told[graph].append(1))
            for graph in GRAPHS
        ]
        before = await twins.mcp(IBIS, "tools/list", {})
        await asyncio.to_thread(twins.app.register, new, graph=ZEBRA)
        await asyncio.sleep(0.05)
        assert told == {IBIS: [], ZEBRA: [1]}
        call = {"name": "notes.new", "arguments": {}}
        assert (await twins.mcp(IBIS, "tools/list", {})).body == before.body
        assert "error" in (await twins.mcp(IBIS, "tools/call", call)).message
        assert "result" in (await twins.mcp(ZEBRA, "tools/call", call)).message
        for end in ends:
            end()

    run(make_project(tmp_path), work)


@pytest.mark.req("G16")
def test_activities_and_commits_are_in_the_log_of_their_graph(tmp_path):
    """Each call leaves one activity, where it was made."""

    async def work(twins):
        for graph, times in ((IBIS, 3), (ZEBRA, 5)):
            await write(twins, graph, times)
        for graph, times in ((IBIS, 3), (ZEBRA, 5)):
            log = twins.app.graph(graph)
            found = [each for _, each in log.activities.read() if each.name == "graph_mutate"]
            assert len(found) == times
            commits = [each for each in log.log.newest() if each.activity]
            assert {each.activity for each in commits} == {each.id for each in found}

    run(make_project(tmp_path), work)


@pytest.mark.req("G16")
def test_a_graph_that_closes_leaves_the_other_working(tmp_path):
    """With calls of both under way; the one answers that it can't, the other as ever."""

    async def work(twins):
        for graph in GRAPHS:
            await write(twins, graph, 2)
        life = Life(twins, IBIS, 3)
        life.branches["main"] = {f"k{at}": f"{IBIS}-{at}" for at in range(2)}
        life.made |= {each.id for each in twins.app.graph(IBIS).log.newest()}
        living = asyncio.ensure_future(life.live(12))
        await asyncio.sleep(0.2)
        twins.graphs[ZEBRA].close()
        await asyncio.to_thread(twins.app.service(ZEBRA).close)
        ask = {"name": "graph_query", "arguments": {"query": TEXTS}}
        closed = await twins.mcp(ZEBRA, "tools/call", ask)
        assert "error" in closed.message or closed.message["result"]["isError"]
        await living
        await life.ask()

    run(make_project(tmp_path), work)


@pytest.mark.req("G16")
def test_what_waits_in_one_graph_keeps_nobody_waiting_in_the_other(tmp_path):
    """Neither its reads nor its writes, however many loads stand in a queue over there."""

    async def work(twins):
        await write(twins, ZEBRA, 1)
        writing, free = threading.Event(), threading.Event()

        def keep_writing():
            with twins.app.context(IBIS).kg.transaction():
                writing.set()
                free.wait(150)

        holder = threading.Thread(target=keep_writing)
        holder.start()
        await asyncio.to_thread(writing.wait, 30)
        line = b'{"type": "Note", "data": {"key": "k%d", "text": "ibis"}}'
        kernel = twins.graphs[IBIS]
        ann = Actor("ann", credential="t")

        async def body(number):
            yield line % number

        loads = [
            asyncio.ensure_future(kernel.transfers.load(ann, body(each), {"format": "ndjson"}))
            for each in range(20)
        ]
        await asyncio.sleep(0.3)
        for uri in ("trails://kg/types", "trails://stats", "trails://kg/Note?limit=900"):
            reply = await asyncio.wait_for(twins.mcp(ZEBRA, "resources/read", {"uri": uri}), 30)
            assert "result" in reply.message
        await asyncio.wait_for(write_one(twins, ZEBRA, "other"), 30)
        load = twins.graphs[ZEBRA].transfers.load(ann, body(99), {"format": "ndjson"})
        assert isinstance(await asyncio.wait_for(load, 30), Success)
        assert not any(each.done() for each in loads)
        free.set()
        assert all(isinstance(each, Success) for each in await asyncio.gather(*loads))
        await asyncio.to_thread(holder.join)

    run(make_project(tmp_path), work)


@pytest.mark.req("G16")
@pytest.mark.parametrize("broken", GRAPHS)
def test_a_graph_in_quarantine_leaves_the_other_working(tmp_path, broken):
    """It alone is not served, and the other does not speak of it."""
    folder, well = make_project(tmp_path), OTHER[broken]
    (folder / f"{broken}-queries" / "bad.rq").write_text("#+ description: Bad.\nSELECT nonsense")
    with App.open(folder) as app:
        assert list(app.quarantined) == [broken]
        with pytest.raises(QuarantineError):
            app.context(broken)
        kernel = kernel_of(app, well)

        async def main():
            called = await kernel.execute(LOCAL, "notes.where", {})
            read = await kernel.read(LOCAL, "trails://doctor")
            return called, read

        called, (doctor,) = asyncio.run(main())
        assert isinstance(called, Success)
        assert broken not in doctor.text
        assert json.loads(doctor.text)["healthy"]
        kernel.close()


def test_graphs_in_memory_are_apart_too():
    """Two apps of one program with the same declarations share nothing but them."""

    @node_type
    class Note(Node):
        """A note."""

        key: str = predicate(key=True)

    with App(Note) as one, App(Note) as two:
        Note(key="a").save(one.context())
        assert Note.objects(two.context()).count() == 0
        kernels = kernel_of(one), kernel_of(two)

        async def main():
            return [await each.read(LOCAL, "trails://kg/Note/a") for each in kernels]

        found, missing = asyncio.run(main())
        assert not isinstance(found, Failure)
        assert isinstance(missing, Failure)
        for each in kernels:
            each.close()
