"""Numbers about a graph: what it holds, how often it was changed, what it takes on disk."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trails.engine.access import OPEN
from trails.engine.context import GraphContext
from trails.engine.graph import MAIN, Graph
from trails.engine.seen import Seen, reader
from trails.log.storage import files_below


class Statistics(msgspec.Struct, frozen=True):
    """A graph in numbers, seen from one branch or snapshot."""

    graph: str
    base_iri: str
    branch: str | None
    snapshot: str | None
    head: str
    """The newest commit that is seen; empty before the first."""
    schema: str
    instances: int
    by_type: Mapping[str, int]
    """Those of the types that extend a type are counted there too."""
    commits: int | None
    """All that the log holds, of every branch; None for actors who may not administer the graph."""
    branches: int
    """Those that may be read."""
    bytes: Mapping[str, int] | None
    """Files by part, each counted once; None in memory, and as with ``commits``."""


def measure(graph: Graph, ctx: GraphContext) -> Statistics:
    """Count; what is hidden is in no number."""
    branches = Seen(graph, reader(ctx.access)).branches()
    # Not by whether there are hidden branches: that would tell of them.
    whole = ctx.sight.reads_all and (ctx.access is OPEN or ctx.access.may("Admin", MAIN))
    by_type = ctx.kg.counts()
    topmost = [each.name for each in ctx.kg.schema.types if each.extends is None]
    return Statistics(
        graph=graph.name,
        base_iri=graph.names.base,
        branch=ctx.branch or None,
        snapshot=ctx.snapshot,
        head=ctx.kg.head.commit,
        schema=ctx.kg.schema.digest,
        instances=sum(by_type[name] for name in topmost),
        by_type=by_type,
        commits=graph.log.last_seq() if whole else None,
        branches=len(branches),
        bytes=_sizes(graph) if whole else None,
    )


def _sizes(graph: Graph) -> dict[str, int] | None:
    folder = graph.folder
    if folder is None:
        return None
    sizes = {"log": 0, "node_index": 0, "stores": 0}
    seen: set[int] = set()
    for path, facts in files_below(folder):
        if facts.st_ino not in seen:  # branches share files by hard links
            seen.add(facts.st_ino)
            top = path.relative_to(folder).parts[0]
            sizes[_PARTS.get(top.partition(".")[0], "stores")] += facts.st_size
    return sizes


_PARTS = {"log": "log", "segments": "log", "nodes": "node_index"}
