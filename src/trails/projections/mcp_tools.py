"""Project tools into entries of MCP's ``tools/list``.

Pure, like the other projections; the SDK only filters the result by the schema of a revision.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import to_builtins

from trails.model.capabilities import Hints, Tool

Json = dict[str, Any]
PREFIX: Final = "dev.trails/"
TOOL_META: Final = PREFIX + "tool"
REGISTRY_META: Final = PREFIX + "registry"
"""The digest of what the caller sees of the registry."""


def project_mcp_tool(tool: Tool) -> Json:
    """An entry of ``tools/list``."""
    shown: Json = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": dict(tool.full_schema if tool.lists_controls else tool.input_schema),
        "annotations": _annotations(tool.hints),
        "_meta": {TOOL_META: _kind(tool)},
    }
    if not _repeats(tool.name, tool.title):
        shown["title"] = tool.title
    if tool.output_schema is not None:
        shown["outputSchema"] = dict(tool.output_schema)
    return shown


_SMALL: Final = frozenset({"a", "an", "the"})
_STEM: Final = 5


def _repeats(name: str, title: str) -> bool:
    """Whether a title only has the words of the name, like "Create a branch" of branch_create."""
    words = (each[:_STEM] for each in title.lower().split() if each not in _SMALL)
    return all(each in name for each in words)


def _annotations(hints: Hints) -> Json:
    """The hints that mean something: only a change can be destructive or idempotent."""
    shown = {"readOnlyHint": hints.read_only, "openWorldHint": hints.open_world}
    if hints.read_only:
        return shown
    return {
        **shown,
        "destructiveHint": hints.destructive,
        "idempotentHint": hints.idempotent,
    }


def _kind(tool: Tool) -> Json:
    """The metadata of a tool: whether it is about data or about the application."""
    mark: Json = {} if tool.deprecated is None else {"deprecated": to_builtins(tool.deprecated)}
    if tool.lists_controls:
        mark["controls"] = list(tool.controls)
    if tool.meta is None:
        return {"kind": tool.kind, **mark}
    meta = tool.meta
    return {
        "kind": tool.kind,
        **mark,
        "scope": meta.scope,
        "namespace": meta.namespace,
        "op": meta.op,
        "idempotent": tool.hints.idempotent,
    }
