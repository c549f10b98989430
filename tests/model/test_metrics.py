"""Counters and quantiles, against plain lists."""

import random
import threading
from itertools import pairwise
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from trails.model.metrics import (
    BOUNDS,
    CallCounter,
    GraphMetrics,
    SandboxCount,
    add_up,
    quantile,
)

DURATIONS = st.lists(st.integers(0, 20_000_000_000), min_size=1, max_size=50)


@given(DURATIONS)
def test_a_quantile_is_in_the_class_of_the_true_one(durations):
    """An estimate, as good as the classes are."""
    counter = CallCounter()
    for each in durations:
        counter.add("tool", "rest", "ok", each)
    (found,) = counter.counts()
    assert found.calls == len(durations)
    assert abs(found.seconds - sum(durations) / 1e9) < 1e-6
    for share in (0.5, 0.95, 1.0):
        true = sorted(durations)[ceil(len(durations) * share) - 1] / 1e9
        edges = [0.0, *BOUNDS]
        low, high = next(
            ((a, b) for a, b in pairwise(edges) if a < true <= b),
            (0.0, BOUNDS[0]) if true <= BOUNDS[0] else (BOUNDS[-1], BOUNDS[-1]),
        )
        estimate = quantile(found.classes, share)
        assert low <= estimate <= high


def test_threads_lose_no_count():
    """Without a lock, since adding to an item of a list is one step."""
    counter, each, threads = CallCounter(), 20_000, 4

    def work():
        for _ in range(each):
            counter.add("tool", "mcp", "ok", 1000)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    (found,) = counter.counts()
    assert found.calls == each * threads


def test_invented_names_and_outcomes_take_no_memory():
    """Unknown tools have one row; beyond a number of rows, all others have one together."""
    counter = CallCounter()
    for number in range(10_000):
        counter.add(f"invented-{number}", "rest", "unknown", 1)
    assert [(each.tool, each.calls) for each in counter.counts()] == [("", 10_000)]
    for number in range(10_000):
        counter.add("tool", "rest", f"code-{number}", 1)
    rows = {(each.tool, each.outcome): each.calls for each in counter.counts()}
    assert len(rows) == 5_001
    assert rows["", "other"] == 5_001
    assert sum(rows.values()) == 20_000


def test_sums_have_no_names():
    """All numbers are added; who fails looks like anybody who fails."""
    made = []
    for name in ("stock", "vault"):
        counter = CallCounter()
        for outcome in ("ok", "masked", "unknown", "denied"):
            counter.add(f"{name}.tool", "rest", outcome, random.randrange(10**9))
        made.append(
            GraphMetrics(
                graph=name,
                calls=tuple(counter.counts()),
                running=2,
                commits=3,
                sandbox=SandboxCount(1, 2, 0, 4),
            )
        )
    found = add_up(made)
    calls = [(each.tool, each.surface, each.outcome, each.calls) for each in found.calls]
    assert calls == [("", "rest", "failed", 6), ("", "rest", "ok", 2)]
    assert (found.graph, found.running, found.commits) == ("", 4, 6)
    assert found.sandbox == SandboxCount(2, 4, 0, 8)
    assert add_up([]) == GraphMetrics(graph="")
