"""``graph_mutate``: change the graph, by typed operations or SPARQL Update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trails.engine.context import GraphContext
from trails.engine.graph import MAIN
from trails.errors import FieldError, ValidationError
from trails.model.mutations import Applied, Mutation
from trails.model.uris import InstanceAddress, Place, format_address
from trails.projections.tools import BRANCH
from trails.request.builtins.declare import (
    BOOLEAN,
    EXPECTED_HEAD,
    IDEMPOTENCY_KEY,
    MAYBE_STRING,
    MESSAGE,
    STRING,
    WRITER,
    Builtin,
    Desk,
    field,
    listed,
    said,
    shown,
)


def mutate(
    desk: Desk,
    ctx: GraphContext,
    operations: Sequence[object],
    update: str | None,
    message: str | None,
    expected_head: str | None,
    idempotency_key: str | None,
) -> Mutation:
    """Make the change that the arguments say."""
    if bool(operations) == (update is not None):
        told = "give operations, or update, and not both"
        raise ValidationError([FieldError("operations", "required", f"operations: {told}")])
    return desk.service.mutate(
        ctx,
        operations if update is None else update,
        message=message or "",
        expected_head=expected_head,
        idempotency_key=idempotency_key,
    )


def _mutate(desk: Desk, ctx: GraphContext, **given: object) -> object:
    done = mutate(desk, ctx, **given)  # type: ignore[arg-type]
    return {
        "commit": done.commit,
        "changed": done.commit is not None and not done.replayed,
        "replayed": done.replayed,
        "applied": [
            {"op": each.op, "type": each.type, "id": each.id, "iri": _address(ctx, each)}
            for each in done.applied
        ],
    }


def _address(ctx: GraphContext, node: Applied) -> str:
    """What reads the node back where it was written: its own IRI means ``main``."""
    if ctx.branch == MAIN:
        return ctx.names.nodes + node.handle
    return format_address(InstanceAddress(node.type, node.id, Place(branch=ctx.branch)))


GRAPH_MUTATE: Final = Builtin(
    name="graph_mutate",
    title="Change the graph",
    description=(
        "Change data in one commit: all of it, or, when anything breaks a rule of the schema, "
        "nothing. Give operations, a list like "
        '[{"op": "create", "type": "TypeName", "data": {"a_field": "…", "another": 7}}, '
        '{"op": "update", "type": "TypeName", "id": "its-id", "data": {"a_field": "new"}}, '
        '{"op": "delete", "type": "TypeName", "id": "its-id"}] (schema_get has the names of types '
        "and fields; op is create, update, upsert or delete; a field set to null is removed; "
        "references are IRIs or ids), or give update, a SPARQL Update text. Prefer a tool made for "
        "the task where there is one. Returns the commit (null when nothing changed) and the nodes "
        "that were touched. A violation lists every broken field at once."
    ),
    fields=(
        field(
            "operations",
            "Typed operations, taken in order: objects with op, type, id or iri, and data; a "
            "delete may say cascade.",
            "Map",
            many=True,
            max_count=10_000,
        ),
        field("update", "A SPARQL Update text, instead of operations.", min_length=1),
        MESSAGE,
        EXPECTED_HEAD,
        IDEMPOTENCY_KEY,
    ),
    controls=(BRANCH,),
    output=shown(
        commit=said(MAYBE_STRING, "The commit; null when nothing changed."),
        changed=BOOLEAN,
        replayed=said(BOOLEAN, "The idempotency key was known: this is the first call's commit."),
        applied=listed(shown(op=STRING, type=STRING, id=STRING, iri=STRING)),
    ),
    hints=WRITER,
    action="Change",
    kind="mutation",
    run=_mutate,
)
