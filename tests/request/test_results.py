"""How instances are written: plain ones at once, the others field by field, all alike."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from trails import App, BigInt, Iri, Node, Ref, Shape, node_type, predicate, shape
from trails.engine.session.results import encoded, plain
from trails.errors import TrailsError
from trails.model.results import QueryAnswer
from trails.request.answers import plain_rows


@shape
class Row(Shape):
    """Values that JSON has."""

    text: str = predicate()
    number: int = predicate()
    share: float = predicate()
    good: bool = predicate()


@shape
class Mixed(Shape):
    """Values of every sort."""

    row: Row | None = predicate()
    big: BigInt | None = predicate()
    cost: Decimal | None = predicate()
    day: date | None = predicate()
    moment: datetime | None = predicate()
    link: Iri | None = predicate()
    shares: list[float] = predicate()
    rows: list[Row] = predicate()


@node_type
class Book(Node):
    """A book."""

    isbn: str = predicate(key=True)
    pages: int | None = predicate()
    price: float | None = predicate()
    tags: list[str] = predicate()
    sequel_of: "Ref[Book] | None" = predicate()


@pytest.fixture
def app():
    """A graph of books."""
    with App(Book) as app:
        ctx = app.context()
        first = Book(isbn="1", pages=10, price=2.0, tags=["b", "a"])
        ctx.kg.save_all([first, Book(isbn="2", sequel_of=first)])
        yield app


def written(app, value):
    """A value as JSON, which both forms agree on."""
    names = app.graph().names
    text = json.loads(encoded(names, value))
    assert text == json.loads(json.dumps(plain(names, value)))
    return text


ROW = {"text": "é", "number": 2**60, "share": 0.1, "good": True}


def test_a_plain_shape_is_its_fields(app):
    """In the order in which they are declared."""
    assert written(app, Row(**ROW)) == ROW
    assert list(written(app, Row(good=True, text="é"))) == list(ROW)


def test_what_is_set_beside_the_fields_is_not_shown(app):
    """An attribute of the author's own stays the author's."""
    row = Row(**ROW)
    row.note = "mine"
    assert written(app, row) == ROW
    row = Row(**ROW)
    del row.__dict__["text"]
    row.__dict__["text"] = "é"  # another order, as assigning anew may bring
    assert list(written(app, row)) == list(ROW)


@pytest.mark.parametrize("share", [float("nan"), float("inf"), float("-inf")])
def test_what_json_has_no_word_for_is_refused(app, share):
    """Alone, in a list and inside: an answer that says null would be a lie."""
    for value in (Row(**{**ROW, "share": share}), Mixed(shares=[1.0, share])):
        with pytest.raises(TrailsError, match="no JSON form"):
            encoded(app.graph().names, value)
        with pytest.raises(TrailsError, match="no JSON form"):
            encoded(app.graph().names, [Row(**ROW), value])


@pytest.mark.parametrize(
    ("field", "wrong"),
    [("number", "7"), ("number", True), ("text", 7), ("good", 1), ("share", "x")],
)
def test_a_value_of_another_kind_is_refused(app, field, wrong):
    """A field says what it holds, and that is what it shows."""
    with pytest.raises(TrailsError, match="no JSON form"):
        encoded(app.graph().names, Row(**{**ROW, field: wrong}))


def test_other_values_have_their_own_form(app):
    """Numbers beyond JSON, dates and links as texts; shapes inside shapes."""
    value = Mixed(
        row=Row(**ROW),
        big=BigInt(10**30),
        cost=Decimal("1.50"),
        day=date(2026, 3, 1),
        moment=datetime(2026, 3, 1, 9, tzinfo=UTC),
        link=Iri("urn:x"),
        shares=[1, 2.5],
        rows=[Row(**ROW)],
    )
    shown = written(app, value)
    assert shown["row"] == ROW
    assert shown["rows"] == [ROW]
    assert shown["shares"] == [1.0, 2.5]
    assert (shown["big"], shown["day"], shown["link"]) == (str(10**30), "2026-03-01", "urn:x")
    assert written(app, Mixed())["rows"] == []
    assert written(app, Mixed())["row"] is None


def test_a_node_is_written_alike_however_it_came(app):
    """New, saved, read and looked at, read and never looked at, or only referred to."""
    ctx = app.context()
    base = app.graph().names.nodes
    expected = {
        "iri": f"{base}Book/2",
        "type": "Book",
        "isbn": "2",
        "pages": None,
        "price": None,
        "tags": [],
        "sequel_of": f"{base}Book/1",
    }
    unseen = Book.get(ctx, "2")
    seen = Book.get(ctx, "2")
    assert seen.pages is None
    for node in (unseen, seen, ctx.reference("Book/2")):
        assert written(app, node) == expected
    first = Book.objects(ctx).where(isbn="1").get()
    assert sorted(written(app, first)["tags"]) == ["a", "b"]
    assert written(app, seen.sequel_of)["pages"] == 10
    unseen.price = 3
    assert written(app, unseen)["price"] == 3.0


def test_rows_of_a_query_have_the_json_form_of_their_kind():
    """A small decimal has no exponent, so that it can be passed back as a parameter."""
    row = {"cost": Decimal("0.0000001"), "day": date(2026, 3, 1), "big": BigInt(7), "none": None}
    assert plain_rows(QueryAnswer(tuple(row), (row,))) == [
        {"cost": "0.0000001", "day": "2026-03-01", "big": 7, "none": None}
    ]
