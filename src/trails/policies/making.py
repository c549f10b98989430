"""Make the judge of a graph, or of the server, from texts and what there is."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from trails.policies.checks import Known
from trails.policies.entities import graph_world, server_world
from trails.policies.judge import CedarJudge
from trails.policies.reading import read_policies
from trails.policies.sources import Source
from trails.policies.stage import Stage
from trails.policies.vocabulary import (
    GRAPH_ACTIONS,
    SERVER_ACTIONS,
    project_schema,
    server_schema,
)
from trails.registry.registry import Registry

READ_ONLY: Final = Source(
    "read-only (built in)",
    """
@id("read-only: data")
permit(principal, action in [Action::"Read", Action::"Export"], resource);
@id("read-only: queries")
permit(principal, action == Action::"InvokeQuery", resource) when { !resource.changes };
@id("read-only: capabilities")
permit(principal, action == Action::"InvokeCapability", resource) when { resource.reads_only };
""",
)
"""What holds where credentials are asked for and nobody has said what they permit."""


def know_graph(registry: Registry, graph: str, graphs: Collection[str]) -> Known:
    """What the policies of a graph can speak of."""
    world = graph_world(registry, graph)
    schema = project_schema(registry, graph)
    return Known(schema, GRAPH_ACTIONS, SERVER_ACTIONS, world, graphs)


def know_server(graphs: Collection[str]) -> Known:
    """What the policies of the server can speak of."""
    return Known(server_schema(graphs), SERVER_ACTIONS, GRAPH_ACTIONS, server_world(graphs), graphs)


def make_judge(sources: Iterable[Source], known: Known, version: str) -> CedarJudge:
    """Who decides by some files; ``version`` says which state of the world they decide about."""
    policies = read_policies(sources, known)
    return CedarJudge(policies, Stage(known.world, policies), f"{policies.digest}-{version}")
