"""Files in and out of a branch: a load is one commit, an export one state.

Exports are NDJSON, Turtle, N-Quads, JSON-LD or CSV, streamed in the order of the given nodes.
Loading an export into an empty graph with the same base and types gives the same content; CSV is
for other programs. A ``RecordWriter`` writes record by record, so that an export can be continued.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from trails.engine.graph.activities import CallRecord
from trails.engine.graph.checkouts import Checkout, compile_once
from trails.engine.graph.graph import Graph
from trails.engine.transfer.rdf import Parse
from trails.engine.transfer.source import BLOCK, LoadSource, Progress, blocks_of, no_progress
from trails.engine.transfer.staging import Staged
from trails.engine.transfer.tables import TableWriter
from trails.engine.visibility.access import OPEN, Access, guard_of
from trails.engine.visibility.refs import snapshot_checkout
from trails.engine.write.pending import drafting
from trails.engine.write.write import Opened, Opening, OutdatedError
from trails.errors import NotFoundError, QueryError, ValidationError
from trails.imports import later
from trails.model.history import GENESIS
from trails.model.iris import RDF_TYPE, XSD
from trails.model.kinds import Kind
from trails.model.names import suggest
from trails.model.nodes import NodeState
from trails.model.types import Schema
from trails.model.visibility import SchemaFilter
from trails.model.writes import LOAD_LIMITS, LoadLimits, LoadRequest, LoadResult, Mode
from trails.views.lists import PACKED, unpack
from trails.views.nodes.index import NodeIndex, Stored
from trails.views.nodes.rows import docs_of
from trails.views.terms import Terms, read_statements, stored_form

if TYPE_CHECKING:
    from trails.engine.transfer import formats, load
    from trails.engine.transfer.formats import Given
else:
    formats = later("trails.engine.transfer.formats")
    load = later("trails.engine.transfer.load")

_BLOCK: Final = 1 << 16
_LONG_NAME: Final = 200
_PORTION: Final = 100
_encode = msgspec.json.encode
_is_local = re.compile(r"[A-Za-z][A-Za-z0-9_]*").fullmatch


class RecordWriter(NamedTuple):
    """What a file begins with, and how each record is written after it."""

    head: bytes
    records: Callable[[Iterable[NodeState]], Iterator[bytes]]
    """One piece for each record, in order."""


def record_writer(
    format: str, terms: Terms, names: Sequence[str], *, escape_formulas: bool = False
) -> RecordWriter:
    """The writer of records of some types in one of ``RECORD_FORMATS``."""
    if format == "csv":
        table = TableWriter(terms.schema, names, escape_formulas=escape_formulas)
        return RecordWriter(table.head, table.records)
    head, records = RECORD_FORMATS[format]
    return RecordWriter(head(terms), partial(records, terms))


def export(
    terms: Terms, states: Iterable[NodeState], format: str, names: Sequence[str] = ()
) -> Iterator[bytes]:
    """The nodes as a file in one of ``FORMATS``, in blocks; of these types, or of any."""
    check_format(format, FORMATS)
    if format == "jsonld":
        return _blocks(write_jsonld(terms, states))
    writer = record_writer(format, terms, names or tuple(terms.schema.by_name))
    return _blocks(chain((writer.head,) if writer.head else (), writer.records(states)))


def check_format(format: str, known: Iterable[str]) -> None:
    """Refuse a format that is not among these."""
    if format not in known:
        raise QueryError(f"there is no export format {format[:100]!r}; {suggest(format, [*known])}")


def _blocks(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Join pieces into larger blocks, because each block has a fixed cost."""
    some: list[bytes] = []
    size = 0
    for part in parts:
        some.append(part)
        size += len(part)
        if size >= _BLOCK:
            yield b"".join(some)
            some.clear()
            size = 0
    if some:
        yield b"".join(some)


# --- NDJSON --------------------------------------------------------------------------------


def write_ndjson(terms: Terms, states: Iterable[NodeState]) -> Iterator[bytes]:
    """One line per node, in the form that ``load`` takes.

    A field without a value is left out, unless a default would fill it: then it is null.
    """
    docs = docs_of(terms.schema)
    empty = {
        each.name: {name: None for name, default, _ in each.defaults if default is not None}
        for each in terms.schema.types
    }
    starts = {each.name: b'{"type":%b,' % _encode(each.name) for each in terms.schema.types}
    edges = {each.name for each in terms.schema.types if each.edge is not None}
    keyless = {each.name for each in terms.schema.types if each.key is None}
    for state in states:
        name, values = state.type, {**empty[state.type], **state.values}
        if name in edges:
            source, target = values.pop("source"), values.pop("target")
            start = b'{"edge":%b,"from":%b,"to":%b,' % tuple(map(_encode, (name, source, target)))
        else:
            start = starts[name]
            if name in keyless:
                start += b'"id":%b,' % _encode(state.id)
        yield b'%b"data":%b}\n' % (start, docs.encode_plain(name, values))


# --- RDF -----------------------------------------------------------------------------------


def write_nquads(terms: Terms, states: Iterable[NodeState]) -> Iterator[bytes]:
    """The statements in canonical form, as in a store: ordered lists with their cells."""
    for state in states:
        yield stored_form("".join(terms.statements(state)).encode())


def _no_head(terms: Terms) -> bytes:
    del terms
    return b""


def _prefixes(terms: Terms) -> bytes:
    return f"@prefix : <{terms.names.vocabulary}> .\n@prefix xsd: <{XSD}> .\n".encode()


def write_turtle(terms: Terms, states: Iterable[NodeState]) -> Iterator[bytes]:
    """One paragraph per node, with terms as in N-Quads."""
    vocabulary = terms.names.vocabulary
    short: dict[str, str] = {f"<{RDF_TYPE}>": "a"}

    def shorten(iri: str) -> str:
        found = short.get(iri)
        if found is None:
            local = iri[1:-1].removeprefix(vocabulary)
            found = short[iri] = f":{local}" if _is_local(local) else iri
        return found

    for state in states:
        subject = terms.subject(state.handle)
        lines = []
        for statement in terms.statements(state):
            predicate, _, value = statement[len(subject) + 1 : -3].partition(" ")
            if predicate == f"<{RDF_TYPE}>":
                value = shorten(value)
            elif value.endswith(f"^^<{PACKED}>"):
                value = _collection(statement)
            else:
                value = _short_datatype(value)
            lines.append(f"{shorten(predicate)} {value}")
        paragraph = " ;\n  ".join(lines)
        yield f"\n{subject} {paragraph} .\n".encode()


def _short_datatype(value: str) -> str:
    if value.startswith('"') and value.endswith(">"):
        text, mark, datatype = value.rpartition(f"^^<{XSD}")
        if mark:
            return f"{text}^^xsd:{datatype[:-1]}"
    return value


def _collection(statement: str) -> str:
    """The ordered list of a statement, in parentheses."""
    (quad,) = read_statements(statement.encode())
    packed = unpack(quad.object)
    items = () if packed is None else packed.terms()
    return f"( {' '.join(_short_datatype(str(each)) for each in items)} )"


def write_jsonld(terms: Terms, states: Iterable[NodeState]) -> Iterator[bytes]:
    """A document with one object per node; every value but a string has its datatype."""
    yield b'{"@context":%b,"@graph":[' % _encode({"@vocab": terms.names.vocabulary})
    between = b"\n"
    fields = {each.name: _jsonld_fields(terms, each.name) for each in terms.schema.types}
    names, schema = terms.names, terms.schema
    classes = {
        each.name: [names.term(schema.by_name[name].iri) for name in schema.lineage(each.name)]
        for each in schema.types
    }
    for state in states:
        node: dict[str, object] = {
            "@id": names.nodes + state.handle,
            "@type": classes[state.type],
        }
        rest: list[dict[str, object]] = []
        for name, value in state.values.items():
            iri, encode = fields[state.type][name]
            declared = schema.by_name[state.type].by_name[name]
            if declared.ordered:
                node[iri] = {"@list": [encode(each) for each in value]}  # type: ignore[attr-defined]
            elif declared.many:
                first, *others = _portions([encode(each) for each in value], node["@id"])  # type: ignore[attr-defined]
                node[iri] = first
                rest += [{"@id": node["@id"], iri: portion} for portion in others]
            else:
                node[iri] = encode(value)
        for each in (node, *rest):
            yield between + _encode(each)
            between = b",\n"
    yield b"\n]}\n"


def _portions(values: list[object], identifier: object) -> Iterator[list[object]]:
    """A list whole, or in parts if each value becomes a much longer statement.

    A file that grows too much by being read is refused as hostile. To say the node's name now and
    then keeps it well within that.
    """
    size = _PORTION if len(str(identifier)) > _LONG_NAME else max(len(values), 1)
    for at in range(0, max(len(values), 1), size):
        yield values[at : at + size]


def _jsonld_fields(
    terms: Terms, type_name: str
) -> dict[str, tuple[str, Callable[[object], object]]]:
    return {
        field.name: (terms.names.term(field.iri), _jsonld_value(terms, field.type.scalar.row))
        for field in terms.schema.by_name[type_name].fields
    }


def _jsonld_value(terms: Terms, row: Kind | None) -> Callable[[object], object]:
    if row is None:
        nodes = terms.names.nodes
        return lambda handle: {"@id": f"{nodes}{handle}"}
    if row.tagged:
        return _jsonld_texts
    datatype, lexical = row.datatype, row.lexical
    if datatype == XSD + "string":
        return lexical
    return lambda value: {"@value": lexical(value), "@type": datatype}


def _jsonld_texts(value: object) -> object:
    texts: Mapping[str, str] = value  # type: ignore[assignment]
    return [{"@value": text, "@language": tag} for tag, text in texts.items()]


Write = Callable[[Terms, Iterable[NodeState]], Iterator[bytes]]
RECORD_FORMATS: Final[dict[str, tuple[Callable[[Terms], bytes], Write]]] = {
    "ndjson": (_no_head, write_ndjson),
    "turtle": (_prefixes, write_turtle),
    "nquads": (_no_head, write_nquads),
}
"""Formats that are a head and then records, and that can be loaded again."""
LOADABLE: Final = (*RECORD_FORMATS, "jsonld")
"""The export formats that can be loaded again."""
FORMATS: Final = (*LOADABLE, "csv")
"""The export formats."""


class ReadOptions(NamedTuple):
    """How files are read: the RDF parser, the progress callback, the size limits."""

    parse: Parse
    progress: Progress = no_progress
    limits: LoadLimits = LOAD_LIMITS


def load_files(
    graph: Graph,
    checkout: Checkout,
    opening: Opening,
    request: LoadRequest,
    reading: ReadOptions,
    *,
    access: Access = OPEN,
    call: CallRecord | None = None,
    forked: bool = False,
) -> LoadResult:
    """Load all files of a request in one write; raises every problem of any of them.

    They are read before the write begins, so that other writers wait for what is written and
    not for what has to be read. If the types change in the meantime, the files are read again.
    ``forked`` says whether the branch was made for it.
    """
    how = formats.How(
        format=formats.common_format(request.files, request.format),
        mode=request.mode,
        type_name=request.type_name,
        separator=request.separator,
    )
    parse, progress, limits = reading
    several = formats.Joined(request.files, limits) if len(request.files) > 1 else None
    given: Given = request.files[0] if several is None else several.blocks()
    opened: Opened | None = None
    with ExitStack() as stack:
        content = None
        if request.idempotency_key is not None:
            given, content = _digested(given, stack)
        begin = partial(opening, request=["load", how, request.source, content])
        source = stack.enter_context(closing(LoadSource(given, progress, limits)))
        try:
            while opened is None:
                schema = _visible_schema(checkout, access)
                with formats.staging(schema, graph.names, source, how, parse) as staged:
                    if staged.problems.found and not graph.file.in_memory:
                        # The other problems are found without blocking writers.
                        with drafting(graph, checkout, access, call) as draft:
                            load.put_staged(draft, staged, how.mode)
                    with suppress(OutdatedError):
                        opened = _put(begin, staged, how.mode, forked=forked)
        except ValidationError as error:
            if several is None:
                raise
            raise several.placed(error) from None
    first = msgspec.convert(opened.result, _Answer)
    return LoadResult(
        checkout.name, opened.commit_id, first.nodes, first.deleted, first.forked, opened.replayed
    )


def _visible_schema(checkout: Checkout, access: Access) -> Schema:
    """The types visible to the actor, which files are read with."""
    guard = guard_of(access, checkout.name, checkout.compiled)
    return checkout.schema if guard is None else guard.visible.schema


def _put(opening: Opening, staged: Staged, mode: Mode, *, forked: bool) -> Opened:
    """Put the staged nodes, if the types are those that they were read with."""
    with opening() as opened:
        if not opened.replayed:
            if opened.write.nodes.visible.schema.digest != staged.schema.digest:
                raise OutdatedError
            loaded = load.put_staged(opened.write, staged, mode)
            opened.answer({"nodes": loaded.nodes, "deleted": loaded.deleted, "forked": forked})
    return opened


class _Answer(msgspec.Struct, frozen=True):
    """The result of a load in addition to its commit."""

    nodes: int = 0
    deleted: int = 0
    forked: bool = False


def _digested(given: Given, stack: ExitStack) -> tuple[Given, str]:
    """The source and the digest of its bytes; a stream is copied."""
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


def export_checkout(
    graph: Graph,
    checkout: Checkout,
    format: str,
    types: Sequence[str] = (),
    schema_filter: SchemaFilter | None = None,
) -> Generator[bytes, None, None]:
    """Export a branch or snapshot in blocks; a wrong request raises at once.

    A branch is read as of its current head, while others write. With a filter, what it
    takes out is not in the file.
    """
    schema = checkout.schema if schema_filter is None else schema_filter.schema
    for name in types:
        if name not in schema.by_name:
            raise NotFoundError(f"there is no type {name[:100]!r}; {suggest(name, schema.by_name)}")
    check_format(format, FORMATS)
    wanted = {each for name in types for each in schema.family(name)}
    names = [each for each in schema.by_name if not types or each in wanted]

    pinned = checkout
    if not checkout.fixed and checkout.head.commit != GENESIS and graph.read_only is None:
        pinned = snapshot_checkout(graph, graph.ancestry.commit(checkout.head.commit))

    def blocks() -> Generator[bytes, None, None]:
        states = _states(graph, pinned, names)
        if schema_filter is None:
            yield from export(pinned.terms, states, format, names)
        else:
            seen = (state for each in states if (state := schema_filter.apply(each)) is not None)
            yield from export(compile_once(schema, graph.names).terms, seen, format, names)

    return blocks()


def _states(graph: Graph, checkout: Checkout, type_names: Sequence[str]) -> Iterator[NodeState]:
    """Every instance of types, page by page; no lock is held between pages."""
    for name in type_names:
        after = 0
        while page := graph.reading_nodes(checkout, partial(_page, graph, name, after)):
            yield from (stored.state for stored in page)
            after = page[-1].nid


def _page(graph: Graph, type_name: str, after: int, nodes: NodeIndex) -> list[Stored]:
    with graph.file.reader() as db:
        if db.in_transaction:
            return nodes.page(db, type_name, after)
        # One read transaction, so that all layers are read in the same state.
        db.execute("BEGIN")
        try:
            return nodes.page(db, type_name, after)
        finally:
            db.execute("COMMIT")
