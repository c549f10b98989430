"""How much there is in a JSON text, found on its bytes before anybody builds values of it.

A few bytes of text can become many objects, and a decoder does nothing else until it is done. So
a large text is measured first, block by block: others have their turn between two blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

MAX_DEPTH: Final = 100
"""How deep arrays and objects may nest; the parsers of the MCP SDK give up between 200 and 255."""
MAX_VALUES: Final = 500_000
"""Of a large text: decoding more takes too long to do in one go."""
MAX_PARTS: Final = 100_000
"""Arrays, objects and members of objects, which cost more than other values."""
TOO_DEEP: Final = f"arrays and objects nest deeper than {MAX_DEPTH} levels"

_BLOCK: Final = 32 << 10
_TEXTS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_TEXT: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_NO_BRACKET: Final = bytes({*range(256)} - {*b"[]{}"})
_STEPS: Final = {**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", -1)}


class JsonTooLargeError(ValueError):
    """A text of more values than are decoded in one go."""


def scan_json(body: bytes) -> int:
    """Refuse a text that is too deep (ValueError) or of too many values (JsonTooLargeError).

    Returns how many arrays, objects and members it has. Whether it is JSON is left to the
    decoder.
    """
    depth = values = parts = 0
    for block in _without_texts(body):
        brackets = block.translate(None, _NO_BRACKET)
        opened = brackets.count(b"[") + brackets.count(b"{")
        values += opened + block.count(b",")
        parts += opened + block.count(b":")
        if values > MAX_VALUES or parts > MAX_PARTS:
            raise JsonTooLargeError(
                f"it has more than {MAX_VALUES:,} values, or {MAX_PARTS:,} arrays, objects and "
                "members; send fewer at a time, or load them as a file"
            )
        if brackets:
            depths = list(accumulate(map(_STEPS.__getitem__, brackets), initial=depth))
            if max(depths) > MAX_DEPTH:
                raise ValueError(TOO_DEEP)
            depth = depths[-1]
    return parts


def _without_texts(body: bytes) -> Iterator[bytes]:
    """The blocks of a JSON text without what is between quotes."""
    at, size, is_inside = 0, len(body), False
    while at < size:
        end = min(at + _BLOCK, size)
        if is_inside:
            stop = _skip_text(body, at, end)
            if body.startswith(b'"', stop):
                is_inside = False
            elif stop == at:
                return  # it ends within an escape
            at = stop if is_inside else stop + 1
            continue
        block = _TEXTS.sub(b"", body[at:end])
        before, quote, rest = block.partition(b'"')
        yield before
        is_inside = bool(quote)
        at = end - len(rest)


def _skip_text(body: bytes, at: int, end: int) -> int:
    """Where a text is interrupted: by a quote, the end, or an escape that is not whole."""
    found = _TEXT.match(body, at, end)
    return at if found is None else found.end()
