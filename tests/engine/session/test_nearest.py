"""The nearest vectors are those that a plain comparison of all of them finds, wherever it reads."""

import math
import random

import pytest

from trails import App, Node, Vector, node_type, predicate
from trails.errors import QueryError, ValidationError
from trails.views.vectors import VectorCache, VectorTable, fuse, score

DIMENSION = 4


@node_type
class Point(Node):
    """A place."""

    code: str = predicate(key=True)
    color: str | None = predicate(default=None)
    spot: Vector(DIMENSION) | None = predicate()


@pytest.fixture
def app():
    """A thousand points in memory, some without a vector, one of zeros."""
    chance = random.Random(7)
    with App(Point) as opened:
        ctx = opened.context()
        ctx.kg.save_all(
            Point(
                code=f"p{n:04}",
                color="red" if n % 3 else "blue",
                spot=None if n % 10 == 9 else [chance.gauss(0, 1) for _ in range(DIMENSION)],
            )
            for n in range(1000)
        )
        Point(code="zero", spot=[0.0] * DIMENSION).save(ctx)
        yield opened


def plainly(points, wanted, k, metric):
    """Compare with all, one by one."""

    def near(each):
        product = sum(a * b for a, b in zip(each, wanted, strict=True))
        if metric == "dot":
            return product
        if metric == "euclidean":
            return -math.dist(each, wanted)
        return product / (math.hypot(*each) * math.hypot(*wanted))

    known = [each for each in points if each.spot and (metric != "cosine" or any(each.spot))]
    ranked = sorted(known, key=lambda each: (-near(each.spot), f"Point/{each.code}"))
    return [each.code for each in ranked[:k]]


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_the_nearest_are_those_of_a_plain_comparison(app, metric):
    """With and without a filter, for several vectors."""
    ctx, chance = app.context(), random.Random(3)
    every, red = Point.objects(ctx).fetch(), Point.objects(ctx).where(color="red")
    for _ in range(5):
        wanted = [chance.gauss(0, 1) for _ in range(DIMENSION)]
        found = Point.objects(ctx).nearest("spot", wanted, 20, metric=metric)
        assert [each.code for each, _ in found] == plainly(every, wanted, 20, metric)
        assert [near for _, near in found] == sorted((near for _, near in found), reverse=True)
        some = [each.code for each, _ in red.nearest("spot", wanted, 20, metric=metric)]
        assert some == plainly([e for e in every if e.color == "red"], wanted, 20, metric)


def test_every_state_has_its_own_neighbours(app):
    """A branch, the past, and what is written but not committed yet."""
    ctx, wanted = app.context(), [5.0, 5.0, 5.0, 5.0]
    before = ctx.kg.head.commit

    def best(context):
        return Point.objects(context).nearest("spot", wanted, 1, metric="euclidean")[0][0].code

    first = best(ctx)
    app.versions().create_branch("side")
    side = app.context(branch="side")
    Point(code="there", spot=wanted).save(side)
    assert (best(side), best(ctx)) == ("there", first)
    with ctx.kg.transaction():
        Point(code="here", spot=wanted).save(ctx)
        assert best(ctx) == "here"
    assert best(ctx) == "here"
    assert best(app.context(snapshot=before)) == first


@pytest.mark.parametrize(
    ("vector", "said"),
    [
        ([1.0], "must have 4 numbers, not 1"),
        ([math.nan, 0, 0, 0], "finite"),
        ([math.inf, 0, 0, 0], "finite"),
        ([0, 0, 0, 0], "only zeros"),
        (["a", 0, 0, 0], "list of numbers"),
        (7, "list of numbers"),
    ],
)
def test_a_vector_that_can_t_be_compared_is_a_field_error(app, vector, said):
    """It names the field and the rule."""
    with pytest.raises(ValidationError, match=said) as raised:
        Point.objects(app.context()).nearest("spot", vector)
    assert [each.field for each in raised.value.fields] == ["spot"]


def test_other_mistakes_are_query_errors(app):
    """A field that is not a vector, an unknown metric, a bad number."""
    points, wanted = Point.objects(app.context()), [1.0, 0, 0, 0]
    with pytest.raises(QueryError, match="not a Vector field of Point; it has spot"):
        points.nearest("color", wanted)
    with pytest.raises(QueryError, match="cosine, dot, euclidean"):
        points.nearest("spot", wanted, metric="near")
    for k in (0, 1001, "x"):
        with pytest.raises(QueryError, match="k must be"):
            points.nearest("spot", wanted, k)


def test_tables_are_kept_within_a_bound():
    """Those that were used last stay; one that is too large is not kept."""
    small = VectorTable(2, [("a", (1.0, 2.0))])
    cache = VectorCache(2 * small.size)
    for key in "abc":
        cache.put(key, VectorTable(2, [("a", (1.0, 2.0))]))
    assert [cache.get(key) is not None for key in "abc"] == [False, True, True]
    cache.put("large", VectorTable(2, [(str(n), (1.0, 2.0)) for n in range(9)]))
    assert cache.get("large") is None
    assert VectorTable(2, []).candidates((1.0, 0.0), 3) == []


def test_scores_are_exact():
    """Where single precision can't tell two vectors apart, double precision does."""
    close = [(f"n{n:02}", (1.0, 1e-9 * n)) for n in range(50)]
    found = VectorTable(2, close).candidates((1.0, 0.0), 3)
    ranked = sorted(found, key=lambda each: -score((1.0, 0.0), dict(close)[each], "euclidean"))
    assert ranked[:3] == ["n00", "n01", "n02"]
    assert score((1, 2), (2, 4), "cosine") == pytest.approx(1)


def test_rankings_are_fused_by_rank():
    """What two rankings have near the top comes first."""
    assert [each for each, _ in fuse([["a", "b", "c"], ["b", "d"]])] == ["b", "a", "d", "c"]
    assert fuse([["a"]], k=60) == [("a", 1 / 61)]
    assert fuse([]) == []
