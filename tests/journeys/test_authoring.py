"""An agent builds an application over MCP alone, and changes it.

The official client speaks to ``trails serve --stdio``. At each step the agent makes a mistake, and
corrects it by what the error text says and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys

import pytest
from mcp import MCPError
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from tests.worlds.processes import Shell
from tests.worlds.projects import PERMIT_ALL

SECRET = "open sesame"
ENVIRONMENT = {
    "TRAILS_MCP_SCOPES": "runtime,builder,dev",
    "TRAILS_MCP_TOKEN": SECRET,
    "TRAILS_TOKEN": SECRET,
}


class Agent:
    """A client that reads texts: of results, and of errors."""

    def __init__(self, client):
        self._client = client
        self.mistakes = 0

    async def call(self, tool, **arguments):
        """The structured result of a call that must succeed."""
        answer = await self._client.call_tool(tool, arguments)
        assert not answer.is_error, (tool, answer.content[0].text)
        return answer.structured_content

    async def fail(self, tool, **arguments):
        """The text of an error, which is all that many hosts pass on."""
        self.mistakes += 1
        try:
            answer = await self._client.call_tool(tool, arguments)
        except MCPError as error:
            return error.error.message
        assert answer.is_error, (tool, answer.structured_content)
        return "\n".join(part.text for part in answer.content)

    async def names(self):
        """The tools that it may use."""
        return {tool.name for tool in (await self._client.list_tools()).tools}

    async def read(self, uri):
        """The text of a resource."""
        return (await self._client.read_resource(uri)).contents[0].text

    async def apply(self, diff):
        """Write a diff, and use the new declarations."""
        done = await self.call("trails_meta_files_apply", files=diff["files"], reload=True)
        assert done["reload"].get("problem") is None, done


def suggested(text):
    """What an error proposes instead: "did you mean 'x'?"."""
    found = re.search(r"did you mean '?:?([\w.|/\[\] ]+?)'?\?", text)
    assert found is not None, text
    return found[1]


def choices(text):
    """The values that an error lists: "must be one of 'a', 'b', not 'c'"."""
    return re.findall(r"'([^']*)'", re.search(r"must be one of (.*), not", text)[1])


async def author(agent):
    """Types, a capability and a query, written by generators."""
    assert "trails_meta_gen_nodetype" in await agent.names()
    fields = [
        {"name": "code", "type": "strr", "key": True, "pattern": "^B-[0-9]+$"},
        {"name": "title", "type": "str", "label": True, "search": True, "min_length": 3},
        {"name": "pages", "type": "int | None", "min_value": 1},
    ]
    given = {"name": "Book", "description": "A book of the library.", "fields": fields}
    text = await agent.fail("trails_meta_gen_nodetype", **given)
    fields[0]["type"] = suggested(text)
    made = await agent.call("trails_meta_gen_nodetype", **given)
    assert "class Book(Node):" in made["diff"]["unified"]
    await agent.apply(made["diff"])
    assert "Book" in await agent.read("trails://kg/types")

    given = {"id": "books.add", "description": "Add a book.", "does": "create", "type": "Bok"}
    text = await agent.fail("trails_meta_gen_capability", **given)
    given["type"] = suggested(text)
    await agent.apply((await agent.call("trails_meta_gen_capability", **given))["diff"])
    assert "books.add" in await agent.names()

    header = "#+ description: Books with at least so many pages.\n#+ params:\n#+   least: Int\n"
    query = "SELECT ?title ?pages WHERE { ?b a :Book ; :title ?title ; :page ?pages .\n"
    query += "  FILTER (?pages >= $least) }"
    text = await agent.fail("trails_meta_query_add", name="long_books", text=header + query)
    query = query.replace(":page ", f":{suggested(text)} ")
    made = await agent.call("trails_meta_query_add", name="long_books", text=header + query)
    await agent.apply(made["diff"])
    assert "long_books" in await agent.names()


async def use(agent):
    """Load, call, search, query: with the tools that it made itself."""
    lines = [
        {"type": "Book", "data": {"code": f"B-{n}", "title": f"Tales of the sea {n}", "pages": n}}
        for n in range(1, 21)
    ]
    lines[4]["data"]["titel"] = lines[4]["data"].pop("title")
    data = "\n".join(map(json.dumps, lines))
    text = await agent.fail("graph_load", data=data)
    data = data.replace("titel", suggested(text))
    await agent.call("graph_load", data=data)

    text = await agent.fail("books.add", code="B-21", title="Emma", pages=0)
    least = int(re.search(r"pages must be at least (\d+)", text)[1])
    await agent.call("books.add", code="B-21", title="Emma", pages=least)
    found = await agent.call("search", query="emma")
    assert "B-21" in json.dumps(found)
    rows = await agent.call("long_books", params={"least": 19})
    assert len(rows["rows"]) == 2


async def migrate(agent):
    """A change of types, planned and tried on a branch, then merged."""
    await agent.call("branch_create", name="agents/shelves")
    step = {"step": "add_field", "type": "Book", "field": {"name": "shelf", "type": "str"}}
    rename = {"step": "rename_field", "type": "Book", "field": "page", "to": "length"}
    given = {"name": "shelves", "steps": [rename, step], "branch": "agents/shelves"}
    text = await agent.fail("trails_meta_migrate_plan", **given)
    rename["field"] = suggested(text)
    text = json.dumps(await agent.call("trails_meta_migrate_plan", **given))
    assert "Book/B-1" in text  # the nodes that forbid a required field without a value
    text = await agent.fail("trails_meta_migrate_apply", **given)
    assert "backfill" in text
    step["backfill"] = "unsorted"
    await agent.call("trails_meta_migrate_apply", **given)

    record = {"type": "Book", "record": "B-3"}
    there = await agent.call("node_get", branch="agents/shelves", **record)
    assert '"shelf": "unsorted"' in json.dumps(there)
    here = await agent.call("node_get", **record)
    assert "shelf" not in json.dumps(here)
    change = {"op": "update", "type": "Book", "id": "B-3", "data": {"shelves": "A1"}}
    target = {"branch": "agents/shelves"}
    text = await agent.fail("graph_mutate", operations=[change], **target)
    change["data"] = {suggested(text): "A1"}
    await agent.call("graph_mutate", operations=[change], message="Sort B-3", **target)

    text = await agent.fail("branch_merge", source="agents/shelfs")
    merged = await agent.call("branch_merge", source=suggested(text))
    assert merged["commit"]
    now = json.dumps(await agent.call("node_get", **record))
    assert '"shelf": "A1"' in now
    assert '"length": 3' in now


async def look_back(agent):
    """Who wrote a value, what was called, and the way back."""
    blamed = json.dumps(await agent.call("node_blame", type="Book", record="B-3"))
    assert "graph_mutate" in blamed
    assert "trails_meta_migrate_apply" in await agent.read("trails://prov/latest")

    text = await agent.fail("trails_meta_migrate_rollback")
    flag = re.search(r"allow that with (\w+)", text)[1]
    await agent.call("trails_meta_migrate_rollback", **{flag: True})
    now = json.dumps(await agent.call("node_get", type="Book", record="B-3"))
    assert "shelf" not in now
    assert '"pages": 3' in now
    rows = await agent.call("long_books", params={"least": 19})
    assert len(rows["rows"]) == 2


async def journey(folder):
    """All of it, in one session."""
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "trails", "serve", "--stdio", "--project", str(folder)],
        env=ENVIRONMENT,
    )
    async with Client(stdio_client(command)) as client:
        agent = Agent(client)
        await author(agent)
        await use(agent)
        await migrate(agent)
        await look_back(agent)
        return agent.mistakes


@pytest.mark.req("T26", "T1", "T8")
def test_an_agent_builds_and_changes_an_application(tmp_path):
    """With one mistake at each step, corrected from the text of the error."""
    folder = tmp_path / "library"
    Shell(tmp_path).run("new", "library")
    (folder / "policies").mkdir(exist_ok=True)
    (folder / "policies" / "all.cedar").write_text(PERMIT_ALL)
    assert asyncio.run(journey(folder)) >= 9
    source = (folder / "app.py").read_text()
    assert "class Book(Node):" in source
    assert "pages: int | None" in source  # as before the migration
    Shell(folder).run("doctor")
