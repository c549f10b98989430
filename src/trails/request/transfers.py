"""Transfers: records and files, which REST and the command line offer beside tools and resources.

Each is an entry like a tool, so it takes the same path: authorize, admit, dispatch, record an
activity. A load is spooled to disk before anything is locked; an export is made block by block in
a thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Final

import msgspec

from trails.engine.session.context import GraphContext
from trails.engine.session.service import GraphService
from trails.errors import BudgetError
from trails.log.storage import storage_errors
from trails.model.actors import Actor, is_limited
from trails.model.operations.graph import BlobKept
from trails.model.results import Failure, Outcome
from trails.model.values.blobs import ANY_TYPE, describe_blob
from trails.projections.tools import BRANCH, SNAPSHOT
from trails.request.admission import Admission, AdmissionSlot, KernelOptions
from trails.request.builtins.declare import (
    ADDER,
    READER,
    STREAM_OPENED,
    Builtin,
    Route,
    StreamOpened,
    ToolContext,
    field,
)
from trails.request.builtins.exports import (
    EXPORT_RECORDS,
    MEDIA_TYPES,
    check_done,
    content_type,
    file_name,
    find_export,
)
from trails.request.builtins.sparql import SPARQL, Choose, SparqlReply
from trails.request.builtins.writes import GRAPH_LOAD, load_file
from trails.request.catalog import builtin_entry, builtin_gate
from trails.request.entries import Entry, of_queries
from trails.request.operations import OPERATIONS
from trails.request.threads import Threads

BINARY: Final = "application/octet-stream"
LOAD_TYPES: Final = {
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "text/turtle": "turtle",
    "application/n-triples": "ntriples",
    "application/n-quads": "nquads",
    "application/ld+json": "jsonld",
    "text/csv": "csv",
}
"""Media types of files that can be loaded, and their formats."""
EXPORT_TYPES: Final = {**MEDIA_TYPES, "jsonld": "application/ld+json"}
"""Formats of exports, and their media types."""
_BLOCK: Final = 1 << 20
_SOON: Final = 0.25
"""Seconds for which the file of an export that is almost finished is waited for."""


async def spool(body: AsyncIterator[bytes], suffix: str, folder: Path | None) -> Path:
    """Write a stream to a file, which the caller removes; memory holds one block.

    ``folder`` is where, so that files of a killed process are found; None: the system's default.
    """
    with storage_errors("keep what is sent"):
        file = NamedTemporaryFile(  # noqa: SIM115 - closed below
            prefix="trails-", suffix=suffix, dir=folder, delete=False
        )
    path = Path(file.name)
    try:
        with file:
            waiting = bytearray()
            async for block in body:
                waiting += block
                if len(waiting) >= _BLOCK:
                    await asyncio.to_thread(_write, file, waiting)
                    waiting.clear()
            await asyncio.to_thread(_write, file, waiting)
    except BaseException:
        drop(path)
        raise
    return path


def drop(path: Path) -> None:
    """Remove a spooled file."""
    path.unlink(missing_ok=True)


def _write(file: IO[bytes], data: bytearray) -> None:
    with storage_errors("keep what is sent"):
        file.write(data)
        file.flush()


async def stream(blocks: Generator[bytes, None, None]) -> AsyncGenerator[bytes, None]:
    """Make blocks in a separate thread, until the reader stops."""
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, "trails-export")
    try:
        while block := await loop.run_in_executor(thread, partial(next, blocks, b"")):
            yield block
    finally:
        # In the same thread, so after a block that is being made.
        await asyncio.shield(loop.run_in_executor(thread, blocks.close))
        thread.shutdown(wait=False)


Blocks = Generator[bytes, None, None]


def _export(
    tool: ToolContext, ctx: GraphContext, *, opened: list[Blocks], format: str, type: list[str]
) -> object:
    opened.append(tool.service.export(ctx, format, type))
    return STREAM_OPENED


class FileContent(msgspec.Struct, frozen=True, eq=False):
    """The file of a finished export, or a blob."""

    name: str
    media_type: str
    size: int
    sha256: str
    open: Callable[[int, int], Blocks]
    hold: Callable[[], AdmissionSlot]

    def read(self, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """The bytes from a start up to an end; it counts as a call until the last block."""
        return _held(self.hold(), stream(self.open(start, end)))


def _content(
    tool: ToolContext,
    ctx: GraphContext,
    *,
    opened: list[FileContent],
    hold: Callable[[], AdmissionSlot],
    export: str,
) -> object:
    exports, found = find_export(tool, ctx, export)
    found.ended.wait(_SOON)
    check_done(found)
    files = found.files
    opened.append(
        FileContent(
            file_name(found),
            content_type(found),
            files.last.bytes,
            "" if files.outcome is None else files.outcome.sha256,
            partial(exports.read, found),
            hold,
        )
    )
    return STREAM_OPENED


CONTENT: Final = Builtin(
    name=EXPORT_RECORDS.name,
    title=EXPORT_RECORDS.title,
    description="The file of an export.",
    fields=(field("export", "Its handle.", required=True, max_length=100),),
    result=StreamOpened,
    hints=READER,
    action=EXPORT_RECORDS.action,
    kind="export",
    run=_content,
    routes=(
        Route(
            "GET",
            "export/{export}/content",
            name="export_content",
            gives=tuple(EXPORT_TYPES.values()),
        ),
    ),
)


def _blob_content(
    tool: ToolContext,
    ctx: GraphContext,
    *,
    opened: list[FileContent],
    hold: Callable[[], AdmissionSlot],
    type: str,
    id: str,
    field: str,
) -> object:
    del tool
    facts = ctx.kg.blob_of(type, id, field)

    def blocks(start: int, end: int) -> Blocks:
        return ctx.kg.blobs.blocks(facts, start, end - start)

    opened.append(FileContent(facts.name, facts.media_type, facts.size, facts.digest, blocks, hold))
    return STREAM_OPENED


BLOB_CONTENT: Final = Builtin(
    name="blob_get",
    title="Read a blob",
    description="The content of a blob that a field of a record names.",
    fields=(
        field("type", "The record's type.", required=True, max_length=100),
        field("id", "The record's id.", required=True, max_length=8192),
        field("field", "The field.", required=True, max_length=100),
    ),
    controls=(BRANCH, SNAPSHOT),
    result=StreamOpened,
    hints=READER,
    action="Read",
    run=_blob_content,
    routes=(Route("GET", "kg/{type}/{id}/fields/{field}/content", gives=(BINARY, "*/*")),),
)


async def _put_blob(
    tool: ToolContext,
    ctx: GraphContext,
    *,
    body: AsyncIterator[bytes],
    threads: Threads,
    media_type: str,
    name: str,
) -> object:
    file = await spool(body, ".blob", tool.service.graph.temporary())
    return await threads.run(
        ctx.actor, _take_and_drop, ctx, file, media_type, name, dropped=partial(drop, file)
    )


def _take_and_drop(ctx: GraphContext, file: Path, media_type: str, name: str) -> object:
    try:
        blob = ctx.kg.blobs.take(file, media_type, name)
        return msgspec.convert(describe_blob(blob), BlobKept)
    finally:
        drop(file)


BLOB_PUT: Final = Builtin(
    name="blob_put",
    title="Send a blob",
    description="Keep content, which a Blob field of a record can then name.",
    fields=(
        field("media_type", "What it is.", default=ANY_TYPE, max_length=255),
        field("name", "Its file name.", default="", max_length=1000),
    ),
    controls=(BRANCH,),
    result=BlobKept,
    hints=ADDER,
    action="Change",
    place="loop",
    kind="load",
    run=_put_blob,
    routes=(Route("POST", "blobs", sends=(BINARY,), status=201),),
)


EXPORT: Final = Builtin(
    name="graph_export",
    title="Export",
    description="A branch or snapshot as a file.",
    fields=(
        field("format", "ndjson, turtle, nquads, jsonld or csv.", default="ndjson"),
        field("type", "Only these types and what extends them.", many=True),
    ),
    controls=(BRANCH, SNAPSHOT),
    result=StreamOpened,
    hints=READER,
    action="Export",
    kind="export",
    run=_export,
    routes=(Route("GET", "export", gives=tuple(EXPORT_TYPES.values())),),
)


async def _load(
    tool: ToolContext,
    ctx: GraphContext,
    *,
    body: AsyncIterator[bytes],
    suffix: str,
    threads: Threads,
    **given: str | None,
) -> object:
    file = await spool(body, suffix, tool.service.graph.temporary())
    return await threads.run(
        ctx.actor, _load_and_drop, tool, ctx, file, given, dropped=partial(drop, file)
    )


def _load_and_drop(
    tool: ToolContext, ctx: GraphContext, file: Path, given: Mapping[str, str | None]
) -> object:
    try:
        return load_file(tool, ctx, file, given)
    finally:
        drop(file)


LOAD: Final = msgspec.structs.replace(
    GRAPH_LOAD,
    fields=tuple(each for each in GRAPH_LOAD.fields if each.name != "data"),
    place="loop",
    run=_load,
    routes=(Route("POST", "load", sends=(*LOAD_TYPES, BINARY)),),
)

TRANSFERS: Final = (LOAD, EXPORT, CONTENT, BLOB_PUT, BLOB_CONTENT, SPARQL)
"""What has routes of its own beside the built-ins; each is handled by a function of REST."""


Perform = Callable[[Actor, Entry, Mapping[str, object]], Awaitable[Outcome]]
"""The path of a request, after its entry was resolved."""
Unknown = Callable[[Actor, str], Awaitable[Outcome]]
"""Its end for a name that does not exist."""
_LATER: Final = 10
"""Seconds after which a load may have ended."""
_LARGEST: Final = 64 << 20
"""The largest record in bytes; programs can handle more than models."""
_replace = msgspec.structs.replace
_SUFFIXES: Final = {"": "", "gzip": ".gz", "zstd": ".zst"}


class Transfers:
    """The transfers of one graph."""

    def __init__(
        self,
        service: GraphService,
        options: KernelOptions,
        perform: Perform,
        unknown: Unknown,
        admission: Admission,
        threads: Threads,
    ) -> None:
        self._service = service
        self._unknown = unknown
        self._admission = admission
        self._threads = threads
        self._spooled: Counter[str] = Counter()
        self._most_spooled = options.budget.spool
        tool, graph = ToolContext(service, options, bounded=False), service.graph.name
        self._perform = perform
        self._records = {
            each.name: _replace(
                builtin_entry(each, tool, builtin_gate(each, graph)), largest=_LARGEST
            )
            for each in OPERATIONS
            if each.routes and not each.is_hidden(options.env)
        }
        self._load = builtin_entry(LOAD, tool, builtin_gate(LOAD, graph))
        self._export = builtin_entry(EXPORT, tool, builtin_gate(EXPORT, graph))
        self._content = builtin_entry(CONTENT, tool, builtin_gate(CONTENT, graph))
        self._blob = builtin_entry(BLOB_CONTENT, tool, builtin_gate(BLOB_CONTENT, graph))
        self._sparql = builtin_entry(SPARQL, tool, builtin_gate(SPARQL, graph))
        self._put_blob = builtin_entry(BLOB_PUT, tool, builtin_gate(BLOB_PUT, graph))

    @property
    def uri(self) -> str:
        """The prefix of the graph's IRIs."""
        return self._service.graph.names.base

    async def record(self, actor: Actor, name: str, arguments: Mapping[str, object]) -> Outcome:
        """The result of a built-in with a route, whole unless ``max_chars`` is given."""
        entry = self._records.get(name)
        if entry is None:
            return await self._unknown(actor, name)
        if entry.tool.action == "InvokeQuery":
            gate = of_queries(self._service.registry.queries.values(), self._service.graph.name)
            entry = _replace(entry, gate=gate)
        return await self._perform(actor, entry, arguments)

    async def load(
        self,
        actor: Actor,
        body: AsyncIterator[bytes],
        arguments: Mapping[str, object],
        *,
        coding: str = "",
    ) -> Outcome:
        """Load a stream in one commit or not at all; ``coding`` is gzip, zstd or empty.

        It is spooled to disk before anything is locked, so a slow sender delays no one else.
        """
        spooled = Spooled(self._spooled, actor, self._most_spooled)
        entry = _given(
            self._load, body=spooled.count(body), suffix=_SUFFIXES[coding], threads=self._threads
        )
        try:
            return await self._perform(actor, entry, arguments)
        finally:
            spooled.end()

    async def export(
        self, actor: Actor, arguments: Mapping[str, object]
    ) -> AsyncGenerator[bytes, None] | Failure:
        """Export a branch or snapshot in blocks; errors are reported before the first."""
        opened: list[Blocks] = []
        entry = _given(self._export, opened=opened)
        outcome = await self._perform(actor, entry, arguments)
        if isinstance(outcome, Failure):
            return outcome
        return _held(self._admission.hold(actor.name), stream(opened[0]))

    @property
    def most_blob(self) -> int:
        """Bytes that a blob may have; 0: no limit."""
        return self._service.graph.most_blob

    async def put_blob(
        self, actor: Actor, body: AsyncIterator[bytes], arguments: Mapping[str, object]
    ) -> Outcome:
        """Keep the content of a stream, which is spooled to disk."""
        spooled = Spooled(self._spooled, actor, self._most_spooled)
        entry = _given(self._put_blob, body=spooled.count(body), threads=self._threads)
        try:
            return await self._perform(actor, entry, arguments)
        finally:
            spooled.end()

    async def blob(self, actor: Actor, arguments: Mapping[str, object]) -> FileContent | Failure:
        """The blob that a field of a record names, of which parts can be read."""
        opened: list[FileContent] = []
        hold = partial(self._admission.hold, actor.name)
        entry = _given(self._blob, opened=opened, hold=hold)
        outcome = await self._perform(actor, entry, arguments)
        return outcome if isinstance(outcome, Failure) else opened[0]

    async def sparql(
        self, actor: Actor, arguments: Mapping[str, object], choose: Choose
    ) -> SparqlReply | Failure:
        """Run a query; ``choose`` names the format for its kind of result."""
        opened: list[SparqlReply] = []
        entry = _given(self._sparql, opened=opened, choose=choose)
        outcome = await self._perform(actor, entry, arguments)
        return outcome if isinstance(outcome, Failure) else opened[0]

    async def content(self, actor: Actor, export: str) -> FileContent | Failure:
        """The file of a finished export, of which parts can be read."""
        opened: list[FileContent] = []
        hold = partial(self._admission.hold, actor.name)
        entry = _given(self._content, opened=opened, hold=hold)
        outcome = await self._perform(actor, entry, {"export": export})
        return outcome if isinstance(outcome, Failure) else opened[0]


class Spooled:
    """Counts the bytes of one load that are being received, within the limit of its actor."""

    def __init__(self, of_all: Counter[str], actor: Actor, most: int) -> None:
        self._of_all = of_all
        self._actor = actor
        self._most = most if is_limited(actor) else 0
        self._size = 0

    async def count(self, body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Pass blocks on while they are within the limit."""
        name = self._actor.name
        async for block in body:
            self._size += len(block)
            self._of_all[name] += len(block)
            if 0 < self._most < self._of_all[name]:
                raise BudgetError(
                    f"the loads of {name} that are on their way in have more than "
                    f"{self._most >> 20} MiB (spool_mb in [graphs.<id>.budgets]); wait for one to "
                    "end, then try again, or send less at a time",
                    limit="spool_mb",
                    allowed=self._most >> 20,
                    used=self._of_all[name] >> 20,
                    retry_after=_LATER,
                )
            yield block

    def end(self) -> None:
        """Stop counting them."""
        self._of_all[self._actor.name] -= self._size
        if not self._of_all[self._actor.name]:
            del self._of_all[self._actor.name]


async def _held(
    slot: AdmissionSlot, blocks: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """Count the call as running until the last block, or until the reader stops."""
    try:
        async with aclosing(blocks):
            async for block in blocks:
                yield block
    finally:
        slot.release()


def _given(entry: Entry, **more: object) -> Entry:
    """A copy of an entry for one request, whose handler gets more than arguments."""
    makes = entry.handler_on

    def handler_on(service: GraphService) -> Callable[..., object]:
        return partial(entry.handler if makes is None else makes(service), **more)

    return _replace(entry, handler=partial(entry.handler, **more), handler_on=handler_on)
