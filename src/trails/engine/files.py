"""Files in and out of a branch: a load is one commit, an export one state."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

import msgspec

from trails.engine.access import OPEN, Access
from trails.engine.activities import Call
from trails.engine.export import FORMATS, export
from trails.engine.graph import Graph
from trails.engine.guards import guard_of
from trails.engine.lines import Line, compile_once
from trails.engine.load.files import How, staging
from trails.engine.load.joined import Given, Joined, common_format
from trails.engine.load.load import put_staged
from trails.engine.load.rdf import Parse
from trails.engine.load.source import BLOCK, Progress, Source, blocks_of, no_progress
from trails.engine.load.staged import Staged
from trails.engine.snapshots import snapshot_line
from trails.engine.write.draft import drafting
from trails.engine.write.opened import Opened, Opening, OutdatedError
from trails.errors import NotFoundError, QueryError, ValidationError
from trails.model.history import GENESIS
from trails.model.lenses import Lens
from trails.model.loads import LOAD_LIMITS, LoadLimits, LoadRequest, LoadResult, Mode
from trails.model.names import suggest
from trails.model.nodes import NodeState
from trails.model.types import Schema
from trails.views.nodes.index import NodeIndex, Stored


class Reading(NamedTuple):
    """How files are read: what parses RDF, who is told of progress, how large they may be."""

    parse: Parse
    progress: Progress = no_progress
    limits: LoadLimits = LOAD_LIMITS


def load_files(
    graph: Graph,
    line: Line,
    opening: Opening,
    request: LoadRequest,
    reading: Reading,
    *,
    access: Access = OPEN,
    call: Call | None = None,
    forked: bool = False,
) -> LoadResult:
    """Load all files of a request in one write; raises what is wrong with any of them.

    They are read before the write begins, so that other writers wait for what is written and
    not for what has to be read. If the types change meanwhile, the files are read again.
    ``forked`` says whether the branch was made for it.
    """
    how = How(
        format=common_format(request.files, request.format),
        mode=request.mode,
        type_name=request.type_name,
        separator=request.separator,
    )
    parse, progress, limits = reading
    several = Joined(request.files, limits) if len(request.files) > 1 else None
    given: Given = request.files[0] if several is None else several.blocks()
    opened: Opened | None = None
    with ExitStack() as stack:
        content = None
        if request.idempotency_key is not None:
            given, content = _digested(given, stack)
        begin = partial(opening, request=["load", how, request.source, content])
        source = stack.enter_context(closing(Source(given, progress, limits)))
        try:
            while opened is None:
                schema = _seen_schema(line, access)
                with staging(schema, graph.names, source, how, parse) as staged:
                    if staged.problems.found and not graph.file.in_memory:
                        # What else is wrong is found out without keeping anybody waiting.
                        with drafting(graph, line, access, call) as draft:
                            put_staged(draft, staged, how.mode)
                    with suppress(OutdatedError):
                        opened = _put(begin, staged, how.mode, forked=forked)
        except ValidationError as error:
            if several is None:
                raise
            raise several.placed(error) from None
    first = msgspec.convert(opened.result, _Answer)
    return LoadResult(
        line.name, opened.commit_id, first.nodes, first.deleted, first.forked, opened.replayed
    )


def _seen_schema(line: Line, access: Access) -> Schema:
    """The types as an actor sees them, in whose terms a file is read."""
    guard = guard_of(access, line.name, line.compiled)
    return line.schema if guard is None else guard.seen.schema


def _put(opening: Opening, staged: Staged, mode: Mode, *, forked: bool) -> Opened:
    """Write what was read, with the types that it was read with."""
    with opening() as opened:
        if not opened.replayed:
            if opened.write.nodes.seen.schema.digest != staged.schema.digest:
                raise OutdatedError
            loaded = put_staged(opened.write, staged, mode)
            opened.answer({"nodes": loaded.nodes, "deleted": loaded.deleted, "forked": forked})
    return opened


class _Answer(msgspec.Struct, frozen=True):
    """What a load answers beside its commit."""

    nodes: int = 0
    deleted: int = 0
    forked: bool = False


def _digested(given: Given, stack: ExitStack) -> tuple[Given, str]:
    """What is loaded, and the digest of its bytes; a stream is copied on the way."""
    digest = sha256()
    if isinstance(given, Path):
        try:
            with given.open("rb") as file:
                for block in iter(partial(file.read, BLOCK), b""):
                    digest.update(block)
        except OSError as error:
            raise NotFoundError(f"{given} can't be read: {error.strerror}") from None
        return given, digest.hexdigest()
    copy = stack.enter_context(TemporaryFile())  # noqa: SIM115 - closed by the caller
    for block in blocks_of(given):
        digest.update(block)
        copy.write(block)
    copy.seek(0)
    return copy, digest.hexdigest()


def export_line(
    graph: Graph, line: Line, format: str, types: Sequence[str] = (), lens: Lens | None = None
) -> Generator[bytes, None, None]:
    """A branch or snapshot as a file, in blocks; what is wrong with the request is told at once.

    A branch is read as of its head now, whatever is written meanwhile. With a lens, what it
    takes out is not in the file.
    """
    schema = line.schema if lens is None else lens.schema
    for name in types:
        if name not in schema.by_name:
            raise NotFoundError(f"there is no type {name[:100]!r}; {suggest(name, schema.by_name)}")
    if format not in FORMATS:
        raise QueryError(f"there is no export format {format!r}; {suggest(format, FORMATS)}")
    wanted = {each for name in types for each in schema.family(name)}
    names = [each for each in schema.by_name if not types or each in wanted]

    pinned = line
    if not line.fixed and line.head.commit != GENESIS and graph.read_only is None:
        pinned = snapshot_line(graph, graph.ancestry.commit(line.head.commit))

    def blocks() -> Generator[bytes, None, None]:
        states = _states(graph, pinned, names)
        if lens is None:
            yield from export(pinned.terms, states, format)
        else:
            seen = (state for each in states if (state := lens.see(each)) is not None)
            yield from export(compile_once(schema, graph.names).terms, seen, format)

    return blocks()


def _states(graph: Graph, line: Line, type_names: Sequence[str]) -> Iterator[NodeState]:
    """Every instance of types, page by page: nothing is held while nobody reads on."""
    for name in type_names:
        after = 0
        while page := graph.reading_nodes(line, partial(_page, graph, name, after)):
            yield from (stored.state for stored in page)
            after = page[-1].nid


def _page(graph: Graph, type_name: str, after: int, nodes: NodeIndex) -> list[Stored]:
    with graph.file.reader() as db:
        if db.in_transaction:
            return nodes.page(db, type_name, after)
        # One read transaction, so that all layers are seen at the same moment.
        db.execute("BEGIN")
        try:
            return nodes.page(db, type_name, after)
        finally:
            db.execute("COMMIT")
