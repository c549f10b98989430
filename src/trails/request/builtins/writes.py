"""``graph_mutate``: change the graph, by typed operations or SPARQL Update.

``graph_load``: many instances at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast, get_args

from trails.engine.graph.graph import MAIN
from trails.engine.session.context import GraphContext
from trails.engine.transfer.formats import FORMATS
from trails.errors import FieldError, ValidationError
from trails.model.operations.graph import AppliedChange, LoadedData, MutationResult
from trails.model.operations.pages import Call
from trails.model.uris import InstanceAddress, ReadPoint, format_address
from trails.model.writes import Applied, LoadRequest, Mode
from trails.projections.tools import (
    BRANCH,
    DRY_RUN,
    EXPECTED_HEAD,
    IDEMPOTENCY_KEY,
    MAX_CHARS,
    PROPOSE,
)
from trails.request.builtins.declare import (
    MESSAGE,
    WRITER,
    Builtin,
    Route,
    ToolContext,
    field,
)
from trails.request.fitting import Page


def _mutate(
    tool: ToolContext,
    ctx: GraphContext,
    operations: Sequence[object],
    update: str | None,
    message: str | None,
    expected_head: str | None,
    idempotency_key: str | None,
) -> Page:
    if bool(operations) == (update is not None):
        problem = "give operations, or update, and not both"
        raise ValidationError([FieldError("operations", "required", f"operations: {problem}")])
    done = tool.service.mutate(
        ctx,
        operations if update is None else update,
        message=message or "",
        expected_head=expected_head,
        idempotency_key=idempotency_key,
    )
    applied = tuple(
        AppliedChange(each.op, each.type, each.id, _address(ctx, each)) for each in done.applied
    )
    changed = done.commit is not None and not done.replayed
    result = MutationResult(done.commit, changed, done.replayed, applied)

    def changes(at: int) -> Call | None:
        """All were applied; what they changed is in the commit."""
        if at >= len(done.applied) or done.commit is None:
            return None
        return Call("commit_get", {"commit": done.commit})

    return Page(result, "applied", changes)


def _address(ctx: GraphContext, node: Applied) -> str:
    """What reads the node back where it was written: its own IRI means ``main``."""
    if ctx.branch == MAIN:
        return ctx.names.nodes + node.handle
    return format_address(InstanceAddress(node.type, node.id, ReadPoint(branch=ctx.branch)))


GRAPH_MUTATE: Final = Builtin(
    name="graph_mutate",
    title="Change the graph",
    description=(
        "Change data in one commit; if anything breaks a rule, nothing. Give operations, like "
        '[{"op": "create", "type": "TypeName", "data": {"a_field": "…", "another": 7}}, '
        '{"op": "update", "type": "TypeName", "id": "its-id", "data": {"a_field": "new"}}, '
        '{"op": "delete", "type": "TypeName", "id": "its-id"}] (or upsert; null removes a field; '
        "references are IRIs or ids), or a SPARQL Update. Prefer a tool made for the task."
    ),
    fields=(
        field(
            "operations",
            "delete may say cascade.",
            "Map",
            many=True,
            max_count=10_000,
        ),
        field("update", "SPARQL Update, instead of operations.", min_length=1),
        MESSAGE,
        EXPECTED_HEAD,
        IDEMPOTENCY_KEY,
    ),
    controls=(BRANCH, MAX_CHARS),
    unlisted=(DRY_RUN, PROPOSE),
    result=MutationResult,
    hints=WRITER,
    action="Change",
    kind="mutation",
    run=_mutate,
    routes=(Route("POST", "mutate", text=("update", "application/sparql-update")),),
    command="mutate",
)


def load_file(
    tool: ToolContext, ctx: GraphContext, file: Path | list[bytes], given: Mapping[str, str | None]
) -> LoadedData:
    """Load a file, or what would be in one, as the arguments say."""
    request = LoadRequest(
        files=(file,),
        format=given["format"],
        mode=cast(Mode, given["mode"]),
        type_name=given["type"],
        branch=str(given["branch"]),
        source=given["from"],
        message=given["message"] or "",
        expected_head=given["expected_head"],
        idempotency_key=given["idempotency_key"],
    )
    done = tool.service.load(
        ctx.actor, request, registry=ctx.registry, call=ctx.call, access=ctx.access
    )
    return LoadedData.of(done)


def _load(tool: ToolContext, ctx: GraphContext, data: str, **given: str | None) -> LoadedData:
    return load_file(tool, ctx, [data.encode("utf-8", "surrogatepass")], given)


GRAPH_LOAD: Final = Builtin(
    name="graph_load",
    title="Load data",
    description=(
        "Load many instances in one commit, or, if any breaks a rule, none. ndjson has one object "
        'a line: {"type": "TypeName", "data": {"a_field": "…"}} for a node, {"edge": "EdgeName", '
        '"from": "TypeName/its-id", "to": "TypeName/other-id"} for an edge. merge updates by key '
        "and adds, append refuses what exists, overwrite also deletes what is not in the data."
    ),
    fields=(
        field("data", "The text.", required=True),
        field("format", "Of data.", default="ndjson", one_of=list(FORMATS)),
        field("mode", "See above.", default="merge", one_of=get_args(Mode)),
        field("type", "For csv: the type.", max_length=100),
        field("branch", "", default="main", max_length=100),
        field(
            "from",
            "Where to fork a missing branch.",
            max_length=100,
        ),
        MESSAGE,
        EXPECTED_HEAD,
        IDEMPOTENCY_KEY,
    ),
    unlisted=(DRY_RUN, PROPOSE),
    result=LoadedData,
    hints=WRITER,
    action="Change",
    kind="load",
    run=_load,
)

BUILTINS: Final = (GRAPH_MUTATE, GRAPH_LOAD)
