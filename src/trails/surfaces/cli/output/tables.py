"""Tables: one line for each row in a pipe; on a terminal, as wide as it is.

In a pipe nothing is wrapped or cut. On a terminal long cells are wrapped between words; if not
even that makes a table readable, each row is printed as a list of its names and values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from trails.surfaces.cli.output.markup import Run, cell_width, escape, join_runs, parse_runs

_GAP: Final = 2
_READABLE: Final = 12
"""Columns are not made narrower than this."""

Line = list[Run]


class TextTable:
    """Rows of cells with markup, under headings without."""

    def __init__(self, *headings: str, numbers: Sequence[int] = ()) -> None:
        """``numbers``: the columns that are aligned to the right."""
        self._rows: list[list[Line]] = [[_cell(f"[bold]{escape(each)}[/]") for each in headings]]
        self._numbers = frozenset(numbers)

    def add_row(self, *cells: str) -> None:
        self._rows.append([_cell(each) for each in cells])

    def lines(self, width: int | None, *, colour: bool) -> Iterator[str]:
        """Yield what is printed; ``width`` is that of the terminal, None for a pipe."""
        natural = [max(map(_width, column)) for column in zip(*self._rows, strict=True)]
        widths = natural if width is None else _fit(natural, width)
        if widths is None:
            yield from self._records(colour=colour)
            return
        for row in self._rows:
            wrapped = [list(_wrap(cell, room)) for cell, room in zip(row, widths, strict=True)]
            for at in range(max(map(len, wrapped), default=0)):
                parts = [each[at] if at < len(each) else [] for each in wrapped]
                yield self._line(parts, widths, colour=colour)

    def _line(self, cells: Sequence[Line], widths: Sequence[int], *, colour: bool) -> str:
        last = max((at for at, cell in enumerate(cells) if cell), default=-1)
        parts = []
        for at, cell in enumerate(cells[: last + 1]):
            padding = " " * (widths[at] - _width(cell))
            text = join_runs(cell, colour=colour)
            if at in self._numbers:
                parts.append(padding + text)
            else:
                parts.append(text if at == last else text + padding)
        return (" " * _GAP).join(parts)

    def _records(self, *, colour: bool) -> Iterator[str]:
        names, *rows = self._rows
        width = max(map(_width, names))
        for at, row in enumerate(rows):
            if at:
                yield ""
            for name, cell in zip(names, row, strict=True):
                if cell:
                    padding = " " * (width - _width(name) + _GAP)
                    shown = join_runs(cell, colour=colour)
                    yield f"{join_runs(name, colour=colour)}{padding}{shown}"


def _cell(markup: str) -> Line:
    """The runs of a cell; a line break or tab in it does not break the row."""
    return [
        Run(run.text.replace("\n", "\\n").replace("\t", "\\t"), run.style)
        for run in parse_runs(markup)
    ]


def _width(cell: Line) -> int:
    return sum(cell_width(run.text) for run in cell)


def _fit(natural: Sequence[int], width: int) -> Sequence[int] | None:
    """Narrow the widest columns until all fit; None if they would not be readable."""
    room = width - _GAP * (len(natural) - 1)
    if sum(natural) <= room:
        return natural
    if sum(min(each, _READABLE) for each in natural) > room:
        return None
    limit, narrow = _READABLE, sorted(natural)
    for at, each in enumerate(narrow):
        share = room // (len(narrow) - at)
        if each > share:
            limit = max(share, _READABLE)
            break
        room -= each
    return [min(each, limit) for each in natural]


def _wrap(cell: Line, width: int) -> Iterator[Line]:
    """Break a cell into lines, between words where it can."""
    if _width(cell) <= width:
        yield cell
        return
    text = "".join(run.text for run in cell)
    styles = [run.style for run in cell for _ in run.text]
    start = 0
    while start < len(text):
        end = _line_end(text, start, width)
        yield list(_restyle(text[start:end].rstrip(), styles[start:end]))
        start = end
        while start < len(text) and text[start] == " ":
            start += 1


def _line_end(text: str, start: int, width: int) -> int:
    used, space = 0, start
    for at in range(start, len(text)):
        used += cell_width(text[at])
        if used > width:
            if text[at] == " ":
                return at
            return space if space > start else max(at, start + 1)
        if text[at] == " ":
            space = at + 1
    return len(text)


def _restyle(text: str, styles: Sequence[str]) -> Iterator[Run]:
    start = 0
    for at in range(1, len(text) + 1):
        if at == len(text) or styles[at] != styles[start]:
            yield Run(text[start:at], styles[start])
            start = at
