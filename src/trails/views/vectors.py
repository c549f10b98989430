"""Vectors of one field at one commit, searched exactly, and rankings joined by their ranks.

A search is one matrix product in single precision. It gives more candidates than are wanted, which
``score`` compares in double precision, so that the order is that of the exact scores. A table never
changes: what a commit changes makes another one, which shares the matrix. Pure: knows nothing of
graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from heapq import nsmallest
from itertools import islice
from math import dist, frexp, fsum, hypot, isfinite, ldexp
from operator import mul
from struct import Struct
from sys import float_info
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trails.model.types import Metric

Numbers = Sequence[float]
Read = Callable[[Sequence[str]], Mapping[str, Numbers]]
"""Reads the vectors of some nodes as they are stored."""
_UNIT: Final = 6e-8
"""The rounding error of single precision."""
_LARGE: Final = 1e15
"""Numbers from which squares may not fit into single precision; likewise small ones."""
_AT_ONCE: Final = 40_000
"""Numbers that are converted at once: few enough to stay in the processor's cache."""
_FEW: Final = 256
_PART: Final = 16
"""Vectors that may change until a table gets a new matrix: so many, or this part of them."""


def score(vector: Numbers, other: Numbers, metric: Metric) -> float:
    """How near two vectors are; higher is nearer. ``euclidean`` is the negative distance.

    The same on every machine, and finite: what is too large for a number is the largest one. With
    ``cosine``, neither may be all zeros.
    """
    if metric == "euclidean":
        return -min(dist(vector, other), float_info.max)
    if metric == "cosine":
        one, two = _scaled(vector), _scaled(other)
        return max(-1.0, min(1.0, fsum(map(mul, one, two)) / (hypot(*one) * hypot(*two))))
    with suppress(OverflowError, ValueError):
        product = fsum(map(mul, vector, other))
        if isfinite(product):
            return product
    exact = sum(map(mul, map(Fraction, vector), map(Fraction, other)))
    try:
        return float(exact)
    except OverflowError:
        return float_info.max if exact > 0 else -float_info.max


def _scaled(vector: Numbers) -> Numbers:
    """A vector of that direction whose products have room."""
    largest = max(map(abs, vector))
    if 1e-100 < largest < 1e100:
        return vector
    power = frexp(largest)[1]
    return [ldexp(each, -power) for each in vector]


class VectorMatrix:
    """The vectors of some nodes as rows, in single precision."""

    def __init__(
        self,
        handles: list[str],
        rows: NDArray[np.float32],
        exact: NDArray[np.bool_],
        odd: NDArray[np.bool_],
    ) -> None:
        self.handles: Final = handles
        self.rows: Final = rows
        self.exact: Final = exact
        """Rows that have all digits of the vectors."""
        self.odd: Final = odd
        """Rows whose numbers are too large or small for this; zeros, and always candidates."""
        self.places: Final = {handle: at for at, handle in enumerate(handles)}
        squares: NDArray[np.float32] = np.einsum("ij,ij->i", rows, rows)
        lengths = np.sqrt(squares)
        self.longest: Final = float(lengths.max(initial=0.0))
        self._squares = squares
        self._inverse = np.divide(
            np.float32(1), lengths, out=np.zeros_like(lengths), where=lengths > 0
        )
        self._zeros = np.flatnonzero(squares == 0)
        self.odd_rows: Final = np.flatnonzero(odd)

    def __len__(self) -> int:
        return len(self.handles)

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return self.rows.nbytes + 200 * len(self.handles)

    def compare(self, wanted: NDArray[np.float32], metric: Metric) -> NDArray[np.float32]:
        """How near each row is, up to a factor or a summand that all have in common.

        Minus infinity for rows of zeros if they have no direction, and for odd ones.
        """
        # One thread: those of BLAS wait for each other, and take 10 times as long where a server
        # is busy.
        found: NDArray[np.float32] = np.einsum("ij,j->i", self.rows, wanted)
        if metric == "euclidean":
            found = 2 * found - self._squares
        if metric == "cosine":
            found *= self._inverse
            found[self._zeros] = -np.inf
        found[self.odd_rows] = -np.inf
        return found

    def places_of(self, handles: Iterable[str]) -> NDArray[np.intp]:
        """The rows of some nodes, as far as they have one."""
        places = (self.places.get(handle) for handle in handles)
        return np.array([at for at in places if at is not None], np.intp)

    def without(self, handles: Collection[str]) -> VectorMatrix:
        """The same without some nodes."""
        kept = np.ones(len(self), np.bool_)
        kept[self.places_of(handles)] = False
        names = [each for each in self.handles if each not in handles]
        return VectorMatrix(names, self.rows[kept], self.exact[kept], self.odd[kept])

    def joined(self, other: VectorMatrix) -> VectorMatrix:
        """Both together."""
        return VectorMatrix(
            self.handles + other.handles,
            np.concatenate((self.rows, other.rows)),
            np.concatenate((self.exact, other.exact)),
            np.concatenate((self.odd, other.odd)),
        )


def rows_at_once(dimension: int) -> int:
    """Vectors that are best read and converted together."""
    return max(1, _AT_ONCE // max(1, dimension))


def make_matrix(dimension: int, vectors: Iterable[tuple[str, Numbers]]) -> VectorMatrix:
    """The matrix of some vectors, by handle."""
    handles: list[str] = []
    rows, exact, odd = bytearray(), bytearray(), bytearray()
    vectors = iter(vectors)
    pack = Struct(f"{dimension}d").pack
    while block := list(islice(vectors, rows_at_once(dimension))):
        handles += [handle for handle, _ in block]
        packed = bytearray().join([pack(*vector) for _, vector in block])
        values = np.frombuffer(packed, np.float64).reshape(len(block), dimension)
        largest = np.abs(values).max(axis=1)
        strange = (largest > _LARGE) | ((largest > 0) & (largest < 1 / _LARGE))
        values[strange] = 0
        single = values.astype(np.float32)
        rows += single.tobytes()
        exact += ((single == values).all(axis=1) & ~strange).tobytes()
        odd += strange.tobytes()
    return VectorMatrix(
        handles,
        np.frombuffer(rows, np.float32).reshape(len(handles), dimension),
        np.frombuffer(exact, np.bool_),
        np.frombuffer(odd, np.bool_),
    )


class VectorTable:
    """The vectors of a field at one commit: a matrix, and what has changed since it was made."""

    def __init__(
        self,
        base: VectorMatrix,
        tail: VectorMatrix | None = None,
        replaced: frozenset[str] = frozenset(),
    ) -> None:
        """``replaced``: nodes whose rows in ``base`` are void; ``tail`` may have others."""
        self.base: Final = base
        self.tail: Final = make_matrix(base.rows.shape[1], ()) if tail is None else tail
        self._both: Final = (self.base, self.tail)
        self._replaced = replaced
        self._void = base.places_of(replaced)

    def __len__(self) -> int:
        return len(self.base) - len(self._void) + len(self.tail)

    def changed(self, changes: Mapping[str, Numbers | None]) -> VectorTable:
        """The table after some vectors were written; None for those that are gone."""
        given = ((handle, each) for handle, each in changes.items() if each is not None)
        fresh = make_matrix(self.base.rows.shape[1], given)
        tail = self.tail.without(changes.keys()).joined(fresh)
        replaced = self._replaced.union(changes)
        if len(replaced) <= max(_FEW, len(self.base) // _PART):
            return VectorTable(self.base, tail, replaced)
        return VectorTable(self.base.without(replaced).joined(tail))

    def nearest(
        self,
        vector: Numbers,
        k: int,
        metric: Metric,
        read: Read,
        among: Collection[str] | None = None,
    ) -> list[tuple[str, float]]:
        """The k nearest nodes with their scores, best first; ties by handle.

        ``read`` gives the vectors of rows that have lost digits. With ``cosine``, a vector of
        zeros has no direction and is never found.
        """
        found: list[tuple[str, float]] = []
        known: dict[bytes, float] = {}
        rounded: list[str] = []
        for matrix, at in self._candidates(vector, k, metric, among):
            if not matrix.exact[at]:
                rounded.append(matrix.handles[at])
                continue
            row = matrix.rows[at]
            key = row.tobytes()
            if key not in known:  # many nodes may have the same vector
                known[key] = score(vector, row.tolist(), metric)
            found.append((matrix.handles[at], known[key]))
        stored = read(rounded) if rounded else {}
        found += [(handle, score(vector, each, metric)) for handle, each in stored.items()]
        return nsmallest(k, found, key=lambda each: (-each[1], each[0]))

    def _candidates(
        self, vector: Numbers, k: int, metric: Metric, among: Collection[str] | None
    ) -> Iterator[tuple[VectorMatrix, int]]:
        """The rows of the k best, and of all that rounding can't tell from them; in no order."""
        values = np.asarray(vector, np.float64)
        largest = float(np.abs(values).max())
        if metric == "euclidean" and largest > _LARGE:  # single precision has no differences here
            for matrix in self._both:
                yield from ((matrix, int(at)) for at in self._rows(matrix, among))
            return
        if metric != "euclidean":
            values = values / (largest or 1.0)
        wanted = values.astype(np.float32)
        parts = [(matrix, *self._compare(matrix, wanted, metric, among)) for matrix in self._both]
        every = np.concatenate([found for _, found, _ in parts])
        least = -np.inf
        if every.size > k:
            least = np.partition(every, -k)[-k] - self._margin(wanted, metric)
        for matrix, found, rows in parts:
            best = np.flatnonzero((found >= least) & (found > -np.inf))
            yield from ((matrix, int(at)) for at in (best if rows is None else rows[best]))
            if len(matrix.odd_rows):
                wild = np.intersect1d(matrix.odd_rows, self._rows(matrix, among))
                yield from ((matrix, int(at)) for at in wild)

    def _compare(
        self,
        matrix: VectorMatrix,
        wanted: NDArray[np.float32],
        metric: Metric,
        among: Collection[str] | None,
    ) -> tuple[NDArray[np.float32], NDArray[np.intp] | None]:
        """How near rows are, and which rows these are; None: all."""
        found = matrix.compare(wanted, metric)
        if among is not None:
            rows = self._rows(matrix, among)
            return found[rows], rows
        if matrix is self.base:
            found[self._void] = -np.inf
        return found, None

    def _rows(self, matrix: VectorMatrix, among: Collection[str] | None) -> NDArray[np.intp]:
        """The rows that count."""
        rows = np.arange(len(matrix)) if among is None else matrix.places_of(among)
        return np.setdiff1d(rows, self._void) if matrix is self.base else rows

    def _margin(self, wanted: NDArray[np.float32], metric: Metric) -> float:
        """How far two rough scores may be from each other if the exact ones are equal."""
        largest = max(self.base.longest, self.tail.longest)
        length = float(np.linalg.norm(wanted))
        scale = {
            "cosine": length,
            "dot": largest * length,
            "euclidean": 2 * largest * length + largest**2,
        }[metric]
        return 4 * (wanted.size + 2) * _UNIT * scale


def fuse(rankings: Iterable[Sequence[str]], k: int = 60) -> list[tuple[str, float]]:
    """Reciprocal rank fusion: handles of several rankings in one, best first.

    Each ranking gives ``1 / (k + rank)`` to its handles, ranks from 1; ties by handle.
    """
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, handle in enumerate(dict.fromkeys(ranking), start=1):
            scores[handle] = scores.get(handle, 0.0) + 1 / (k + rank)
    return sorted(scores.items(), key=lambda each: (-each[1], each[0]))
