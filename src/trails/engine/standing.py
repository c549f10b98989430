"""Whether a write may go on: its caller can go away, and its credential can end, meanwhile."""

from __future__ import annotations

from trails.engine.activities import Call
from trails.engine.graph import Graph
from trails.errors import AbandonedError, BudgetError, RevokedError
from trails.model.actors import is_limited


def check_standing(graph: Graph, call: Call | None) -> None:
    """Refuse to go on for a caller whose credential was revoked, or has expired, since it asked."""
    caller = None if call is None else call.caller
    if caller is not None and not graph.is_current(caller):
        raise RevokedError(
            "the credential that this was asked for with was revoked or has expired meanwhile, so "
            "nothing was written; ask again with another one"
        )


def check_wanted(call: Call | None) -> None:
    """Stop the work for a caller that has gone away."""
    if call is not None and call.abandoned:
        raise AbandonedError("the caller disconnected before this was done; nothing was written")


def check_write_time(graph: Graph, call: Call | None) -> None:
    """Refuse a write to a caller whose writes have kept others waiting for too long lately."""
    caller = None if call is None else call.caller
    over = graph.blocking.excess(caller.name) if caller is not None and is_limited(caller) else None
    if caller is not None and over is not None:
        most = graph.blocking.limit
        raise BudgetError(
            f"the writes of {caller.name} kept other writers waiting for {over.used:.1f} s within "
            f"a minute, and {most:g} s are allowed (write_seconds_per_minute in "
            f"[graphs.{graph.name}.budgets]); try again in {over.retry_after} s, and write less at "
            "a time",
            limit="write_seconds_per_minute",
            allowed=most,
            used=round(over.used, 3),
            retry_after=over.retry_after,
        )


def most_seconds(graph: Graph, call: Call | None) -> float:
    """How long a write of a call may keep others waiting; 0 where there is no limit."""
    caller = None if call is None else call.caller
    return graph.write_seconds if is_limited(caller) else 0.0
