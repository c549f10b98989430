"""What we rely on in the SDK: run this first when it is upgraded.

Each test pins one behaviour; the module that leans on it is named in the docstring.
"""

from __future__ import annotations

import asyncio
import inspect
import json

import anyio
import mcp_types as types
import pytest
from mcp.server import runner
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp.server.auth.provider import AccessToken
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS, NAME_BEARING_METHODS, X_MCP_HEADER_KEY
from mcp.shared.message import SessionMessage
from mcp_types import methods
from mcp_types.jsonrpc import JSONRPCRequest, jsonrpc_message_adapter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from tests.worlds.surfaces import (
    LEGACY,
    MODERN,
    OLD,
    REVISIONS,
    ask_app,
    headers_of,
    hello,
    message_of,
)

TOOL = {
    "name": "t",
    "title": "T",
    "description": "d",
    "inputSchema": {
        "type": "object",
        "x-more": {"a": None},
        "properties": {"p": {"default": None}},
    },
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
    "_meta": {"a/b": {"c": None}},
    "trails": {"kind": "runtime"},
}


def build(**handlers) -> Server:
    """A server whose handlers give plain objects."""
    server = Server(
        "name",
        version="1",
        cache_hints={"tools/list": CacheHint(), "resources/read": CacheHint(ttl_ms=5)},
        get_tool_input_schema=lambda _name: None,
    )
    kinds = {
        "tools/list": types.PaginatedRequestParams,
        "tools/call": types.CallToolRequestParams,
        "resources/read": types.ReadResourceRequestParams,
    }
    for method, handler in handlers.items():
        name = method.replace("_", "/")
        server.add_request_handler(name, kinds[name], handler)
    return server


def ask(server: Server, revision: str | None, method: str, params: dict, **options):
    """One request to the SDK alone."""
    headers = options.pop("headers", headers_of(revision, method, params))
    body = options.pop("body", json.dumps(message_of(revision, method, params)).encode())
    manager = StreamableHTTPSessionManager(
        server, **{"json_response": True, "stateless": True, **options}
    )

    async def main():
        async with manager.run():
            return await ask_app(manager.handle_request, headers, [body])

    return asyncio.run(main())


async def give_tools(_ctx, _params):
    """A list, as a plain object."""
    return {"tools": [TOOL], "resultType": "complete"}


def test_revisions():
    """``wire``: these are spoken, and no other."""
    assert HANDSHAKE_PROTOCOL_VERSIONS == LEGACY
    assert MODERN_PROTOCOL_VERSIONS == (MODERN,)
    assert types.DEFAULT_NEGOTIATED_VERSION == "2025-03-26"


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_result_is_sieved_and_ordered_by_the_schema(revision):
    """``splices``, ``results``: unknown members are dropped, the schema gives the order of keys."""
    reply = ask(build(tools_list=give_tools), revision, "tools/list", {})
    result = reply.message["result"]
    (tool,) = result["tools"]
    assert list(tool) == [
        *("_meta", "annotations", "description", "inputSchema", "name", "outputSchema", "title")
    ]
    assert list(result) == (
        ["cacheScope", "resultType", "tools", "ttlMs", "_meta"] if revision == MODERN else ["tools"]
    )
    assert tool["_meta"] == {"a/b": {"c": None}}
    assert tool["inputSchema"]["properties"] == {"p": {"default": None}}


@pytest.mark.parametrize("revision", REVISIONS)
def test_what_a_middleware_adds_is_not_sieved(revision):
    """``server``: the alias of a tool is put in after the sieve."""
    server = build(tools_list=give_tools)

    async def add(ctx, call_next):
        result = await call_next(ctx)
        result["tools"][0]["trails"] = 1
        return result

    server.middleware[:] = [add]
    reply = ask(server, revision, "tools/list", {})
    assert reply.message["result"]["tools"][0]["trails"] == 1


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_call_keeps_nulls_and_gets_a_stamp(revision):
    """``splices``: order of keys; nulls stay; the newest revision is stamped at the end."""

    async def call(_ctx, _params):
        text = {"type": "text", "text": "x"}
        return {
            "content": [text],
            "structuredContent": {"a": None, "b": 10**30},
            "isError": False,
            "resultType": "complete",
        }

    result = ask(build(tools_call=call), revision, "tools/call", {"name": "t"}).message["result"]
    assert result["structuredContent"] == {"a": None, "b": 10**30}
    keys = ["content", "isError", "resultType", "structuredContent", "_meta"]
    legacy = ["content", "isError", "structuredContent"]
    assert list(result) == (keys if revision == MODERN else legacy)
    assert list(result["content"][0]) == ["text", "type"]
    if revision == MODERN:
        stamp = {"name": "name", "version": "1"}
        assert result["_meta"] == {"io.modelcontextprotocol/serverInfo": stamp}
        assert build().server_info_stamp == stamp


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_meta_that_is_there_is_stamped_in_place(revision):
    """``splices``: ``_meta`` of a failure comes first and keeps its own keys first."""

    async def call(_ctx, _params):
        return {"_meta": {"a/b": 1}, "content": [], "isError": True, "resultType": "complete"}

    result = ask(build(tools_call=call), revision, "tools/call", {"name": "t"}).message["result"]
    assert next(iter(result)) == "_meta"
    assert next(iter(result["_meta"])) == "a/b"
    assert len(result["_meta"]) == (2 if revision == MODERN else 1)


@pytest.mark.parametrize("revision", REVISIONS)
def test_documents_are_ordered_by_the_schema(revision):
    """``splices``: the order of a document's keys."""

    async def read(_ctx, _params):
        return {"contents": [{"uri": "u:", "text": "t", "mimeType": "m"}], "resultType": "complete"}

    result = ask(build(resources_read=read), revision, "resources/read", {"uri": "u:"})
    (document,) = result.message["result"]["contents"]
    assert result.message["result"].get("ttlMs") == (5 if revision == MODERN else None)
    assert list(document) == ["mimeType", "text", "uri"]


def test_statuses():
    """``fast``: the newest revision tells some errors by status too, others are 200."""
    assert dict(ERROR_CODE_HTTP_STATUS) == {
        -32700: 400,
        -32600: 400,
        -32602: 400,
        -32020: 400,
        -32021: 400,
        -32022: 400,
        -32601: 404,
    }


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("code", [-32602, -32001, -32002, -32003, -32004, -32603])
def test_errors_of_handlers(revision, code):
    """``fast``: an error's form and order; older revisions answer 200."""

    async def call(_ctx, _params):
        raise MCPError(code, "m", {"a": None, "b": 1})

    reply = ask(build(tools_call=call), revision, "tools/call", {"name": "t"})
    status = ERROR_CODE_HTTP_STATUS.get(code, 200) if revision == MODERN else 200
    assert reply.status == status
    error = {"code": code, "message": "m", "data": {"a": None, "b": 1}}
    assert json.dumps(reply.message) == json.dumps({"jsonrpc": "2.0", "id": 1, "error": error})


def test_unexpected_errors_leak_on_older_wires():
    """``server``: this is why everything passes our guard; drop it when this fails."""

    async def call(_ctx, _params):
        raise RuntimeError("secret")

    reply = ask(build(tools_call=call), "2025-11-25", "tools/call", {"name": "t"})
    assert reply.message["error"] == {"code": 0, "message": "secret"}


def test_a_guard_sees_wrong_parameters():
    """``server``: wrong parameters reach a middleware as pydantic's error, with locations."""
    server, seen = build(tools_list=give_tools), []

    async def note(ctx, call_next):
        try:
            return await call_next(ctx)
        except ValidationError as error:
            seen.append(error.errors()[0]["loc"])
            raise

    server.middleware[:] = [note]
    ask(server, MODERN, "tools/list", {"cursor": 5})
    ask(server, None, "tools/list", {"cursor": 5})
    assert seen == [("params", "cursor"), ("params", "cursor")]


def test_the_schema_of_a_tool_is_asked_for_by_name():
    """``http``: without this every call with arguments would list all tools."""
    asked = []

    async def call(_ctx, _params):
        return {"content": [], "resultType": "complete"}

    server = build(tools_call=call, tools_list=give_tools)
    server.get_tool_input_schema = asked.append
    ask(server, MODERN, "tools/call", {"name": "t", "arguments": {"a": 1}})
    ask(server, None, "tools/call", {"name": "t", "arguments": {"a": 1}})
    assert asked == ["t"]
    assert X_MCP_HEADER_KEY == "x-mcp-header"


def test_headers_that_must_agree():
    """``envelopes``: which header repeats which parameter."""
    named = dict(NAME_BEARING_METHODS)
    assert named == {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def test_the_http_request_reaches_handlers():
    """``callers``: a handler finds the scope, and with it the caller, on both eras."""
    seen = []

    async def call(ctx, _params):
        seen.append((ctx.request.scope["path"], ctx.protocol_version))
        return {"content": [], "resultType": "complete"}

    for revision in (None, "2025-06-18", MODERN):
        ask(build(tools_call=call), revision, "tools/call", {"name": "t"})
    assert seen == [("/mcp", "2025-03-26"), ("/mcp", "2025-06-18"), ("/mcp", MODERN)]


def test_versions_choose_the_era():
    """``http``: a version of a handshake or none is older, anything else is newest."""
    server = build(tools_list=give_tools)
    body = json.dumps(message_of(None, "tools/list", {})).encode()
    statuses = {
        version: ask(server, version, "tools/list", {}, body=body).status
        for version in (None, *LEGACY, MODERN, "2030-01-01")
    }
    assert statuses == {None: 200, **dict.fromkeys(LEGACY, 200), MODERN: 400, "2030-01-01": 400}


def test_a_parser_takes_what_another_refuses():
    """``bodies``: this is why JSON is judged before the SDK sees it."""

    async def call(_ctx, _params):
        return {"content": [], "resultType": "complete"}

    codes = set()
    for revision in (None, MODERN):
        message = json.dumps(message_of(revision, "tools/call", {"name": "t", "arguments": {}}))
        body = message.replace('"arguments": {}', r'"arguments": {"a": "\ud800"}').encode()
        headers = headers_of(revision, "tools/call", {"name": "t"})
        codes.add(ask(build(tools_call=call), revision, "", {}, headers=headers, body=body).status)
    assert codes == {200, 400}


def test_capabilities_of_both_eras():
    """``server``, ``subscriptions``: what handlers and options make a server advertise."""
    server = build(tools_list=give_tools)
    assert server.get_capabilities().tools.list_changed is False
    assert server.get_capabilities(protocol_version=MODERN).tools.list_changed is False
    told = server.create_initialization_options(NotificationOptions(tools_changed=True))
    assert told.capabilities.tools.list_changed is True

    async def listen(_ctx, _params):
        return {}

    server.add_request_handler(
        "subscriptions/listen", types.SubscriptionsListenRequestParams, listen
    )
    assert server.get_capabilities(protocol_version=MODERN).tools.list_changed is True
    assert server.get_capabilities().tools.list_changed is False


def test_sessions_keep_to_their_caller():
    """``callers``: the SDK compares who began a session by the client id of a token."""
    ada, bob = (
        authorization_context(AuthenticatedUser(AccessToken(token="", client_id=name, scopes=[])))
        for name in ("ada", "bob")
    )
    assert ada != bob


def test_a_stream_is_served_in_the_era_it_opens_with():
    """``streams``: one loop for both eras over a pair of streams; it closes what it writes to."""

    async def main(opening):
        server = build(tools_list=give_tools)
        to_server, read = anyio.create_memory_object_stream(10)
        write, from_server = anyio.create_memory_object_stream(10)
        message = jsonrpc_message_adapter.validate_python(opening, by_name=False)
        assert isinstance(message, JSONRPCRequest)
        async with to_server, read, write, from_server, anyio.create_task_group() as tasks:
            options = server.create_initialization_options()
            tasks.start_soon(server.run, read, write, options)
            await to_server.send(SessionMessage(message))
            answer = (await from_server.receive()).message
            await to_server.aclose()
            with pytest.raises(anyio.EndOfStream):
                await from_server.receive()
        return answer.model_dump(by_alias=True, exclude_unset=True)

    modern = asyncio.run(main(message_of(MODERN, "tools/list", {})))
    assert modern["result"]["resultType"] == "complete"
    legacy = asyncio.run(main(message_of(None, "initialize", hello(OLD))))
    assert legacy["result"]["protocolVersion"] == OLD
    assert list(legacy) == ["jsonrpc", "id", "result"]


def test_names_that_we_call():
    """``splices``, ``sse``, ``subscriptions``: signatures of what is called."""
    assert list(inspect.signature(methods.serialize_server_result).parameters)[:3] == [
        *("method", "version", "data")
    ]
    assert "max_request_body_size" in inspect.signature(SseServerTransport).parameters
    assert inspect.iscoroutinefunction(runner.serve_dual_era_loop)
