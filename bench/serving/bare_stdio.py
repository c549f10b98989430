"""The official SDK's low-level server on standard streams, with one tool."""

from __future__ import annotations

import asyncio

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server


async def list_tools(_ctx: object, _params: object) -> types.ListToolsResult:
    """One tool."""
    return types.ListToolsResult(tools=[types.Tool(name="echo", input_schema={"type": "object"})])


async def main() -> None:
    """Serve until the input ends."""
    server = Server("bare", version="1", on_list_tools=list_tools)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
