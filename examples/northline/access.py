"""Who may see and do what: three credentials on one server, and what each is shown.

    python access.py http://127.0.0.1:8321/graphs/main/mcp

It makes tokens in the project beside it with the same commands that people use, lets each
actor look around with the official MCP client, and takes one token back. The policies are
in ``policies/access.cedar``.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent, TextResourceContents
from rich.console import Console
from rich.markup import escape

HERE = Path(__file__).parent
CLOSED = {"data": {"status": "closed"}}
console = Console(highlight=False, soft_wrap=True)


async def walk(url: str, project: Path) -> None:
    """An agent, an auditor and a lead; then the agent's token is taken back."""
    ada = make_token(project, "ada", "agents")
    bo = make_token(project, "bo", "auditors")
    async with asyncio.timeout(60):
        async with connect(url, ada["token"]) as client:
            await work_as_agent(client)
        async with connect(url, bo["token"]) as client:
            await look_as_auditor(client)
        await take_back(url, project, ada)


def make_token(project: Path, actor: str, group: str) -> dict[str, str]:
    """A token for an actor; only its hash stays in the project."""
    made = run(project, "token", "new", "--actor", actor, "--group", group, "--json")
    console.print(f"$ trails token new --actor {actor} --group {group}")
    found: dict[str, str] = json.loads(made)
    return found


def run(project: Path, *arguments: str) -> str:
    """A command of the command line, on the project that is being served."""
    command = [sys.executable, "-m", "trails", *arguments, "--project", str(project)]
    return subprocess.run(  # noqa: S603 - the command that this project installs
        command, check=True, capture_output=True, text=True
    ).stdout


@asynccontextmanager
async def connect(url: str, token: str) -> AsyncIterator[Client]:
    """The official client, with a token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def work_as_agent(client: Client) -> None:
    """It reads main, and writes on a branch of its own alone."""
    tools = {tool.name for tool in (await client.list_tools()).tools}
    console.print(f"ada, an agent, is offered {len(tools)} tools; branch_merge is not among them.")
    await ask(client, "branch_merge", {"source": "main"})
    await ask(client, "branch_create", {"name": "release"})
    await ask(client, "branch_create", {"name": "agents/ada"})
    close = {"operations": [{"op": "update", "type": "Hazard", "id": "HAZ-001", **CLOSED}]}
    await ask(client, "graph_mutate", {"branch": "main", **close})
    await ask(client, "graph_mutate", {"branch": "agents/ada", **close})


async def look_as_auditor(client: Client) -> None:
    """It reads everything but what things cost: for it there is no such field."""
    tools = {tool.name for tool in (await client.list_tools()).tools}
    console.print(f"bo, an auditor, is offered {len(tools)} tools, none of which writes.")
    supplier = await client.read_resource("trails://kg/Supplier/halden-signal")
    content = supplier.contents[0]
    text = content.text if isinstance(content, TextResourceContents) else "{}"
    fields = sorted(name.rpartition("#")[2] for name in json.loads(text) if name[0] != "@")
    console.print(f"  a supplier has {', '.join(fields)}")
    try:
        await client.read_resource("trails://kg/Supplier?where=contract_value=1")
    except MCPError as error:
        console.print(f"  [red]{error.error.code}[/] {escape(error.error.message)}")


async def take_back(url: str, project: Path, token: dict[str, str]) -> None:
    """A token that is revoked is no longer taken, without a restart."""
    run(project, "token", "revoke", token["id"])
    console.print("$ trails token revoke …")
    began = asyncio.get_running_loop().time()
    headers = {"Authorization": f"Bearer {token['token']}"}
    snapshot = url.replace("/mcp", "/snapshot")
    async with httpx2.AsyncClient(headers=headers) as http:
        while (await http.get(snapshot)).status_code != httpx2.codes.UNAUTHORIZED:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    took = asyncio.get_running_loop().time() - began
    console.print(f"  ada's next request is answered with 401 after {took:.1f} s.")


async def ask(client: Client, name: str, arguments: dict[str, object]) -> None:
    """Call a tool and print both sides."""
    console.print(f"→ {name}({escape(json.dumps(arguments))})")
    try:
        result = await client.call_tool(name, arguments)
    except MCPError as error:
        console.print(f"  [red]{error.error.code}[/] {escape(error.error.message)}")
        return
    texts = " ".join(each.text for each in result.content if isinstance(each, TextContent))
    colour = "red" if result.is_error else "green"
    console.print(
        f"  [{colour}]{'refused' if result.is_error else 'done'}[/] {escape(texts[:160])}"
    )


if __name__ == "__main__":
    asyncio.run(walk(sys.argv[1], HERE))
