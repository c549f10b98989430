"""Load a file of any format: the one entrance for those who only know its name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import IO, Final

import msgspec

from trails.engine.load.load import Loaded, load_lines
from trails.engine.load.rdf import FORMATS as RDF_FORMATS
from trails.engine.load.rdf import Parse, load_rdf, parse_here
from trails.engine.load.source import Progress, no_progress
from trails.engine.load.table import load_table
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
    """Load into a write that has begun; raises what is wrong with the file.

    ``parse`` reads RDF text; give one that is confined where the text is not trusted.
    """
    if how.mode not in _MODES:
        raise QueryError(f"there is no mode {how.mode!r}; {suggest(how.mode, _MODES)}")
    if how.format == "ndjson":
        return load_lines(write, schema, names, given, mode=how.mode, progress=progress)
    if how.format == "csv":
        if how.type_name is None:
            raise QueryError("a CSV file does not tell the type of its rows; say which it is")
        return load_table(
            write,
            schema,
            names,
            given,
            type_name=how.type_name,
            separator=how.separator,
            mode=how.mode,
            progress=progress,
        )
    if how.format not in FORMATS:
        raise QueryError(f"there is no format {how.format!r}; {suggest(how.format, FORMATS)}")
    return load_rdf(
        write,
        schema,
        names,
        given,
        format=how.format,
        mode=how.mode,
        parse=parse,
        progress=progress,
    )
