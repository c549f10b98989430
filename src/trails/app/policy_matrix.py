"""Tools and the gates before them, as a project declares them: who may use what.

Whether an actor gets through is asked as lists and calls ask it; only the branch and its types
come from the declarations, since no data is open.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from trails.engine.graph import MAIN
from trails.model.capabilities import Capability, Scope, StoredQuery
from trails.model.iris import Names
from trails.model.types import Schema
from trails.registry.declared import Declared
from trails.registry.registry import Registry
from trails.request.builtins import BUILTINS
from trails.request.catalog import builtin_gate
from trails.request.gates import Gate, of_capability, of_query
from trails.request.rights import ActorAccess, Branches


class GatedTool(msgspec.Struct, frozen=True):
    """A tool, and what it asks for."""

    name: str
    scope: Scope
    gate: Gate
    source: Capability | StoredQuery | None = None
    """What it calls; None of what is built in."""


class DeclaredBranch(Branches):
    """One branch, with the types that are declared."""

    def __init__(self, branch: str, schema: Schema, names: Names) -> None:
        self.spelled = names
        self._seen = 0, frozenset({branch})
        self._schema = schema

    def look(self) -> tuple[int, frozenset[str]]:
        """Nothing changes."""
        return self._seen

    def schema_of(self, branch: str) -> Schema | None:
        """The declared types."""
        del branch
        return self._schema


def gated_tools(
    registry: Registry, graph: str, env: Literal["development", "production"]
) -> list[GatedTool]:
    """Everything that can be called, in name order."""
    return sorted(_tools(registry, graph, env), key=lambda each: each.name)


def _tools(registry: Registry, graph: str, env: str) -> Iterator[GatedTool]:
    for builtin in BUILTINS:
        yield GatedTool(builtin.name, "runtime", builtin_gate(builtin, graph))
    for each in (*registry.capabilities.values(), *registry.metas.values()):
        scope: Scope = "runtime" if each.meta is None else each.meta.scope
        if scope != "dev" or env != "production":
            yield GatedTool(each.tool_name, scope, of_capability(each, graph, MAIN), each)
    for query in registry.queries.values():
        if query.expose:
            yield GatedTool(query.effective_tool_name, "runtime", of_query(query), query)


def cell_of(tool: GatedTool, rights: ActorAccess, registry: Registry) -> str:
    """``yes``, ``no``, or ``scope`` where only that is missing."""
    if not rights.passes(tool.gate):
        return "no"
    declared = rights.declared(registry)
    source = tool.source
    if isinstance(declared, Declared) and source is not None and not declared.knows(source):
        return "no"  # it takes or gives a type that is hidden from the actor
    return "yes" if tool.scope in rights.actor.scopes else "scope"
