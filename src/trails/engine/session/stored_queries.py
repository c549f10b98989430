"""Run a stored query on a context: bind its parameters, then read or change the graph.

Refuses a query that can reach what its caller may not read. The parameters were checked
before; how a query is found by name is up to the caller (``request.builtins.queries``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import cast

from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import Graph
from trails.engine.session.context import GraphContext
from trails.engine.sparql.queries import ask_checkout, bind_query
from trails.engine.sparql.reach import reach_of, touches_hidden
from trails.engine.sparql.untrusted import Untrusted
from trails.engine.write.mutate import Effect, local_effect, mutate_sparql
from trails.errors import ForbiddenError
from trails.model.capabilities import Action, StoredQuery
from trails.model.results import QueryAnswer


def run_query(
    graph: Graph,
    untrusted: Untrusted,
    ctx: GraphContext,
    query: StoredQuery,
    params: object,
) -> QueryAnswer | str | None:
    """Run a stored query with checked parameters: its answer, or the commit of one that changes.

    The author of the project wrote the text, so where no process can be confined it runs here.
    """
    _check_inner(ctx, query)
    if is_hidden(ctx, query):
        raise ForbiddenError("this query can reach what its caller may not read; use another")
    text = bind_query(query, cast(Mapping[str, object], params))
    checkout, confined = ctx.checkout, untrusted.sandbox.confinement.complete
    if query.mutation:
        effect = untrusted.effect if confined else partial(_local_effect, graph, untrusted)
        found = effect(checkout, caller=ctx.actor)
        return mutate_sparql(graph, checkout, ctx.kg.transaction, text, found).commit
    if confined:
        return untrusted.run(checkout, text, caller=ctx.actor)
    with untrusted.sandbox.spending(ctx.actor):
        return ask_checkout(graph, checkout, text)


def _local_effect(graph: Graph, untrusted: Untrusted, checkout: Checkout, *, caller: str) -> Effect:
    """How to find out here, on the caller's time, what an author's update would change."""

    def effect(text: str) -> tuple[bytes, bytes]:
        with untrusted.sandbox.spending(caller):
            return local_effect(graph, checkout)(text)

    return effect


def is_hidden(ctx: GraphContext, query: StoredQuery) -> bool:
    """Whether a stored query can reach what the actor may not read, here."""
    if ctx.kg.schema_filter is None:
        return False
    if ctx.shown is not None and not ctx.shown.knows(query):
        return True
    schema = ctx.checkout.schema
    return touches_hidden(reach_of(query, schema, ctx.names), ctx.visibility, schema)


def _check_inner(ctx: GraphContext, query: StoredQuery) -> None:
    """Who may run a query may still not read or change what it does."""
    action: Action = "Change" if query.mutation else "Read"
    if any(ctx.access.may(action, each) for each in ctx.branches):
        return
    does = "changes" if query.mutation else "reads"
    raise ForbiddenError(
        f"{query.name} {does} data that you may not {action.lower()} here; ask for that right, or "
        "use another query",
        query=query.name,
    )
