"""Where a query matches in a text: the proof of a hit.

The text is analysed as the index does it, so whatever the index found is located here: folded and
stemmed words, phrases, prefixes and words that differ in a letter. Time is linear in the text, and
no more of it is read than the matches that are asked for need. Offsets count code points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from trails.views.text.analysis import FIRST_PIECE, Analyzer, Piece, ascii_words, has_long_run
from trails.views.text.grammar import Leaf, TextQuery


class Match(NamedTuple):
    """A part of a text that matches: from ``start`` up to ``end``."""

    start: int
    end: int


def query_leaves(query: TextQuery, analyzer: Analyzer, field: str | None) -> list[Leaf]:
    """What a query looks for in the texts of a field, each once."""
    return list(
        dict.fromkeys(
            leaf
            for group in query.groups
            for clause in group
            if clause.field in {None, field}
            for leaf in clause.leaves(analyzer)
        )
    )


class Finder:
    """Looks for a query in the texts of a field. What the query excludes is not looked for."""

    def __init__(self, query: TextQuery, analyzer: Analyzer, field: str | None = None) -> None:
        self._leaves = leaves = query_leaves(query, analyzer, field)
        self._analyzer = analyzer
        self._longest = max((len(leaf.terms) for leaf in leaves), default=1)
        self._words: list[bytes] | None = None
        """What to look for in ASCII, if that is words as they are: each between spaces."""
        if analyzer.language is None and all(leaf.is_word for leaf in leaves):
            self._words = [f" {leaf.terms[0]} ".encode() for leaf in leaves]

    @cached_property
    def _ending(self) -> _Ending:
        return _Ending(self._leaves)

    def find(self, text: str, limit: int | None = None) -> list[Match]:
        """The matches in their order; those that overlap are one. The first ``limit`` if given."""
        if len(text) > FIRST_PIECE:
            return list(islice(self.matches(text), limit))
        if self._words is not None and text.isascii() and not has_long_run(text):
            return _whole_words(self._words, ascii_words(text))[:limit]
        return self._short(text)[:limit]

    def _short(self, text: str) -> list[Match]:
        """The matches in a text of one piece: the same as ``matches``, in less time."""
        found: list[Match] = []
        for start, end in self._found(Piece(self._analyzer, 0, len(text), text)):
            if found and start < found[-1].end:
                found[-1] = Match(found[-1].start, max(end, found[-1].end))
            else:
                found.append(Match(start, end))
        return found

    def matches(self, text: str) -> Iterator[Match]:
        """Where the leaves are, computed as far as it is asked for."""
        pending: Match | None = None
        for piece in self._analyzer.pieces(text, self._longest - 1):
            for start, end in self._found(piece):
                if pending is None:
                    pending = Match(start, end)
                elif start < pending.end:
                    pending = Match(pending.start, max(end, pending.end))
                else:
                    yield pending
                    pending = Match(start, end)
            if pending is not None and pending.end <= piece.end:
                yield pending
                pending = None
        if pending is not None:
            yield pending

    def _found(self, piece: Piece) -> list[tuple[int, int]]:
        """Each occurrence that begins in a piece, in the order of their starts."""
        ends = self._ending.occurrences(piece.words)
        if not ends:
            return []
        spans = piece.spans()
        found = [(spans[index + 1 - len(leaf.terms)][0], spans[index][1]) for index, leaf in ends]
        return sorted(span for span in found if span[0] < piece.end)


def _whole_words(words: Iterable[bytes], text: bytes) -> list[Match]:
    """Where these words are, each between spaces, in a text with a space before and after it."""
    found = []
    for word in words:
        size = len(word) - 2
        start = text.find(word)
        while start >= 0:
            found.append(Match(start, start + size))
            # The space behind a word may be the one before the next.
            start = text.find(word, start + size + 1)
    found.sort()
    return found


def frequencies(leaves: Sequence[Leaf], words: Sequence[str]) -> Counter[Leaf]:
    """How often each leaf is in a text of these words."""
    return Counter(leaf for _, leaf in _Ending(leaves).occurrences(words))


class _Ending(dict[str, list[Leaf]]):
    """For each word, the leaves that may end with it; computed once for each different word."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        super().__init__()
        self._open = [leaf for leaf in leaves if leaf.prefix or leaf.distance]
        for leaf in leaves:
            if not leaf.prefix and not leaf.distance:
                self[leaf.terms[-1]].append(leaf)

    def __missing__(self, word: str) -> list[Leaf]:
        found = self[word] = [leaf for leaf in self._open if _ends_with(leaf, word)]
        return found

    def occurrences(self, words: Sequence[str]) -> list[tuple[int, Leaf]]:
        """The index of the word that each occurrence ends with, and what occurs there."""
        if self._open:
            held = ((index, self[word]) for index, word in enumerate(words))
        elif self.keys().isdisjoint(words):
            return []
        else:
            held = ((index, self[word]) for index, word in enumerate(words) if word in self)
        return [
            (index, leaf)
            for index, leaves in held
            for leaf in leaves
            if len(leaf.terms) == 1 or _follows(leaf.terms, words, index)
        ]


def _follows(terms: tuple[str, ...], words: Sequence[str], index: int) -> bool:
    """Whether the words before this one are those of the phrase."""
    start = index + 1 - len(terms)
    return start >= 0 and tuple(words[start:index]) == terms[:-1]


def _ends_with(leaf: Leaf, word: str) -> bool:
    last = leaf.terms[-1]
    return word.startswith(last) if leaf.prefix else within(last, word, leaf.distance)


def within(first: str, second: str, distance: int) -> bool:
    """Whether so many changes of one letter (or of two that change places) are enough."""
    if abs(len(first) - len(second)) > distance:
        return False
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        earlier, before, row = before, row, [i]
        for j, other in enumerate(second, 1):
            cost = min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == second[j - 2] and first[i - 2] == other:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
        if min(row) > distance:
            return False
    return row[-1] <= distance
