"""The table of operations: everything that can be done with a graph or its application.

MCP tools, REST routes, the remote client, commands, OpenAPI and the reference are made from it.
``builtins`` are about data and its history, ``meta`` about the application itself.
"""

from __future__ import annotations

from typing import Final

from trails.request.builtins import (
    branches,
    changes,
    commits,
    exports,
    graph,
    provenance,
    queries,
    reading,
    search,
    selecting,
    writes,
)
from trails.request.builtins.declare import Builtin
from trails.request.meta import META_OPERATIONS

OPERATIONS: Final[tuple[Builtin, ...]] = tuple(
    sorted(
        (
            *branches.BUILTINS,
            *changes.BUILTINS,
            *commits.BUILTINS,
            *exports.BUILTINS,
            *graph.BUILTINS,
            *provenance.BUILTINS,
            *queries.BUILTINS,
            *reading.BUILTINS,
            *search.BUILTINS,
            *selecting.BUILTINS,
            *writes.BUILTINS,
            *META_OPERATIONS,
        ),
        key=lambda each: each.name,
    )
)
"""All of them; REST routes and commands are made from this table."""
BUILTINS: Final = tuple(each for each in OPERATIONS if each.offered == "always")
"""Those that are tools of every graph."""
BY_NAME: Final = tuple(each for each in OPERATIONS if each.offered == "by_name")
"""Those that are tools where stored queries are called by name."""
