"""``export_records``: many records as a file, written as a job that survives restarts.

One tool starts an export, says how far it is, and shows the file a window at a time. REST and
the command line download it. The handle is all that a later call needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from trails.engine.evidence.export_files import ExportRequest
from trails.engine.evidence.exports import FORMATS, Export, Exports, exports_of
from trails.engine.graph.ancestry import Permits
from trails.engine.graph.graph import MAIN
from trails.engine.session.context import GraphContext
from trails.errors import ConflictError
from trails.imports import later
from trails.model.actors import is_limited
from trails.model.operations.pages import Call
from trails.model.operations.records import DownloadHint, ExportStatus, FileWindow
from trails.model.results import MOST_CHARS
from trails.model.types import Schema
from trails.model.uris import parse_clause
from trails.projections.tools import BRANCH, SNAPSHOT
from trails.request.authorize import rights_of
from trails.request.builtins.declare import (
    READER,
    Builtin,
    Route,
    ToolContext,
    field,
)
from trails.request.entries import of_graph
from trails.request.resources.contents import condition_of

if TYPE_CHECKING:
    from trails.model.evidence import graphemes
else:
    graphemes = later("trails.model.evidence.graphemes")

_SOON: Final = 0.25
"""Seconds that a call waits for a small export, so that one call is enough."""
_LEAST: Final = 2_000
"""Characters of an answer, of which half is a window."""
_AROUND: Final = 320
"""Characters of a window and of the next call beside the text."""
MEDIA_TYPES: Final = {
    "ndjson": "application/x-ndjson",
    "turtle": "text/turtle",
    "nquads": "application/n-quads",
    "csv": "text/csv",
}
SUFFIXES: Final = {"ndjson": "ndjson", "turtle": "ttl", "nquads": "nq", "csv": "csv"}


def _permits(tool: ToolContext, ctx: GraphContext) -> Permits | None:
    """The branches that the actor may export; None means all."""
    if ctx.access.unrestricted:
        return None
    return rights_of(ctx).permits(of_graph(tool.service.graph.name, ("Export",)))


def find_export(tool: ToolContext, ctx: GraphContext, handle: str) -> tuple[Exports, Export]:
    """An export of the actor, with everything that it may still see in it."""
    exports = exports_of(tool.service.graph)
    return exports, exports.find(ctx.actor, handle, ctx.access, _permits(tool, ctx))


def _start(tool: ToolContext, ctx: GraphContext, **given: object) -> tuple[Exports, Export]:
    wanted = msgspec.convert(given, _Wanted)
    place = tool.service.context(
        ctx.actor,
        wanted.branch or MAIN,
        wanted.snapshot,
        registry=ctx.registry,
        call=ctx.call,
        access=ctx.access,
        permits=_permits(tool, ctx),
    )
    request = ExportRequest(
        format=wanted.format,
        types=tuple(dict.fromkeys(wanted.types)),
        where=_conditions(place.kg.schema, wanted),
        fields=tuple(dict.fromkeys(wanted.fields)),
        escape_formulas=wanted.escape_formulas,
    )
    limited = is_limited(None if ctx.call is None else ctx.call.caller)
    exports = exports_of(tool.service.graph)
    return exports, exports.start(place, request, tool.options.exports, limited=limited)


class _Wanted(msgspec.Struct, frozen=True):
    types: list[str]
    where: str | None
    fields: list[str]
    format: str
    escape_formulas: bool
    branch: str | None
    snapshot: str | None


def _conditions(schema: Schema, wanted: _Wanted) -> dict[str, object]:
    """The filter as a condition that can be stored; of unknown types it is not checked here."""
    if wanted.where is None:
        return {}
    clause = parse_clause(wanted.where)
    value: object = clause.value
    for descriptor in filter(None, map(schema.by_name.get, wanted.types)):
        value = condition_of(descriptor, clause).value
        row = descriptor.by_name[clause.field].type.scalar.row
        if row is not None and row.plain is not None:
            value = row.plain(value)
    return {clause.field: msgspec.to_builtins(value)}


def _run(
    tool: ToolContext,
    ctx: GraphContext,
    *,
    export: str | None,
    offset: int | None,
    max_chars: int | None,
    discard: bool,
    **request: object,
) -> ExportStatus:
    if export is None:
        exports, found = _start(tool, ctx, **request)
    else:
        exports, found = find_export(tool, ctx, export)
    if discard:
        exports.discard(found)
        return replace(found.describe(), state="discarded")
    found.ended.wait(_SOON)
    status, handle = found.describe(), found.spec.handle
    if status.state == "failed":
        return status
    content = f"/graphs/{tool.service.graph.name}/export/{handle}/content"
    command = f"trails export --resume {handle} --output FILE"
    status = replace(status, download=DownloadHint(f"GET {content}", command))
    if not tool.bounded and offset is None:
        return status  # a program downloads the file
    if status.state == "done":
        most = max_chars or max(_LEAST, tool.options.max_chars)
        window = _window(exports, found, offset or 0, most - _size(status))
        status, offset = replace(status, window=window), window.end
        if window.end == window.total:
            return status
    following = {"export": handle, "offset": offset, "max_chars": max_chars}
    arguments = {name: each for name, each in following.items() if each is not None}
    return replace(status, next=Call(EXPORT_RECORDS.name, arguments))


def _window(exports: Exports, export: Export, offset: int, room: int) -> FileWindow:
    """The text from an offset on, in an answer that has ``room`` more characters."""
    total = export.files.last.chars
    start = min(offset, total)
    text = _fitting(exports.texts(export, start), room - _AROUND)
    end = start + len(text)
    return FileWindow(text, start, end, total, complete=start == 0 and end == total)


def _size(value: object) -> int:
    return len(msgspec.json.encode(value).decode())


def _fitting(texts: Iterator[str], room: int) -> str:
    """As much text as has a JSON form of ``room`` characters: whole records, or a part of one."""
    text = ""
    for each in texts:
        text += each
        if len(text) > room:
            break
    end = min(len(text), room)
    while (size := _size(text[:end]) - 2) > room:
        end = max(1, end * room // size - 1)
    if end == len(text):
        return text
    return text[: text.rfind("\n", 0, end) + 1 or graphemes.boundary_before(text, end) or end]


def content_type(export: Export) -> str:
    """The media type of the file."""
    return MEDIA_TYPES[export.spec.request.format]


def file_name(export: Export) -> str:
    """The name under which a browser saves the file."""
    return f"{export.spec.handle}.{SUFFIXES[export.spec.request.format]}"


def check_done(export: Export) -> None:
    """Refuse to show a file that is not whole."""
    status = export.describe()
    if status.error is not None:
        raise ConflictError(
            f"this export failed: {status.error.message}; start it again", export=status.export
        )
    if status.state != "done":
        raise ConflictError(
            f"this export is not finished: it has {status.records} records so far; ask for its "
            "status, and for its content when that says done",
            **msgspec.to_builtins(status),
        )


EXPORT: Final = field("export", "The handle of an export.", max_length=100)

EXPORT_RECORDS: Final = Builtin(
    name="export_records",
    title="Export records",
    description=(
        "Export many records as a file: a job, pinned to one commit, that goes on after this call. "
        "Without export it starts one and answers with its handle; with export it says how far it "
        "is and, when state is done, shows a window of the file."
    ),
    fields=(
        field("types", "Only these types and their subtypes.", many=True, max_count=100),
        field("where", "field=value, a field of these types.", min_length=1, max_length=2000),
        field("fields", "Only these fields, and the key.", many=True, max_count=500),
        field("format", "csv is for other programs.", default="ndjson", one_of=list(FORMATS)),
        field(
            "escape_formulas",
            "For csv.",
            "Bool",
            default=False,
        ),
        BRANCH,
        SNAPSHOT,
        EXPORT,
        field("offset", "Characters of the file to skip.", "Int", min_value=0),
        field("max_chars", "", "Int", min_value=_LEAST, max_value=MOST_CHARS),
        field("discard", "Delete this export.", "Bool", default=False),
    ),
    result=ExportStatus,
    hints=READER,
    action="Export",
    kind="export",
    run=_run,
    routes=(
        Route("POST", "export"),
        Route("GET", "export/{export}", name="export_status"),
        Route("DELETE", "export/{export}", {"discard": True}, name="export_discard"),
    ),
)

BUILTINS: Final = (EXPORT_RECORDS,)
