"""What a project declares for a graph, from its files alone: no data is opened."""

from __future__ import annotations

from pathlib import Path

from trails.app.modules import load_module, queries_folder
from trails.app.settings import Settings
from trails.engine.stored_queries import read_queries
from trails.model.iris import Names
from trails.registry.cell import RegistryCell
from trails.registry.discover import collect, discover
from trails.registry.registry import Registry, with_queries
from trails.request.builtins.meta import META


def declared_registry(folder: Path, settings: Settings, graph: str) -> Registry:
    """Types, capabilities and stored queries; queries that can't be used are left out."""
    given = settings.graphs[graph]
    found = discover(load_module(folder, given.app, graph))
    registry = RegistryCell(collect(META).capabilities).register(
        types=found.types, shapes=found.shapes, capabilities=found.capabilities
    )
    queries = read_queries(
        queries_folder(folder, given.queries, graph),
        registry.schema,
        Names(settings.base_iri(graph)),
    )
    return with_queries(registry, queries.queries)
