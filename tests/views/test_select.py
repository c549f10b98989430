"""Selections on enough nodes that every way to a page is taken, against plain Python.

A page comes from a few gathered candidates, from a short walk, from many candidates
or from a long walk; which one depends on how many nodes match. All must agree.
"""

from collections.abc import Callable
from datetime import date, timedelta

import pytest

from trails import App, Node, Q, node_type, predicate

COUNT = 3_000
LONG = "n" * 80
"""Longer than a key, so that keys alone can't tell what follows it."""
Row = dict[str, object]


@node_type(index=[("site", "score"), ("lot", "made")])
class Part(Node):
    """A part with fields of several selectivities."""

    code: str = predicate(key=True)
    site: str = predicate()
    lot: str = predicate()
    state: str = predicate()
    score: int | None = predicate()
    made: date | None = predicate()
    tags: list[str] = predicate()
    note: str = predicate()


def row(number: int) -> Row:
    """The values of one part: well mixed, with gaps, and equal values in two fields."""
    mixed = number * 2_654_435_761 % 2**32
    return {
        "code": f"P{number:05}",
        "site": f"S{mixed % 7}",
        "lot": f"S{mixed // 7 % 400}",
        "state": "open" if mixed // 64 % 2 else "done",
        "score": None if mixed % 11 == 0 else mixed // 128 % 1_000 - 500,
        "made": None if mixed % 13 == 0 else date(2020, 1, 1) + timedelta(mixed // 512 % 900),
        "tags": [f"t{mixed % 5}", f"t{mixed // 5 % 5}"],
        "note": f"{LONG if mixed % 5 == 0 else 'z'}{mixed // 5 % 9}",
    }


ROWS = [row(number) for number in range(COUNT)]


def below(field: str, limit: object) -> Callable[[Row], bool]:
    """Whether a field has a value less than a limit."""
    return lambda each: each[field] is not None and each[field] < limit  # type: ignore[operator]


CONDITIONS: dict[str, tuple[Q, Callable[[Row], bool]]] = {
    "rare point": (Q(lot="S17"), lambda each: each["lot"] == "S17"),
    "middling point": (Q(site="S3"), lambda each: each["site"] == "S3"),
    "common point": (Q(state="open"), lambda each: each["state"] == "open"),
    "rare range": (Q(score__lt=-490), below("score", -490)),
    "middling range": (Q(score__lt=-350), below("score", -350)),
    "common range": (Q(score__lt=300), below("score", 300)),
    "date range": (Q(made__lt=date(2020, 6, 1)), below("made", date(2020, 6, 1))),
    "missing": (Q(score__isnull=True), lambda each: each["score"] is None),
    "member": (Q(tags="t2"), lambda each: "t2" in each["tags"]),  # type: ignore[operator]
    "several": (Q(site__in=["S1", "S4"]), lambda each: each["site"] in {"S1", "S4"}),
    "prefix": (Q(lot__startswith="S1"), lambda each: str(each["lot"]).startswith("S1")),
    "long text": (Q(note__lt=LONG + "3"), below("note", LONG + "3")),
    "point and range": (
        Q(site="S3", score__lt=0),
        lambda each: each["site"] == "S3" and below("score", 0)(each),
    ),
    "one value in two fields": (
        Q(site="S3", lot="S3"),
        lambda each: each["site"] == "S3" and each["lot"] == "S3",
    ),
    "either": (
        Q(site="S3") | Q(score__lt=-450),
        lambda each: each["site"] == "S3" or below("score", -450)(each),
    ),
    "not": (~Q(state="open"), lambda each: each["state"] != "open"),
}
ORDERS = ("", "site", "score", "-score", "made", "-made", "code", "-code")


@pytest.fixture(scope="module")
def ctx():
    """A context on a graph that holds all rows."""
    with App(types=[Part]) as app:
        context = app.context()
        context.kg.save_all(Part(**each) for each in ROWS)
        yield context


def expected(holds: Callable[[Row], bool], order: str) -> list[str]:
    """The codes of the matching rows, in order; missing values come last either way."""
    field, down = order.removeprefix("-"), order.startswith("-")
    found = [(at, each) for at, each in enumerate(ROWS) if holds(each)]
    if field:
        there = [pair for pair in found if pair[1][field] is not None]
        gone = [pair for pair in found if pair[1][field] is None]
        there.sort(key=lambda pair: (pair[1][field], pair[0]), reverse=down)
        gone.sort(key=lambda pair: pair[0], reverse=down)
        found = there + gone
    return [str(each["code"]) for _, each in found]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.parametrize("size", [37, 200])
def test_pages_are_what_plain_python_says(ctx, name, order, size):
    """Following the cursors gives every match once, in order, whatever way each page took."""
    condition, holds = CONDITIONS[name]
    query = Part.objects(ctx).where(condition)
    if order:
        query = query.order_by(order)
    codes: list[str] = []
    page = query.page(size)
    codes += [each.code for each in page.items]
    while page.next is not None:
        page = query.page(size, page.next)
        codes += [each.code for each in page.items]
    assert codes == expected(holds, order)


@pytest.mark.parametrize("name", CONDITIONS)
def test_counting_and_fetching_agree(ctx, name):
    """A count is the number of matches, and fetching without a limit finds them all."""
    condition, holds = CONDITIONS[name]
    query = Part.objects(ctx).where(condition)
    assert query.count() == len(query.fetch()) == len(expected(holds, ""))
