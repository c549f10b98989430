"""A short session of an agent: the official MCP client against a server of this project.

    python agent.py http://127.0.0.1:8321/graphs/main/mcp

It knows nothing but what the server tells it; everything that it prints came over the wire.
"""

import asyncio
import json
import sys

from mcp import Client, MCPError
from mcp_types import TextContent, TextResourceContents
from rich.console import Console
from rich.markup import escape

console = Console(highlight=False, soft_wrap=True)


async def work(url: str) -> None:
    """Look around, call, make a mistake and mend it, watch, and read who did what."""
    async with asyncio.timeout(60), Client(url) as client:
        await look_around(client)
        await call(client)
        await mend(client)
        await watch(client)
        await page(client, "trails://prov/latest")


async def look_around(client: Client) -> None:
    """What the server is, and what it offers."""
    tools = (await client.list_tools()).tools
    info = client.server_info
    console.print(
        f"Connected to [bold]{info.name if info else '?'}[/], revision {client.protocol_version}: "
        f"{len(tools)} tools."
    )
    own = [tool.name for tool in tools if "." in tool.name]
    console.print(f"  capabilities: {', '.join(own)}")
    console.print(
        f"  stored queries and built-ins: {', '.join(t.name for t in tools if t.name not in own)}"
    )


async def call(client: Client) -> None:
    """A capability, and a query of the agent's own, which runs in the sandbox."""
    await ask(client, "programme.summary", {})
    query = "SELECT ?title WHERE { ?i a :Incident ; :title ?title ; :outcome 'injury' } LIMIT 2"
    await ask(client, "graph_query", {"query": query})


async def mend(client: Client) -> None:
    """A call that breaks a rule is answered with the rule, and with a call that keeps it."""
    try:
        await ask(client, "hazards.open", {"severity": "catastrofic", "limit": 1})
    except MCPError as error:
        console.print(f"  [red]{error.error.code}[/] {escape(error.error.message)}")
        corrected = (error.error.data or {}).get("corrected_arguments")
        if corrected is not None:
            await ask(client, "hazards.open", corrected)


async def watch(client: Client) -> None:
    """Who watches a type hears of a change that another call makes."""
    uri = "trails://kg/Requirement"
    found = json.loads(await page(client, f"{uri}?where=status=proposed&limit=1"))
    async with client.listen(resource_subscriptions=[uri]) as events:
        await ask(client, "requirements.accept", {"req": found[0]["iri"]})
        async for event in events:
            console.print(f"← {type(event).__name__} {getattr(event, 'uri', '')}")
            break


async def ask(client: Client, name: str, arguments: dict[str, object]) -> None:
    """Call a tool and print both sides."""
    console.print(f"→ {name}({escape(json.dumps(arguments))})")
    result = await client.call_tool(name, arguments)
    texts = [each.text for each in result.content if isinstance(each, TextContent)]
    console.print(f"  {escape(short(' '.join(texts)))}")


async def page(client: Client, uri: str) -> str:
    """Read a resource and print both sides."""
    content = (await client.read_resource(uri)).contents[0]
    text = content.text if isinstance(content, TextResourceContents) else ""
    console.print(f"→ read {escape(uri)}")
    console.print(f"  {escape(short(text))}")
    return text


def short(text: str) -> str:
    """The beginning of a long text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:200]}…"


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
