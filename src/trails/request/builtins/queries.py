"""``graph_query``: ask anything in SPARQL.

Stored queries as two tools, for graphs that have too many for a tool each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
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
from trails.model.operations.graph import (
    ChangeResult,
    QueryResult,
    StoredQueryInfo,
    StoredQueryList,
)
from trails.model.operations.pages import Call
from trails.model.results import QueryAnswer
from trails.model.texts import read_texts
from trails.model.uris import InstanceAddress, ReadPoint, format_address
from trails.model.values.lang_texts import LangText, LangTextError
from trails.projections.json_schema import TypeLookup
from trails.projections.tools import (
    BRANCH,
    MAX_CHARS,
    OFFSET,
    SNAPSHOT,
    WRITE_CONTROLS,
    project_query_input,
)
from trails.registry.registry import Registry
from trails.request.answers import near_name, show_answer
from trails.request.authorize import check_here, rights_of
from trails.request.builtins.declare import (
    READER,
    WRITER,
    Builtin,
    Route,
    ToolContext,
    field,
)
from trails.request.entries import activity_kind, of_query
from trails.request.fitting import Page, Path, read_field


def _query(
    tool: ToolContext, ctx: GraphContext, query: str, params: Mapping[str, object] | None
) -> Page:
    bound = _bound(params)
    return _pinned(ctx, lambda there: tool.service.ask(there, query, bound))


def _pinned(ctx: GraphContext, ask: Callable[[GraphContext], QueryAnswer]) -> Page:
    """The rows of a query; the calls that continue read at the commit where it was run."""
    commit = ctx.checkout.head.commit
    page = show_answer(ask(ctx), commit, partial(_locate, ctx, commit))
    if commit == ctx.checkout.head.commit:
        return page

    def again() -> Page:
        # A commit came in between, and which of the two was read is not known.
        there = ctx.at(commit)
        return show_answer(ask(there), commit, partial(_locate, there, commit))

    return msgspec.structs.replace(page, shorter=again)


def _locate(
    ctx: GraphContext, commit: str, row: Mapping[str, object], path: Path, shown: int
) -> Call | None:
    """The field that holds a long text of a row: of a node in the row, with that very value."""
    text = row[str(path[0])] if len(path) == 1 else None
    for value in row.values():
        handle = ctx.names.parse_node(value) if isinstance(value, str) else None
        state = None if handle is None else ctx.kg.find_by_id(*handle)
        if state is None:
            continue
        for name, held in state.values.items():
            if held == text:
                address = InstanceAddress(state.type, state.id, ReadPoint(commit=commit))
                return read_field(format_address(address), name, shown)
    return None


def _bound(params: Mapping[str, object] | None) -> dict[str, object]:
    """Parameters as SPARQL takes them."""
    return {name: _term(name, value) for name, value in (params or {}).items()}


def _term(name: str, value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    if set(value) == {"@id"}:
        return Iri(str(value["@id"]))
    if set(value) == {"@value", "@language"}:
        with suppress(LangTextError):
            return LangText({str(value["@language"]): value["@value"]})
    if set(value) == {"@value", "@type"}:
        for row in reversed([*KINDS.values()]):  # BigInt before Int, Blob before Iri: literals
            if row.datatype == value["@type"] and row.python is not None:
                with suppress(KindError, ValueError, ArithmeticError):
                    return _literal(row, value["@value"])
    message = f'params.{name} must be a text, a number, true, false, {{"@id": …}}, or '
    message += '{"@value": …, "@type": …} with a value of that XML Schema type, or '
    message += f'{{"@value": …, "@language": …}}, not {value}'
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
        "Run a SPARQL 1.1 query (SELECT, ASK, CONSTRUCT or DESCRIBE). The empty prefix has this "
        "graph's classes and fields (see schema_get), <TypeName/id> is an instance: 'SELECT ?x "
        "?found WHERE { ?x a :TypeName ; :a_field ?found ; :another $value } LIMIT 20' with "
        'params {"value": "…"}; never put values into the text. No SERVICE or FROM. '
        "notice names what in the text can't match anything."
    ),
    fields=(
        field("query", "The SPARQL text.", required=True, min_length=1),
        field(
            "params",
            'Values for $name: texts, numbers, booleans, {"@id": "TypeName/its-id"} or an IRI, '
            'or {"@value": "2026-03-01", "@type": "http://www.w3.org/2001/XMLSchema#date"}.',
            "Map",
        ),
    ),
    controls=(BRANCH, SNAPSHOT, OFFSET, MAX_CHARS),
    result=QueryResult,
    hints=READER,
    action="Read",
    whole=True,
    run=_query,
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


def _list(
    tool: ToolContext, ctx: GraphContext, filter: str | None, detail_level: str, after: str | None
) -> Page:
    wanted, known = (filter or "").casefold(), _admitted(ctx, _offered(tool, ctx))
    found = [
        known[name]
        for name in sorted(known)
        if wanted in name.casefold() or wanted in known[name].description.casefold()
    ]
    rest = [each for each in found if after is None or each.name > after]

    def changes(at: int) -> Mapping[str, object] | None:
        if at >= len(rest):
            return None
        return {"after": rest[at - 1].name if at else after}

    shown = tuple(_shown(each, ctx.declared, detail_level) for each in rest)
    return Page(StoredQueryList(shown), "queries", changes, len(found))


def _shown(query: StoredQuery, declared: TypeLookup, detail: str) -> StoredQueryInfo:
    if detail == "names":
        return StoredQueryInfo(query.name)
    if detail == "summary":
        return StoredQueryInfo(query.name, query.description, query.mutation)
    schema = project_query_input(query, declared)["properties"]
    assert isinstance(schema, dict)  # noqa: S101 - it is made so
    params, columns = schema["params"], query.columns
    return StoredQueryInfo(query.name, query.description, query.mutation, params, columns)


def run_stored(
    tool: ToolContext, query: StoredQuery, ctx: GraphContext, params: object
) -> Page | ChangeResult:
    """Run a stored query with checked parameters, and show what came of it."""
    run = partial(run_query, tool.service.graph, tool.service.untrusted)
    if query.mutation:
        commit = cast(str | None, run(ctx, query, params))
        return ChangeResult(commit, commit is not None)
    return _pinned(ctx, lambda there: cast(QueryAnswer, run(there, query, params)))


def _run(tool: ToolContext, ctx: GraphContext, name: str, params: object) -> Page | ChangeResult:
    query, given = _find_by_name(tool, ctx, _offered(tool, ctx), name, params)
    return run_stored(tool, query, ctx, given)


def _offered(tool: ToolContext, ctx: GraphContext) -> Mapping[str, StoredQuery]:
    """The stored queries for models, or all of them for programs."""
    return exposed(ctx.registry) if tool.bounded else ctx.registry.queries


def _run_link(
    tool: ToolContext, ctx: GraphContext, name: str, params: object
) -> Page | ChangeResult:
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
    return _run(tool, ctx, name, read)


def _find_by_name(
    tool: ToolContext,
    ctx: GraphContext,
    known: Mapping[str, StoredQuery],
    name: str,
    params: object,
) -> tuple[StoredQuery, object]:
    """One of some stored queries, and its checked parameters."""
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
    return query, checks.of_query(query).prepare(ctx, {"params": params})["params"]


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
        field("after", "Only names after this one.", max_length=200),
    ),
    controls=(MAX_CHARS,),
    result=StoredQueryList,
    hints=READER,
    action="InvokeQuery",
    place="inline",
    run=_list,
    offered="by_name",
    routes=(Route("GET", "queries"),),
    command="queries",
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
    controls=(BRANCH, SNAPSHOT, OFFSET, MAX_CHARS),
    unlisted=WRITE_CONTROLS,
    result=QueryResult | ChangeResult,
    hints=WRITER,
    action="InvokeQuery",
    run=_run,
    offered="by_name",
    routes=(Route("POST", "queries/{name}"),),
)

_replace = msgspec.structs.replace
_RUN_LINK: Final = _replace(
    STORED_QUERY_RUN,
    name="stored_query_link",
    controls=(BRANCH, SNAPSHOT),
    unlisted=(),
    run=_run_link,
    offered="never",
    routes=(Route("GET", "queries/{name}", gathers="params"),),
)

BUILTINS: Final = (GRAPH_QUERY, STORED_QUERY_LIST, STORED_QUERY_RUN, _RUN_LINK)
