"""The nearest rows of a table are those of a plain comparison, whatever was written meanwhile."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from trails.model.types import METRICS
from trails.views import vectors
from trails.views.vectors import VectorTable, fuse, make_matrix, score

DIMENSION = 3
small = st.integers(-3, 3).map(float)
plain = st.floats(-10, 10, width=32)
digits = st.floats(-10, 10)
wild = st.sampled_from((0.0, -0.0, 1e300, -1e300, 1e-300, 1.7e308, 5e-324, 1e15, 1e-15, 1e20, 1.0))
numbers = st.one_of(small, plain, digits, wild)


def lists_of(each: st.SearchStrategy[float]) -> st.SearchStrategy[tuple[float, ...]]:
    """Vectors of such numbers."""
    return st.lists(each, min_size=DIMENSION, max_size=DIMENSION).map(tuple)


any_vector = st.one_of(*map(lists_of, (small, plain, digits, wild, numbers)))


def oracle(wanted: tuple[float, ...], given: tuple[float, ...], metric: str) -> float:
    """The exact score, with numbers that have as many digits as they need."""
    one, two = [Fraction(each) for each in wanted], [Fraction(each) for each in given]
    product = sum((a * b for a, b in zip(one, two, strict=True)), Fraction())
    if metric == "euclidean":
        squares = sum(((a - b) ** 2 for a, b in zip(one, two, strict=True)), Fraction())
        return -_clamped(_root(squares))
    if metric == "dot":
        return _clamped(product)
    lengths = sum((a * a for a in one), Fraction()) * sum((b * b for b in two), Fraction())
    return float(product / _root(lengths))


def _root(value: Fraction) -> Fraction:
    """Its square root, to about 25 digits."""
    if not value:
        return Fraction()
    scale = 10**50
    while value * scale < 10**50:
        scale *= 10**50
    return Fraction(math.isqrt(int(value * scale)), math.isqrt(scale))


def _clamped(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return 1.7976931348623157e308 if value > 0 else -1.7976931348623157e308


def near(one: float, two: float) -> bool:
    """Whether two scores differ by rounding alone."""
    return math.isclose(one, two, rel_tol=1e-12, abs_tol=1e-300) or abs(one - two) < 1e-14


@given(any_vector, any_vector, st.sampled_from(METRICS))
@example((0.0, 1e300, 0.0), (1e300, 1e-300, 0.0), "dot")
@example((1e300, 1e300, 1.0), (1e300, -1e300, 5.0), "dot")
@example((1e300, 1e300, 1.0), (1e300, 1e300, 5.0), "dot")
@example((1e-300, 2e-300, 0.0), (1e300, 2e300, 0.0), "cosine")
def test_scores_are_exact_and_finite(one, two, metric):
    """However large or small the numbers are."""
    if metric == "cosine" and not (any(one) and any(two)):
        return
    found = score(one, two, metric)
    assert math.isfinite(found)
    assert near(found, oracle(one, two, metric))


changes = st.lists(
    st.dictionaries(st.integers(0, 30), st.one_of(any_vector, st.none()), max_size=12), max_size=4
)


@pytest.fixture
def busy_table(monkeypatch):
    """Tables that get a new matrix after a few changes."""
    monkeypatch.setattr(vectors, "_FEW", 6)
    monkeypatch.setattr(vectors, "_AT_ONCE", 7 * DIMENSION)


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    rows=st.dictionaries(st.integers(0, 30), any_vector, max_size=30),
    changed=changes,
    wanted=any_vector,
    k=st.integers(1, 12),
    metric=st.sampled_from(METRICS),
    among=st.one_of(st.none(), st.sets(st.integers(0, 35))),
)
def test_the_nearest_are_those_of_a_plain_comparison(
    busy_table, rows, changed, wanted, k, metric, among
):
    """Ties by handle; with changes, filters, equal vectors, and numbers of any size."""
    if metric == "cosine" and not any(wanted):
        wanted = (1.0, 0.0, 0.0)
    known = {f"n{each:02}": vector for each, vector in rows.items()}
    table = VectorTable(make_matrix(DIMENSION, known.items()))
    for step in changed:
        some = {f"n{each:02}": vector for each, vector in step.items()}
        table = table.changed(some)
        known = {each: vector for each, vector in {**known, **some}.items() if vector is not None}
    assert len(table) == len(known)
    handles = None if among is None else {f"n{each:02}" for each in among}
    found = table.nearest(
        wanted, k, metric, lambda some: {each: known[each] for each in some}, handles
    )
    counted = {
        each: oracle(wanted, vector, metric)
        for each, vector in known.items()
        if (handles is None or each in handles) and (metric != "cosine" or any(vector))
    }
    assert len(found) == min(k, len(counted))
    assert found == sorted(found, key=lambda each: (-each[1], each[0]))
    for handle, value in found:
        assert near(value, counted[handle])
    if found:
        chosen, worst = dict(found), found[-1]
        for handle, value in counted.items():
            if handle not in chosen:
                # Nearer ones are all there, and of equal ones the first by handle.
                assert value <= worst[1] or near(value, worst[1])
                ours = score(wanted, known[handle], metric)
                assert (-ours, handle) > (-worst[1], worst[0])


def test_many_changes_make_a_new_matrix(busy_table):
    """A table keeps its matrix for a few changes, and joins them to it when they are many."""
    rows = {f"n{at:02}": (float(at), 1.0, 0.0) for at in range(20)}
    table = VectorTable(make_matrix(DIMENSION, rows.items()))
    few = table.changed({"n03": (9.0, 9.0, 9.0), "n04": None, "new": (1.0, 1.0, 1.0)})
    assert few.base is table.base
    assert (len(table), len(few)) == (20, 20)
    for gone in ((3.0, 1.0, 0.0), (4.0, 1.0, 0.0)):
        assert few.nearest(gone, 1, "euclidean", dict.fromkeys)[0][1] == -1.0
        assert table.nearest(gone, 1, "euclidean", dict.fromkeys)[0][1] == 0.0
    many = few.changed({f"n{at:02}": None for at in range(10, 16)})
    assert many.base is not table.base
    assert len(many) == 14
    assert not len(many.tail)
    best = many.nearest((9.0, 9.0, 9.0), 1, "euclidean", dict.fromkeys)
    assert best == [("n03", 0.0)]


def test_a_matrix_is_read_in_double_precision_only_where_digits_are_lost():
    """Rows that single precision has whole are not read again."""
    asked: list[str] = []

    def read(handles):
        asked.extend(handles)
        return {"third": (1 / 3, 0.0)}

    table = VectorTable(make_matrix(2, [("half", (0.5, 0.0)), ("third", (1 / 3, 0.0))]))
    assert table.nearest((1.0, 0.0), 2, "dot", read) == [("half", 0.5), ("third", 1 / 3)]
    assert asked == ["third"]


def test_what_single_precision_can_t_tell_apart_is_ordered():
    """The candidates are read, and compared with all digits."""
    close = {f"n{n:02}": (1.0, 1e-9 * (50 - n)) for n in range(50)}
    table = VectorTable(make_matrix(2, close.items()))

    def read(handles):
        return {each: close[each] for each in handles}

    found = table.nearest((1.0, 0.0), 3, "euclidean", read)
    assert [each for each, _ in found] == ["n49", "n48", "n47"]


@pytest.mark.parametrize("metric", METRICS)
def test_rounding_decides_nothing(metric):
    """Rows whose order in single precision is another one than in double precision."""
    chance = np.random.default_rng(5)
    center = chance.normal(size=64)
    rows = {f"n{at:03}": tuple(center + 1e-7 * chance.normal(size=64)) for at in range(400)}
    table = VectorTable(make_matrix(64, rows.items()))
    for _ in range(5):
        wanted = tuple(center + 1e-6 * chance.normal(size=64))
        found = table.nearest(wanted, 5, metric, lambda some: {each: rows[each] for each in some})
        exact = {each: score(wanted, row, metric) for each, row in rows.items()}
        best = sorted(exact.items(), key=lambda each: (-each[1], each[0]))
        assert found == best[:5]


def test_a_large_table_agrees_with_numpy():
    """Ten thousand rows, with the same vectors in some of them."""
    chance = np.random.default_rng(7)
    rows = chance.normal(size=(10_000, 48)).astype(np.float32)
    rows[5_000:5_050] = rows[17]
    table = VectorTable(
        make_matrix(48, ((f"n{at:05}", row.tolist()) for at, row in enumerate(rows)))
    )
    wanted = rows[17].astype(np.float64) + 0.01
    for metric in METRICS:
        exact = {
            "dot": rows.astype(np.float64) @ wanted,
            "euclidean": -np.linalg.norm(rows.astype(np.float64) - wanted, axis=1),
        }
        exact["cosine"] = exact["dot"] / (
            np.linalg.norm(rows.astype(np.float64), axis=1) * np.linalg.norm(wanted)
        )
        best = sorted(range(10_000), key=lambda at: (-round(float(exact[metric][at]), 12), at))[:80]
        found = table.nearest(wanted.tolist(), 80, metric, dict.fromkeys)
        assert [each for each, _ in found] == [f"n{at:05}" for at in best]


def test_rankings_are_fused_by_rank():
    """What two rankings have near the top comes first."""
    assert [each for each, _ in fuse([["a", "b", "c"], ["b", "d"]])] == ["b", "a", "d", "c"]
    assert fuse([["a"]], k=60) == [("a", 1 / 61)]
    assert fuse([]) == []
