"""Call a capability or stored query: coerce its arguments, run it, shape the result.

Every call leaves an activity in the log, whatever its outcome.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from typing import cast

from trails.engine.graph.activities import CallRecord
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import Graph
from trails.engine.session.arguments import check_rules, checks_of
from trails.engine.session.context import GraphContext
from trails.engine.session.costs import describe_cost
from trails.engine.session.results import conformer, plain
from trails.engine.sparql.queries import ask_checkout, bind_query
from trails.engine.sparql.reach import reach_of, touches_hidden
from trails.engine.sparql.untrusted import Untrusted
from trails.engine.write.mutate import Effect, local_effect, mutate_sparql
from trails.errors import ForbiddenError, NotFoundError, TrailsError
from trails.model.capabilities import Action, Capability, StoredQuery
from trails.model.results import QueryAnswer


def invoke(ctx: GraphContext, name: str, arguments: Mapping[str, object]) -> object:
    """Run a capability by id and return its result in JSON form."""
    capability = ctx.registry.capability(name)
    if capability is None:
        near = get_close_matches(name, ctx.registry.capabilities, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise NotFoundError(f"there is no capability {name!r}{hint}", capability=name)
    reads = capability.descriptor.reads_only
    with recording(ctx, name, kind_of(capability), reads=reads) as inner:
        checks = checks_of(ctx.registry, ctx.declared)
        prepared = checks.of_capability(capability).prepare(inner, arguments)
        check_rules(inner, capability, prepared)
        result = capability.handler(inner, **prepared)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        conform = conformer(name, capability.descriptor.output_shape)
        shown = plain(ctx.names, conform(result), ctx.shown)
        if ctx.call is None and inner.call is not None:
            inner.call.note = describe_cost(capability, inner.call, shown)
        return shown


def kind_of(called: Capability | StoredQuery) -> str:
    """What an activity says of its kind."""
    if isinstance(called, StoredQuery):
        return "mutation" if called.mutation else "query"
    return "runtime" if called.meta is None else "meta"


def invoke_query(
    graph: Graph,
    untrusted: Untrusted,
    ctx: GraphContext,
    name: str,
    params: Mapping[str, object],
) -> QueryAnswer | str | None:
    """Run a stored query by name: the answer of one that reads, the commit of one that changes."""
    query = ctx.registry.queries.get(name)
    if query is None or is_hidden(ctx, query):
        known = [each for each, found in ctx.registry.queries.items() if not is_hidden(ctx, found)]
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise NotFoundError(f"there is no stored query {name!r}{hint}", query=name)
    with recording(ctx, name, kind_of(query)) as inner:
        checks = checks_of(ctx.registry, ctx.declared)
        given = checks.of_query(query).prepare(inner, {"params": params})
        return run_query(graph, untrusted, inner, query, given["params"])


def run_query(
    graph: Graph,
    untrusted: Untrusted,
    ctx: GraphContext,
    query: StoredQuery,
    params: object,
) -> QueryAnswer | str | None:
    """Run a stored query with parameters that were checked.

    The text is an author's, not a caller's; so where no process can be confined it is run here.
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


@contextmanager
def recording(
    ctx: GraphContext, name: str, kind: str, *, reads: bool = False
) -> Iterator[GraphContext]:
    """A context for one call, of which an activity is left behind.

    What is done on behalf of a call that is under way is part of that one.
    """
    if ctx.call is not None:
        yield ctx
        return
    call = CallRecord(ctx.actor, name, kind, reads=reads)
    outcome, detail = "ok", ""
    try:
        yield ctx.for_call(call)
        detail = call.note
    except TrailsError as error:
        outcome, detail = error.code, error.message
        raise
    except BaseException as error:
        outcome, detail = "error", type(error).__name__
        raise
    finally:
        ctx.activities.end(call, outcome, detail)
