"""Stored queries as two tools, for graphs that have too many for a tool each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from trails.engine.arguments import checks_of
from trails.engine.context import GraphContext
from trails.engine.invoke import kind_of, run_query
from trails.errors import FieldError, NotFoundError, ValidationError
from trails.model.answers import Answer
from trails.model.capabilities import StoredQuery
from trails.model.names import suggest
from trails.projections.json_schema import Declarations
from trails.projections.queries import project_query_input
from trails.projections.tools import BRANCH, SNAPSHOT
from trails.registry.registry import Registry
from trails.request.answers import ANSWER, CHANGED, show_answer, show_change
from trails.request.builtins.declare import (
    BOOLEAN,
    READER,
    STRING,
    WRITER,
    Builtin,
    Desk,
    field,
    listed,
    said,
    shown,
)
from trails.request.gates import of_query
from trails.request.rights import check_here, rights_of


def exposed(registry: Registry) -> Mapping[str, StoredQuery]:
    """The queries that are offered as tools, by the name that a caller uses."""
    return {name: query for name, query in registry.queries.items() if query.expose}


def admitted_queries(
    ctx: GraphContext, known: Mapping[str, StoredQuery]
) -> Mapping[str, StoredQuery]:
    """Those of some queries that exist for the caller."""
    rights = rights_of(ctx)
    if rights is None:
        return known
    return {name: query for name, query in known.items() if rights.passes(of_query(query))}


def _list(desk: Desk, ctx: GraphContext, filter: str | None, detail_level: str) -> object:
    del desk
    wanted = (filter or "").casefold()
    found = [
        query
        for query in admitted_queries(ctx, exposed(ctx.registry)).values()
        if wanted in query.name.casefold() or wanted in query.description.casefold()
    ]
    return {"queries": [_shown(each, ctx.declared, detail_level) for each in found]}


def _shown(query: StoredQuery, declared: Declarations, detail: str) -> dict[str, object]:
    body: dict[str, object] = {"name": query.name}
    if detail != "names":
        body |= {"description": query.description, "changes_data": query.mutation}
    if detail == "full":
        schema = project_query_input(query, declared)["properties"]
        assert isinstance(schema, dict)  # noqa: S101 - it is made so
        body |= {"params": schema["params"], "columns": query.columns}
    return body


def run_stored(desk: Desk, query: StoredQuery, ctx: GraphContext, params: object) -> object:
    """Run a stored query with checked parameters, and show what came of it."""
    service = desk.service
    return _show(run_query(service.graph, service.untrusted, ctx, query, params))


def _show(found: Answer | str | None) -> object:
    return show_answer(found) if isinstance(found, Answer) else show_change(found)


def _run(desk: Desk, ctx: GraphContext, name: str, params: object) -> object:
    return _show(run_by_name(desk, ctx, exposed(ctx.registry), name, params))


def run_by_name(
    desk: Desk, ctx: GraphContext, known: Mapping[str, StoredQuery], name: str, params: object
) -> Answer | str | None:
    """Run one of some stored queries: its answer, or the commit of one that changes data."""
    admitted = admitted_queries(ctx, known)
    query = admitted.get(name)
    if query is None:
        hint = suggest(name, list(admitted)) if admitted else "this graph has none"
        raise NotFoundError(f"there is no stored query {name[:100]!r}; {hint}", query=name[:100])
    check_here(desk.service.graph, ctx, of_query(query))
    if query.mutation and ctx.snapshot is not None:
        message = f"snapshot: {name} changes data, and the past can't be changed; leave it out"
        raise ValidationError([FieldError("snapshot", "unknown_field", message, ctx.snapshot)])
    if ctx.call is not None:
        ctx.call.name, ctx.call.kind = query.name, kind_of(query)
    checks = checks_of(ctx.registry, ctx.declared)
    given = checks.of_query(query).prepare(ctx, {"params": params})
    service = desk.service
    return run_query(service.graph, service.untrusted, ctx, query, given["params"])


STORED_QUERY_LIST: Final = Builtin(
    name="stored_query_list",
    title="List stored queries",
    description=(
        "List the queries that the authors of this graph have stored, ready to be run by name "
        "with stored_query_run. filter keeps those whose name or description holds a text; "
        "detail_level is names, summary (with descriptions) or full (with the JSON Schema of the "
        "parameters and the columns of the result)."
    ),
    fields=(
        field("filter", "A text that the name or the description holds.", max_length=200),
        field(
            "detail_level",
            "How much to tell of each.",
            default="summary",
            one_of=["names", "summary", "full"],
        ),
    ),
    output=shown(
        queries=listed(
            shown(
                name=STRING,
                optional={
                    "description": STRING,
                    "changes_data": said(BOOLEAN, "Whether running it makes a commit."),
                    "params": said({"type": "object"}, "JSON Schema of its parameters."),
                    "columns": listed(STRING),
                },
            )
        )
    ),
    hints=READER,
    action="InvokeQuery",
    place="inline",
    run=_list,
)

STORED_QUERY_RUN: Final = Builtin(
    name="stored_query_run",
    title="Run a stored query",
    description=(
        "Run a stored query by name, with its parameters in params: "
        '{"name": "open_by_status", "params": {"status": "proposed"}}. stored_query_list with '
        "detail_level full tells names and parameters. A query that reads returns columns and "
        "rows; one that changes data returns the commit, and takes no snapshot."
    ),
    fields=(
        field("name", "The query.", required=True, min_length=1, max_length=200),
        field("params", "Its parameters, by name.", "Map"),
    ),
    controls=(BRANCH, SNAPSHOT),
    output={
        "type": "object",
        "anyOf": [
            {key: each[key] for key in ("properties", "required")} for each in (ANSWER, CHANGED)
        ],
    },
    hints=WRITER,
    action="InvokeQuery",
    run=_run,
)

BY_NAME: Final[Sequence[Builtin]] = (STORED_QUERY_LIST, STORED_QUERY_RUN)
