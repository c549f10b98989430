"""Calling: capabilities, stored queries, query texts, changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.responses import Response

from trails.surfaces.rest.arguments import query_arguments, query_texts
from trails.surfaces.rest.bodies import media_type, read_object, read_text
from trails.surfaces.rest.records import record
from trails.surfaces.rest.replies import JSON, reply
from trails.surfaces.rest.routing import Call

_QUERY: Final = "application/sparql-query"
_UPDATE: Final = "application/sparql-update"


async def list_capabilities(call: Call) -> Response:
    """Everything that this caller can invoke, with schemas."""
    tools = call.backend.tools(call.actor).tools
    return Response(msgspec.json.encode({"capabilities": tools}), media_type=JSON)


async def invoke(call: Call) -> Response:
    """Call anything by its name; the body has its arguments."""
    arguments = await read_object(call)
    return reply(await call.backend.execute(call.actor, call.part("name"), arguments))


async def snapshot(call: Call) -> Response:
    """What the graph holds: types and counts."""
    arguments = query_arguments(call)
    return reply(await call.backend.execute(call.actor, "graph_snapshot", arguments))


async def query_by_name(call: Call) -> Response:
    """Run a stored query; the body has ``params``, ``branch`` and ``snapshot``."""
    return await _run(call, await read_object(call))


async def query_by_link(call: Call) -> Response:
    """Run a stored query; the query string has its parameters."""
    texts = query_texts(call)
    around: dict[str, object] = {
        name: texts.pop(name)[0] for name in ("branch", "snapshot") if name in texts
    }
    given = {**around, "params": texts, "name": call.part("name")}
    return await record(call, "stored_query_link", given)


async def _run(call: Call, arguments: Mapping[str, object]) -> Response:
    return await record(call, "stored_query_run", {**arguments, "name": call.part("name")})


async def query(call: Call) -> Response:
    """Run a query text."""
    return await _text_call(call, "graph_query", _QUERY, "query")


async def mutate(call: Call) -> Response:
    """Change the graph in one commit."""
    return await _text_call(call, "graph_mutate", _UPDATE, "update")


async def _text_call(call: Call, name: str, media: str, argument: str) -> Response:
    """Arguments in a JSON object, or a text by itself with the others in the query string."""
    if media_type(call.request) == media:
        arguments = {**query_arguments(call), argument: await read_text(call)}
    else:
        arguments = await read_object(call)
    return await record(call, name, arguments)
