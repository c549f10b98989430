"""Built-ins about the graph itself: ``schema_get``, ``graph_snapshot`` and ``graph_health``.

``META`` are the operations on the application that every project has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from trails.engine.graph.graph import MAIN
from trails.engine.session.context import GraphContext
from trails.errors import NotFoundError
from trails.model.history import GENESIS
from trails.model.names import suggest
from trails.model.operations.graph import (
    HealthResult,
    SchemaResult,
    SnapshotResult,
    TypeCount,
)
from trails.model.types import Schema
from trails.projections.documents import project_outline, project_schema
from trails.projections.tools import BRANCH, MAX_CHARS, SNAPSHOT
from trails.request.builtins.declare import (
    READER,
    Builtin,
    Route,
    ToolContext,
    field,
)
from trails.request.fitting import Page


def _schema(tool: ToolContext, ctx: GraphContext, types: Sequence[str], after: str | None) -> Page:
    del tool
    return schema_page(ctx, types, after)


def schema_page(ctx: GraphContext, types: Sequence[str] = (), after: str | None = None) -> Page:
    """Some types, or all of them: whole or, if that is too long, as an outline."""
    schema = ctx.kg.schema
    if types:
        return _described(ctx, named_types(schema, types))
    whole = _described(ctx, [each.name for each in schema.types])
    outlined = partial(outline_page, ctx, after)
    return outlined() if after is not None else msgspec.structs.replace(whole, shorter=outlined)


def named_types(schema: Schema, types: Sequence[str]) -> list[str]:
    """Names of types that must exist, each once."""
    known = schema.by_name
    for name in types:
        if name not in known:
            hint = suggest(name, known) if known else "this graph has none"
            raise NotFoundError(f"there is no type {name[:100]!r}; {hint}", type=name[:100])
    return list(dict.fromkeys(types))


def _described(ctx: GraphContext, names: Sequence[str]) -> Page:
    """Some types with everything that is known of them."""
    document = msgspec.convert(project_schema(ctx.kg.schema, ctx.names), SchemaResult)
    found = {each.type: each for each in document.types}
    result = msgspec.structs.replace(document, types=tuple(found[name] for name in names))
    return Page(result, "types", lambda at: {"types": names[at:]} if at < len(names) else None)


def outline_page(ctx: GraphContext, after: str | None) -> Page:
    """All types with the names and kinds of their fields."""
    document = msgspec.convert(project_outline(ctx.kg.schema, ctx.names), SchemaResult)
    found = tuple(each for each in document.types if after is None or each.type > after)

    def changes(at: int) -> Mapping[str, object] | None:
        return None if at >= len(found) else {"after": found[at - 1].type if at else after}

    notice = 'an outline, because all is too long for one answer; pass types, like ["TypeName"], '
    notice += "for constraints, descriptions and IRIs of fields"
    result = msgspec.structs.replace(document, notice=notice, types=found)
    return Page(result, "types", changes, len(document.types))


SCHEMA_GET: Final = Builtin(
    name="schema_get",
    title="Get the schema",
    description=(
        "Describe the types: fields with kinds and constraints (JSON Schema), key, what a type "
        "extends or joins, and the IRIs for SPARQL. Read it before you write data or a query. "
        "Without types, a large schema is an outline."
    ),
    fields=(
        field("types", "Their names.", many=True, max_count=1000),
        field("after", "Only those after this one.", max_length=100),
    ),
    controls=(BRANCH, SNAPSHOT, MAX_CHARS),
    result=SchemaResult,
    hints=READER,
    action="Read",
    place="inline",
    run=_schema,
)


def _snapshot(tool: ToolContext, ctx: GraphContext, after: str | None) -> Page:
    del tool
    schema, counts = ctx.kg.schema, ctx.kg.counts()
    types = [each for each in schema.types if after is None or each.name > after]

    def changes(at: int) -> Mapping[str, object] | None:
        return None if at >= len(types) else {"after": types[at - 1].name if at else after}

    result = SnapshotResult(
        ctx.graph,
        ctx.branch or None,
        ctx.snapshot,
        ctx.checkout.head.commit,
        schema.digest,
        sum(counts[each.name] for each in schema.types if each.extends is None),
        tuple(TypeCount(each.name, counts[each.name], each.description) for each in types),
    )
    return Page(result, "types", changes, len(schema.types))


GRAPH_SNAPSHOT: Final = Builtin(
    name="graph_snapshot",
    title="Graph snapshot",
    description=(
        "Get an overview: how many instances of each type (with its subtypes), the head "
        "of the branch (for expected_head), and the digest of the schema. Use it first."
    ),
    fields=(field("after", "Only those after this one.", max_length=100),),
    controls=(BRANCH, SNAPSHOT, MAX_CHARS),
    result=SnapshotResult,
    hints=READER,
    action="Read",
    run=_snapshot,
    routes=(Route("GET", "snapshot"),),
)


def _health(tool: ToolContext, ctx: GraphContext) -> HealthResult:
    graph, options = tool.service.graph, tool.options
    head = graph.main.head.commit if ctx.access.may("Read", MAIN) else GENESIS
    notice = _broken_edit(tool, ctx)
    return HealthResult(graph.status, options.project, ctx.graph, options.version, head, notice)


def _broken_edit(tool: ToolContext, ctx: GraphContext) -> str | None:
    """What builders have to fix: others don't know the files of the application."""
    error = None if tool.options.workspace is None else tool.options.workspace.reload_error
    caller = None if ctx.call is None else ctx.call.caller
    if error is None or caller is None or not {"builder", "dev"} & caller.scopes:
        return None
    if not ctx.access.may("Admin", MAIN):
        return None
    return f"changed files can't be used, so the declarations before are: {error}"


GRAPH_HEALTH: Final = Builtin(
    name="graph_health",
    title="Graph health",
    description=(
        "Check this graph: its status (ok, read_only, or behind if the log lost data), version, "
        "and head of main."
    ),
    result=HealthResult,
    hints=READER,
    place="inline",
    run=_health,
)

BUILTINS: Final = (SCHEMA_GET, GRAPH_SNAPSHOT, GRAPH_HEALTH)
