"""Mergers: what an actor needs to merge.

A merge changes its target by all that the source brings, and puts both sides together field by
field. From whom anything of either side is hidden, a conflict in it, and even that there is
none, would tell: so only those merge who see all types and fields of both. What they may not
change they can't bring in either.
"""

from __future__ import annotations

from collections.abc import Iterable

from trails.engine.access import OPEN, Access
from trails.engine.changes import net_between
from trails.engine.graph import Graph
from trails.engine.lines import Line
from trails.errors import ForbiddenError
from trails.model.types import Schema


def check_sight(access: Access, line: Line, branches: tuple[str, ...]) -> None:
    """Refuse a side of which something is hidden, whatever it holds."""
    if access is not OPEN and not access.sight(line.schema, branches).reads_all:
        raise ForbiddenError(
            "a merge is for actors that may see all types and fields of both sides; leave it to "
            "one who does. Nothing was written"
        )


def check_types(access: Access, target: str, mine: Schema, merged: Schema) -> None:
    """Refuse to change the declaration of a type that an actor may not change."""
    if access is OPEN or mine.digest == merged.digest:
        return
    _refuse_fixed(
        access,
        target,
        merged,
        (
            each.name
            for each in merged.types
            if mine.by_name.get(each.name) != each
            or mine.shapes_of(each.name) != merged.shapes_of(each.name)
        ),
    )
    _refuse_fixed(
        access, target, mine, (each.name for each in mine.types if each.name not in merged.by_name)
    )


def check_forward(graph: Graph, access: Access, line: Line, theirs: Line) -> None:
    """Refuse to move a branch forward over changes that its actor may not make."""
    if access is OPEN:
        return
    check_types(access, line.name, line.schema, theirs.schema)
    ours, end = line.nodes.position.commit, theirs.nodes.position.commit
    if any(access.sight(each.schema, (line.name,)).fixed for each in (line, theirs)):
        names = {handle.partition("/")[0] for handle in net_between(graph, ours, end)}
        _refuse_fixed(
            access, line.name, theirs.schema, sorted(names & theirs.schema.by_name.keys())
        )
        _refuse_fixed(access, line.name, line.schema, sorted(names & line.schema.by_name.keys()))


def _refuse_fixed(access: Access, target: str, schema: Schema, names: Iterable[str]) -> None:
    fixed = access.sight(schema, (target,)).fixed
    for name in names:
        if name in fixed:
            raise ForbiddenError(
                f"this merge would change {name} on {target!r}, which you may read and not "
                "change; nothing was written",
                type=name,
            )
