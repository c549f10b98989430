"""Load a file of any format, chosen by its name or given; several files count as one.

Files of one load are checked together, so they may refer to each other. CSV is read here: a header
of field names, then one row per node, all of one type. An empty cell has no value. The values of a
list share a cell, with a separator. A reference is an IRI, ``Type/id`` or a key; a vector is a JSON
array. A type without a key may have a column ``id``.
"""

from __future__ import annotations

import csv
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path, PurePath
from typing import IO, Final

import msgspec

from trails.engine.transfer.items import OPEN, EndError, Ends, LoadItem, Problems
from trails.engine.transfer.load import LoadOutcome, put_staged, stage_lines
from trails.engine.transfer.ndjson import MAX_LINE, numbered
from trails.engine.transfer.rdf import FORMATS as RDF_FORMATS
from trails.engine.transfer.rdf import Parse, parse_here, stage_rdf
from trails.engine.transfer.source import LoadSource, Progress, no_progress
from trails.engine.transfer.staging import Staged
from trails.engine.write.write import Write
from trails.errors import FieldError, NotFoundError, QueryError, ValidationError
from trails.model.constraints import shorten
from trails.model.iris import Names, id_problem, normal_id
from trails.model.kinds import KindError
from trails.model.names import suggest
from trails.model.types import PredicateDescriptor, Schema, TypeDescriptor
from trails.model.writes import LOAD_LIMITS, LoadLimits, Mode

_ID = "id"
_WIDEST = 10
"""Beyond this many columns per field, the columns are not checked one by one."""


def stage_table(
    staged: Staged, source: LoadSource, type_name: str | None, separator: str = "|"
) -> None:
    """Read CSV into ``staged``, which must be one of rows."""
    if type_name is None:
        raise QueryError("a CSV file does not name the type of its rows; give the type")
    by_name = staged.schema.by_name
    descriptor = by_name.get(type_name)
    if descriptor is None:
        hint = suggest(type_name, by_name)
        raise NotFoundError(f"there is no type {type_name!r} to load rows as; {hint}")
    if not separator:
        raise QueryError("the separator of lists must not be empty")
    table = Table(descriptor, staged.ends, separator, staged.problems)
    staged.fill(table.items(source))


def load_table(
    write: Write,
    schema: Schema,
    names: Names,
    given: Path | IO[bytes] | Iterable[bytes],
    *,
    type_name: str,
    separator: str = "|",
    mode: Mode = "merge",
    progress: Progress = no_progress,
) -> LoadOutcome:
    """Load CSV into an open write; raises the problems of the file."""
    with (
        closing(LoadSource(given, progress)) as source,
        Staged(schema, names, place="row") as staged,
    ):
        stage_table(staged, source, type_name, separator)
        return put_staged(write, staged, mode)


class Table:
    """The nodes of a CSV file."""

    def __init__(
        self, descriptor: TypeDescriptor, ends: Ends, separator: str, problems: Problems
    ) -> None:
        self._type = descriptor
        self._ends = ends
        self._separator = separator
        self._problems = problems

    def items(self, source: LoadSource) -> Iterator[LoadItem]:
        """All nodes; bad rows are collected."""
        csv.field_size_limit(MAX_LINE)  # the library's own is 128 KiB, for the whole process
        rows = csv.reader(_texts(source), strict=True)
        number = 0
        header: list[str] | None = None
        try:
            for cells in rows:
                number += 1
                if self._problems.full:
                    return
                if header is None:
                    header = cells
                    if not self._accept(header):
                        return
                elif len(cells) not in {0, len(header)}:
                    message = f"it has {len(cells)} cells, and the header has {len(header)}"
                    self._problems.add(f"row {number}: ", message)
                elif any(cells):
                    item = self._item(number, dict(zip(header, cells, strict=True)))
                    if item is not None:
                        yield item
        except (csv.Error, UnicodeDecodeError, _TooLongError) as error:
            # Rows after a broken one can't be separated reliably.
            reason = error.reason if isinstance(error, UnicodeDecodeError) else error
            self._problems.add(f"row {number + 1}: ", f"it can't be read as CSV ({reason})")
        if header is None and not self._problems.found:
            self._problems.add("row 1: ", "there is no header row with the names of fields")

    def _accept(self, header: list[str]) -> bool:
        known = list(self._type.by_name)
        if self._type.key is None and self._type.edge is None and _ID not in known:
            known.append(_ID)
        if len(header) > _WIDEST * len(known):
            message = f"it has {len(header)} columns, and {self._type.name} has {len(known)} fields"
            self._problems.add("row 1: ", message, "unknown_field")
            return False
        good, times = True, Counter(header)
        for name in header:
            if name not in known:
                message = f"{name!r} is not a field of {self._type.name}; {suggest(name, known)}"
                self._problems.add("row 1: ", message, "unknown_field", name)
                good = False
            elif times[name] > 1:
                self._problems.add("row 1: ", f"the column {name!r} appears twice")
                good = False
        return good

    def _item(self, number: int, cells: dict[str, str]) -> LoadItem | None:
        item = LoadItem(number, f"row {number}, column ", self._type.name, {})
        good = True
        for name, cell in cells.items():
            if not cell:
                continue
            field = self._type.by_name.get(name)
            if field is None:
                item.id = normal_id(cell)
                problem = id_problem(item.id)
            else:
                problem = self._fill(item, field, cell)
            if problem is not None:
                self._problems.add(f"{item.label}{name} ", problem, "datatype")
                good = False
        return item if good else None

    def _fill(self, item: LoadItem, field: PredicateDescriptor, cell: str) -> str | None:
        texts = [each for each in cell.split(self._separator) if each] if field.many else [cell]
        row = field.type.scalar.row
        values: list[object] = []
        for text in texts:
            if row is not None:
                try:
                    values.append(row.read(text))
                except KindError as error:
                    return f"must be {row.expected}, not {shorten(text)} ({error})"
                continue
            try:
                reference = self._ends.node(text, field.target or "")
            except EndError as error:
                return str(error)
            item.open = item.open or reference.startswith(OPEN)
            values.append(reference)
        item.values[field.name] = values if field.many else values[0]
        return None


class _TooLongError(ValueError):
    """A line that is too long to be read."""


def _texts(source: LoadSource) -> Iterator[str]:
    """Lines with their newlines, which can be inside quotes."""
    for number, line in numbered(source):
        if line is None:
            raise _TooLongError(f"a line of it is longer than {MAX_LINE:,} bytes")
        yield line.decode("utf-8-sig" if number == 1 else "utf-8") + "\n"


FORMATS: Final = ("ndjson", *RDF_FORMATS, "csv")
"""The formats that can be loaded."""

_SUFFIXES: Final = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".ttl": "turtle",
    ".nt": "ntriples",
    ".nq": "nquads",
    ".jsonld": "jsonld",
    ".csv": "csv",
}


_MODES: Final = ("merge", "append", "overwrite")


def format_of(name: str) -> str:
    """The format of a file by its name, compressed or not."""
    path = PurePath(name)
    suffix = PurePath(path.stem).suffix if path.suffix in {".gz", ".zst"} else path.suffix
    found = _SUFFIXES.get(suffix.lower())
    if found is None:
        raise QueryError(
            f"the name {path.name!r} does not imply a format; end it with one of "
            f"{', '.join(_SUFFIXES)} (and .gz or .zst), or give the format: {', '.join(FORMATS)}"
        )
    return found


class How(msgspec.Struct, frozen=True, kw_only=True):
    """How a file is loaded."""

    format: str = "ndjson"
    mode: Mode = "merge"
    type_name: str | None = None
    """For CSV: the type of the rows."""
    separator: str = "|"
    """For CSV: the separator of list values."""


@contextmanager
def staging(
    schema: Schema, names: Names, source: LoadSource, how: How, parse: Parse = parse_here
) -> Iterator[Staged]:
    """Read a file and collect its problems.

    ``parse`` reads RDF text; give one that is confined where the text is not trusted.
    """
    if how.mode not in _MODES:
        raise QueryError(f"there is no mode {how.mode!r}; {suggest(how.mode, _MODES)}")
    if how.format not in FORMATS:
        raise QueryError(f"there is no format {how.format!r}; {suggest(how.format, FORMATS)}")
    rows, statements = how.format == "csv", how.format in RDF_FORMATS
    place = "row" if rows else "line"
    with Staged(schema, names, place=place, statements=statements) as staged:
        if rows:
            stage_table(staged, source, how.type_name, how.separator)
        elif statements:
            stage_rdf(staged, source, how.format, parse)
        else:
            stage_lines(staged, source)
        yield staged


def load(
    write: Write,
    schema: Schema,
    names: Names,
    given: Path | IO[bytes] | Iterable[bytes],
    how: How,
    *,
    parse: Parse = parse_here,
    progress: Progress = no_progress,
) -> LoadOutcome:
    """Load into an open write; raises the problems of the file."""
    with (
        closing(LoadSource(given, progress)) as source,
        staging(schema, names, source, how, parse) as staged,
    ):
        return put_staged(write, staged, how.mode)


_JOINABLE: Final = ("ndjson", "ntriples", "nquads")
_place = re.compile(r"line ([0-9]+)")
Given = Path | IO[bytes] | Iterable[bytes]


def common_format(files: Sequence[Given], given: str | None) -> str:
    """The format of all files: as given, or by their names."""
    if not files:
        raise QueryError("there is nothing to load; name at least one file")
    found = given
    for each in files if given is None else ():
        if not isinstance(each, Path):
            raise QueryError(
                "a stream does not imply a format; give it, for example with --format ndjson"
            )
        own = format_of(each.name)
        if found not in {None, own}:
            raise QueryError(f"{each} is {own}, and others are {found}; load them one by one")
        found = own
    assert found is not None  # noqa: S101 - there is at least one file
    if len(files) > 1 and found not in _JOINABLE:
        raise QueryError(
            f"several files of {found} can't be one load; load them one by one, or as "
            f"{', '.join(_JOINABLE)}"
        )
    return found


class Joined:
    """Several files as one stream, which maps lines back to their files."""

    def __init__(self, files: Sequence[Given], limits: LoadLimits = LOAD_LIMITS) -> None:
        self._files = files
        self._limits = limits
        self._starts = [0]

    def blocks(self) -> Iterator[bytes]:
        """All blocks; each file ends with a newline."""
        lines = 0
        for given in self._files:
            source = LoadSource(given, limits=self._limits)
            try:
                last = b""
                for block in source.blocks():
                    lines += block.count(b"\n")
                    yield block
                    last = block
                if not last.endswith(b"\n"):
                    lines += 1
                    yield b"\n"
            finally:
                source.close()
            self._starts.append(lines)

    def placed(self, error: ValidationError) -> ValidationError:
        """The same violations with the names of their files."""
        return ValidationError([self._placed(each) for each in error.fields], more=error.more)

    def _placed(self, error: FieldError) -> FieldError:
        return msgspec.structs.replace(
            error,
            field=_place.sub(self._spell, error.field),
            message=_place.sub(self._spell, error.message, count=1)
            if _place.match(error.message)
            else error.message,
        )

    def _spell(self, found: re.Match[str]) -> str:
        number = int(found[1])
        at = min(bisect_right(self._starts, number - 1), len(self._files)) - 1
        given = self._files[at]
        name = given.name if isinstance(given, Path) else f"file {at + 1}"
        return f"{name} line {number - self._starts[at]}"
