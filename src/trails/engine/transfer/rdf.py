"""RDF files: Turtle, N-Triples, N-Quads, JSON-LD.

The caller supplies the function that parses text into N-Quads, because untrusted text is parsed
in a separate process. Statements are sorted on disk (runs that are merged as they are read), so
that those of one node are adjacent. Undeclared names, blank nodes and named graphs are errors; only
the cells of ordered lists may be blank. A merge replaces single values and ordered lists, and
unites sets.
"""

from __future__ import annotations

import heapq
import io
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import groupby, islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

import pyoxigraph as ox

from trails.engine.transfer.items import LoadItem, Problems
from trails.engine.transfer.load import LoadOutcome, put_staged
from trails.engine.transfer.source import LoadSource, Progress, no_progress
from trails.engine.transfer.staging import Staged
from trails.engine.write.write import Write
from trails.errors import FieldError, QueryError, ValidationError
from trails.model.constraints import shorten
from trails.model.iris import RDF, RDF_TYPE, XSD, Names
from trails.model.kinds import Kind, KindError
from trails.model.names import suggest
from trails.model.nodes import make_handle
from trails.model.texts import with_article
from trails.model.types import PredicateDescriptor, Schema
from trails.model.writes import Mode
from trails.views.lists import CELL_PREDICATES, ListError, read_list
from trails.views.long_strings import parse_file
from trails.views.terms import long_token

_CELLS: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE cells (cell BLOB NOT NULL, line BLOB NOT NULL, used INTEGER NOT NULL);
CREATE INDEX lines_of ON cells (cell);
"""
_CELL_PREDICATES: Final = frozenset(f"<{each}>".encode() for each in CELL_PREDICATES)
_TYPE: Final = f"<{RDF_TYPE}>".encode()
_LIST_CLASS: Final = f"<{RDF}List> ".encode()
_SHOWN: Final = 100
RUN: Final = 32 * 2**20
_RUNS: Final = 64
"""Open files at a time; this many runs are merged into one."""


def sorted_lines(blocks: Iterable[bytes], run: int = RUN) -> Iterator[bytes]:
    """The distinct lines of a text in byte order, without newlines."""
    with ExitStack() as stack:
        runs: list[IO[bytes]] = []
        lines: list[bytes] = []
        size, begun = 0, list[bytes]()
        for block in blocks:
            size += len(block)
            begun.append(block)
            if b"\n" not in block:
                continue
            lines += b"".join(begun).split(b"\n")
            begun = [lines.pop()]
            if size >= run:
                runs.append(_written(stack, sorted(lines)))
                lines, size = [], 0
                if len(runs) >= _RUNS:
                    runs = [_written(stack, heapq.merge(*map(_lines_of, runs)))]
        if rest := b"".join(begun):
            lines.append(rest)
        last = b""
        for line in heapq.merge(*map(_lines_of, runs), sorted(lines)):
            if line != last:
                yield line
            last = line


def _written(stack: ExitStack, lines: Iterable[bytes]) -> IO[bytes]:
    file = stack.enter_context(TemporaryFile())  # noqa: SIM115 - closed with the stack
    file.writelines(line + b"\n" for line in lines)
    file.seek(0)
    return file


def _lines_of(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        for line in file:
            yield line[:-1]


Parse = Callable[[Iterator[bytes], str, str], Iterator[bytes]]
"""(blocks of text, format, base IRI) → blocks of N-Quads."""

FORMATS: Final = {
    "turtle": ox.RdfFormat.TURTLE,
    "ntriples": ox.RdfFormat.N_TRIPLES,
    "nquads": ox.RdfFormat.N_QUADS,
    "jsonld": ox.RdfFormat.JSON_LD,
}

# A number may have a narrower datatype than the field.
_WIDER: Final = {
    (XSD + "integer", XSD + "decimal"),
    (XSD + "integer", XSD + "double"),
    (XSD + "decimal", XSD + "double"),
}
_BLOCK: Final = 1 << 16
_SOME: Final = 5000
_BYTES: Final = 4 << 20
"""Statements and bytes that are read in one step."""


class _Reader(io.RawIOBase):
    """Blocks as a file."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        block = self._rest or next(self._blocks, b"")
        size = min(len(buffer), len(block))
        buffer[:size] = block[:size]
        self._rest = block[size:]
        return size


def parse_here(blocks: Iterator[bytes], format: str, base_iri: str) -> Iterator[bytes]:
    """Parse in this process; for trusted files only."""
    try:
        source = io.BufferedReader(_Reader(blocks), _BLOCK)
        quads = parse_file(source.read, FORMATS[format], base_iri)
        while some := list(islice(quads, _SOME)):
            yield ox.serialize(some, format=ox.RdfFormat.N_QUADS) or b""
    except (SyntaxError, ValueError, MemoryError) as error:
        message = f"the file is not valid {format}: {error}"
        if isinstance(error, MemoryError):
            reason = long_token(error)
            if reason is None:
                raise
            message = f"the file can't be read: {reason}"
        raise ValidationError([FieldError("source", "syntax", message)]) from None


def stage_rdf(staged: Staged, source: LoadSource, format: str, parse: Parse = parse_here) -> None:
    """Read RDF into ``staged``, which must be one of statements."""
    if format not in FORMATS:
        raise QueryError(f"there is no RDF format {format!r}; {suggest(format, FORMATS)}")
    nquads = parse(source.blocks(), format, staged.names.nodes)
    has_lists = any(field.ordered for each in staged.schema.types for field in each.fields)
    with closing(ListCells()) as cells:
        statements = Statements(staged.schema, staged.names, staged.problems, cells)
        lines = sorted_lines(cells.take(nquads) if has_lists else nquads)
        staged.fill(statements.items(lines))
        for cell in cells.unused(_SHOWN):
            staged.problems.add(
                f"{shorten(cell)} ",
                "is a cell of a list that no field with ordered=True has; remove it, or declare "
                "the field as ordered",
                "unknown_field",
            )


def load_rdf(
    write: Write,
    schema: Schema,
    names: Names,
    given: Path | IO[bytes] | Iterable[bytes],
    *,
    format: str,
    mode: Mode = "merge",
    parse: Parse = parse_here,
    progress: Progress = no_progress,
) -> LoadOutcome:
    """Load RDF into an open write; raises the problems of the file."""
    with (
        closing(LoadSource(given, progress)) as source,
        Staged(schema, names, statements=True) as staged,
    ):
        stage_rdf(staged, source, format, parse)
        return put_staged(write, staged, mode)


class ListCells:
    """The cells of the lists in a file, in a temporary database.

    Cells have names of their own, so the statements of a list are not adjacent to its node's.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.executescript(_CELLS)

    def close(self) -> None:
        """Delete it."""
        self._db.close()

    def take(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Keep the statements about cells; give all others."""
        begun = b""
        for block in blocks:
            text, newline, rest = block.rpartition(b"\n")
            if not newline:
                begun += block
                continue
            yield self._others(begun + text + newline)
            begun = rest
        if begun:
            yield self._others(begun + b"\n")

    def _others(self, lines: bytes) -> bytes:
        if RDF.encode() not in lines:
            return lines
        others: list[bytes] = []
        cells: list[tuple[bytes, bytes]] = []
        for line in lines.split(b"\n"):
            subject, _, rest = line.partition(b" ")
            predicate, _, value = rest.partition(b" ")
            if predicate in _CELL_PREDICATES:
                cells.append((subject, line))
            elif not (predicate == _TYPE and value.startswith(_LIST_CLASS)):
                others.append(line)
        self._db.executemany("INSERT INTO cells VALUES (?, ?, 0)", cells)
        return b"\n".join(others)

    def read(self, head: object) -> list[object]:
        """The items of the list that begins at a term."""
        items, cells = read_list(head, self._parts)
        self._db.executemany(
            "UPDATE cells SET used = 1 WHERE cell = ?", ((str(each).encode(),) for each in cells)
        )
        return items

    def _parts(self, cell: object) -> Mapping[str, list[object]]:
        found: dict[str, list[object]] = {}
        rows = self._db.execute("SELECT line FROM cells WHERE cell = ?", (str(cell).encode(),))
        for (line,) in rows.fetchall():
            for quad in ox.parse(line, format=ox.RdfFormat.N_QUADS, lenient=True):
                found.setdefault(quad.predicate.value, []).append(quad.object)
        return found

    def unused(self, limit: int) -> list[str]:
        """Some cells that no list had."""
        query = "SELECT DISTINCT cell FROM cells WHERE NOT used ORDER BY cell LIMIT ?"
        return [cell.decode() for (cell,) in self._db.execute(query, (limit,))]


class _Fields:
    """The classes and fields that statements about one type may use."""

    def __init__(self, schema: Schema, names: Names, type_name: str) -> None:
        descriptor = schema.by_name[type_name]
        lineage = schema.lineage(type_name)
        self.classes = [names.term(schema.by_name[each].iri) for each in lineage]
        self.by_iri = {names.term(field.iri): field for field in descriptor.fields}


class Statements:
    """Reads sorted N-Quads as nodes."""

    def __init__(self, schema: Schema, names: Names, problems: Problems, cells: ListCells) -> None:
        self._cells = cells
        self._names = names
        self._problems = problems
        self._types = {each.name: _Fields(schema, names, each.name) for each in schema.types}

    def items(self, lines: Iterator[bytes]) -> Iterator[LoadItem]:
        """The nodes; invalid statements are collected."""
        groups = groupby(_quads(lines), key=lambda quad: quad.subject)
        for number, (subject, quads) in enumerate(groups, start=1):
            item = self._item(-number, subject, quads)
            if self._problems.full:
                return
            if item is not None:
                yield item

    def _item(self, number: int, subject: object, quads: Iterable[ox.Quad]) -> LoadItem | None:
        if not isinstance(subject, ox.NamedNode):
            what = f"_:{subject.value}" if isinstance(subject, ox.BlankNode) else str(subject)
            self._problems.add(
                f"{shorten(what)} ",
                "is a blank node, which has no name that a later load could use; give it an IRI "
                f"like <{self._names.nodes}Type/id>",
            )
            return None
        parsed = self._names.parse_node(subject.value)
        if parsed is None or parsed[0] not in self._types:
            hint = f"a node's IRI is <{self._names.nodes}Type/id>"
            if parsed is not None:
                hint = f"there is no type {parsed[0]!r}; {suggest(parsed[0], self._types)}"
            label = f"{shorten(subject.value, 200)} "
            self._problems.add(label, f"is not a node of this graph: {hint}", "unknown_field")
            return None
        item = LoadItem(number, f"{make_handle(*parsed)}.", parsed[0], {}, parsed[1])
        return item if self._read(item, quads) else None

    def _read(self, item: LoadItem, quads: Iterable[ox.Quad]) -> bool:
        known = self._types[item.type]
        good = True
        for quad in quads:
            try:
                _note(item, known, quad, self._cells)
            except _StatementError as error:
                good = False
                predicate = quad.predicate.value
                field = known.by_iri.get(predicate)
                name = f"<{predicate}>" if field is None else field.name
                self._problems.add(f"{item.label}{name} ", str(error), error.code)
        return good


class _StatementError(ValueError):
    """An invalid statement."""

    def __init__(self, message: str, code: str = "datatype") -> None:
        super().__init__(message)
        self.code = code


def _quads(lines: Iterator[bytes]) -> Iterator[ox.Quad]:
    some: list[bytes] = []
    size = 0
    for line in lines:
        some.append(line)
        size += len(line)
        if len(some) >= _SOME or size >= _BYTES:
            yield from ox.parse(b"\n".join(some), format=ox.RdfFormat.N_QUADS, lenient=True)
            some, size = [], 0
    yield from ox.parse(b"\n".join(some), format=ox.RdfFormat.N_QUADS, lenient=True)


def _note(item: LoadItem, known: _Fields, quad: ox.Quad, cells: ListCells) -> None:
    predicate = quad.predicate.value
    field = known.by_iri.get(predicate)
    if not isinstance(quad.graph_name, ox.DefaultGraph):
        raise _StatementError(
            f"is stated in the named graph {quad.graph_name}; a graph here is one graph, so "
            "leave the name out"
        )
    if field is not None:
        if field.tagged:
            _add_text(item.values, field, quad.object)
            return
        value = _items(field, quad.object, cells) if field.ordered else _value(field, quad.object)
        _add(item.values, field, value)
    elif predicate != RDF_TYPE:
        raise _StatementError(_unknown(predicate, known.by_iri), "unknown_field")
    elif getattr(quad.object, "value", None) not in known.classes:
        raise _StatementError(_misplaced(quad.object, item.type, known.classes))


def _add(values: dict[str, object], field: PredicateDescriptor, value: object) -> None:
    if field.is_set:
        values.setdefault(field.name, []).append(value)  # type: ignore[attr-defined]
    elif field.name in values:
        raise _StatementError("may have at most 1 value", "max_count")
    else:
        values[field.name] = value


def _add_text(values: dict[str, object], field: PredicateDescriptor, term: object) -> None:
    if not isinstance(term, ox.Literal) or term.language is None:
        raise _StatementError(
            f'must be a literal with a language tag, like "…"@en, not {shorten(str(term), 120)}'
        )
    texts: dict[str, str] = values.setdefault(field.name, {})  # type: ignore[assignment]
    if term.language in texts:
        raise _StatementError(f"may have at most 1 text in {term.language!r}", "max_count")
    texts[term.language] = term.value


def _items(field: PredicateDescriptor, term: object, cells: ListCells) -> list[object]:
    try:
        items = cells.read(term)
    except ListError as error:
        raise _StatementError(
            f"is an ordered list, which is written as a collection: ( … ) in Turtle, @list in "
            f"JSON-LD; {error}"
        ) from None
    return [_value(field, each) for each in items]


def _value(field: PredicateDescriptor, term: object) -> object:
    row = field.type.scalar.row
    if row is None:
        if isinstance(term, ox.NamedNode):
            return term.value
        raise _StatementError(
            f"must be the IRI of {with_article(field.target or 'node')}, not {shorten(str(term))}",
            "datatype",
        )
    if isinstance(term, ox.NamedNode) and row.datatype == XSD + "anyURI":
        return term.value
    if not isinstance(term, ox.Literal):
        raise _StatementError(f"must be a literal, not {shorten(str(term))}", "datatype")
    given = term.datatype.value
    if given != row.datatype and (given, row.datatype) not in _WIDER:
        raise _StatementError(_wrong_datatype(row, term), "datatype")
    try:
        return row.read(term.value)
    except KindError as error:
        message = f"must be {row.expected}, not {shorten(term.value)} ({error})"
        raise _StatementError(message, "datatype") from None


def _wrong_datatype(row: Kind, term: ox.Literal) -> str:
    wanted = str(ox.NamedNode(row.datatype))
    if term.language is not None:
        return f"keeps no language: write {shorten(term.value)} without @{term.language}"
    return f"must be a literal of {wanted}, not {shorten(str(term), 120)}"


def _unknown(predicate: str, known: Iterable[str]) -> str:
    words = {_local(each): each for each in known}
    hint = suggest(_local(predicate), words)
    for word, iri in words.items():
        hint = hint.replace(f"'{word}'", f"<{iri}>")
    return f"is not a field of this type; {hint}"


def _misplaced(term: object, type_name: str, classes: list[str]) -> str:
    wanted = " or ".join(f"<{each}>" for each in classes)
    return f"must be {wanted} for a node under {type_name}/, not {shorten(str(term), 120)}"


def _local(iri: str) -> str:
    return iri.replace("#", "/").rpartition("/")[2]
