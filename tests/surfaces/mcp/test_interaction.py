"""The official client, over every transport and revision."""

from __future__ import annotations

import asyncio

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference
from tests.worlds.mcp_clients import WAYS, connect, serve_http
from tests.worlds.surfaces import LEGACY, MODERN, NOTE, TrivialBackend

from trails.model.results import Failure

FIELDS = [{"field": "a", "code": "required", "message": "a is required", "value": None}]
FAILURES = {
    "validation": Failure(
        "validation",
        "validation",
        "validation failed on 1 field: a is required",
        {"fields": FIELDS},
    ),
    "semantic": Failure("semantic", "conflict", "the head moved; read it again", {"head": "c1"}),
    "denied": Failure("denied", "denied", "not these arguments"),
    "budget": Failure("budget", "budget", "out of budget"),
    "scope": Failure("scope", "scope", "needs scope meta"),
    "internal": Failure("internal", "internal", "internal error", {"trace_id": "t1"}),
}
OPTIONS = {
    "fast": {},
    "sdk": {"fast": False},
    "sessions": {"legacy_sessions": True},
    "sse": {"legacy_sse": True},
}


@pytest.fixture(scope="module")
def backend():
    """One backend for all transports."""
    return TrivialBackend(FAILURES)


@pytest.fixture(scope="module")
def urls(backend):
    """A server for each way to serve HTTP, started when it is needed."""
    started, servers = {}, []

    def url(transport: str) -> str:
        transport = "sessions" if transport == "bridge" else transport
        if transport not in started and transport in OPTIONS:
            server = serve_http(backend, **OPTIONS[transport])
            started[transport] = server.__enter__()
            servers.append(server)
        return started.get(transport, "")

    yield url
    for server in servers:
        server.__exit__(None, None, None)


@pytest.fixture(params=WAYS, ids=["-".join(way) for way in WAYS])
def talk(request, backend, urls, monkeypatch):
    """Run a scenario with a client that is connected."""
    transport, revision = request.param
    if revision in LEGACY:
        monkeypatch.setattr("mcp.client.session.LATEST_HANDSHAKE_VERSION", revision)

    def run(scenario):
        async def main():
            async with connect(transport, revision, backend, urls(transport)) as client:
                await asyncio.wait_for(scenario(client), 20)

        asyncio.run(main())

    return run


def test_lists(talk):
    """A client learns who serves it, and lists tools, resources and templates."""

    async def scenario(client):
        assert (client.server_info.name, client.instructions) == ("trivial", "Call echo.")
        (tool,) = (await client.list_tools()).tools
        assert (tool.name, tool.annotations.read_only_hint) == ("echo", True)
        assert tool.meta == {"dev.trails/tool": {"kind": "runtime"}}
        (resource,) = (await client.list_resources()).resources
        assert resource.uri == NOTE.uri
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "test://line/{n}"
        with pytest.raises(MCPError, match="invalid cursor"):
            await client.session.list_tools(params={"cursor": "x"})

    talk(scenario)


def test_calls(talk):
    """A result comes as structure and as the same text; big integers stay exact."""

    async def scenario(client):
        arguments = {"größe": [1, 2.5, None, 10**30], "b": {"c": "🧭"}}
        result = await client.call_tool("echo", arguments)
        assert not result.is_error
        assert result.structured_content == arguments
        assert len(result.content) == 1
        assert (await client.call_tool("echo")).structured_content == {}

    talk(scenario)


def test_many_calls_at_once(talk):
    """Answers find their questions."""

    async def scenario(client):
        results = await asyncio.gather(*(client.call_tool("echo", {"n": n}) for n in range(20)))
        assert [one.structured_content["n"] for one in results] == list(range(20))

    talk(scenario)


def test_failures(talk):
    """Every kind of failure is told in its own way."""

    async def scenario(client):
        codes = {"validation": -32602, "budget": -32003, "scope": -32004, "internal": -32603}
        for name, code in codes.items():
            with pytest.raises(MCPError) as refused:
                await client.call_tool(name)
            assert refused.value.code == code
        with pytest.raises(MCPError) as refused:
            await client.call_tool("validation")
        assert refused.value.data["fields"] == FIELDS
        result = await client.call_tool("semantic")
        assert result.is_error
        assert result.content[0].text == 'the head moved; read it again\n{"head":"c1"}'
        assert result.meta["dev.trails/error"] == {"code": "conflict", "data": {"head": "c1"}}
        with pytest.raises(MCPError, match="unknown tool: nope"):
            await client.call_tool("nope")

    talk(scenario)


def test_denials(talk):
    """The newest revision forbids −32002, so a denial is a tool's result there."""

    async def scenario(client):
        if client.protocol_version == MODERN:
            result = await client.call_tool("denied")
            assert (result.is_error, result.content[0].text) == (True, "not these arguments")
        else:
            with pytest.raises(MCPError) as refused:
                await client.call_tool("denied")
            assert refused.value.code == -32002

    talk(scenario)


def test_reads(talk):
    """A resource is read; an unknown one is refused with the revision's own number."""

    async def scenario(client):
        (content,) = (await client.read_resource(NOTE.uri)).contents
        assert (content.text, content.mime_type, content.uri) == ("hello", "text/plain", NOTE.uri)
        with pytest.raises(MCPError, match="no resource: test://x") as refused:
            await client.read_resource("test://x")
        modern = client.protocol_version == MODERN
        assert refused.value.code == (-32602 if modern else -32002)

    talk(scenario)


def test_completions(talk):
    """A template's variable is completed; prompts there are none."""

    async def scenario(client):
        ref = ResourceTemplateReference(uri="test://line/{n}")
        found = await client.complete(ref, {"name": "n", "value": "1"})
        assert (found.completion.values, found.completion.total) == (["1"], 10)
        with pytest.raises(MCPError, match="no prompts"):
            await client.complete(PromptReference(name="x"), {"name": "n", "value": ""})

    talk(scenario)
