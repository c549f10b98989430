"""Files in and out of a branch: a load is one commit, an export one state."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from trails.engine.export import FORMATS, export
from trails.engine.graph import Graph
from trails.engine.lines import Line, compile_once
from trails.engine.load.files import How, load
from trails.engine.load.joined import Given, Joined, common_format
from trails.engine.load.rdf import Parse
from trails.engine.load.source import BLOCK, Progress, blocks_of
from trails.engine.snapshots import snapshot_line
from trails.engine.write.opened import Opening
from trails.errors import NotFoundError, QueryError, ValidationError
from trails.model.history import GENESIS
from trails.model.lenses import Lens
from trails.model.loads import LoadRequest, LoadResult
from trails.model.names import suggest
from trails.model.nodes import NodeState
from trails.views.nodes.index import NodeIndex, Stored


def load_files(
    graph: Graph,
    line: Line,
    opening: Opening,
    request: LoadRequest,
    parse: Parse,
    progress: Progress,
    *,
    forked: bool = False,
) -> LoadResult:
    """Load all files of a request in one write; raises what is wrong with any of them.

    ``forked`` says whether the branch was made for it.
    """
    how = How(
        format=common_format(request.files, request.format),
        mode=request.mode,
        type_name=request.type_name,
        separator=request.separator,
    )
    several = Joined(request.files) if len(request.files) > 1 else None
    given: Given = request.files[0] if several is None else several.blocks()
    with ExitStack() as stack:
        content = None
        if request.idempotency_key is not None:
            given, content = _digested(given, stack)
        with opening(request=["load", how, request.source, content]) as opened:
            if not opened.replayed:
                write = opened.write
                try:
                    loaded = load(
                        write,
                        write.nodes.seen.schema,
                        graph.names,
                        given,
                        how,
                        parse=parse,
                        progress=progress,
                    )
                except ValidationError as error:
                    if several is None:
                        raise
                    raise several.placed(error) from None
                opened.answer({"nodes": loaded.nodes, "deleted": loaded.deleted, "forked": forked})
    told = msgspec.convert(opened.result, _Answer)
    return LoadResult(
        line.name, opened.commit_id, told.nodes, told.deleted, told.forked, opened.replayed
    )


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
        return nodes.page(db, type_name, after)
