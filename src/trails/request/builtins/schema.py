"""``schema_get``: the types of a graph, with their fields and constraints."""

from __future__ import annotations

from typing import Final

from trails.engine.context import GraphContext
from trails.errors import NotFoundError
from trails.model.names import suggest
from trails.projections.schema_document import project_schema
from trails.projections.tools import BRANCH, SNAPSHOT
from trails.request.builtins.declare import (
    READER,
    STRING,
    Builtin,
    Desk,
    field,
    listed,
    said,
    shown,
)


def _schema(desk: Desk, ctx: GraphContext, type: str | None) -> object:
    del desk
    document = project_schema(ctx.kg.schema, ctx.names)
    if type is None:
        return document
    known = ctx.kg.schema.by_name
    if type not in known:
        hint = suggest(type, known) if known else "this graph has none"
        raise NotFoundError(f"there is no type {type[:100]!r}; {hint}", type=type[:100])
    types = document["types"]
    assert isinstance(types, list)  # noqa: S101 - it is made so
    return {**document, "types": [each for each in types if each["type"] == type]}


SCHEMA_GET: Final = Builtin(
    name="schema_get",
    title="Get the schema",
    description=(
        "Describe the types of this graph: for each its fields with their kinds and constraints "
        "(as JSON Schema), its key, what it extends, what an edge type joins, and the IRIs that "
        "SPARQL needs. Read it before you write data or a query. Pass type, like "
        '{"type": "TypeName"}, to get one type only; leave it out to get all.'
    ),
    fields=(field("type", "The name of one type, as graph_snapshot lists them.", max_length=100),),
    controls=(BRANCH, SNAPSHOT),
    output=shown(
        base_iri=said(STRING, "Instances are <base_iri>/<Type>/<id>."),
        vocabulary=said(STRING, "What the empty prefix stands for in SPARQL."),
        digest=said(STRING, "Changes whenever a type does."),
        types=listed(
            shown(
                type=STRING,
                description=STRING,
                iri=said(STRING, "The class in SPARQL."),
                predicates=said({"type": "object"}, "Field → the predicate in SPARQL."),
                schema=said({"type": "object"}, "JSON Schema of an instance's fields."),
            )
        ),
    ),
    hints=READER,
    action="Read",
    place="inline",
    run=_schema,
)
