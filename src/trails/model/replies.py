"""Requests that have arrived whole, and their replies: how a front and its surfaces skip ASGI.

Most requests are one block of bytes, and so are most replies. For a head that was seen before, a
front knows which ``Take`` of a surface answers its bodies. A ``Take`` gets an authenticated caller
and a body; it returns the reply, or a coroutine of it to run in a task, or None if it is in doubt.
It has no side effects before it returns, so that such a request can still come through ASGI, whose
answer is the same. A coroutine is cancelled if its client disconnects.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, NamedTuple

from trails.model.actors import Actor


class Reply(NamedTuple):
    """A complete response."""

    status: int
    lines: bytes
    """Its own headers, as lines; the length and those of every response are added."""
    body: bytes


Answer = Reply | Coroutine[Any, Any, Reply]
Take = Callable[[Actor, bytes], Answer | None]
JSON_LINES: Final = b"content-type: application/json\r\n"


class Taken(NamedTuple):
    """A request that a surface answers."""

    actor: Actor
    answer: Answer
    lines: bytes
    """The headers of every response, as lines."""


_line_of: Final = b"%b: %b\r\n".__mod__
_CONTROLS: Final = bytes({*range(32), 127} - {*b"\t\r\n"})


def write_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as lines; a value that would be read as several lines is refused."""
    lines = [*map(_line_of, headers)]
    text = b"".join(lines)
    whole = len(text.translate(None, _CONTROLS)) == len(text)
    if not whole or text.count(b"\r") != len(lines) or text.count(b"\n") != len(lines):
        raise RuntimeError("a header has a character that no header has")
    return text
