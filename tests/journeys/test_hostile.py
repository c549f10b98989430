"""Nobody is refused because of what others do: a real server, and every pattern beside it."""

from __future__ import annotations

import pytest
from bench import hostile
from bench.measure import OUT
from bench.serving.hostile_clients import PATTERNS
from tests.campaigns import sized


@pytest.fixture(autouse=True)
def _out() -> None:
    """Where projects are made."""
    OUT.mkdir(exist_ok=True)


def test_small_calls_are_answered_beside_every_pattern() -> None:
    """A few beside each; a call that is refused raises."""
    assert len(hostile.run(quick=True)) == len(PATTERNS)


@pytest.mark.long(cases=len(PATTERNS) * sized(10_000, nightly=2_000))
@pytest.mark.alone
def test_ten_thousand_small_calls_beside_every_pattern() -> None:
    """None is refused, and one in a hundred takes three times as long as alone, at most."""
    requests = sized(10_000, nightly=2_000)
    missed = [each.record() for each in hostile.run(quick=False, requests=requests) if not each.ok]
    assert not missed
