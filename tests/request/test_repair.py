"""Repair: suggestions for wrong arguments, and the call that would have passed."""

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.request.library import DECLARED
from tests.worlds.graphs import Calls

from trails import App
from trails.model.results import Failure

BOOK: Final = {"isbn": "0001", "title": "Emma"}


@pytest.fixture(scope="module")
def shop():
    """A library with a book, for tests that change nothing."""
    made = Calls(App(*DECLARED))
    made.result("books.add", {"book": BOOK})
    yield made
    made.close()


@pytest.mark.parametrize(
    ("arguments", "suggestions", "corrected"),
    [
        ({"stars": "5"}, {"stars": 5}, {"stars": 5}),
        ({"stars": 9}, {"stars": 5}, {"stars": 5}),
        ({"stars": -3}, {"stars": 1}, {"stars": 1}),
        ({"stars": "77"}, {"stars": 5}, {"stars": 5}),
        ({"stars": [4]}, {"stars": 4}, {"stars": 4}),
        ({"stars": 4.5}, {}, None),
        ({"stars": "many"}, {}, None),
        ({"stars": True}, {}, None),
        ({}, {}, None),
        ({"star": 3}, {"star": "stars"}, {"stars": 3}),
        ({"Stars": "3"}, {"Stars": "stars", "stars": 3}, {"stars": 3}),
        ({"stars": 3, "zzz": 1}, {}, None),
        ({"stars": 3, "mood": "hapy"}, {"mood": "happy"}, {"stars": 3, "mood": "happy"}),
        ({"stars": 3, "mood": " HAPPY "}, {"mood": "happy"}, {"stars": 3, "mood": "happy"}),
        ({"stars": 3, "mood": "q"}, {}, None),
        ({"stars": 3, "code": " ABC "}, {"code": "abc"}, {"stars": 3, "code": "abc"}),
        ({"stars": 3, "code": "abcd"}, {}, None),
        ({"stars": 3, "tags": "one"}, {"tags": ["one"]}, {"stars": 3, "tags": ["one"]}),
        ({"stars": 3, "tags": ["a", 5]}, {"tags[1]": "5"}, {"stars": 3, "tags": ["a", "5"]}),
        (
            {"stars": 3, "window": {"start": "2026-3-1", "days": 99}},
            {"window.start": "2026-03-01", "window.days": 30},
            {"stars": 3, "window": {"start": "2026-03-01", "days": 30}},
        ),
        (
            {"stars": 3, "window": {"stat": "2026-03-01"}},
            {"window.stat": "start"},
            {"stars": 3, "window": {"start": "2026-03-01"}},
        ),
        (
            {"stars": 3, "window": '{"start": "2026-03-01"}'},
            {"window": {"start": "2026-03-01"}},
            {"stars": 3, "window": {"start": "2026-03-01"}},
        ),
        ({"stars": 3, "window": {"start": "2026-02-30"}}, {}, None),
        (
            {"stars": 3, "start": "2026-03-01", "days": "7"},
            {"start": "window.start", "days": "window.days"},
            None,
        ),
        (
            {"stars": 3, "start": "2026-03-01", "days": 7},
            {"start": "window.start", "days": "window.days"},
            {"stars": 3, "window": {"start": "2026-03-01", "days": 7}},
        ),
        (
            {"stars": 3, "days": 7, "window": {"start": "2026-03-01"}},
            {"days": "window.days"},
            {"stars": 3, "window": {"start": "2026-03-01", "days": 7}},
        ),
        ({"stars": 3, "days": 7, "window": {"start": "2026-03-01", "days": 8}}, {}, None),
        ({"stars": 3, "window": "nothing"}, {}, None),
        ({"stars": "3", "mood": "q"}, {"stars": 3}, None),
        ({"stars": 3, "brnch": "main"}, {"brnch": "branch"}, None),
    ],
)
def test_what_was_probably_meant_is_suggested(shop, arguments, suggestions, corrected):
    """Near values only; a whole call only when every field could be repaired."""
    failure = shop.failure("books.rate", arguments)
    found = {
        each["field"]: each["suggestion"] for each in failure.data["fields"] if "suggestion" in each
    }
    assert found == suggestions
    assert failure.data.get("corrected_arguments") == corrected
    if corrected is not None:
        assert failure.message.count("These arguments would pass: {") == 1


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("graph_load", {"data": "", "mode": "qqq"}),
        ("graph_load", {"data": "", "format": "zip"}),
        ("graph_query", {"query": "ASK {}", "params": "nothing"}),
    ],
)
def test_what_may_be_left_out_is_not_taken_away(shop, name, arguments):
    """A wrong value is not replaced by none: that would be another call than was meant."""
    failure = shop.failure(name, arguments)
    assert all("suggestion" not in each for each in failure.data["fields"])
    assert "corrected_arguments" not in failure.data


def test_a_misspelled_parameter_keeps_its_value(shop):
    """In every letter: a text is changed only if it breaks a rule."""
    failure = shop.failure("node_get", {"recrd": "Book/A-Z"})
    assert failure.data["corrected_arguments"] == {"record": "Book/A-Z"}


def test_a_text_is_never_cut(shop):
    """Too long a text has no suggestion."""
    for title in ("x" * 41, "Emma".ljust(41)):
        failure = shop.failure("books.add", {"book": {"isbn": "0002", "title": title}})
        assert [each["code"] for each in failure.data["fields"]] == ["max_length"]
        assert "suggestion" not in failure.data["fields"][0]
        assert "corrected_arguments" not in failure.data


@pytest.mark.parametrize("given", ["trails://app/main/Book/0002", "000", "Book/00011"])
def test_another_record_is_a_question_and_no_correction(shop, given):
    """A reference to a book that does not exist: the nearest is asked about, not put in."""
    failure = shop.failure("books.rename", {"book": given, "title": "Emma"})
    (field,) = failure.data["fields"]
    assert field["code"] == "reference"
    assert field["message"].endswith("did you mean Book/0001?")
    assert "suggestion" not in field
    assert "corrected_arguments" not in failure.data
    assert "would pass" not in failure.message


@pytest.mark.parametrize("given", [" Book/0001 ", ["0001"], "BOOK/0001"])
def test_a_reference_to_the_same_record_is_corrected(shop, given):
    """Blanks, a list of one, and a type in the wrong case leave no doubt about what was meant."""
    failure = shop.failure("books.rename", {"book": given, "title": "Emma"})
    corrected = failure.data["corrected_arguments"]
    assert corrected["book"] in {"Book/0001", "0001"}
    assert shop.result("books.rename", corrected)["isbn"] == "0001"


@pytest.mark.parametrize("given", ["zzzz", "", 7, "trails://app/main/Author/ann", "x" * 1000])
def test_a_reference_to_nothing_like_it_has_no_suggestion(shop, given):
    """No node is offered that was surely not meant."""
    failure = shop.failure("books.rename", {"book": given, "title": "Emma"})
    assert "suggestion" not in failure.data["fields"][0]


def test_what_the_graph_refuses_has_suggestions_too(shop):
    """Where the violation alone says what is legal."""
    operation = {"op": "update", "type": "Book", "id": "0001", "data": {"year": 3, "status": "lst"}}
    failure = shop.failure("graph_mutate", {"operations": [operation]})
    assert {each["code"]: each.get("suggestion") for each in failure.data["fields"]} == {
        "min_value": 1450,
        "one_of": "lost",
    }
    assert "corrected_arguments" not in failure.data


def test_large_or_odd_arguments_are_left_alone(shop):
    """No time is spent on them, and nothing breaks."""
    for wrong in (
        {"stars": "5", "mood": "x" * 100_000},
        {"stars": "5", "tags": [{}] * 60},
        {"stars": object()},
        {"stars": "5", "a.b[0]": 1, "": 2, "[": 3},
    ):
        failure = shop.failure("books.rate", wrong)
        assert failure.kind == "validation"
        assert "corrected_arguments" not in failure.data


NAMES: Final = ["stars", "star", "mood", "code", "window", "tags", "Tags", "days", "x"]
SCALARS: Final = (
    st.none()
    | st.booleans()
    | st.integers(-10, 200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["5", "happy", " Neutral", "unhapy", "ABC", "abc", "2026-3-1", "[1]", "é"])
    | st.text(max_size=5)
)
VALUES: Final = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["start", "days", "stat", "y"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=400)
@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4))
def test_a_corrected_call_is_always_accepted(shop, arguments):
    """Whatever was sent: what is offered instead passes."""
    outcome = shop.outcome("books.rate", arguments)
    if isinstance(outcome, Failure):
        assert outcome.kind == "validation"
        corrected = outcome.data.get("corrected_arguments")
        if corrected is not None:
            again = shop.outcome("books.rate", corrected)
            assert not isinstance(again, Failure), (arguments, corrected, again)
