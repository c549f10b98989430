"""Results of requests, as plain objects.

The SDK sieves them by the revision's own schema; what it drops though we mean it (the
alias of a tool's kind) is put back afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

from trails.model.resources import Completions, Content, Resource, ResourceList, ResourceTemplate
from trails.model.tools import Tool, ToolList
from trails.surfaces.mcp.wire import ALIAS, TOOL_META, Json, plain


def list_tools(tools: ToolList) -> Json:
    """The result of ``tools/list``."""
    return {"tools": [_tool(tool) for tool in tools.tools], "resultType": "complete"}


def add_alias(result: Json) -> None:
    """Repeat each tool's kind under the top-level key, which no schema of MCP knows."""
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
    """The result of ``tools/call``: structure, and the same as text."""
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


def _tool(tool: Tool) -> Json:
    hints = tool.hints
    shown: Json = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": plain(tool.input_schema),
        "annotations": {
            "title": tool.title,
            "readOnlyHint": hints.read_only,
            "destructiveHint": hints.destructive,
            "idempotentHint": hints.idempotent,
            "openWorldHint": hints.open_world,
        },
        "_meta": {TOOL_META: _kind(tool)},
    }
    if tool.output_schema is not None:
        shown["outputSchema"] = plain(tool.output_schema)
    return shown


def _kind(tool: Tool) -> Json:
    """What tells tools about data from tools about the application."""
    if tool.meta is None:
        return {"kind": tool.kind}
    meta = tool.meta
    return {
        "kind": tool.kind,
        "scope": meta.scope,
        "namespace": meta.namespace,
        "op": meta.op,
        "idempotent": tool.hints.idempotent,
    }


def _resource(resource: Resource) -> Json:
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
