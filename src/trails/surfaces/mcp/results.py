"""Results of requests, as plain objects.

The SDK filters them by the schema of the revision; the alias of a tool's kind, which it drops, is
added again. For the fast path the SDK encodes a result with marks once, and the bytes are cut at
the marks: so the order of keys, and what a revision omits, are the SDK's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from mcp.server.lowlevel import Server
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.methods import serialize_server_result

from trails.model.capabilities import ToolList
from trails.model.uris import Completions, Content, ListedResource, ResourceList, ResourceTemplate
from trails.projections.mcp_tools import REGISTRY_META, TOOL_META, project_mcp_tool
from trails.surfaces.mcp.wire import ALIAS, MODERN, Json, encode


def list_tools(tools: ToolList) -> Json:
    """The result of ``tools/list``."""
    return {
        "tools": [project_mcp_tool(tool) for tool in tools.tools],
        "resultType": "complete",
        "_meta": {REGISTRY_META: tools.registry},
    }


def add_alias(result: Json) -> None:
    """Repeat each tool's kind under a top-level key, which is not in MCP's schemas."""
    for tool in result["tools"]:
        tool[ALIAS] = tool["_meta"][TOOL_META]


def list_resources(listed: ResourceList) -> Json:
    """The result of ``resources/list``."""
    return {
        "resources": [_resource(resource) for resource in listed.resources],
        "resultType": "complete",
    }


def list_templates(listed: ResourceList) -> Json:
    """The result of ``resources/templates/list``."""
    return {
        "resourceTemplates": [_template(template) for template in listed.templates],
        "resultType": "complete",
    }


def show_contents(contents: Iterable[Content]) -> Json:
    """The result of ``resources/read``."""
    documents = [{"uri": one.uri, "mimeType": one.mime_type, "text": one.text} for one in contents]
    return {"contents": documents, "resultType": "complete"}


def show_success(text: str, structure: object) -> Json:
    """The result of ``tools/call``: structured content, and the same as text."""
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": structure,
        "isError": False,
        "resultType": "complete",
    }


def show_completions(completions: Completions) -> Json:
    """The result of ``completion/complete``."""
    completion: Json = {"values": list(completions.values), "hasMore": completions.more}
    if completions.total is not None:
        completion["total"] = completions.total
    return {"completion": completion, "resultType": "complete"}


def _resource(resource: ListedResource) -> Json:
    return {
        "uri": resource.uri,
        "name": resource.name,
        "title": resource.title,
        "description": resource.description,
        "mimeType": resource.mime_type,
    }


def _template(template: ResourceTemplate) -> Json:
    return {
        "uriTemplate": template.uri_template,
        "name": template.name,
        "title": template.title,
        "description": template.description,
        "mimeType": template.mime_type,
    }


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
    """Templates of the results of one revision."""

    def __init__(self, server: Server[Any], revision: str) -> None:
        called = encode(
            shape(server, "tools/call", revision, show_success(_TEXT, _STRUCTURE)),
        )
        read = encode(shape(server, "resources/read", revision, show_contents([])))
        self._call, rest = called.split(encode(_TEXT))
        self._structure, self._call_end = rest.split(encode(_STRUCTURE))
        self._read, self._read_end = read.split(_NO_CONTENTS)

    def success(self, body: bytes) -> Sequence[bytes]:
        """The result of a call, in parts: a large one is put together only once."""
        return self._call, encode(body.decode()), self._structure, body, self._call_end

    def contents(self, contents: Iterable[Content]) -> Sequence[bytes]:
        """The result of a read, in parts."""
        documents = encode([_Document(one.mime_type, one.text, one.uri) for one in contents])
        return self._read, b'"contents":', documents, self._read_end


class _Document(msgspec.Struct, rename="camel"):
    """A document, with its keys in the SDK's order."""

    mime_type: str
    text: str
    uri: str
