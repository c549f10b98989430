"""Evidence: bounded windows on the text of a field, and the search hits that show them.

A window is a verbatim part of one text. Offsets count code points of the whole text, so that the
matches of a window, the range that it serves and the next read all speak of the same places.
Pure: which text that is, at which commit and for whom, is decided by ``engine.evidence``.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec

from trails.model.evidence.graphemes import Sliceable, boundary_after, boundary_before
from trails.model.operations.pages import Call
from trails.model.operations.records import MatchedText

READ_FIELD: Final = "read_record_field"
"""The tool that ``next``, ``previous`` and ``read`` call."""


class Span(msgspec.Struct, frozen=True, order=True):
    """A range of code points of a text: from ``start`` up to, and without, ``end``."""

    start: int
    end: int


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A verbatim part of a text, and where it is."""

    text: str
    start: int
    end: int
    total: int
    """Code points of the whole text."""
    digest: str
    """Of the whole text, as ``text_digest`` makes it."""
    matches: tuple[Span, ...] = ()
    """Those that are at least partly inside; offsets of the whole text, in order."""

    @property
    def complete(self) -> bool:
        """Whether this is the whole text."""
        return self.start == 0 and self.end == self.total

    @property
    def truncated(self) -> bool:
        """Whether there is text before or after it."""
        return not self.complete

    def matched(self) -> tuple[MatchedText, ...]:
        """The matches, each with the part of its text that is inside."""
        return tuple(MatchedText(each.start, each.end, self._inside(each)) for each in self.matches)

    def _inside(self, match: Span) -> str:
        begin = max(match.start, self.start) - self.start
        return self.text[begin : match.end - self.start]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A proven match: a window of a field at a commit, with the call that reads more of it."""

    field: str
    item: int | None = None
    """Which item of a list field, from 0."""
    path: str | None = None
    """Of a Json value: the JSON pointer to the text."""
    window: Window
    read: Call


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was found."""

    id: str
    """``trails://kg/Type/id``, which every tool that reads takes."""
    iri: str
    type: str
    title: str
    score: float
    evidence: tuple[Evidence, ...] = ()
    """Empty if it was found by metadata or by a related word: nothing is proven on a text."""
    related: bool = False
    """Whether it has none of the words that were asked for, only words that go with them."""
    near: bool = False
    """Whether only its vector was near."""


def text_digest(text: str) -> str:
    """SHA-256 of a text in UTF-8, in hex."""
    return sha256(text.encode()).hexdigest()


def window_at(
    text: Sliceable,
    start: int,
    length: int,
    *,
    digest: str | None = None,
    matches: Sequence[Span] = (),
) -> Window:
    """At most ``length`` code points from ``start`` on, but at least one character.

    ``start`` is where an earlier window ended, or a boundary (``graphemes.boundary_before``).
    """
    start = min(max(start, 0), len(text))
    wanted = start + max(length, 1)
    end = boundary_before(text, wanted)
    if end <= start:  # one character is longer than the window
        end = boundary_after(text, wanted)
    return _window(text, start, end, digest, matches)


def window_before(
    text: Sliceable,
    end: int,
    length: int,
    *,
    digest: str | None = None,
    matches: Sequence[Span] = (),
) -> Window:
    """At most ``length`` code points up to ``end``, but at least one character."""
    end = min(max(end, 0), len(text))
    wanted = end - max(length, 1)
    start = boundary_after(text, wanted)
    if start >= end:
        start = boundary_before(text, wanted)
    return _window(text, start, end, digest, matches)


def window_around(
    text: Sliceable,
    span: Span,
    max_chars: int,
    *,
    digest: str | None = None,
    matches: Sequence[Span] | None = None,
) -> Window:
    """At most ``max_chars`` code points around a match, with as much text before it as after it.

    A match that is longer is shown from its start. ``matches`` are the ones to give offsets
    of; None: this one alone.
    """
    shown = (span,) if matches is None else matches
    if len(text) <= max_chars:
        return _window(text, 0, len(text), digest, shown)
    begin, spare = boundary_before(text, span.start), max_chars - (span.end - span.start)
    if spare > 0:
        total = len(text)
        after = min(total - span.end, max(spare - spare // 2, spare - span.start))
        begin = min(begin, boundary_after(text, span.start - (spare - after)))
    return window_at(text, begin, max_chars, digest=digest, matches=shown)


def _window(
    text: Sliceable, start: int, end: int, digest: str | None, matches: Sequence[Span]
) -> Window:
    return Window(
        text=text[start:end],
        start=start,
        end=end,
        total=len(text),
        digest=text_digest(text[:]) if digest is None else digest,
        matches=tuple(sorted(each for each in matches if each.start < end and each.end > start)),
    )
