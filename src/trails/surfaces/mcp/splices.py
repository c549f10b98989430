"""Encoded results: the parts that never change are encoded once, by the SDK itself.

The SDK is asked for a result with marks in it, and the bytes are cut at the marks. So the
order of keys, and what a revision leaves out, come from where the other door takes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from mcp.server.lowlevel import Server
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.methods import serialize_server_result

from trails.model.resources import Content
from trails.surfaces.mcp.results import show_contents, show_success
from trails.surfaces.mcp.wire import MODERN, Json, encode

_TEXT: Final = "\x00text"
_STRUCTURE: Final = {"\x00": "structure"}
_NO_CONTENTS: Final = b'"contents":[]'


def shape(server: Server[Any], method: str, revision: str, result: Json) -> Json:
    """A result as the SDK shapes it for a revision."""
    hint = server.cache_hints.get(method)
    if hint is not None:
        result = {"ttlMs": hint.ttl_ms, "cacheScope": hint.scope, **result}
    shaped = serialize_server_result(method, revision, result)
    if revision in MODERN:
        stamp = {SERVER_INFO_META_KEY: server.server_info_stamp}
        shaped["_meta"] = {**shaped.get("_meta", {}), **stamp}
    return shaped


class Splices:
    """The results of one revision, ready to be filled in."""

    def __init__(self, server: Server[Any], revision: str) -> None:
        called = encode(
            shape(server, "tools/call", revision, show_success(_TEXT, _STRUCTURE)),
        )
        read = encode(shape(server, "resources/read", revision, show_contents([])))
        self._call, rest = called.split(encode(_TEXT))
        self._structure, self._call_end = rest.split(encode(_STRUCTURE))
        self._read, self._read_end = read.split(_NO_CONTENTS)

    def success(self, body: bytes) -> bytes:
        """The result of a call."""
        text = encode(body.decode())
        return b"".join((self._call, text, self._structure, body, self._call_end))

    def contents(self, contents: Iterable[Content]) -> bytes:
        """The result of a read."""
        documents = encode([_Document(one.mime_type, one.text, one.uri) for one in contents])
        return b"".join((self._read, b'"contents":', documents, self._read_end))


class _Document(msgspec.Struct, rename="camel"):
    """A document, with its keys in the SDK's order."""

    mime_type: str
    text: str
    uri: str
