"""``graph_snapshot``: what a graph holds, on a branch or at a past commit."""

from __future__ import annotations

from typing import Final

from trails.engine.context import GraphContext
from trails.projections.tools import BRANCH, SNAPSHOT
from trails.request.builtins.declare import (
    INTEGER,
    MAYBE_STRING,
    READER,
    STRING,
    Builtin,
    Desk,
    listed,
    said,
    shown,
)


def _snapshot(desk: Desk, ctx: GraphContext) -> object:
    del desk
    schema, counts = ctx.kg.schema, ctx.kg.counts()
    return {
        "graph": ctx.graph,
        "branch": ctx.branch or None,
        "snapshot": ctx.snapshot,
        "head": ctx.line.head.commit,
        "schema": schema.digest,
        "nodes": sum(counts[each.name] for each in schema.types if each.extends is None),
        "types": [
            {"type": each.name, "count": counts[each.name], "description": each.description}
            for each in schema.types
        ],
    }


GRAPH_SNAPSHOT: Final = Builtin(
    name="graph_snapshot",
    title="Graph snapshot",
    description=(
        "Tell what the graph holds: how many instances of each type, which commit it is at, and "
        "the digest of its schema. Use it first to get an overview, and before a write to learn "
        "the head that you can pass as expected_head. With branch it looks at that branch, with "
        "snapshot (a commit id from commit_list) at the past. Counts of a type include the types "
        "that extend it. For the fields of a type use schema_get."
    ),
    controls=(BRANCH, SNAPSHOT),
    output=shown(
        graph=STRING,
        branch=said(MAYBE_STRING, "The branch; null at a past commit."),
        snapshot=said(MAYBE_STRING, "The past commit; null on a branch."),
        head=said(STRING, "The commit that this is the state of; empty before the first."),
        schema=said(STRING, "The digest of the types."),
        nodes=said(INTEGER, "How many instances there are in all."),
        types=listed(shown(type=STRING, count=INTEGER, description=STRING)),
    ),
    hints=READER,
    action="Read",
    run=_snapshot,
)
