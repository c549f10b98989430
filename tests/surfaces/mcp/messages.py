"""The JSON-RPC messages that an MCP client sends, by revision of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

MODERN = "2026-07-28"
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
REVISIONS = (None, *LEGACY, MODERN)
"""None is an absent header."""
OLD = "2025-06-18"
"""An older one, where it does not matter which."""
INFO = MappingProxyType({"name": "test", "version": "1"})
"""Read-only, since fuzzers spoil what they are given."""
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def envelope(revision: str | None, info: Mapping[str, object] = INFO) -> dict[str, Any]:
    """The ``_meta`` of a request."""
    if revision != MODERN:
        return {}
    return {
        "io.modelcontextprotocol/protocolVersion": revision,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": dict(info),
    }


META = envelope(MODERN)


def message_of(
    revision: str | None, method: str, params: dict[str, Any], id_: object = 1
) -> dict[str, Any]:
    """A request."""
    meta = envelope(revision)
    full = {**params, "_meta": meta} if meta else params
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": full}


def hello(revision: str = OLD, info: Mapping[str, object] = INFO) -> dict[str, Any]:
    """What a client says of itself when a session begins."""
    return {"protocolVersion": revision, "capabilities": {}, "clientInfo": dict(info)}


def session_of(revision: str, method: str, params: dict[str, Any]) -> list[dict[str, Any]]:
    """A session with one request; its id is 1."""
    asked = message_of(revision, method, params)
    if revision == MODERN:
        return [asked]
    return [message_of(None, "initialize", hello(revision), 0), INITIALIZED, asked]
