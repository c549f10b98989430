"""Actors and tools: who may use what, as lists and calls would find."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from trails.model.actors import Actor
from trails.model.capabilities import Scope
from trails.model.decisions import Judge, Resource
from trails.policy.vocabulary import PAIRS
from trails.registry.registry import Registry
from trails.request.builtins import BUILTINS
from trails.request.catalog import builtin_gate
from trails.request.gates import Gate, Need, of_capability, of_query


class GatedTool(msgspec.Struct, frozen=True):
    """A tool, and what it asks for."""

    name: str
    scope: Scope
    gate: Gate


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
            yield GatedTool(each.tool_name, scope, of_capability(each, graph, "main"))
    for query in registry.queries.values():
        if query.expose:
            yield GatedTool(query.effective_tool_name, "runtime", of_query(query))


class Asker:
    """One actor on one branch."""

    def __init__(self, judge: Judge, actor: Actor, registry: Registry, branch: str) -> None:
        self._judge = judge
        self._actor = actor
        self._branch = branch
        self._sees_all = all(judge.allows(actor, "Read", each, branch) for each in _data(registry))

    def cell(self, tool: GatedTool) -> str:
        """``yes``, ``no``, or ``scope`` where only that is missing."""
        gate = tool.gate
        permitted = (
            all(map(self._has, gate.needs))
            and (gate.among is None or any(map(self._has, gate.among)))
            and (not gate.whole or self._sees_all)
        )
        if not permitted:
            return "no"
        return "yes" if tool.scope in self._actor.scopes else "scope"

    def _has(self, need: Need) -> bool:
        """What is about two branches is asked about this one and any other."""
        if need.action in PAIRS:
            branches = frozenset({self._branch})
            return self._judge.allows_somewhere(self._actor, need.action, need.resource, branches)
        return self._judge.allows(self._actor, need.action, need.resource, self._branch)


def _data(registry: Registry) -> Iterator[Resource]:
    """Everything that can be hidden."""
    for each in registry.types.values():
        yield Resource("Type", each.name)
        for field in each.fields:
            yield Resource("Field", f"{each.name}.{field.name}")
