"""``graph_changes``: the commits of a branch after one, with the nodes that each changed.

For programs that follow a graph. REST serves it as a stream too, and waits for changes
(``request/changes.py``); agents watch resources instead.
"""

from __future__ import annotations

from typing import Final, cast

from trails.engine.history.change_feed import MOST_EVENTS, ChangePage, ChangeQuery
from trails.engine.session.context import GraphContext
from trails.request.builtins.branches import versions_of
from trails.request.builtins.declare import (
    BOOLEAN,
    READER,
    STRING,
    Builtin,
    Route,
    ToolContext,
    field,
    listed,
    said,
    shown,
)

MOST_SECONDS: Final = 60
"""The longest wait; proxies cut connections that are silent for longer."""
_COUNT: Final = {"type": ["integer", "null"]}


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


_EVENT: Final = shown(
    commit=STRING,
    branch=STRING,
    position=said(_COUNT, "In the log; null where policies are in force."),
    time=STRING,
    actor=STRING,
    message=STRING,
    schema_changed=said(BOOLEAN, "Whether it changed the declarations of types."),
    created=said(_COUNT, "Nodes created; null if there are too many to count."),
    updated=said(_COUNT, "Nodes updated."),
    deleted=said(_COUNT, "Nodes deleted."),
    changes=listed(
        shown(
            handle=said(STRING, "The node, as <Type>/<id>."),
            change=said(STRING, "created, updated or deleted."),
        )
    ),
    next=said(
        {"type": ["object", "null"]},
        "The call that lists the other nodes, as tool and arguments; null if all are listed.",
    ),
)

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
            "The commit to continue after: next of the answer before; 0 for the first commit, "
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
    output=shown(
        events=listed(_EVENT),
        next=said(STRING, "The commit up to which this is complete: since of the next call."),
        complete=said(BOOLEAN, "Whether that is the head of the branch."),
    ),
    hints=READER,
    action="Read",
    run=_changes,
    offered="never",
    routes=(Route("GET", "changes"), Route("GET", "branches/{branch}/changes")),
    command="changes",
)

BUILTINS: Final = (GRAPH_CHANGES,)
