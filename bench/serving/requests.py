"""MCP requests as bytes, of the newest revision and of one before it."""

from __future__ import annotations

from typing import Final

import msgspec

from bench.serving.load import post

MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
ACCEPT: Final = "application/json, text/event-stream"
META: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def modern(
    path: str,
    method: str,
    params: dict[str, object],
    name: str | None = None,
    token: str | None = None,
) -> bytes:
    """A request of the newest revision; the name of what is asked for stands in a header too."""
    headers = {"accept": ACCEPT, "mcp-protocol-version": MODERN, "mcp-method": method}
    if name is not None:
        headers["mcp-name"] = name
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    return post(path, headers, _encode(method, {**params, "_meta": META}))


def legacy(path: str, method: str, params: dict[str, object]) -> bytes:
    """A request of the last revision with a handshake, sent without one."""
    headers = {"accept": ACCEPT, "mcp-protocol-version": LEGACY}
    return post(path, headers, _encode(method, params))


def call(path: str, tool: str, arguments: dict[str, object], token: str | None = None) -> bytes:
    """Call a tool, at the newest revision."""
    return modern(path, "tools/call", {"name": tool, "arguments": arguments}, tool, token)


def _encode(method: str, params: dict[str, object]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
