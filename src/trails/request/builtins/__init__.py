"""The built-in tools: what can be done with any graph, whatever it holds."""

from __future__ import annotations

from typing import Final

from trails.request.builtins.branches import BRANCH_CREATE, BRANCH_DELETE, BRANCH_LIST
from trails.request.builtins.commits import COMMIT_GET, COMMIT_LIST
from trails.request.builtins.health import GRAPH_HEALTH
from trails.request.builtins.loads import GRAPH_LOAD
from trails.request.builtins.merges import BRANCH_MERGE
from trails.request.builtins.mutations import GRAPH_MUTATE
from trails.request.builtins.queries import GRAPH_QUERY
from trails.request.builtins.schema import SCHEMA_GET
from trails.request.builtins.snapshot import GRAPH_SNAPSHOT

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
