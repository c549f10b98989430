"""``META``: the operations on the application that every project has.

Apart from the other built-ins, because a registry has it before anything is called.
"""

from __future__ import annotations

from typing import Final

from trails.authoring.capabilities import Context, meta_capability


@meta_capability("trails.meta.ping", scope="runtime", idempotent=True, side_effects=["none"])
def ping(ctx: Context) -> dict[str, object]:
    """Answer at once, to show that this server is there and takes your calls.

    Returns the name of the graph, and the name under which the server knows you.
    """
    return {"pong": True, "graph": ctx.graph, "actor": ctx.actor}


META: Final = (ping,)
