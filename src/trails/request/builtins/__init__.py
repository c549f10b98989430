"""The built-in tools: what can be done with any graph, whatever it holds."""

from __future__ import annotations

from typing import Final

from trails.request.builtins.branches import BRANCH_CREATE, BRANCH_DELETE, BRANCH_LIST, BRANCH_MERGE
from trails.request.builtins.commits import COMMIT_GET, COMMIT_LIST
from trails.request.builtins.graph import GRAPH_HEALTH, GRAPH_SNAPSHOT, SCHEMA_GET
from trails.request.builtins.queries import GRAPH_QUERY
from trails.request.builtins.writes import GRAPH_LOAD, GRAPH_MUTATE

BUILTINS: Final = (
    BRANCH_CREATE,
    BRANCH_DELETE,
    BRANCH_LIST,
    BRANCH_MERGE,
    COMMIT_GET,
    COMMIT_LIST,
    GRAPH_HEALTH,
    GRAPH_LOAD,
    GRAPH_MUTATE,
    GRAPH_QUERY,
    GRAPH_SNAPSHOT,
    SCHEMA_GET,
)
