"""Load a file of any format, chosen by its name or given; several files count as one.

Files of one load are checked together, so they may refer to each other.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path, PurePath
from typing import IO, Final

import msgspec

from trails.engine.transfer.load import LoadOutcome, put_staged, stage_lines
from trails.engine.transfer.rdf import FORMATS as RDF_FORMATS
from trails.engine.transfer.rdf import Parse, parse_here, stage_rdf
from trails.engine.transfer.source import LoadSource, Progress, no_progress
from trails.engine.transfer.staging import Staged
from trails.engine.transfer.tables import stage_table
from trails.engine.write.write import Write
from trails.errors import FieldError, QueryError, ValidationError
from trails.model.iris import Names
from trails.model.names import suggest
from trails.model.types import Schema
from trails.model.writes import LOAD_LIMITS, LoadLimits, Mode

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
