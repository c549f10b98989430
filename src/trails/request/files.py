"""Whole files in and out: what a load and an export take, and what they do with streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from trails.engine.context import GraphContext
from trails.projections.tools import BRANCH, SNAPSHOT
from trails.request.builtins.declare import READER, Builtin, Desk, field
from trails.request.builtins.loads import GRAPH_LOAD, load_file
from trails.request.spooling import drop, spool
from trails.request.threads import Threads

Blocks = Generator[bytes, None, None]


def _export(
    desk: Desk, ctx: GraphContext, *, opened: list[Blocks], format: str, type: list[str]
) -> object:
    opened.append(desk.service.export(ctx, format, type))
    return {}


EXPORT: Final = Builtin(
    name="graph_export",
    title="Export",
    description="A branch or snapshot as a file.",
    fields=(
        field("format", "ndjson, turtle, nquads or jsonld.", default="ndjson"),
        field("type", "Only these types and what extends them.", many=True),
    ),
    controls=(BRANCH, SNAPSHOT),
    output={"type": "object"},
    hints=READER,
    action="Export",
    kind="export",
    run=_export,
)


async def _load(
    desk: Desk,
    ctx: GraphContext,
    *,
    body: AsyncIterator[bytes],
    suffix: str,
    threads: Threads,
    **given: str | None,
) -> object:
    file = await spool(body, suffix, desk.service.graph.temporary())
    return await threads.run(
        ctx.actor, _load_and_drop, desk, ctx, file, given, dropped=partial(drop, file)
    )


def _load_and_drop(
    desk: Desk, ctx: GraphContext, file: Path, given: Mapping[str, str | None]
) -> object:
    try:
        return load_file(desk, ctx, file, given)
    finally:
        drop(file)


LOAD: Final = msgspec.structs.replace(
    GRAPH_LOAD,
    fields=tuple(each for each in GRAPH_LOAD.fields if each.name != "data"),
    output={"type": "object"},
    place="loop",
    run=_load,
)
