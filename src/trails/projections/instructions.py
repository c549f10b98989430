"""Project types and tools into the words that a server is introduced with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trails.model.tools import Tool
from trails.model.types import TypeDescriptor

_MOST: Final = 40


def project_instructions(
    project: str, graph: str, types: Sequence[TypeDescriptor], tools: Sequence[Tool]
) -> str:
    """For a model that has never seen this server: what it is, where to begin, how errors look.

    ``types`` and ``tools`` are those that it may see and use; nothing else is named.
    """
    names = {each.name for each in tools}
    own = [each.name for each in tools if each.action == "InvokeCapability"]
    begin = [text for needed, text in _BEGIN if needed <= names]
    change = [text for needed, text in _CHANGE if needed <= names]
    lines = [_WHAT.format(graph=graph, project=project), "", *_tell_types(types), ""]
    if begin:
        lines.append(f"Where to begin: {' '.join(begin)}")
    lines += _tell_capabilities(own)
    if change:
        lines.append(" ".join(change))
    return "\n".join([*lines, _ERRORS])


_WHAT: Final = (
    "This is the knowledge graph '{graph}' of the project '{project}': typed, validated and "
    "versioned data that you can read, query and change."
)
_Texts = tuple[tuple[frozenset[str], str], ...]
"""Sentences, each with the tools that it names."""
_BEGIN: Final[_Texts] = (
    (
        frozenset({"graph_snapshot", "schema_get"}),
        (
            "graph_snapshot tells what there is, schema_get which fields a type has. Read "
            "instances at trails://kg/<Type> and trails://kg/<Type>/<id>."
        ),
    ),
    (
        frozenset({"graph_query"}),
        "Ask questions over many of them with graph_query (SPARQL).",
    ),
)
_CHANGE: Final[_Texts] = (
    (
        frozenset({"graph_mutate"}),
        (
            "To change data use the tool made for the task; where there is none, graph_mutate. "
            "Each change is one commit, or none when it breaks a rule."
        ),
    ),
    (
        frozenset({"branch_create", "branch_merge"}),
        "To try something first, branch_create, pass branch to each call, then branch_merge.",
    ),
)
_ERRORS: Final = (
    "Errors name the field, the value, the rule and what to do next. A failed check lists all "
    "fields at once in data.fields, each with a suggestion where there is one; "
    "data.corrected_arguments, where given, can be sent as they are."
)


def _tell_types(types: Sequence[TypeDescriptor]) -> list[str]:
    if not types:
        return ["It shows no types."]
    told = [f"- {each.name}: {_first_line(each.description)}" for each in types[:_MOST]]
    if len(types) > _MOST:
        told.append(f"- and {len(types) - _MOST} more; schema_get describes them all")
    return ["Its types:", *told]


def _tell_capabilities(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    shown = ", ".join(names[:_MOST])
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return [f"The project's own tools: {shown}{more}."]


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0] or "(not described)"
