"""kill -9 at named and at random moments: nothing acknowledged is lost, nothing is half there.

``pytest -m long tests/journeys/durability`` runs the whole campaign; by default a few kills of each
sort. A failure prints the seed with which to replay the same operations and delays.
"""

import random

import pytest
from tests.campaigns import sized
from tests.journeys.durability.campaign import (
    LANDED,
    STEPS,
    Account,
    fresh_seed,
    kill_at_random,
    kill_at_step,
)


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_a_named_moment_leaves_all_or_nothing(tmp_path, step):
    """The commit is there if the log had it, and not otherwise; a second crash changes nothing."""
    rng = random.Random(fresh_seed())
    account = Account(tmp_path / "project")
    for _ in range(2):
        assert kill_at_step(account, rng, step) == (step in LANDED)


def test_a_kill_between_log_and_views_of_a_bulk_leaves_it_whole(tmp_path):
    """A commit in a segment file, applied to no view yet, is in both after opening."""
    account = Account(tmp_path / "project")
    assert kill_at_step(account, random.Random(fresh_seed()), "after_append", bulk=True)


def test_kills_at_random_moments_lose_nothing(tmp_path):
    """Workers that are killed while they write leave what they acknowledged."""
    rng = random.Random(fresh_seed())
    account = Account(tmp_path / "project")
    for _ in range(4):
        kill_at_random(account, rng)
    kill_at_random(account, rng, bulk=True)


@pytest.mark.long(cases=11 * sized(20, nightly=2))
def test_many_kills_lose_nothing(tmp_path):
    """The campaign: projects that are killed at every named moment and at random ones."""
    rng = random.Random(fresh_seed())
    for number in range(sized(20, nightly=2)):
        account = Account(tmp_path / f"project-{number}")
        for step in rng.sample(STEPS, len(STEPS)):
            landed = kill_at_step(account, rng, step, bulk=rng.random() < 0.1)
            assert landed == (step in LANDED)
        for _ in range(6):
            kill_at_random(account, rng, bulk=rng.random() < 0.25)
