"""Texts as values, and values as texts: parameters, messages, and the size of JSON.

A parameter from a query string or command line that can't be read stays text, so that
validation reports what is expected. ``count`` and ``with_article`` build English messages. A
large JSON text is measured on its bytes, block by block, before it is decoded: a few bytes can
become many objects, and a decoder blocks the event loop until it is done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from trails.model.fairness import with_pauses
from trails.model.types import PredicateDescriptor, ValueType


def read_texts(declared: PredicateDescriptor, texts: Sequence[str]) -> object:
    """The value of a parameter: its declaration says what a text means.

    A list is a JSON array, or the same parameter several times.
    """
    if declared.many:
        return [item for text in texts for item in _items(declared, text)]
    return _value(declared.type, texts[0]) if len(texts) == 1 else list(texts)


def _items(declared: PredicateDescriptor, text: str) -> Iterable[object]:
    if text.startswith("["):
        items = read_json(text)
        if isinstance(items, list):
            return items
    return [_value(declared.type.scalar, text)]


def _value(wanted: ValueType, text: str) -> object:
    row = wanted.row
    if row is None or row.schema.get("type") == "string":
        return text
    return read_json(text)


def read_json(text: str) -> object:
    """The JSON value of a text, or the text itself."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


_LONG_U = re.compile(r"[Uu][^aeiou][aeiou]|[Ee]u")
"""A first vowel that is spoken like "you", as in User, Unit and European."""


def count(number: int, noun: str, plural: str | None = None) -> str:
    """``1 commit``, ``2 commits``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def with_article(noun: str) -> str:
    """``a Task``, ``an Artifact``, ``a User``."""
    spoken_vowel = noun[:1] in "AEIOUaeiou" and not _LONG_U.match(noun)
    return f"{'an' if spoken_vowel else 'a'} {noun}"


_CUT: Final = "Input data was truncated"
_HALF: Final = (
    "a string in it has half of a surrogate pair (an escape from \\ud800 to \\udfff on its own), "
    "which is not a character"
)


Body = bytes | bytearray
"""The bytes of a request; those that arrive in many blocks are not copied in the end."""


def describe_json_error(body: Body | str, error: msgspec.DecodeError) -> str:
    """The decoder's message; it reports a lone surrogate near the end as a truncated text."""
    message = str(error)
    if "surrogate pair" in message or (message == _CUT and _is_whole(body)):
        return _HALF
    return message


def _is_whole(body: Body | str) -> bool:
    try:
        json.loads(body, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def add_block(body: Body, block: bytes) -> Body:
    """A text with its next block.

    Joining all blocks in the end would take 25 ms for 30 MiB, in which no thread can go on.
    """
    if not body:
        return block
    if isinstance(body, bytes):
        body = bytearray(body)
    body += block
    return body


MAX_DEPTH: Final = 100
"""How deep arrays and objects may nest; the parsers of the MCP SDK give up between 200 and 255."""
MAX_VALUES: Final = 500_000
"""The most values of a large text: decoding more at once takes too long."""
MAX_PARTS: Final = 100_000
"""Arrays, objects and members of objects, which cost more than other values."""
TOO_DEEP: Final = f"arrays and objects nest deeper than {MAX_DEPTH} levels"

_BLOCK: Final = 32 << 10
_TEXTS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_TEXT: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_NO_BRACKET: Final = bytes({*range(256)} - {*b"[]{}"})
_STEPS: Final = {**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", -1)}


class JsonTooLargeError(ValueError):
    """A text with too many values to decode at once."""


def scan_json(body: Body) -> int:
    """Refuse a text that nests too deeply (ValueError) or has too many values (JsonTooLargeError).

    Returns how many arrays, objects and members it has. Whether it is JSON is left to the
    decoder.
    """
    depth = values = parts = 0
    for block in with_pauses(_without_texts(body)):
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


def _without_texts(body: Body) -> Iterator[bytes]:
    """The blocks of a JSON text without its strings."""
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


def _skip_text(body: Body, at: int, end: int) -> int:
    """The end of a string in a block: a quote, the block's end, or a split escape."""
    found = _TEXT.match(body, at, end)
    return at if found is None else found.end()
