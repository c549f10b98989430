"""How large the long campaigns are, and what is printed of them.

There is one scale: the default run tries a few cases of everything (tests without the mark
``long``), ``make nightly`` runs every campaign at its nightly size, ``make long`` at its full one.
``TRAILS_CAMPAIGN`` names the size. One seed, ``TRAILS_SEED``, decides everything that is random.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter, defaultdict
from typing import Final

import pytest

SIZE: Final = os.environ.get("TRAILS_CAMPAIGN") or "long"
NIGHTLY_SECONDS: Final = 18 * 60
"""No campaign begins later in a nightly run, however busy the machine is."""
_BEGUN = "TRAILS_CAMPAIGN_BEGUN"


def sized(long: int, *, nightly: int) -> int:
    """A number of cases, by the size of this run."""
    sizes = {"long": long, "nightly": nightly}
    if SIZE not in sizes:
        raise ValueError(f"TRAILS_CAMPAIGN={SIZE} is not one of {', '.join(sizes)}")
    return sizes[SIZE]


def is_campaign(config: pytest.Config) -> bool:
    """Whether this run is one of long campaigns."""
    return str(config.option.markexpr).startswith("long")


def begin(config: pytest.Config) -> None:
    """Choose the seed, also of generated examples; processes that are started inherit it."""
    os.environ.setdefault("TRAILS_SEED", str(random.SystemRandom().randrange(2**32)))
    os.environ.setdefault(_BEGUN, str(time.time()))
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = os.environ["TRAILS_SEED"]


def cases_of(item: pytest.Item) -> int:
    """How many cases a test tries: what its mark says, or its number of examples."""
    mark = item.get_closest_marker("long")
    if mark is not None and "cases" in mark.kwargs:
        return int(mark.kwargs["cases"])
    settings = getattr(item.obj, "_hypothesis_internal_use_settings", None)
    return 1 if settings is None else settings.max_examples


def skip_if_late() -> None:
    """Leave out what would begin after the end of a nightly run."""
    if SIZE == "nightly" and time.time() - float(os.environ[_BEGUN]) > NIGHTLY_SECONDS:
        pytest.skip("the time of the nightly run is over")


class Summary:
    """One line a campaign, and a command for each failure."""

    def __init__(self) -> None:
        self._cases: Counter[str] = Counter()
        self._seconds: Counter[str] = Counter()
        self._outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._failed: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what one test did."""
        name = report.nodeid.partition("[")[0]
        self._seconds[name] += report.duration
        if report.failed:
            self._failed[report.nodeid] = None
        if report.skipped:
            self._outcomes[name]["skipped"] += 1
        elif report.when == "call":
            said = dict(report.user_properties)
            self._cases[name] += said.get("cases", 1)
            self._outcomes[name]["failed"] += report.failed

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the lines."""
        terminalreporter.section(f"campaigns ({SIZE}), TRAILS_SEED={os.environ['TRAILS_SEED']}")
        for name, outcomes in self._outcomes.items():
            skipped = f", {outcomes['skipped']} skipped" if outcomes["skipped"] else ""
            terminalreporter.line(
                f"{name}: {self._cases[name]} cases, {outcomes['failed']} failures"
                f"{skipped}, {self._seconds[name]:.0f} s"
            )
        for failed in self._failed:
            variables = f"TRAILS_CAMPAIGN={SIZE} TRAILS_SEED={os.environ['TRAILS_SEED']}"
            terminalreporter.line(
                f"reproduce: {variables} .venv/bin/python -m pytest -m long -n 0 --timeout 0 "
                f"'{failed}'",
                red=True,
            )
