"""Vectors of one field at one commit, searched exactly, and rankings joined by their ranks.

A search is one matrix product in single precision. It gives more candidates than are wanted, which
``score`` compares in double precision, so that the order is that of the exact scores. Pure: knows
nothing of graphs.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Sequence
from threading import Lock
from typing import Final, get_args

import numpy as np
from numpy.typing import NDArray

from trails.model.nodes import Metric

METRICS: Final[tuple[Metric, ...]] = get_args(Metric)
_UNIT: Final = 6e-8
"""The rounding error of single precision."""


def score(vector: Sequence[float], other: Sequence[float], metric: Metric) -> float:
    """How near two vectors are; higher is nearer. ``euclidean`` is the negative distance."""
    first, second = np.asarray(vector, np.float64), np.asarray(other, np.float64)
    if metric == "euclidean":
        return -float(np.linalg.norm(first - second))
    product = float(first @ second)
    return (
        product
        if metric == "dot"
        else product / float(np.linalg.norm(first) * np.linalg.norm(second))
    )


class VectorTable:
    """The vectors of some nodes, by handle."""

    def __init__(self, dimension: int, rows: Iterable[tuple[str, Sequence[float]]]) -> None:
        self.handles: list[str] = []
        numbers = array("f")
        for handle, vector in rows:
            self.handles.append(handle)
            numbers.extend(vector)
        self._matrix: NDArray[np.float32] = np.frombuffer(numbers, np.float32).reshape(
            len(self.handles), dimension
        )
        lengths = np.linalg.norm(self._matrix, axis=1)
        self._squares: NDArray[np.floating] = lengths**2
        self._inverse: NDArray[np.floating] = np.divide(
            1, lengths, out=np.zeros_like(lengths), where=lengths > 0
        )
        self._zeros = np.flatnonzero(lengths == 0)
        self._places = {handle: at for at, handle in enumerate(self.handles)}

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return self._matrix.nbytes + 200 * len(self.handles)

    def candidates(
        self,
        vector: Sequence[float],
        k: int,
        metric: Metric = "cosine",
        among: Collection[str] | None = None,
    ) -> list[str]:
        """The handles of the k best, and of all that rounding can't tell from them; in no order.

        With ``cosine``, a vector of zeros has no direction and is never found.
        """
        wanted = np.asarray(vector, np.float32)
        rough, rows = self._score(wanted, metric), None
        if among is not None:
            places = (self._places.get(each) for each in among)
            rows = np.array([at for at in places if at is not None], dtype=np.intp)
            rough = rough[rows]
        least = -np.inf
        if rough.size > k:
            least = np.partition(rough, -k)[-k] - self._margin(wanted, metric)
        best = np.flatnonzero((rough >= least) & (rough > -np.inf))
        return [self.handles[at] for at in (best if rows is None else rows[best])]

    def _margin(self, wanted: NDArray[np.float32], metric: Metric) -> float:
        """How far two rough scores may be from each other if the exact ones are equal."""
        largest = float(np.sqrt(self._squares.max()))
        length = float(np.linalg.norm(wanted))
        scale = {
            "cosine": length,
            "dot": largest * length,
            "euclidean": 2 * largest * length + largest**2,
        }[metric]
        return 4 * (wanted.size + 2) * _UNIT * scale

    def _score(self, wanted: NDArray[np.float32], metric: Metric) -> NDArray[np.floating]:
        """How near each vector is, up to a factor or a summand that all have in common."""
        products: NDArray[np.floating] = self._matrix @ wanted
        if metric == "dot":
            return products
        if metric == "euclidean":
            return 2 * products - self._squares
        products *= self._inverse
        products[self._zeros] = -np.inf
        return products


class VectorCache:
    """Tables that were used last, within a bound on memory."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._kept: OrderedDict[Hashable, VectorTable] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> VectorTable | None:
        """A table, if it is kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: Hashable, table: VectorTable) -> None:
        """Keep a table; those that were not used for the longest time make room."""
        if table.size > self._most:
            return
        with self._lock:
            self._kept[key] = table
            while sum(each.size for each in self._kept.values()) > self._most:
                self._kept.popitem(last=False)


def fuse(rankings: Iterable[Sequence[str]], k: int = 60) -> list[tuple[str, float]]:
    """Reciprocal rank fusion: handles of several rankings in one, best first.

    Each ranking gives ``1 / (k + rank)`` to its handles, ranks from 1; ties by handle.
    """
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, handle in enumerate(dict.fromkeys(ranking), start=1):
            scores[handle] = scores.get(handle, 0.0) + 1 / (k + rank)
    return sorted(scores.items(), key=lambda each: (-each[1], each[0]))
