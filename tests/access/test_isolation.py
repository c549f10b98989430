"""Isolation: two graphs of one process with the same names, ids and actors never meet."""

from __future__ import annotations

import asyncio
import json
from random import Random

import pytest
from tests.access.twins import GRAPHS, IBIS, ZEBRA, make_project, run
from tests.mcp.doors import LEGACY, MODERN

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
        self.count = 0

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
        self.past.append((found["commit"], dict(self.branches[branch])))

    async def retry(self):
        """Write with a key that the other graph uses as well."""
        notes, key = self.branches["main"], f"r{self.random.randrange(5)}"
        text = f"{self.graph} {key}"
        change = {"op": "create", "type": "Note", "data": {"key": key, "text": text}}
        arguments = {"operations": [change], "idempotency_key": f"{key}-{notes.get(key)}"}
        if key in notes:
            return
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
        (content,) = reply.message["result"]["contents"]
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
            commit, notes = self.random.choice(self.past)
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
@pytest.mark.parametrize(("alike", "same_base"), WORLDS)
def test_graphs_live_side_by_side(tmp_path, alike, same_base):
    """Whatever is done to both at once, each answers for itself, and tells nothing of the other."""
    folder = make_project(tmp_path, alike=alike, same_base=same_base)
    run(folder, lambda twins: live_side_by_side(twins, 1, 25))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("alike", "same_base"), WORLDS)
def test_graphs_live_side_by_side_for_long(tmp_path, alike, same_base, seed):
    """The same, for longer and in other orders."""
    folder = make_project(tmp_path, alike=alike, same_base=same_base)
    run(folder, lambda twins: live_side_by_side(twins, seed, 300))
