"""``trails.meta.doctor`` and ``trails.meta.reload``: operations on a project as a whole."""

from __future__ import annotations

from typing import Final

from trails.engine.session.context import GraphContext
from trails.engine.upkeep.doctor import examine
from trails.model.capabilities import Hints
from trails.model.upkeep import ReloadReport, Report
from trails.request.builtins.declare import READER, ToolContext, field, meta_operation
from trails.request.workspace import need_workspace


def _doctor(tool: ToolContext, ctx: GraphContext) -> Report:
    del ctx
    if tool.options.doctor is not None:
        return tool.options.doctor()
    service = tool.service
    return Report(service.graph.name, tuple(examine(service.graph, service.registry.schema)))


DOCTOR: Final = meta_operation(
    "trails.meta.doctor",
    "builder",
    title="Check the project",
    description=(
        "Check declarations, queries, policies, data and files of this graph. Each finding has a "
        "code, where it is, and how to fix it. Use it after each change of the application."
    ),
    result=Report,
    hints=READER,
    action="Admin",
    run=_doctor,
)


def _reload(tool: ToolContext, ctx: GraphContext, *, apply_schema: bool | None) -> ReloadReport:
    del ctx
    return need_workspace(tool.options.workspace).reload(apply_schema=apply_schema)


RELOAD: Final = meta_operation(
    "trails.meta.reload",
    "builder",
    title="Reload the application",
    description=(
        "Read the module, stored queries and policies of this graph again, and use them if all "
        "are right; else nothing changes, and the error says where to fix what. Development "
        "servers do it by themselves when files change."
    ),
    fields=(
        field(
            "apply_schema",
            "Whether changed types may be applied to the stored data, if they fit it. By default "
            "true in development, false in production.",
            "Bool",
        ),
    ),
    result=ReloadReport,
    hints=Hints(read_only=False, destructive=False, idempotent=True),
    action="Admin",
    also=("SchemaApply",),
    run=_reload,
)

META: Final = (DOCTOR, RELOAD)
