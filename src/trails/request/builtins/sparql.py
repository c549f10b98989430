"""The SPARQL protocol: ``graph_query`` for the clients that exist, with results in their formats.

The policies, limits and activities are those of ``graph_query``. ``$name`` is a variable, as in the
standard. A result that a limit cut off is refused: these clients would take it for all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from trails.engine.session.context import GraphContext
from trails.errors import LimitError, QueryError
from trails.imports import later
from trails.model.sparql.tokens import query_form, tokenize
from trails.projections.tools import BRANCH, SNAPSHOT
from trails.request.builtins.declare import STREAM_OPENED, Route, StreamOpened, ToolContext
from trails.request.builtins.queries import GRAPH_QUERY

if TYPE_CHECKING:
    from trails.sandbox import serializers
else:
    serializers = later("trails.sandbox.serializers")

ResultKind = Literal["solutions", "graph"]
"""What SELECT and ASK give, and what CONSTRUCT and DESCRIBE give."""
Choose = Callable[[ResultKind], str]
"""The format for a kind of result; raises NotAcceptableError if the caller accepts none."""
QUERY: Final = "application/sparql-query"
FORM: Final = "application/x-www-form-urlencoded"
MEDIA_TYPES: Final = (
    "application/sparql-results+json",
    "application/sparql-results+xml",
    "text/csv",
    "text/tab-separated-values",
    "text/turtle",
    "application/n-triples",
    "application/ld+json",
    "application/rdf+xml",
)
_GRAPHS: Final = frozenset({"CONSTRUCT", "DESCRIBE"})


class SparqlReply(msgspec.Struct, frozen=True):
    """A result as a document."""

    kind: ResultKind
    format: str
    body: bytes


def _sparql(
    tool: ToolContext,
    ctx: GraphContext,
    *,
    opened: list[SparqlReply],
    choose: Choose,
    query: str,
) -> object:
    tokens = tokenize(query)
    kind: ResultKind = "graph" if query_form(tokens) in _GRAPHS else "solutions"
    if any(each.kind == "word" and each.text.upper() == "FROM" for each in tokens):
        raise QueryError("graphs here have no named graphs; leave FROM out")
    format = choose(kind)
    result = tool.service.ask_terms(ctx, query)
    if result.truncated is not None:
        raise LimitError(
            f"the result is larger than a limit, so a part of it would look complete: "
            f"{result.notice}",
            limit=result.truncated,
        )
    body = serializers.serialize_result(result, format, ctx.names.prefixes)
    opened.append(SparqlReply(kind, format, body))
    return STREAM_OPENED


SPARQL: Final = msgspec.structs.replace(
    GRAPH_QUERY,
    fields=tuple(each for each in GRAPH_QUERY.fields if each.name == "query"),
    controls=(BRANCH, SNAPSHOT),
    result=StreamOpened,
    run=_sparql,
    routes=(
        Route("GET", "sparql", name="sparql", gives=MEDIA_TYPES),
        Route("POST", "sparql", name="sparql_post", sends=(QUERY, FORM), gives=MEDIA_TYPES),
        Route("GET", "branches/{branch}/sparql", name="branch_sparql", gives=MEDIA_TYPES),
        Route(
            "POST",
            "branches/{branch}/sparql",
            name="branch_sparql_post",
            sends=(QUERY, FORM),
            gives=MEDIA_TYPES,
        ),
        Route("GET", "commits/{commit}/sparql", name="commit_sparql", gives=MEDIA_TYPES),
        Route(
            "POST",
            "commits/{commit}/sparql",
            name="commit_sparql_post",
            sends=(QUERY, FORM),
            gives=MEDIA_TYPES,
        ),
    ),
    command=None,
)
