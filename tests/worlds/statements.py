"""The statements that SQLite is asked to run, with the plan of each.

``recorded`` makes every connection that is opened in its block explain each text before it runs it
the first time: only then its temporary tables and attached databases are there. What a trigger does
is not shown.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec

import trails

SOURCE: Final = Path(trails.__file__).parent
_EXPLAINED: Final = ("SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH")
_scan = re.compile(r"SCAN (?:\w+\.)?([a-z]\w*)(?! VIRTUAL)\b").match
_search = re.compile(r"SEARCH (?:\w+\.)?(\w+) .*\(([^()]*)\)").match


class Statement(msgspec.Struct, frozen=True):
    """A text, where it was run from, and the lines of its plan."""

    text: str
    file: str
    """Relative to the source."""
    line: int
    plan: tuple[str, ...]

    @property
    def walks(self) -> list[tuple[str, str]]:
        """(table, line) of the lines that read a table or a layer from end to end.

        What the statement has made itself is not among them.
        """
        made = {line.split()[1] for line in self.plan if line.startswith(("CO-ROUTINE", "MATER"))}
        found = []
        for line in self.plan:
            scanned, searched = _scan(line), _search(line)
            if scanned is not None and scanned[1] not in made:
                found.append((self._table(scanned[1]), line))
            elif searched is not None and searched[2] == "layer=?":
                found.append((self._table(searched[1]), line))
        return found

    def _table(self, name: str) -> str:
        """The table that a name in the plan stands for."""
        found = re.findall(rf"(\w+) (?:AS )?{name}\b", self.text)
        return next((each for each in found if each.islower()), name)


class Statements:
    """All that were run, each text once for each place in the source that runs it."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int], Statement] = {}

    def __iter__(self) -> Iterator[Statement]:
        """Every statement."""
        return iter(self._found.values())

    @property
    def places(self) -> set[tuple[str, int]]:
        """The files and lines that ran something."""
        return {(each.file, each.line) for each in self}

    def note(self, db: sqlite3.Connection, text: str) -> None:
        """Explain a text that is about to be run."""
        file, line = _caller()
        key = text, file, line
        if key not in self._found:
            plan = _plan(db, text) if text.lstrip().upper().startswith(_EXPLAINED) else ()
            self._found[key] = Statement(text, file, line, plan)


def _plan(db: sqlite3.Connection, text: str) -> tuple[str, ...]:
    """The lines of its plan, which does not depend on what is bound."""
    query = f"EXPLAIN QUERY PLAN {text}"
    try:
        rows = sqlite3.Connection.execute(db, query)
    except sqlite3.ProgrammingError as error:
        (wanted,) = re.findall(r"uses (\d+)", str(error))
        rows = sqlite3.Connection.execute(db, query, (None,) * int(wanted))
    return tuple(row[3] for row in rows.fetchall())


def _caller() -> tuple[str, int]:
    """The nearest place in the source; none for what a test runs."""
    frame = sys._getframe(2)
    while not (name := frame.f_code.co_filename).startswith(f"{SOURCE}/"):
        if frame.f_back is None:
            return "", 0
        frame = frame.f_back
    return name.removeprefix(f"{SOURCE}/"), frame.f_lineno


@contextmanager
def recorded() -> Iterator[Statements]:
    """Record what the connections run that are opened in the block."""
    statements = Statements()

    class Recorded(sqlite3.Connection):
        def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
            statements.note(self, sql)
            return super().execute(sql, values)

        def executemany(self, sql: str, values: Iterable[Any], /) -> sqlite3.Cursor:
            statements.note(self, sql)
            return super().executemany(sql, values)

    connect = sqlite3.connect

    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, factory=Recorded, **options)

    with patch.object(sqlite3, "connect", connected):
        yield statements
