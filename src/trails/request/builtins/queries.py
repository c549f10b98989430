"""``graph_query``: ask anything in SPARQL.

Stored queries as two tools, for graphs that have too many for a tool each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, cast

import msgspec

from trails.engine.session.arguments import checks_of
from trails.engine.session.context import GraphContext, recording
from trails.engine.session.service import GraphService, is_hidden, run_query
from trails.errors import FieldError, NotFoundError, QueryError, ValidationError
from trails.model.capabilities import StoredQuery
from trails.model.constraints import showable
from trails.model.kinds import KINDS, Iri, Kind, KindError
from trails.model.names import suggest
from trails.model.results import QueryAnswer
from trails.model.texts import read_texts
from trails.projections.json_schema import TypeLookup
from trails.projections.tools import BRANCH, SNAPSHOT, project_query_input
from trails.registry.registry import Registry
from trails.request.answers import ANSWER, CHANGED, near_name, plain_rows, show_answer, show_change
from trails.request.authorize import check_here, rights_of
from trails.request.builtins.declare import (
    BOOLEAN,
    READER,
    STRING,
    WRITER,
    Builtin,
    Route,
    ToolContext,
    field,
    listed,
    said,
    shown,
)
from trails.request.entries import activity_kind, of_query


def _query(
    tool: ToolContext, ctx: GraphContext, query: str, params: Mapping[str, object] | None
) -> object:
    return show_answer(tool.service.ask(ctx, query, _bound(params)))


def _query_record(
    tool: ToolContext, ctx: GraphContext, query: str, params: Mapping[str, object] | None
) -> object:
    return _plain(tool.service.ask(ctx, query, _bound(params)))


def _plain(answer: QueryAnswer) -> QueryAnswer:
    """An answer whose rows have JSON values."""
    return msgspec.structs.replace(answer, rows=tuple(plain_rows(answer)))


def _bound(params: Mapping[str, object] | None) -> dict[str, object]:
    """Parameters as SPARQL takes them."""
    return {name: _term(name, value) for name, value in (params or {}).items()}


def _term(name: str, value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    if set(value) == {"@id"}:
        return Iri(str(value["@id"]))
    if set(value) == {"@value", "@type"}:
        for row in reversed([*KINDS.values()]):  # BigInt before Int, Blob before Iri: literals
            if row.datatype == value["@type"] and row.python is not None:
                with suppress(KindError, ValueError, ArithmeticError):
                    return _literal(row, value["@value"])
    message = f'params.{name} must be a text, a number, true, false, {{"@id": …}}, or '
    message += f'{{"@value": …, "@type": …}} with a value of that XML Schema type, not {value}'
    raise ValidationError([FieldError(f"params.{name}", "datatype", message, showable(value))])


def _literal(row: Kind, value: object) -> object:
    """A value in its JSON form, or a literal's text."""
    if isinstance(value, str) and row.trusted is not None:  # a text is a JSON value too
        return row.parse(value)
    try:
        return row.coerce(value)
    except KindError:
        if not isinstance(value, str):
            raise
    return row.coerce(row.parse(value))


GRAPH_QUERY: Final = Builtin(
    name="graph_query",
    title="Query with SPARQL",
    description=(
        "Run a SPARQL 1.1 query (SELECT, ASK, CONSTRUCT or DESCRIBE) and get the rows. The "
        "empty prefix stands for this graph's own classes and fields, so no PREFIX line is "
        "needed: 'SELECT ?x ?found WHERE { ?x a :TypeName ; :a_field ?found ; :another $value } "
        'LIMIT 20\' with params {"value": "…"}. rdf:, rdfs:, xsd:, owl: and skos: are declared '
        "too, and <TypeName/id> is an instance. Call schema_get first to learn classes and "
        "fields. Pass values in params, never concatenated into the text. Only reads; SERVICE "
        "and FROM are not available; time, memory and rows are limited. Returns columns and "
        "rows; when rows were cut off, truncated is true and notice says how to go on; notice "
        "also names what in the text can't match anything."
    ),
    fields=(
        field("query", "The SPARQL text.", required=True, min_length=1),
        field(
            "params",
            "Values for $name in the text, by name: texts, numbers, truth values, "
            '{"@id": "TypeName/its-id"} for a node, {"@id": "<iri>"} for an IRI, or '
            '{"@value": "2026-03-01", "@type": '
            '"http://www.w3.org/2001/XMLSchema#date"} for a date.',
            "Map",
        ),
    ),
    controls=(BRANCH, SNAPSHOT),
    output=ANSWER,
    hints=READER,
    action="Read",
    whole=True,
    run=_query,
    record=_query_record,
    routes=(Route("POST", "query", text=("query", "application/sparql-query")),),
    command="query",
)


def exposed(registry: Registry) -> Mapping[str, StoredQuery]:
    """The queries that are offered as tools, by the name that a caller uses."""
    return {name: query for name, query in registry.queries.items() if query.expose}


def _admitted(ctx: GraphContext, known: Mapping[str, StoredQuery]) -> Mapping[str, StoredQuery]:
    """Those of some queries that exist for the caller."""
    if ctx.access.unrestricted:
        return known
    rights = rights_of(ctx)
    return {name: query for name, query in known.items() if rights.passes(of_query(query))}


def _list(tool: ToolContext, ctx: GraphContext, filter: str | None, detail_level: str) -> object:
    del tool
    wanted = (filter or "").casefold()
    found = [
        query
        for query in _admitted(ctx, exposed(ctx.registry)).values()
        if wanted in query.name.casefold() or wanted in query.description.casefold()
    ]
    return {"queries": [_shown(each, ctx.declared, detail_level) for each in found]}


def _list_record(tool: ToolContext, ctx: GraphContext) -> object:
    del tool
    found = _admitted(ctx, ctx.registry.queries)
    return {"queries": [found[name] for name in sorted(found)]}


def _shown(query: StoredQuery, declared: TypeLookup, detail: str) -> dict[str, object]:
    body: dict[str, object] = {"name": query.name}
    if detail != "names":
        body |= {"description": query.description, "changes_data": query.mutation}
    if detail == "full":
        schema = project_query_input(query, declared)["properties"]
        assert isinstance(schema, dict)  # noqa: S101 - it is made so
        body |= {"params": schema["params"], "columns": query.columns}
    return body


def run_stored(tool: ToolContext, query: StoredQuery, ctx: GraphContext, params: object) -> object:
    """Run a stored query with checked parameters, and show what came of it."""
    service = tool.service
    return _show(run_query(service.graph, service.untrusted, ctx, query, params))


def _show(found: QueryAnswer | str | None) -> object:
    return show_answer(found) if isinstance(found, QueryAnswer) else show_change(found)


def _run(tool: ToolContext, ctx: GraphContext, name: str, params: object) -> object:
    return _show(_run_by_name(tool, ctx, exposed(ctx.registry), name, params))


def _run_record(tool: ToolContext, ctx: GraphContext, name: str, params: object) -> object:
    found = _run_by_name(tool, ctx, ctx.registry.queries, name, params)
    return _plain(found) if isinstance(found, QueryAnswer) else {"commit": found}


def _run_link(tool: ToolContext, ctx: GraphContext, name: str, params: object) -> object:
    """With parameters as texts, several of each: the query's declaration says what they mean."""
    query = _admitted(ctx, ctx.registry.queries).get(name)
    if query is not None and query.mutation:
        raise QueryError(f"{name} changes data, and following a link must not; POST its params")
    declared = {} if query is None else {each.name: each for each in query.params}
    texts = cast(Mapping[str, Sequence[str]], params)
    read = {
        each: read_texts(declared[each], said) if each in declared else said[0]
        for each, said in texts.items()
    }
    return _run_record(tool, ctx, name, read)


def _run_by_name(
    tool: ToolContext,
    ctx: GraphContext,
    known: Mapping[str, StoredQuery],
    name: str,
    params: object,
) -> QueryAnswer | str | None:
    """Run one of some stored queries: its answer, or the commit of one that changes data."""
    admitted = _admitted(ctx, known)
    query = admitted.get(name)
    if query is None:
        hint = suggest(name, list(admitted)) if admitted else "this graph has none"
        raise NotFoundError(f"there is no stored query {name[:100]!r}; {hint}", query=name[:100])
    check_here(tool.service.graph, ctx, of_query(query))
    if query.mutation and ctx.snapshot is not None:
        message = f"snapshot: {name} changes data, and the past can't be changed; leave it out"
        raise ValidationError([FieldError("snapshot", "unknown_field", message, ctx.snapshot)])
    if ctx.call is not None:
        ctx.call.name, ctx.call.kind = query.name, activity_kind(query)
    checks = checks_of(ctx.registry, ctx.declared)
    given = checks.of_query(query).prepare(ctx, {"params": params})
    service = tool.service
    return run_query(service.graph, service.untrusted, ctx, query, given["params"])


def query_by_name(
    service: GraphService, ctx: GraphContext, name: str, params: Mapping[str, object]
) -> QueryAnswer | str | None:
    """Run any stored query on a context that is open, exposed or not: for ``App.query``."""
    query = ctx.registry.queries.get(name)
    if query is None or is_hidden(ctx, query):
        known = [each for each, found in ctx.registry.queries.items() if not is_hidden(ctx, found)]
        raise NotFoundError(
            f"there is no stored query {name!r}{near_name(name, known)}", query=name
        )
    with recording(ctx, name, activity_kind(query)) as inner:
        checks = checks_of(ctx.registry, ctx.declared)
        given = checks.of_query(query).prepare(inner, {"params": params})
        return run_query(service.graph, service.untrusted, inner, query, given["params"])


STORED_QUERY_LIST: Final = Builtin(
    name="stored_query_list",
    title="List stored queries",
    description=(
        "List the queries that the authors of this graph have stored, ready to be run by name "
        "with stored_query_run. filter keeps those whose name or description contains a text; "
        "detail_level is names, summary (with descriptions) or full (with the JSON Schema of "
        "the parameters and the columns of the result)."
    ),
    fields=(
        field("filter", "A text to find in the name or description.", max_length=200),
        field(
            "detail_level",
            "How much to show of each.",
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
                    "changes_data": said(BOOLEAN, "Whether running it creates a commit."),
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
    offered="by_name",
)

STORED_QUERY_RUN: Final = Builtin(
    name="stored_query_run",
    title="Run a stored query",
    description=(
        "Run a stored query by name, with its parameters in params: "
        '{"name": "open_by_status", "params": {"status": "proposed"}}. stored_query_list with '
        "detail_level full shows names and parameters. A query that reads returns columns and "
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
    record=_run_record,
    offered="by_name",
    routes=(Route("POST", "queries/{name}"),),
)

_replace = msgspec.structs.replace
_LIST_ALL: Final = _replace(
    STORED_QUERY_LIST,
    fields=(),
    record=_list_record,
    offered="never",
    routes=(Route("GET", "queries"),),
    command="queries",
)
"""For programs, which filter the list themselves."""
_RUN_LINK: Final = _replace(
    STORED_QUERY_RUN,
    name="stored_query_link",
    record=_run_link,
    offered="never",
    routes=(Route("GET", "queries/{name}", gathers="params"),),
)

BUILTINS: Final = (GRAPH_QUERY, STORED_QUERY_LIST, STORED_QUERY_RUN, _LIST_ALL, _RUN_LINK)
