"""Whether whoever asked for a write may still have it: a credential can end while a call runs."""

from __future__ import annotations

from trails.engine.activities import Call
from trails.engine.graph import Graph
from trails.errors import RevokedError


def check_standing(graph: Graph, call: Call | None) -> None:
    """Refuse to go on for a caller whose credential was revoked, or has expired, since it asked."""
    caller = None if call is None else call.caller
    if caller is not None and not graph.is_current(caller):
        raise RevokedError(
            "the credential that this was asked for with was revoked or has expired meanwhile, so "
            "nothing was written; ask again with another one"
        )
