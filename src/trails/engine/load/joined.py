"""Several files as one: what they say is checked together, so they may refer to each other."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

from trails.engine.load.files import format_of
from trails.engine.load.source import Source
from trails.errors import FieldError, QueryError, ValidationError
from trails.model.loads import LOAD_LIMITS, LoadLimits

_JOINABLE: Final = ("ndjson", "ntriples", "nquads")
_place = re.compile(r"line ([0-9]+)")
Given = Path | IO[bytes] | Iterable[bytes]


def common_format(files: Sequence[Given], given: str | None) -> str:
    """The format of all files; told by their names, where it is not given."""
    if not files:
        raise QueryError("there is nothing to load; name at least one file")
    found = given
    for each in files if given is None else ():
        if not isinstance(each, Path):
            raise QueryError(
                "a stream does not tell its format; say which it is, for example --format ndjson"
            )
        told = format_of(each.name)
        if found not in {None, told}:
            raise QueryError(f"{each} is {told}, and others are {found}; load them one by one")
        found = told
    assert found is not None  # noqa: S101 - there is at least one file
    if len(files) > 1 and found not in _JOINABLE:
        raise QueryError(
            f"several files of {found} can't be one load; load them one by one, or as "
            f"{', '.join(_JOINABLE)}"
        )
    return found


class Joined:
    """The blocks of several files, and which line of which file a line is."""

    def __init__(self, files: Sequence[Given], limits: LoadLimits = LOAD_LIMITS) -> None:
        self._files = files
        self._limits = limits
        self._starts = [0]

    def blocks(self) -> Iterator[bytes]:
        """Everything, each file ended by a line's end."""
        lines = 0
        for given in self._files:
            source = Source(given, limits=self._limits)
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
        """The same violations, with the files that they are in."""
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
