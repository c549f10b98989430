"""Take over a schema: compare it with the stored one, and commit the difference."""

from __future__ import annotations

from trails.engine.commit import Write
from trails.engine.graph import Graph
from trails.engine.schema_change import check_change, describe_changes
from trails.errors import SchemaMismatchError
from trails.model.history import GENESIS
from trails.model.types import Schema

ACTOR = "trails"


def adopt_schema(graph: Graph, schema: Schema, *, apply: bool) -> None:
    """Use ``schema`` from now on; a difference is applied as a commit, or refused.

    On a graph without data any schema fits. A new graph takes its first schema even
    where ``apply`` is false, because there is nothing to protect yet.
    """
    old = graph.schema
    if old.digest == schema.digest:
        return
    changes = describe_changes(old, schema)
    if not apply and graph.head.commit != GENESIS:
        raise SchemaMismatchError(
            "the declared types differ from the stored ones, and env is 'production': "
            + "; ".join(changes)
            + ". Open once with apply_schema=True to apply the change if it fits the data",
            changes=changes,
        )
    write = Write(graph, actor=ACTOR, message="schema: " + "; ".join(changes)[:2000])
    write.begin()
    try:
        check_change(graph, schema)
        write.change_schema(schema)
    except BaseException:
        write.abandon()
        raise
    write.finish()
