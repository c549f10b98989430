"""Project a registry into the words that a server is introduced with."""

from __future__ import annotations

from typing import Final

from trails.registry.registry import Registry

_MOST: Final = 40


def project_instructions(project: str, graph: str, registry: Registry) -> str:
    """For a model that has never seen this server: what it is, where to begin, how errors look."""
    lines = [_WHAT.format(graph=graph, project=project), "", *_tell_types(registry), ""]
    return "\n".join([*lines, _BEGIN, *_tell_capabilities(registry), _CHANGE, _ERRORS])


_WHAT: Final = (
    "This is the knowledge graph '{graph}' of the project '{project}': typed, validated and "
    "versioned data that you can read, query and change."
)
_BEGIN: Final = (
    "Where to begin: graph_snapshot tells what there is, schema_get which fields a type has. Read "
    "instances at trails://kg/<Type> and trails://kg/<Type>/<id>; ask questions over many of them "
    "with graph_query (SPARQL)."
)
_CHANGE: Final = (
    "To change data use the tool made for the task; where there is none, graph_mutate. Each change "
    "is one commit, or none when it breaks a rule. To try something first, branch_create, pass "
    "branch to each call, then branch_merge."
)
_ERRORS: Final = (
    "Errors name the field, the value, the rule and what to do next. A failed check lists all "
    "fields at once in data.fields, each with a suggestion where there is one; "
    "data.corrected_arguments, where given, can be sent as they are."
)


def _tell_types(registry: Registry) -> list[str]:
    types = list(registry.types.values())
    if not types:
        return ["It has no types yet."]
    told = [f"- {each.name}: {_first_line(each.description)}" for each in types[:_MOST]]
    if len(types) > _MOST:
        told.append(f"- and {len(types) - _MOST} more; schema_get describes them all")
    return ["Its types:", *told]


def _tell_capabilities(registry: Registry) -> list[str]:
    names = [each.tool_name for each in registry.capabilities.values()]
    if not names:
        return []
    shown = ", ".join(names[:_MOST])
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return [f"The project's own tools: {shown}{more}."]


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0] or "(not described)"
