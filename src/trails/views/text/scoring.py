"""BM25, as tantivy computes it, and what a score of tantivy says of a text.

Scores are computed here in double precision from the statistics of the texts that are seen. tantivy
has single precision and may count other texts, so its scores only choose candidates; but a score
and the length of a text tell how often each leaf is in it, which saves asking tantivy for each.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from trails.views.text.grammar import Leaf

K1: Final = 1.2
B: Final = 0.75
"""As tantivy has them, so that its candidates are those that win here."""
CLOSE: Final = 1e-5
"""Scores of tantivy, in single precision, that may be equal; relative to the score."""
_MOST_DECODED: Final = 3
"""With more leaves there are too many sums to try; then tantivy is faster."""
_HIGHEST: Final = 40
"""How often a leaf is in a text, at most, for that to be read from the score. Up to this count, a
leaf alone adds enough to the score each time that no higher one can be meant."""


def _lengths() -> list[int]:
    """The lengths of texts that tantivy tells apart, in one byte: exact up to 40 words."""
    return [
        code if code < 40 else 24 + ((code - 24 & 7 | 8) << (code - 24 >> 3) - 1)
        for code in range(256)
    ]


_LENGTHS: Final = _lengths()


def idf(count: int, documents: int) -> float:
    """How much a word says that so many of the texts have."""
    return math.log(1 + (documents - count + 0.5) / (count + 0.5))


@lru_cache(maxsize=1024)
def saturation(length: int, average: float) -> float:
    """How often a word must be in a text of this length to have half of its weight."""
    known = _LENGTHS[bisect_right(_LENGTHS, length) - 1]
    return K1 * (1 - B + B * known / average)


def score(
    weights: Mapping[Leaf, float], held: Mapping[Leaf, float], length: int, average: float
) -> float:
    """What a text of this length is worth that has these leaves so often."""
    half = saturation(length, average)
    total = 0.0
    for leaf, count in held.items():
        total += weights[leaf] if leaf.distance else weights[leaf] * count / (count + half)
    return total


class Decoder:
    """Reads from the scores of tantivy how often each leaf of a plan is in a text."""

    def __init__(self, weights: Mapping[Leaf, float], average: float) -> None:
        """``average`` is the length that tantivy takes for the usual one."""
        self._average = average
        heaviest = sorted(weights, key=weights.__getitem__, reverse=True)
        self._unused = _MOST_DECODED - len(weights)
        self._weights = [1.0] * self._unused + [weights[leaf] for leaf in heaviest]
        self._places = [(leaf, self._unused + heaviest.index(leaf)) for leaf in weights]
        decoded = self._unused >= 0 and not any(leaf.distance for leaf in weights)
        self._longest = -1 if not decoded else _HIGHEST if len(weights) > 1 else sys.maxsize

    def counts(self, found: float, length: int) -> dict[Leaf, float] | None:
        """How often each leaf is in a text of this score and length; None if that is not sure."""
        if length > self._longest:
            return None
        shares = _shares(length, self._average)
        solution = self._only_sum(shares, found * (1 - CLOSE), found * (1 + CLOSE))
        if solution is None:
            return None
        return {leaf: solution[place] for leaf, place in self._places if solution[place]}

    def _only_sum(
        self, shares: list[float], low: float, high: float
    ) -> tuple[int, int, int] | None:
        """The counts that give a score between two others; None if none do, or several."""
        first, second, third = self._weights
        most = third * shares[-1]
        ones = shares if self._unused == 0 else _NEVER
        twos = shares if self._unused <= 1 else _NEVER
        most_of_two = second * twos[-1] + most
        solution = None
        for one, share in enumerate(ones):
            begun = first * share
            if begun > high:
                break
            if begun + most_of_two < low:
                continue
            for two, another in enumerate(twos):
                so_far = begun + second * another
                if so_far > high:
                    break
                if so_far + most < low:
                    continue
                last = bisect_left(shares, (low - so_far) / third)
                highest = (high - so_far) / third
                if last < len(shares) and shares[last] <= highest:
                    if solution is not None or bisect_right(shares, highest) > last + 1:
                        return None
                    solution = one, two, last
        return solution


_NEVER: Final = [0.0]
"""The shares of a leaf that is in no text."""


@lru_cache(maxsize=1024)
def _shares(length: int, average: float) -> list[float]:
    """Of the weight of a leaf, the share that it has in a text of this length, for each count."""
    half = saturation(length, average)
    return [count / (count + half) for count in range(min(length, _HIGHEST) + 1)]
