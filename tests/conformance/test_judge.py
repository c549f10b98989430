"""The judgement over a conformance run: every surprise is told, nothing else is."""

from __future__ import annotations

import pytest
from tests.conformance.suite import HERE, REVISIONS, Expected, Report, judge, read_expected

REQUIRED = frozenset({"ping", "tools-list"})
FORESEEN = (Expected("ping", "2025-11-25", ("fast",), "it is a test"),)


def findings(failed: dict[str, tuple[str, ...]], server: str = "fast") -> list[str]:
    """The judgement on some failures, with ``ping`` foreseen on the fast door."""
    return list(judge(server, Report("2025-11-25", failed), REQUIRED, FORESEEN))


def test_a_run_as_foreseen_gives_no_finding():
    """An expected failure that fails, and a scenario that passes, are as they should be."""
    assert findings({"ping": ("ping: no",), "tools-list": ()}) == []


def test_scenarios_that_are_not_required_decide_nothing():
    """What a revision does not require may fail."""
    assert findings({"ping": ("ping: no",), "tools-list": (), "tasks": ("tasks: no",)}) == []


@pytest.mark.parametrize(
    ("failed", "server", "finding"),
    [
        ({"ping": ("x: y",), "tools-list": ("a: b",)}, "fast", "tools-list failed: a: b"),
        ({"ping": (), "tools-list": ()}, "fast", "ping passes: take it off expected.toml"),
        ({"ping": ("x: y",)}, "fast", "tools-list did not run"),
        ({"ping": ("x: y",), "tools-list": ()}, "sdk", "ping failed: x: y"),
    ],
    ids=["failure", "pass", "absence", "another server"],
)
def test_every_surprise_is_told(failed, server, finding):
    """A failure, an unforeseen pass and a scenario that never ran each fail the run."""
    assert findings(failed, server) == [finding]


def test_the_list_of_expected_failures_is_sound():
    """Each entry names a revision that is run and gives a reason."""
    for each in read_expected(HERE / "expected.toml"):
        assert each.revision in REVISIONS
        assert each.servers
        assert each.reason
