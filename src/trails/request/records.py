"""Records: built-ins for programs, which want all that is known and not what a model reads best.

Each takes what the tool of its name takes, is gated as that is, and leaves the same
activity; only the result is the whole record, in the form of ``trails.model``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

import msgspec

from trails.engine.history.branches import Versions
from trails.engine.session.context import GraphContext
from trails.errors import ConflictError, QueryError
from trails.model.history import BranchFilter
from trails.model.results import QueryAnswer
from trails.model.texts import count, read_texts
from trails.request.answers import plain_rows
from trails.request.builtins.branches import (
    BRANCH_CREATE,
    BRANCH_DELETE,
    BRANCH_LIST,
    BRANCH_MERGE,
    merge_request,
)
from trails.request.builtins.commits import COMMIT_GET, COMMIT_LIST, MOST
from trails.request.builtins.declare import READER, Builtin, ToolContext, field
from trails.request.builtins.queries import (
    GRAPH_QUERY,
    STORED_QUERY_LIST,
    STORED_QUERY_RUN,
    admitted_queries,
    bound_params,
    run_by_name,
)
from trails.request.builtins.writes import GRAPH_MUTATE, mutate

LINK: Final = "stored_query_link"
_ANYTHING: Final[Mapping[str, object]] = {"type": "object"}


def _versions(desk: ToolContext, ctx: GraphContext) -> Versions:
    return desk.service.versions(ctx.actor, ctx.call, ctx.access)


# --- branches ---------------------------------------------------------------------


def _list_branches(desk: ToolContext, ctx: GraphContext, **given: object) -> object:
    return _versions(desk, ctx).branch_page(msgspec.convert(given, BranchFilter))


def _create_branch(desk: ToolContext, ctx: GraphContext, **given: str) -> object:
    return {"branch": _versions(desk, ctx).create_branch(given["name"], given["from"])}


def _delete_branch(desk: ToolContext, ctx: GraphContext, name: str, *, force: bool) -> object:
    return {"branch": _versions(desk, ctx).delete_branch(name, force=force), "deleted": True}


def _merge(desk: ToolContext, ctx: GraphContext, **given: object) -> object:
    request = merge_request(**given)  # type: ignore[arg-type]
    result = _versions(desk, ctx).merge(request)
    if result.conflicts and not request.dry_run:
        listed = "; ".join(f"{each.id}: {each.message}" for each in result.conflicts[:20])
        raise ConflictError(
            f"{count(len(result.conflicts), 'conflict')}, nothing was written; settle each with a "
            f"resolution, or resolve them on a branch: {listed}",
            **msgspec.to_builtins(result),
        )
    return result


# --- history ----------------------------------------------------------------------


def _list_commits(desk: ToolContext, ctx: GraphContext, **given: object) -> object:
    return _versions(desk, ctx).commits(
        None if given["all_branches"] else cast(str, given["branch"]),
        actor=cast(str | None, given["actor"]),
        node=cast(str | None, given["node"]),
        after=cast(str | None, given["after"]),
        limit=cast(int, given["limit"]),
    )


def _get_commit(desk: ToolContext, ctx: GraphContext, commit: str, limit: int) -> object:
    return _versions(desk, ctx).commit(commit, limit=limit)


def _diff(desk: ToolContext, ctx: GraphContext, **given: object) -> object:
    start, end = str(given["from"]), str(given["to"])
    return _versions(desk, ctx).diff(start, end, limit=cast(int, given["limit"]))


_DIFF: Final = Builtin(
    name="graph_diff",
    title="Difference",
    description="What turns one state into another, node by node and field by field.",
    fields=(
        field("from", "A branch or commit.", required=True, min_length=1, max_length=100),
        field("to", "Another one.", required=True, min_length=1, max_length=100),
        field("limit", "Nodes to show at most.", "Int", default=200, min_value=1, max_value=MOST),
    ),
    output=_ANYTHING,
    hints=READER,
    action="Read",
    run=_diff,
)


# --- queries and changes ------------------------------------------------------------


def _query(
    desk: ToolContext, ctx: GraphContext, query: str, params: Mapping[str, object] | None
) -> object:
    return _plain(desk.service.ask(ctx, query, bound_params(params)))


def _plain(answer: QueryAnswer) -> QueryAnswer:
    """An answer whose rows have JSON values."""
    return msgspec.structs.replace(answer, rows=tuple(plain_rows(answer)))


def _list_queries(desk: ToolContext, ctx: GraphContext) -> object:
    del desk
    found = admitted_queries(ctx, ctx.registry.queries)
    return {"queries": [found[name] for name in sorted(found)]}


def _run_query(desk: ToolContext, ctx: GraphContext, name: str, params: object) -> object:
    found = run_by_name(desk, ctx, ctx.registry.queries, name, params)
    return _plain(found) if isinstance(found, QueryAnswer) else {"commit": found}


def _run_link(desk: ToolContext, ctx: GraphContext, name: str, params: object) -> object:
    """With parameters as texts, several of each: the query's declaration says what they mean."""
    query = admitted_queries(ctx, ctx.registry.queries).get(name)
    if query is not None and query.mutation:
        raise QueryError(f"{name} changes data, and following a link must not; POST its params")
    declared = {} if query is None else {each.name: each for each in query.params}
    texts = cast(Mapping[str, Sequence[str]], params)
    read = {
        each: read_texts(declared[each], said) if each in declared else said[0]
        for each, said in texts.items()
    }
    return _run_query(desk, ctx, name, read)


_replace = msgspec.structs.replace
RECORDS: Final[Mapping[str, Builtin]] = {
    each.name: _replace(each, output=_ANYTHING)
    for each in (
        _DIFF,
        _replace(BRANCH_LIST, run=_list_branches),
        _replace(BRANCH_CREATE, run=_create_branch),
        _replace(BRANCH_DELETE, run=_delete_branch),
        _replace(BRANCH_MERGE, run=_merge),
        _replace(COMMIT_LIST, run=_list_commits),
        _replace(COMMIT_GET, run=_get_commit),
        _replace(GRAPH_QUERY, run=_query),
        _replace(GRAPH_MUTATE, run=mutate),
        _replace(STORED_QUERY_LIST, fields=(), run=_list_queries),
        _replace(STORED_QUERY_RUN, run=_run_query),
        _replace(STORED_QUERY_RUN, name=LINK, run=_run_link),
    )
}
