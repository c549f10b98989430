"""``graph_changes``: the commits of a branch after one, with the nodes that each changed.

For programs that follow a graph. REST serves it as a stream too, and waits for changes
(``request/changes.py``); agents watch resources instead.
"""

from __future__ import annotations

from typing import Final, cast

from trails.engine.history.change_feed import MOST_EVENTS, ChangePage, ChangeQuery
from trails.engine.session.context import GraphContext
from trails.request.builtins.branches import versions_of
from trails.request.builtins.declare import READER, Builtin, Route, ToolContext, field

MOST_SECONDS: Final = 60
"""The longest wait; proxies cut connections that are silent for longer."""


def read_query(**given: object) -> ChangeQuery:
    """The query of checked arguments."""
    types = cast(list[str] | None, given["type"])
    return ChangeQuery(
        branch=cast(str, given["branch"]),
        since=cast(str | None, given["since"]),
        types=tuple(types or ()),
        limit=cast(int, given["limit"]),
    )


def _changes(tool: ToolContext, ctx: GraphContext, **given: object) -> ChangePage:
    return versions_of(tool, ctx).changes(read_query(**given))


GRAPH_CHANGES: Final = Builtin(
    name="graph_changes",
    title="Changes",
    description=(
        "List the commits of a branch after one, oldest first, with the nodes that each created, "
        "updated or deleted."
    ),
    fields=(
        field("branch", "The branch.", default="main", max_length=100),
        field(
            "since",
            "The commit to continue after: since of the answer before; 0 for the first commit, "
            "nothing for the head.",
            max_length=100,
        ),
        field("type", "Only changes of these types and of those that extend them.", many=True),
        field(
            "limit",
            "Most commits.",
            "Int",
            default=100,
            min_value=1,
            max_value=MOST_EVENTS,
        ),
        field(
            "wait",
            "Seconds to wait for a change, if there is none.",
            "Int",
            default=0,
            min_value=0,
            max_value=MOST_SECONDS,
        ),
    ),
    result=ChangePage,
    hints=READER,
    action="Read",
    run=_changes,
    offered="never",
    routes=(
        Route("GET", "changes"),
        Route("GET", "branches/{branch}/changes", name="branch_changes"),
    ),
    command="changes",
)

BUILTINS: Final = (GRAPH_CHANGES,)
