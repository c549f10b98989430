"""BM25, as tantivy computes it, and what a score of tantivy says of a text.

Scores are computed here in double precision from the statistics of the texts that are seen. tantivy
has single precision and may count other texts, so its scores only choose candidates; but a score
and the length of a text tell how often each leaf is in it, which saves asking tantivy for each.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Final

from trails.views.text.grammar import Leaf

K1: Final = 1.2
B: Final = 0.75
"""As tantivy has them, so that its candidates are those that win here."""
CLOSE: Final = 1e-5
"""Scores of tantivy, in single precision, that may be equal; relative to the score."""
_MOST_DECODED: Final = 2
"""With more leaves there are too many sums to try; then tantivy is faster."""


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


def saturation(length: int, average: float) -> float:
    """How often a word must be in a text of this length to have half of its weight."""
    known = _LENGTHS[bisect_right(_LENGTHS, length) - 1]
    return K1 * (1 - B + B * known / average)


def score(
    weights: Mapping[Leaf, float], held: Mapping[Leaf, float], length: int, average: float
) -> float:
    """What a text of this length is worth that has these leaves so often."""
    half = saturation(length, average)
    return sum(
        weights[leaf] if leaf.distance else weights[leaf] * count / (count + half)
        for leaf, count in held.items()
    )


def decode(
    found: float, weights: Mapping[Leaf, float], length: int, average: float
) -> dict[Leaf, float] | None:
    """How often each leaf is in a text of which tantivy gave the score; None if that is not sure.

    ``average`` is the length that tantivy takes for the usual one.
    """
    if len(weights) > _MOST_DECODED or any(leaf.distance for leaf in weights):
        return None
    *others, weight = weights.values()
    half, close = saturation(length, average), found * CLOSE
    solution: tuple[int, ...] | None = None
    for count in range(length + 1 if others else 1):
        rest = found - others[0] * count / (count + half) if others else found
        low, high = rest - close, rest + close
        if high < 0:
            break
        # The counts of the last leaf that make up for the rest.
        least, most = 0, length
        if low > 0:
            least = math.ceil(half * low / (weight - low)) if low < weight else length + 1
        if high < weight:
            most = min(length, math.floor(half * high / (weight - high)))
        for last in range(least, most + 1):
            if solution is not None:
                return None
            solution = (count, last) if others else (last,)
    if solution is None:
        return None
    return {leaf: held for leaf, held in zip(weights, solution, strict=True) if held}
