"""Counts and articles in messages, and how many violations are summed up."""

import pytest

from trails.errors import FieldError, ValidationError
from trails.model.texts import count, with_article


@pytest.mark.parametrize(
    ("noun", "expected"),
    [
        ("Task", "a Task"),
        ("Artifact", "an Artifact"),
        ("Order", "an Order"),
        ("User", "a User"),
        ("Unit", "a Unit"),
        ("Umbrella", "an Umbrella"),
        ("European", "a European"),
        ("Édition", "a Édition"),
    ],
)
def test_a_noun_gets_its_article(noun, expected):
    """By sound, as far as the letters tell it."""
    assert with_article(noun) == expected


def test_a_count_has_the_right_form_of_its_noun():
    """One is singular, everything else plural."""
    assert count(1, "commit") == "1 commit"
    assert count(0, "commit") == "0 commits"
    assert count(1200, "capability", "capabilities") == "1,200 capabilities"


def broken(place, field, code="min_length", constraint=3):
    """A violation at a place, as a load reports it."""
    return FieldError(f"{place}{field}", code, f"{place}{field} is wrong", "x", constraint)


def test_many_violations_of_few_kinds_are_one_line_each():
    """A kind is a field and its rule, wherever it is broken."""
    fields = [broken(f"line {number}: ", "title") for number in range(1, 101)]
    fields += [broken(f"row {number}, column ", "title", "pattern") for number in (1, 2)]
    fields += [broken(f"Task/t{number}.", "tags[3]", "unique", None) for number in range(50)]
    error = ValidationError(fields, more=7)
    assert error.summary() == [
        "line 1: title is wrong (and 99 more like it: line 2, line 3, line 4, …)",
        "row 1, column title is wrong (and 1 more like it: row 2)",
        "Task/t0.tags[3] is wrong (and 49 more like it: Task/t1, Task/t2, Task/t3, …)",
    ]
    assert error.message.startswith("validation failed on 159 fields: line 1: title is wrong")
    assert error.message.endswith("; and 7 more")
    assert len(error.fields) == 152


def test_few_violations_are_spelled_out():
    """Each one, since somebody has to mend each one."""
    fields = [broken(f"line {number}: ", "title") for number in range(20)]
    assert ValidationError(fields).summary() == [each.message for each in fields]


def test_the_number_of_kinds_is_bounded():
    """A file in which everything is wrong does not fill the screen."""
    fields = [broken(f"line {number}: ", f"field{number}") for number in range(100)]
    lines = ValidationError(fields).summary()
    assert len(lines) == 21
    assert lines[-1] == "and 80 more on other fields"
