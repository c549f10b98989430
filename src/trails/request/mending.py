"""Mend a request whose arguments were refused: ``repair`` with a look into the graph."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from typing import Final

from trails.engine.context import GraphContext
from trails.errors import TrailsError, ValidationError
from trails.model.nodes import make_handle
from trails.request.repair import Parameters, Repaired, repair
from trails.request.requests import Request

_LOOKED_AT: Final = 50
"""Ids that a reference is compared with."""


def mend(request: Request, error: ValidationError) -> Repaired:
    """What can be suggested for refused arguments; none of it is done."""
    entry, ctx = request.entry, request.ctx
    wanted = Parameters((*entry.arguments.fields, *entry.controls.fields), entry.declared)
    if ctx is None:
        return repair(error.fields, request.arguments, wanted, _nobody, None)
    nearest, accepts = partial(_nearest, ctx), partial(_accepts, request, ctx)
    return repair(error.fields, request.arguments, wanted, nearest, accepts)


def _accepts(request: Request, ctx: GraphContext, arguments: Mapping[str, object]) -> bool:
    controls = request.entry.controls.names
    if any(arguments.get(name) != request.arguments.get(name) for name in controls):
        return False  # another branch would have to be looked at
    own = {name: value for name, value in arguments.items() if name not in controls}
    try:
        request.entry.arguments.prepare(ctx, own)
    except TrailsError:
        return False
    return True


def _nobody(target: str, value: object) -> None:
    del target, value


def _nearest(ctx: GraphContext, target: str, value: object) -> str | None:
    """The node that was probably meant: the id alone was given, or one that is nearly right."""
    if not isinstance(value, str) or not value or len(value) > 500 or not value.isprintable():
        return None
    if target not in ctx.kg.schema.by_name:
        return None
    try:
        found = ctx.kg.find(target, value)
        if found is not None:
            return ctx.names.nodes + make_handle(found.type, found.id)
        identifier = value.rpartition("/")[2]
        near = get_close_matches(identifier, _ids(ctx, target, identifier), n=1, cutoff=0.75)
        found = ctx.kg.find(target, near[0]) if near else None
    except TrailsError:
        return None
    return None if found is None else ctx.names.nodes + make_handle(found.type, found.id)


def _ids(ctx: GraphContext, target: str, identifier: str) -> list[str]:
    """Some ids that begin alike."""
    for length in (len(identifier) - 1, 3, 1, 0):
        ids = ctx.kg.ids_from(target, identifier[: max(length, 0)], _LOOKED_AT)
        if ids:
            return ids
    return []
