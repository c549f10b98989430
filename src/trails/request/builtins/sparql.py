"""The SPARQL protocol: ``graph_query`` for the clients that exist, with results in their formats.

The policies, limits and activities are those of ``graph_query``. ``$name`` is a variable, as in the
standard. A result that a limit cut off is refused: these clients would take it for all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from trails.engine.session.context import GraphContext
from trails.errors import LimitError, QueryError
from trails.model.sparql.tokens import query_form, tokenize
from trails.projections.tools import BRANCH, SNAPSHOT
from trails.request.builtins.declare import STREAM_OPENED, StreamOpened, ToolContext
from trails.request.builtins.queries import GRAPH_QUERY
from trails.sandbox.serializers import serialize_result

ResultKind = Literal["solutions", "graph"]
"""What SELECT and ASK give, and what CONSTRUCT and DESCRIBE give."""
Choose = Callable[[ResultKind], str]
"""The format for a kind of result; raises NotAcceptableError if the caller accepts none."""
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
    body = serialize_result(result, format, ctx.names.prefixes)
    opened.append(SparqlReply(kind, format, body))
    return STREAM_OPENED


SPARQL: Final = msgspec.structs.replace(
    GRAPH_QUERY,
    fields=tuple(each for each in GRAPH_QUERY.fields if each.name == "query"),
    controls=(BRANCH, SNAPSHOT),
    result=StreamOpened,
    run=_sparql,
    routes=(),
    command=None,
)
