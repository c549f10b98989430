"""``graph_load``: many instances at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast, get_args

from trails.engine.context import GraphContext
from trails.engine.load.files import FORMATS
from trails.model.loads import LoadRequest, LoadResult, Mode
from trails.request.builtins.declare import (
    BOOLEAN,
    EXPECTED_HEAD,
    IDEMPOTENCY_KEY,
    INTEGER,
    MAYBE_STRING,
    MESSAGE,
    STRING,
    WRITER,
    Builtin,
    Desk,
    field,
    said,
    shown,
)


def load_file(
    desk: Desk, ctx: GraphContext, file: Path | list[bytes], given: Mapping[str, str | None]
) -> LoadResult:
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
    return desk.service.load(
        ctx.actor, request, registry=ctx.registry, call=ctx.call, access=ctx.access
    )


def _load(desk: Desk, ctx: GraphContext, data: str, **given: str | None) -> object:
    done = load_file(desk, ctx, [data.encode("utf-8", "surrogatepass")], given)
    return {
        "branch": done.branch,
        "commit": done.commit,
        "changed": done.commit is not None and not done.replayed,
        "nodes": done.nodes,
        "deleted": done.deleted,
        "forked": done.forked,
        "replayed": done.replayed,
    }


GRAPH_LOAD: Final = Builtin(
    name="graph_load",
    title="Load data",
    description=(
        "Load many instances in one commit: all of them or, when any breaks a rule, none, and "
        "every problem is told with its line. The default format is ndjson, one JSON object a "
        "line: "
        '{"type": "TypeName", "data": {"a_field": "…", "another": 7}} for a node, '
        '{"edge": "EdgeName", "from": "TypeName/its-id", "to": "TypeName/other-id"} for an edge; '
        "schema_get has the names. "
        "mode says what happens to "
        "what is there: merge updates by key and adds, append only adds and refuses what exists, "
        "overwrite also deletes instances of the loaded types that are not in the data. To load "
        "into a new branch name it in branch and say in from where it begins; without from, a "
        "missing branch is an error. Returns the commit and how many nodes there were."
    ),
    fields=(
        field("data", "The text to load.", required=True),
        field("format", "How it is written.", default="ndjson", one_of=list(FORMATS)),
        field("mode", "What becomes of what is there.", default="merge", one_of=get_args(Mode)),
        field("type", "For csv: the type of the rows.", max_length=100),
        field("branch", "The branch to load into.", default="main", max_length=100),
        field(
            "from",
            "A branch or commit from which the branch is forked where it does not exist.",
            max_length=100,
        ),
        MESSAGE,
        EXPECTED_HEAD,
        IDEMPOTENCY_KEY,
    ),
    output=shown(
        branch=STRING,
        commit=said(MAYBE_STRING, "The commit; null when nothing changed."),
        changed=BOOLEAN,
        nodes=said(INTEGER, "How many nodes the data gave."),
        deleted=said(INTEGER, "How many nodes are gone (mode overwrite)."),
        forked=said(BOOLEAN, "Whether the branch was made for it."),
        replayed=said(BOOLEAN, "The idempotency key was known: this is the first call's commit."),
    ),
    hints=WRITER,
    action="Change",
    kind="load",
    run=_load,
)
