"""Outages: what is said of a graph that is not served.

The reasons name declarations and policies, which are not for everybody to know.
"""

from __future__ import annotations

from trails.model.actors import OPERATOR, Actor
from trails.model.outcomes import Failure


def tell_outage(graph: str, failure: Failure, actor: Actor) -> Failure:
    """Why a graph is not served: all of it to whoever works on it, else only that it is so."""
    if not actor.credential or actor == OPERATOR:
        return failure
    message = f"graph {graph!r} is not served now; the server's log has the reasons"
    return Failure(failure.kind, failure.code, message)
