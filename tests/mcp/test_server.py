"""The MCP surface on a backend of a few lines."""

from __future__ import annotations

import asyncio
import json

from tests.mcp.trivial import TrivialBackend

from trails.model.actors import LOCAL
from trails.surfaces.mcp.streams import serve_stream

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def talk(*lines: bytes) -> list[dict]:
    """Give a session some lines; what it answers."""
    given = iter(lines)
    said = []

    async def receive():
        return next(given, None)

    async def send(line):
        said.append(json.loads(line))

    asyncio.run(serve_stream(TrivialBackend(), receive, send, actor=LOCAL))
    return said


def request(id_: int, method: str, params: object) -> bytes:
    """One line."""
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode()


def test_a_stream_answers_what_was_asked_before_it_ended():
    """Requests that are in flight when the input ends are answered still."""
    said = talk(
        request(1, "initialize", HELLO),
        b"",
        request(2, "tools/call", {"name": "echo", "arguments": {"a": 10**30}}),
    )
    assert [message["id"] for message in said] == [1, 2]
    assert said[1]["result"]["structuredContent"] == {"a": 10**30}


def test_a_line_that_is_not_json_is_answered_and_the_session_goes_on():
    """A parse error costs one line, not the session."""
    said = talk(b"{", b"[]", request(1, "initialize", HELLO))
    assert [message.get("error", {}).get("code") for message in said] == [-32700, -32600, None]
