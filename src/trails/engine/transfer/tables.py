"""CSV out: a header, then one row for each record (RFC 4180).

The columns are ``type`` (if there are several types), ``id`` (if a type has no key), and the
fields of all types. A list is a JSON array in one cell; a missing value is an empty cell, and an
empty text a quoted one. A spreadsheet runs a cell that begins like a formula: ``escape_formulas``
puts an apostrophe before such texts, which changes them. CSV in is ``formats``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from trails.model.nodes import NodeState
from trails.model.types import PredicateDescriptor, Schema

_special = re.compile(r'[",\r\n]').search
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a cell begins with that a spreadsheet may run."""
Cell = Callable[[object], str]


class TableWriter:
    """Writes the records of some types as rows."""

    def __init__(
        self, schema: Schema, names: Sequence[str], *, escape_formulas: bool = False
    ) -> None:
        types = [schema.by_name[name] for name in names]
        self._escape = escape_formulas
        self._typed = len(types) > 1
        self._named = any(each.key is None and each.edge is None for each in types)
        self._fields = tuple(dict.fromkeys(each.name for one in types for each in one.fields))
        self._cells = {
            each.name: {field.name: self._cell(field) for field in each.fields} for each in types
        }

    @property
    def head(self) -> bytes:
        """The header."""
        first = [*["type"] * self._typed, *["id"] * self._named]
        return _row([*first, *self._fields])

    def records(self, states: Iterable[NodeState]) -> Iterator[bytes]:
        """A row for each record."""
        for state in states:
            cells, values = self._cells[state.type], state.values
            row = [state.type] if self._typed else []
            if self._named:
                row.append(self._text(state.id))
            for name in self._fields:
                value = values.get(name)
                row.append("" if value is None else cells[name](value))
            yield _row(row)

    def _cell(self, field: PredicateDescriptor) -> Cell:
        row = field.type.scalar.row
        if field.many:
            plain = None if row is None else row.plain
            return lambda values: _quoted(_array(values, plain))
        if row is None or (row.text and not row.tagged):
            return lambda value: self._text(str(value))
        lexical = row.lexical
        return lambda value: _quoted(lexical(value))

    def _text(self, text: str) -> str:
        if self._escape and text.startswith(_FORMULA):
            text = f"'{text}"
        return _quoted(text)


def _array(values: object, plain: Callable[..., object] | None) -> str:
    items = list(values) if plain is None else [plain(each) for each in values]  # type: ignore[call-overload, attr-defined]
    return msgspec.json.encode(items).decode()


def _quoted(text: str) -> str:
    if text and not _special(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _row(cells: Iterable[str]) -> bytes:
    return (",".join(cells) + "\r\n").encode()
