"""Load a file of any format: the one entrance for those who only know its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePath
from typing import IO, Final

import msgspec

from trails.engine.load.load import Loaded, put_staged, stage_lines
from trails.engine.load.rdf import FORMATS as RDF_FORMATS
from trails.engine.load.rdf import Parse, parse_here, stage_rdf
from trails.engine.load.source import Progress, Source, no_progress
from trails.engine.load.staged import Staged
from trails.engine.load.table import stage_table
from trails.engine.write.write import Write
from trails.errors import QueryError
from trails.model.iris import Names
from trails.model.loads import Mode
from trails.model.names import suggest
from trails.model.types import Schema

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
    """The format that a file's name tells, compressed or not."""
    path = PurePath(name)
    suffix = PurePath(path.stem).suffix if path.suffix in {".gz", ".zst"} else path.suffix
    found = _SUFFIXES.get(suffix.lower())
    if found is None:
        raise QueryError(
            f"the name {path.name!r} does not tell a format; end it with one of "
            f"{', '.join(_SUFFIXES)} (and .gz or .zst), or say the format: {', '.join(FORMATS)}"
        )
    return found


class How(msgspec.Struct, frozen=True, kw_only=True):
    """How a file is loaded."""

    format: str = "ndjson"
    mode: Mode = "merge"
    type_name: str | None = None
    """For CSV: the type of the rows."""
    separator: str = "|"
    """For CSV: what stands between the values of a list."""


@contextmanager
def staging(
    schema: Schema, names: Names, source: Source, how: How, parse: Parse = parse_here
) -> Iterator[Staged]:
    """Read a file; what is wrong with its lines is noted.

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
) -> Loaded:
    """Load into a write that has begun; raises what is wrong with the file."""
    with (
        closing(Source(given, progress)) as source,
        staging(schema, names, source, how, parse) as staged,
    ):
        return put_staged(write, staged, how.mode)
