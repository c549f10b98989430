"""Failures: every exception becomes one of a known kind, in one place."""

import json
from uuid import UUID

import pytest
from tests.request.library import Book

from trails import errors
from trails.errors import TrailsError, ValidationError
from trails.model.constraints import FIELD_CODES
from trails.request.answers import failure_of

BOOK = {"isbn": "0001", "title": "Emma", "year": 1815}


@pytest.mark.parametrize(
    ("tool", "kind", "code", "message"),
    [
        (
            "fails.capability",
            "semantic",
            "capability",
            "the library is closed; come back tomorrow",
        ),
        ("fails.denied", "denied", "denied", "not on Sundays"),
        ("fails.budget", "budget", "budget", "no calls are left today"),
    ],
)
def test_an_error_that_is_raised_on_purpose_is_told(calls, tool, kind, code, message):
    """With its code, its message and its data."""
    failure = calls.failure(tool)
    assert (failure.kind, failure.code, failure.message) == (kind, code, message)
    assert failure.data == ({"opens": "09:00"} if code == "capability" else {})


@pytest.mark.parametrize(
    ("tool", "secret", "code"),
    [("fails.bug", "hunter2", "internal"), ("fails.disk", "/secret/path", "storage")],
)
def test_any_other_error_is_internal(calls, logged, tool, secret, code):
    """The caller gets a trace id; the traceback is in the server's log, under that id."""
    failure = calls.failure(tool)
    assert (failure.kind, failure.code) == ("internal", code)
    trace = failure.data["trace_id"]
    assert UUID(trace).hex == trace
    assert trace in failure.message
    assert secret not in json.dumps([failure.message, dict(failure.data)])
    (record,) = [each for each in logged.records if trace in each.getMessage()]
    assert record.exc_info is not None
    assert secret in str(record.exc_info[1])
    assert secret not in calls.activities()[-1].detail


def test_every_error_of_the_tree_has_a_kind():
    """What a caller can act on is never internal; what the disk did is, unless it is only full.

    So is a log that is away: the caller tries again, or looks for its commit.
    """
    for name, kind in vars(errors).items():
        if not isinstance(kind, type) or not issubclass(kind, TrailsError):
            continue
        error = kind([]) if kind is ValidationError else kind("told")
        failure = failure_of(error, "tool")
        away = (errors.LogUnavailableError, errors.OutcomeUnknownError)
        plain = (errors.ReadOnlyError, errors.StorageFullError, *away)
        storage = issubclass(kind, errors.StorageError) and not issubclass(kind, plain)
        assert (failure.kind == "internal") is storage, name
        assert failure.code == kind.code


def test_where_the_server_of_a_log_is_stays_with_its_operators():
    """What it said may name hosts and roles."""
    failure = failure_of(errors.LogUnavailableError("can't reach db.internal"), "tool")
    assert "db.internal" not in failure.message


def test_data_of_an_error_is_ready_for_json():
    """What has no JSON form is shown as text."""
    failure = failure_of(TrailsError("x", thing={1: object, "b": {2}}), "tool")
    assert json.loads(json.dumps(failure.data))["thing"]["b"] == [2]


def test_all_violations_come_at_once_with_codes_of_the_closed_list(calls):
    """From arguments: paths, codes, values, constraints, and the fields in the message."""
    wrong = {
        "book": {"isbn": "x", "title": "", "year": 3000, "status": "gone", "tags": [1], "z": 1},
        "other": 1,
    }
    failure = calls.failure("books.add", wrong)
    assert failure.message.startswith("validation failed on 7 fields: ")
    found = {each["field"]: each for each in failure.data["fields"]}
    assert {field: each["code"] for field, each in found.items()} == {
        "other": "unknown_field",
        "book.z": "unknown_field",
        "book.isbn": "pattern",
        "book.title": "min_length",
        "book.year": "max_value",
        "book.status": "one_of",
        "book.tags[0]": "datatype",
    }
    assert {each["code"] for each in found.values()} <= FIELD_CODES
    assert all(each["message"] in failure.message for each in found.values())
    assert (found["book.year"]["value"], found["book.year"]["constraint"]) == (3000, 2100)
    assert found["book.status"]["constraint"] == ["ordered", "shelved", "lost"]
    json.dumps(failure.data)
    assert calls.result("graph_snapshot")["nodes"] == 0


def test_the_graph_reports_its_violations_like_arguments(calls):
    """Uniqueness and dangling references are found when it is saved, and told the same way."""
    calls.result("books.add", {"book": BOOK})
    failure = calls.failure("books.add", {"book": {**BOOK, "isbn": "0002"}})
    assert failure.kind == "validation"
    assert [each["code"] for each in failure.data["fields"]] == ["unique"]
    again = calls.failure("books.add", {"book": BOOK})
    assert {each["code"] for each in again.data["fields"]} == {"unique"}


def test_a_call_fails_with_the_field_errors_of_the_orm(calls):
    """A write through a tool is refused exactly as ``save`` refuses it."""
    calls.result("books.add", {"book": BOOK})
    ctx = calls.app.context()
    with pytest.raises(ValidationError) as raised:
        Book(isbn="0002", title="Emma", year=1815).save(ctx)
    failure = calls.failure("books.add", {"book": {**BOOK, "isbn": "0002"}})
    assert [(each["field"], each["code"], each["message"]) for each in failure.data["fields"]] == [
        (each.field, each.code, each.message) for each in raised.value.fields
    ]
    with pytest.raises(ValidationError) as raised:
        Book(isbn="12", title="", year=1).save(ctx)
    found = calls.failure(
        "graph_mutate",
        {"operations": [{"op": "create", "type": "Book", "data": {**BOOK, "isbn": "12"}}]},
    )
    assert found.data["fields"][0]["code"] == raised.value.fields[0].code == "pattern"


def test_values_in_failures_are_bounded(calls):
    """A long text is not sent back whole."""
    failure = calls.failure("books.rate", {"stars": "9" * 100_000})
    assert len(json.dumps(failure.data)) < 5000
    assert len(failure.message) < 5000
