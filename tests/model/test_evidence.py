"""Windows on texts: verbatim, bounded, cut between characters, and joined again without a gap."""

from __future__ import annotations

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from trails.model.evidence.graphemes import REACH, boundary_after, boundary_before
from trails.model.evidence.windows import (
    Span,
    Window,
    text_digest,
    window_around,
    window_at,
    window_before,
)
from trails.model.operations.records import MatchedText

PIECES = (
    *("a", "ß", "e\u0301", "漢", "\r\n", "\n", "\r", "\0", "\ufeff", " ", "한", "\u1100\u1161"),
    *("👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "🇫", "\u200d", "\u0301", "\u0600", "क्षि", "क्", "ष"),
    *("\u202e", "שלום", "مرحبا", "\u094d", "ก\u0e33", "\U000e0067", "#\ufe0f\u20e3"),
)
texts = st.lists(
    st.sampled_from(PIECES) | st.characters(exclude_categories=["Cs"]), max_size=60
).map("".join)


def boundaries(text: str) -> set[int]:
    """By a walk over the whole text."""
    found, start = {0}, 0
    while start < len(text):
        match = regex.match(r"\X", text, pos=start)
        assert match is not None
        start = match.end()
        if not _joins(text[:start], text[start:]):
            found.add(start)
    return found


def _joins(before: str, after: str) -> bool:
    """Rule GB9c: consonants with a linker among the marks between them stay together."""
    marks = r"[\p{InCB=Extend}\p{InCB=Linker}]*"
    conjunct = rf"\p{{InCB=Consonant}}{marks}\p{{InCB=Linker}}{marks}$"
    return bool(regex.search(conjunct, before) and regex.match(r"\p{InCB=Consonant}", after))


@given(texts, st.integers(-5, 200))
def test_boundaries_are_found_locally(text: str, at: int) -> None:
    """A look around the cut finds what a walk over the whole text does."""
    known = boundaries(text)
    at_most = min(max(at, 0), len(text))
    assert boundary_before(text, at) == max(each for each in known if each <= at_most)
    assert boundary_after(text, at) == min(each for each in known if each >= at_most)


@pytest.mark.req("E6")
@given(texts, st.integers(-1, 30))
def test_windows_join_to_the_text(text: str, length: int) -> None:
    """Forwards and backwards, and no window is cut inside a character."""
    known = boundaries(text)
    windows = [window_at(text, 0, length)]
    while windows[-1].end < len(text):
        windows.append(window_at(text, windows[-1].end, length))
    assert "".join(each.text for each in windows) == text
    assert all({each.start, each.end} <= known for each in windows)
    back = [window_before(text, len(text), length)]
    while back[0].start > 0:
        back.insert(0, window_before(text, back[0].start, length))
    assert "".join(each.text for each in back) == text
    assert all({each.start, each.end} <= known for each in back)


@given(texts, st.integers(1, 40), st.data())
def test_window_around_a_match(text: str, most: int, data: st.DataObject) -> None:
    """It is a verbatim part that has the match, or its beginning, with text around it."""
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    window = window_around(text, Span(start, end), most)
    assert window.text == text[window.start : window.end]
    assert window.start <= start
    assert {window.start, window.end} <= boundaries(text)
    longest = max((len(each) for each in regex.findall(r"\X", text)), default=0)
    assert len(window.text) <= max(most, 4 * longest)
    if end - start + 8 * longest <= most:
        assert window.end >= end
        if start > 0 and end < len(text) and window.truncated:
            assert window.start < start or window.end > end


def test_context_is_on_both_sides() -> None:
    """Half of the room is before a match; what one side does not need, the other gets."""
    text = "".join(str(each % 10) for each in range(1000))
    assert _range(window_around(text, Span(500, 510), 100)) == (455, 555)
    assert _range(window_around(text, Span(10, 20), 100)) == (0, 100)
    assert _range(window_around(text, Span(985, 990), 100)) == (900, 1000)
    assert _range(window_around(text, Span(100, 400), 100)) == (100, 200)
    assert _range(window_around(text[:30], Span(3, 5), 100)) == (0, 30)


def _range(window: Window) -> tuple[int, int]:
    return window.start, window.end


@pytest.mark.req("E6")
def test_flags_tell_the_truth() -> None:
    """Of texts that fit, and of those that do not."""
    for text in ("", "a", "é", "tiny"):
        window = window_at(text, 0, 100)
        assert (window.complete, window.truncated, window.total) == (True, False, len(text))
        assert window.digest == text_digest(text)
    assert window_at("tiny", 0, 4).complete
    assert window_at("tiny", 0, 3).truncated
    assert window_at("tiny", 1, 100).truncated
    assert window_at("tiny", 99, 100).text == ""
    assert window_at("tiny", 99, 100).truncated


def test_matches_are_those_inside() -> None:
    """With offsets of the whole text."""
    spans = [Span(8, 12), Span(0, 2), Span(2, 4), Span(4, 6)]
    window = window_at("0123456789ABCDEF", 4, 6, matches=spans)
    assert window.matches == (Span(4, 6), Span(8, 12))
    assert window.matched() == (MatchedText(4, 6, "45"), MatchedText(8, 12, "89"))


@pytest.mark.parametrize("piece", ["\u0301", "🇩", "\u200d", "क्", "\0", "👍🏽"])
def test_endless_clusters_are_cut(piece: str) -> None:
    """A cluster that is longer than the reach is cut between code points."""
    text = ("a" + piece * 300_000)[:300_000]
    parts, at = [], 0
    while at < len(text):
        window = window_at(text, at, 4 * REACH, digest="")
        assert at < window.end <= at + 4 * REACH + REACH
        parts.append(window.text)
        at = window.end
    assert "".join(parts) == text


def test_a_cluster_that_ends_beyond_the_reach_has_no_boundary() -> None:
    """Its end is not known, so the place itself is taken."""
    text = "a" + "\u0301" * (3 * REACH)
    assert boundary_before(text, 500) == boundary_after(text, 500) == 500
    assert boundary_after(text, len(text) - 500) == len(text) - 500
    assert boundary_after("a" + "\u0301" * 100 + "b", 50) == 101
