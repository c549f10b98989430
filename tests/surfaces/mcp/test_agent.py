"""The demo as an agent meets it: nothing is used but what a model is shown as text."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from tests.worlds.processes import Process

NORTHLINE = Path(__file__).parents[3] / "examples" / "northline"
BRANCH = "agents/ada/doors"
RATIONALE = (
    "Two passengers were held by a closing door this spring. A force of 150 N is what a hand "
    "withstands without injury, measured as the standard for powered doors asks."
)


@pytest.fixture
def folder(tmp_path):
    """A copy of the example, with its data."""
    folder = tmp_path / "northline"
    shutil.copytree(NORTHLINE, folder, ignore=shutil.ignore_patterns(".trails", "__pycache__"))
    subprocess.run([sys.executable, "seed.py"], cwd=folder, check=True, capture_output=True)
    return folder


@asynccontextmanager
async def connect(folder: Path, transport: str) -> AsyncIterator[Client]:
    """The official client on ``trails serve``."""
    if transport == "stdio":
        arguments = ["-m", "trails", "serve", "--stdio", "-p", str(folder)]
        parameters = StdioServerParameters(command=sys.executable, args=arguments)
        async with Client(stdio_client(parameters)) as client:
            yield client
    else:
        with Process("serve", "-p", folder, "--port", "0", "--json") as process:
            async with Client(json.loads(process.line())["graphs"][0]["url"]) as client:
                yield client


class Model:
    """What a model sees: texts, and nothing beside them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, tool: str, **arguments: Any) -> str:
        """The text of a call; an error is text as well."""
        try:
            result = await self._client.call_tool(tool, arguments)
        except MCPError as error:
            return f"error: {error.message}"
        (block,) = result.content
        return f"error: {block.text}" if result.is_error else block.text

    async def read(self, uri: str) -> str:
        """The text of a resource."""
        contents = (await self._client.read_resource(uri)).contents
        return "\n".join(each.text for each in contents)

    async def tools(self) -> dict[str, str]:
        """What is said about each tool."""
        return {
            tool.name: f"{tool.description}\n{json.dumps(tool.input_schema)}"
            for tool in (await self._client.list_tools()).tools
        }


def find(pattern: str, text: str) -> str:
    """What a reader would pick out of a text."""
    found = re.search(pattern, text)
    assert found is not None, f"{pattern} is not in {text[:2000]}"
    return found[1]


async def explore(model: Model, instructions: str) -> str:
    """From the instructions to the component that a hazard is about; its IRI."""
    assert "Hazard: A situation that can lead to harm" in instructions
    listing = find(r"(trails://kg/)<Type>", instructions) + "Hazard"
    first = find(
        r'"iri":"([^"]+)","label":"Tram moves off with a person trapped', await model.read(listing)
    )
    hazard = await model.read(first)
    assert "catastrophic" in hazard
    component = find(r'#component":\{"@id":"([^"]+)"', hazard)
    assert "door" in (await model.read(component)).lower()
    return component


async def repair(model: Model) -> str:
    """A call with a slip, made right by what the error says; the corrected result."""
    refused = await model.call("hazards.open", severity="catastrofic")
    assert refused.startswith("error: ")
    assert "severity must be one of" in refused
    corrected = json.loads(find(r"These arguments would pass: (\{.*?\})", refused))
    return await model.call("hazards.open", **corrected)


async def propose(model: Model, component: str) -> str:
    """Propose a requirement on a branch; the first attempt breaks two rules. Its IRI."""
    await model.call("branch_create", name=BRANCH)
    wanted = {"branch": BRANCH, "allocated_to": [component], "priority": 2}
    refused = await model.call("requirements.propose", title="Doors", rationale="Safety.", **wanted)
    assert "title must have at least 10 characters" in refused
    assert "rationale must have at least 80 characters" in refused
    title = "A closing door never presses with more than 150 N"
    done = await model.call("requirements.propose", title=title, rationale=RATIONALE, **wanted)
    return find(r'"iri":"([^"]+)"', done)


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_an_agent_finds_its_way_by_text_alone(folder, transport):
    """It explores, follows IRIs, repairs a call, and brings a change from a branch to main."""

    async def drive() -> None:
        async with connect(folder, transport) as client:
            model = Model(client)
            tools = await model.tools()
            instructions = client.instructions or ""
            own = find(r"The project's own tools: ([^\n]+)\.\n", instructions).split(", ")
            assert set(own) <= tools.keys()
            component = await explore(model, instructions)
            assert "HAZ-002" in await repair(model)
            requirement = await propose(model, component)
            await merge_and_see(model, requirement)

    anyio.run(drive)


async def merge_and_see(model: Model, requirement: str) -> None:
    """What was written on the branch is there, not on main, and then on main too."""
    proposed = "Requirement?where=status=proposed"
    before = await model.read(f"trails://kg/{proposed}")
    assert requirement not in before
    identifier = requirement.rpartition("/")[2]
    listed = await model.read(f"trails://branch/{quote(BRANCH, safe='')}/kg/{proposed}")
    shown = find(rf'"iri":"(trails://branch/[^"]+/{identifier})"', listed)
    assert "150 N" in await model.read(shown)
    merged = await model.call("branch_merge", source=BRANCH)
    commit = find(r'"commit":"([0-9a-f]{32})"', merged)
    assert requirement in await model.read(f"trails://kg/{proposed}")
    assert "150 N" in await model.read(requirement)
    assert identifier in await model.call("commit_get", commit=commit)
    past = find(r'"parents":\["([0-9a-f]{32})"', await model.call("commit_get", commit=commit))
    assert identifier not in await model.read(f"trails://at/{past}/kg/{proposed}")
