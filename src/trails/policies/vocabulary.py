"""The vocabulary of policies: which actions there are, and the Cedar schema that says so.

A schema is text, generated from a registry: the same registry gives the same bytes. The kinds
of things are the same for every graph; which things there are stands beside each kind, for
whoever writes a policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trails.model.decisions import ResourceKind
from trails.model.tools import Action
from trails.registry.registry import Registry

SERVER: Final = "trails"
"""The id of the one server that there is for its policies."""

GRAPH_ACTIONS: Final[Mapping[Action, tuple[ResourceKind, ...]]] = {
    "Read": ("Graph", "Type", "Field"),
    "Export": ("Graph",),
    "Change": ("Graph", "Type"),
    "SchemaApply": ("Graph",),
    "BranchCreate": ("Graph",),
    "BranchDelete": ("Graph",),
    "BranchMerge": ("Graph",),
    "Admin": ("Graph",),
    "InvokeQuery": ("Query",),
    "InvokeCapability": ("Capability",),
}
"""What is asked about a graph, and of which things."""
SERVER_ACTIONS: Final[Mapping[Action, tuple[ResourceKind, ...]]] = {"GraphList": ("Server",)}
"""What is asked about the server."""
PAIRS: Final[frozenset[Action]] = frozenset({"BranchCreate", "BranchMerge"})
"""Actions that are about two branches."""

CONTEXT: Final = ("branch", "target")
ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "Group": {},
    "Actor": {"name": "String", "scopes": "Set<String>"},
    "Server": {},
    "Graph": {},
    "Type": {},
    "Field": {},
    "Query": {"changes": "Bool"},
    "Capability": {"reads_only": "Bool", "effects": "Set<String>"},
}
"""What a policy can ask of each kind of thing."""
_PARENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "Actor": ("Group",),
    "Graph": ("Server",),
    "Type": ("Graph", "Type"),
    "Field": ("Type", "Field"),
    "Query": ("Graph",),
    "Capability": ("Graph",),
}


def project_schema(registry: Registry, graph: str) -> str:
    """The Cedar schema of one graph's policies."""
    there: Mapping[str, Iterable[str]] = {
        "Graph": (graph,),
        "Type": registry.types,
        "Query": registry.queries,
        "Capability": sorted((*registry.capabilities, *registry.metas)),
    }
    return _schema(f"Policies of the graph {graph!r}.", tuple(ATTRIBUTES), GRAPH_ACTIONS, there)


def server_schema(graphs: Iterable[str]) -> str:
    """The Cedar schema of policies about the server itself."""
    kinds = ("Group", "Actor", "Server", "Graph")
    there: Mapping[str, Iterable[str]] = {"Server": (SERVER,), "Graph": graphs}
    return _schema("Policies of the server.", kinds, SERVER_ACTIONS, there)


def _schema(
    title: str,
    kinds: Iterable[str],
    actions: Mapping[Action, tuple[ResourceKind, ...]],
    there: Mapping[str, Iterable[str]],
) -> str:
    """Kinds of things, each with what there is of it; then the actions."""
    lines = [f"// {title}", ""]
    for kind in kinds:
        lines += [f'// {kind}::"{each}"' for each in there.get(kind, ())]
        lines.append(_entity(kind))
    lines += ["", f"type Place = {{{', '.join(f'{name}: String' for name in CONTEXT)}}};"]
    lines += [
        f"action {action} appliesTo {{principal: [Actor], resource: [{', '.join(applies)}], "
        "context: Place};"
        for action, applies in actions.items()
    ]
    return "\n".join(lines) + "\n"


def _entity(kind: str) -> str:
    parents = _PARENTS.get(kind, ())
    within = f" in [{', '.join(parents)}]" if parents else ""
    attributes = ", ".join(f"{name}: {type}" for name, type in ATTRIBUTES[kind].items())
    return f"entity {kind}{within}{f' {{{attributes}}}' if attributes else ''};"
