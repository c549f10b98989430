"""Mend a request whose arguments were refused: ``repair`` with a look into the graph."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from trails.engine.context import GraphContext
from trails.engine.policy_rules import judge
from trails.errors import TrailsError, ValidationError
from trails.model.capabilities import StoredQuery
from trails.model.types import OBJECT
from trails.request.entries import Entry
from trails.request.repair import Parameters, Repaired, repair
from trails.request.requests import Request


def mend(request: Request, error: ValidationError) -> Repaired:
    """What can be suggested for refused arguments; none of it is done."""
    entry, ctx = request.entry, request.ctx
    wanted = Parameters((*entry.arguments.fields, *entry.controls.fields), entry.declared)
    if ctx is None:
        return repair(error.fields, request.arguments, wanted, _unknown, None)
    exists, accepts = partial(_exists, ctx), partial(_accepts, request, ctx)
    repaired = repair(error.fields, request.arguments, wanted, exists, accepts)
    return msgspec.structs.replace(repaired, certain=_is_certain(request.entry))


def _is_certain(entry: Entry) -> bool:
    """Whether the checks of a call's arguments are all that can refuse them.

    A built-in reads texts and operations, a query that changes breaks rules or does not, and a
    new node meets those of the graph: whether they pass is known when they are run.
    """
    if entry.source is None or (isinstance(entry.source, StoredQuery) and entry.source.mutation):
        return False
    scalars = [field.type.scalar for field in entry.arguments.fields]
    types = entry.declared.schema.by_name
    return not any(each.kind == OBJECT and each.target in types for each in scalars)


def _accepts(request: Request, ctx: GraphContext, arguments: Mapping[str, object]) -> bool:
    controls = request.entry.controls.names
    if any(arguments.get(name) != request.arguments.get(name) for name in controls):
        return False  # another branch would have to be looked at
    own = {name: value for name, value in arguments.items() if name not in controls}
    try:
        prepared = request.entry.arguments.prepare(ctx, own)
        if request.entry.judged is not None:
            judge(ctx, request.entry.judged, prepared)
    except TrailsError:
        return False
    return True


def _unknown(target: str, value: object) -> bool:
    """Without a context no reference can be looked up."""
    del target, value
    return False


def _exists(ctx: GraphContext, target: str, value: object) -> bool:
    if not isinstance(value, str) or target not in ctx.kg.schema.by_name:
        return False
    try:
        return ctx.kg.find(target, value) is not None
    except TrailsError:
        return False
