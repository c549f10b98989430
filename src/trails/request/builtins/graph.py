"""Built-ins about the graph itself: ``schema_get``, ``graph_snapshot`` and ``graph_health``.

``META`` are the operations on the application that every project has.
"""

from __future__ import annotations

from typing import Final

from trails.authoring.capabilities import Context, meta_capability
from trails.engine.graph.graph import MAIN
from trails.engine.session.context import GraphContext
from trails.errors import NotFoundError
from trails.model.history import GENESIS
from trails.model.names import suggest
from trails.projections.documents import project_schema
from trails.projections.tools import BRANCH, SNAPSHOT
from trails.request.builtins.declare import (
    INTEGER,
    MAYBE_STRING,
    READER,
    STRING,
    Builtin,
    Route,
    ToolContext,
    field,
    listed,
    said,
    shown,
)


def _schema(tool: ToolContext, ctx: GraphContext, type: str | None) -> object:
    del tool
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
        vocabulary=said(STRING, "The IRI of the empty prefix in SPARQL."),
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


def _snapshot(tool: ToolContext, ctx: GraphContext) -> object:
    del tool
    schema, counts = ctx.kg.schema, ctx.kg.counts()
    return {
        "graph": ctx.graph,
        "branch": ctx.branch or None,
        "snapshot": ctx.snapshot,
        "head": ctx.checkout.head.commit,
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
        "Get an overview of the graph: how many instances of each type, which commit it is at, "
        "and the digest of its schema. Use it first, and before a write to get the head to pass "
        "as expected_head. With branch it shows that branch, with snapshot (a commit id from "
        "commit_list) the past. Counts of a type include the types that extend it. For the "
        "fields of a type use schema_get."
    ),
    controls=(BRANCH, SNAPSHOT),
    output=shown(
        graph=STRING,
        branch=said(MAYBE_STRING, "The branch; null at a past commit."),
        snapshot=said(MAYBE_STRING, "The past commit; null on a branch."),
        head=said(STRING, "The commit of this state; empty before the first."),
        schema=said(STRING, "The digest of the types."),
        nodes=said(INTEGER, "The total number of instances."),
        types=listed(shown(type=STRING, count=INTEGER, description=STRING)),
    ),
    hints=READER,
    action="Read",
    run=_snapshot,
    routes=(Route("GET", "snapshot"),),
)


def _health(tool: ToolContext, ctx: GraphContext) -> object:
    seen = ctx.access.may("Read", MAIN)
    return {
        "status": tool.service.graph.status,
        "project": tool.options.project,
        "graph": ctx.graph,
        "version": tool.options.version,
        "head": tool.service.graph.main.head.commit if seen else GENESIS,
    }


GRAPH_HEALTH: Final = Builtin(
    name="graph_health",
    title="Graph health",
    description=(
        "Check whether this knowledge graph serves requests. Takes no arguments. Returns status "
        "('ok'; 'read_only' when nothing can be written; 'behind' when the log has lost data "
        "and can only be read), the project and graph that you are talking to, the server's "
        "version, and head, the id of the newest commit on main (empty before the first, or if "
        "you may not read main). Cheap; use it to check the connection. For counts and types "
        "use graph_snapshot."
    ),
    output=shown(
        status={"type": "string", "enum": ["ok", "read_only", "behind"]},
        project={"type": "string"},
        graph={"type": "string"},
        version={"type": "string"},
        head={
            "type": "string",
            "description": "The newest commit on main; empty before the first.",
        },
    ),
    hints=READER,
    place="inline",
    run=_health,
)

BUILTINS: Final = (SCHEMA_GET, GRAPH_SNAPSHOT, GRAPH_HEALTH)


@meta_capability("trails.meta.ping", scope="runtime", idempotent=True, side_effects=["none"])
def ping(ctx: Context) -> dict[str, object]:
    """Answer at once, to show that this server is there and takes your calls.

    Takes no arguments. Returns pong, true, with the name of the graph and the name under which
    the server knows you.
    """
    return {"pong": True, "graph": ctx.graph, "actor": ctx.actor}


META: Final = (ping,)
