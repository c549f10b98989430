"""``python -m bench.serving.peers KIND PORT``: a peer, as bare as it can be.

``sdk`` is the low-level server of the official SDK, ``fastmcp`` is FastMCP, and
``route`` is a Starlette route that reads JSON and writes JSON, and one of static bytes: the floor.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

TOOLS: Final = 200
ROWS: Final = 1_000
SCHEMA: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {"text": {"type": "string", "maxLength": 1000}},
    "required": ["text"],
    "additionalProperties": False,
}
LARGE: Final[Mapping[str, object]] = {
    "result": [
        {
            "code": f"P-{n:08}",
            "title": f"valve housing {n:06}",
            "lot": n % 97,
            "score": n / 8,
            "open": True,
        }
        for n in range(ROWS)
    ]
}


def make_sdk(tools: int) -> object:
    """The official low-level server: an echo among some tools, one of them with a large result."""
    import mcp_types as types
    from mcp.server.lowlevel import Server

    names = ["echo", "large", *(f"echo_{n:03}" for n in range(tools - 2))]
    listed = types.ListToolsResult(
        tools=[
            types.Tool(name=name, description="Say it again.", input_schema=dict(SCHEMA))
            for name in names
        ],
        ttl_ms=0,
        cache_scope="private",
    )

    async def list_tools(_ctx: object, _params: object) -> types.ListToolsResult:
        return listed

    async def call_tool(_ctx: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name == "large":
            text = json.dumps(LARGE, separators=(",", ":"))
            return types.CallToolResult(
                content=[types.TextContent(type="text", text=text)], structured_content=dict(LARGE)
            )
        text = (params.arguments or {})["text"]
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    server: Server[Any] = Server(
        "peer",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=lambda _name: SCHEMA,
    )
    return server.streamable_http_app(json_response=True, stateless_http=True)


def make_fastmcp(tools: int) -> object:
    """FastMCP: the same echo, declared as its users do."""
    from fastmcp import FastMCP

    server = FastMCP("peer")

    async def echo(text: str) -> str:
        """Say it again."""
        return text

    server.tool(echo)
    for number in range(tools - 1):
        server.tool(echo, name=f"echo_{number:03}")
    return server.http_app(json_response=True, stateless_http=True)


def make_route(_tools: int) -> object:
    """A bare Starlette route."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    async def echo(request: Request) -> JSONResponse:
        given = await request.json()
        return JSONResponse({"text": given["params"]["arguments"]["text"]})

    bodies: dict[int, bytes] = {}

    async def same(request: Request) -> Response:
        size: int = request.path_params["size"]
        if size not in bodies:
            bodies[size] = b"x" * size
        return Response(bodies[size], media_type="application/json")

    return Starlette(
        routes=[Route("/mcp", echo, methods=["POST"]), Route("/static/{size:int}", same)]
    )


MAKERS: Final[Mapping[str, Callable[[int], object]]] = {
    "sdk": make_sdk,
    "fastmcp": make_fastmcp,
    "route": make_route,
}


def main() -> None:
    """Serve one peer until killed."""
    import uvicorn

    kind, tools, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    uvicorn.run(
        MAKERS[kind](tools),  # type: ignore[arg-type]
        port=port,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        loop="uvloop",
        http="httptools",
    )


if __name__ == "__main__":
    main()
