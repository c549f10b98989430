"""``graph_health``: whether the graph serves."""

from __future__ import annotations

from typing import Final

from trails.engine.context import GraphContext
from trails.engine.graph import MAIN
from trails.model.history import GENESIS
from trails.request.builtins.declare import READER, Builtin, Desk, shown


def _health(desk: Desk, ctx: GraphContext) -> object:
    seen = ctx.access.may("Read", MAIN)
    return {
        "status": desk.service.graph.status,
        "project": desk.options.project,
        "graph": ctx.graph,
        "version": desk.options.version,
        "head": desk.service.graph.main.head.commit if seen else GENESIS,
    }


GRAPH_HEALTH: Final = Builtin(
    name="graph_health",
    title="Graph health",
    description=(
        "Tell whether this knowledge graph serves requests. Takes no arguments. Returns "
        "status ('ok'; 'read_only' when nothing can be written; 'behind' when the log has lost "
        "data and can only be read), the project and graph that you are talking to, the server's "
        "version, and "
        "head, the id of the newest commit on main (empty before the first, and for those who may "
        "not read main). Cheap; use it to "
        "check the connection. For counts and types use graph_snapshot."
    ),
    output=shown(
        status={"type": "string", "enum": ["ok", "read_only", "behind"]},
        project={"type": "string"},
        graph={"type": "string"},
        version={"type": "string"},
        head={
            "type": "string",
            "description": "The newest commit on main; empty before the first.",
        },
    ),
    hints=READER,
    place="inline",
    run=_health,
)
