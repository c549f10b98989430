"""Sources: files of policies, taken apart into single policies that know their place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

# A comment, a text (escapes included), or the end of a policy. A quote that is never closed
# takes the rest of the file, which the parser then refuses.
_TOKEN: Final = re.compile(r'//[^\n]*|"(?:[^"\\]|\\.)*(?:"|\Z)|;', re.DOTALL)
_BLANK: Final = re.compile(r"(?:\s+|//[^\n]*)*")


class Source(msgspec.Struct, frozen=True):
    """A file with policies, by the name that people know it by."""

    name: str
    text: str


class Statement(msgspec.Struct, frozen=True):
    """The text of one policy, and the line where it begins."""

    file: str
    line: int
    number: int
    """Its place among the policies of its file, from 1."""
    text: str


def split_source(source: Source) -> Iterator[Statement]:
    """The policies of a file, in order; what is left after the last ``;`` counts as one."""
    begin = number = 0
    text = source.text
    ends = [found.end() for found in _TOKEN.finditer(text) if found.group() == ";"]
    for end in (*ends, len(text)):
        first = _skip_blank(text, begin)
        if first < end:
            number += 1
            line = text.count("\n", 0, first) + 1
            yield Statement(source.name, line, number, text[first:end])
        begin = end


def _skip_blank(text: str, begin: int) -> int:
    found = _BLANK.match(text, begin)
    return begin if found is None else found.end()
