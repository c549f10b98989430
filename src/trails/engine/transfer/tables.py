"""CSV: a header of field names, then one row per node, all of one type.

An empty cell has no value. The values of a list share a cell, with a separator. A reference is an
IRI, ``Type/id`` or a key; a vector is a JSON array. A type without a key may have a column ``id``.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO

from trails.engine.transfer.items import OPEN, EndError, Ends, LoadItem, Problems
from trails.engine.transfer.load import LoadOutcome, put_staged
from trails.engine.transfer.ndjson import MAX_LINE, numbered
from trails.engine.transfer.source import LoadSource, Progress, no_progress
from trails.engine.transfer.staging import Staged
from trails.engine.write.write import Write
from trails.errors import NotFoundError, QueryError
from trails.model.iris import Names, id_problem, normal_id
from trails.model.names import suggest
from trails.model.types import PredicateDescriptor, Schema, TypeDescriptor
from trails.model.writes import Mode

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
                values.append(row.read(text))
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
