"""Policy files, split into single policies with their locations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

import msgspec

# A comment, a string with escapes, or the end of a policy. An unclosed quote takes the
# rest of the file, which the parser then rejects.
_TOKEN: Final = re.compile(r'//[^\n]*|"(?:[^"\\]|\\.)*(?:"|\Z)|;', re.DOTALL)
_COMMENT: Final = re.compile(r'//[^\n]*|"(?:[^"\\]|\\.)*"', re.DOTALL)
_BLANK: Final = re.compile(r"(?:\s+|//[^\n]*)*")


class PolicyFile(msgspec.Struct, frozen=True):
    """A file with policies, by the name shown to people."""

    name: str
    text: str


class Statement(msgspec.Struct, frozen=True):
    """The text of one policy, and the line where it begins."""

    file: str
    line: int
    number: int
    """Its number among the policies of its file, from 1."""
    text: str

    def line_of(self, pattern: str, *, texts: bool = True) -> int:
        """Return the line of a text outside comments; the first line if it isn't found.

        ``texts``: whether it may be inside a quoted string.
        """
        plain = _COMMENT.sub(partial(_blanked, texts), self.text)
        found = re.search(pattern, plain)
        return self.line if found is None else self.line + plain.count("\n", 0, found.start())


def _blanked(texts: bool, found: re.Match[str]) -> str:  # noqa: FBT001 - given by position
    """Replace a comment, or a string that does not count, by blanks."""
    whole = found.group()
    return whole if texts and whole.startswith('"') else re.sub(r"[^\n]", " ", whole)


def split_source(source: PolicyFile) -> Iterator[Statement]:
    """Yield the policies of a file in order; a rest after the last ``;`` counts as one."""
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
