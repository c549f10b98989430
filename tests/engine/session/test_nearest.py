"""The nearest vectors are those that a plain comparison of all of them finds, wherever it reads."""

import math
import random

import pytest
from tests.worlds.projects import make_project

from trails import App, Node, Vector, node_type, predicate
from trails.engine.graph import vector_tables
from trails.errors import QueryError, ValidationError

DIMENSION = 4


@node_type
class Point(Node):
    """A place."""

    code: str = predicate(key=True)
    color: str | None = predicate(default=None)
    spot: Vector(DIMENSION) | None = predicate(default=None)
    pull: Vector(DIMENSION) | None = predicate(metric="dot", default=None)
    site: Vector(DIMENSION) | None = predicate(metric="euclidean", default=None)


@pytest.fixture
def app():
    """A thousand points in memory, some without a vector, one of zeros."""
    chance, points = random.Random(7), []
    with App(Point) as opened:
        ctx = opened.context()
        for n in range(1000):
            at = None if n % 10 == 9 else [chance.gauss(0, 1) for _ in range(DIMENSION)]
            color = "red" if n % 3 else "blue"
            points.append(Point(code=f"p{n:04}", color=color, spot=at, pull=at, site=at))
        ctx.kg.save_all(points)
        zero = [0.0] * DIMENSION
        Point(code="zero", spot=zero, pull=zero, site=zero).save(ctx)
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


@pytest.mark.parametrize(
    ("field", "metric"), [("spot", "cosine"), ("pull", "dot"), ("site", "euclidean")]
)
def test_the_nearest_are_those_of_a_plain_comparison(app, field, metric):
    """With and without a filter, for several vectors."""
    ctx, chance = app.context(), random.Random(3)
    every, red = Point.objects(ctx).fetch(), Point.objects(ctx).where(color="red")
    for _ in range(5):
        wanted = [chance.gauss(0, 1) for _ in range(DIMENSION)]
        found = Point.objects(ctx).nearest(field, wanted, 20)
        assert [each.code for each, _ in found] == plainly(every, wanted, 20, metric)
        assert [near for _, near in found] == sorted((near for _, near in found), reverse=True)
        some = [each.code for each, _ in red.nearest(field, wanted, 20)]
        assert some == plainly([e for e in every if e.color == "red"], wanted, 20, metric)


def test_every_state_has_its_own_neighbours(app):
    """A branch, the past, and what is written but not committed yet."""
    ctx, wanted = app.context(), [5.0, 5.0, 5.0, 5.0]
    before = ctx.kg.head.commit

    def best(context):
        return Point.objects(context).nearest("site", wanted, 1)[0][0].code

    first = best(ctx)
    app.versions().create_branch("side")
    side = app.context(branch="side")
    Point(code="there", site=wanted).save(side)
    assert (best(side), best(ctx)) == ("there", first)
    with ctx.kg.transaction():
        Point(code="here", site=wanted).save(ctx)
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
        ([10**400, 0, 0, 0], "list of numbers"),
        (None, "a vector or a text"),
    ],
)
def test_a_vector_that_can_t_be_compared_is_a_field_error(app, vector, said):
    """It names the field and the rule."""
    with pytest.raises(ValidationError, match=said) as raised:
        Point.objects(app.context()).nearest("spot", vector)
    assert [each.field for each in raised.value.fields] == ["spot"]


def test_other_mistakes_are_query_errors(app):
    """A field that is not a vector, or a bad number."""
    points, wanted = Point.objects(app.context()), [1.0, 0, 0, 0]
    with pytest.raises(QueryError, match="not a Vector field of Point; it has spot, pull, site"):
        points.nearest("color", wanted)
    for k in (0, 1001, "x"):
        with pytest.raises(QueryError, match="k must be"):
            points.nearest("spot", wanted, k)


def test_what_is_written_is_found_without_reading_all_vectors_again(app, monkeypatch):
    """The table of a later commit is made from the one before; so are those of branches."""
    ctx, wanted = app.context(), [9.0, 9.0, 9.0, 9.0]

    def best(context):
        return Point.objects(context).nearest("site", wanted, 1)[0][0].code

    first = best(ctx)
    before = ctx.kg.head.commit
    monkeypatch.setattr(vector_tables, "_every", lambda *_: pytest.fail("all are read again"))
    Point(code="new", site=wanted).save(ctx)
    assert best(ctx) == "new"
    changed = Point.objects(ctx).where(code="new").get()
    changed.site = None
    changed.save(ctx)
    assert best(ctx) == first
    changed.site = wanted
    changed.save(ctx)
    changed.delete(ctx)
    assert best(ctx) == first
    app.versions().create_branch("side")
    side = app.context(branch="side")
    Point(code="there", site=wanted).save(side)
    assert (best(side), best(ctx)) == ("there", first)
    assert best(app.context(snapshot=before)) == first
    assert best(app.context(snapshot=side.kg.head.commit)) == "there"


PLACES = """
from trails import Node, Vector, node_type, predicate


@node_type
class Spot(Node):
    \"\"\"A place.\"\"\"

    code: str = predicate(key=True)
    at: Vector(2) = predicate(metric="dot")
"""


def test_a_field_may_get_another_metric(tmp_path):
    """The data stays, and is compared in the new way."""
    make_project(tmp_path, PLACES)
    with App.open(tmp_path, strict=True) as app:
        ctx, spot = app.context(), app.registry().classes["Spot"]
        spot(code="far", at=[10.0, 10.0]).save(ctx)
        spot(code="close", at=[1.0, 0.5]).save(ctx)
        assert spot.objects(ctx).nearest("at", [1.0, 0.0], 1)[0][0].code == "far"
    make_project(tmp_path, PLACES.replace("dot", "euclidean"))
    with App.open(tmp_path, strict=True) as app:
        spot = app.registry().classes["Spot"]
        found = spot.objects(app.context()).nearest("at", [1.0, 0.0], 2)
        assert [each.code for each, _ in found] == ["close", "far"]
        assert found[0][1] == pytest.approx(-0.5)


def test_memory_for_tables_is_bounded(app, monkeypatch):
    """Tables of commits that were not used lately are dropped; the last one stays."""
    monkeypatch.setattr(vector_tables, "MOST_BYTES", 0)
    ctx = app.context()
    for field in ("spot", "site", "pull"):
        Point.objects(ctx).nearest(field, [1.0, 0, 0, 0], 1)
    tables = app.graph().vectors
    assert 0 < tables.size() < 400_000
    monkeypatch.setattr(vector_tables, "MOST_BYTES", 1 << 30)
    for number in range(12):
        Point(code=f"more{number}", spot=[1.0, 0, 0, 0]).save(ctx)
        Point.objects(ctx).nearest("spot", [1.0, 0, 0, 0], 1)
    assert tables.size() < 1_200_000


def test_subtypes_are_found_with_the_type(app):
    """Each type has a table of its own, and the best of all come first."""

    @node_type
    class Peak(Point):
        """A high place."""

        height: int | None = predicate(default=None)

    app.register(Peak)
    ctx, wanted = app.context(), [7.0, 7.0, 7.0, 7.0]
    Peak(code="top", site=wanted).save(ctx)
    Point(code="almost", site=[7.0, 7.0, 7.0, 6.0]).save(ctx)
    found = Point.objects(ctx).nearest("site", wanted, 2)
    assert [(each.code, near) for each, near in found] == [("top", 0.0), ("almost", -1.0)]
    assert [each.code for each, _ in Peak.objects(ctx).nearest("site", wanted)] == ["top"]


@pytest.mark.parametrize("matches", [1, 3, 300])
def test_a_filter_that_few_match(app, matches):
    """Whether those that match are near or far from what is asked for."""
    ctx = app.context()
    ctx.kg.save_all(
        Point(code=f"rare{n:03}", color="rare", site=[50.0 + n, 0, 0, 0]) for n in range(matches)
    )
    rare = Point.objects(ctx).where(color="rare")
    found = rare.nearest("site", [0.0, 0, 0, 0], 5)
    assert [each.code for each, _ in found] == [f"rare{n:03}" for n in range(min(5, matches))]
    every = Point.objects(ctx).where(color="rare").nearest("site", [400.0, 0, 0, 0], 1000)
    assert len(every) == matches
    assert every[0][0].code == f"rare{matches - 1:03}"


def test_equal_vectors_come_in_the_order_of_their_names(app):
    """More of them than are asked for."""
    ctx, same = app.context(), [3.3, 3.3, 3.3, 3.3]
    ctx.kg.save_all(Point(code=f"same{n:03}", site=same) for n in reversed(range(300)))
    found = Point.objects(ctx).nearest("site", same, 40)
    assert [each.code for each, _ in found] == [f"same{n:03}" for n in range(40)]
    assert {near for _, near in found} == {0.0}
