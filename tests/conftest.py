"""Record which requirements a test run proves.

A test says what it proves with `@pytest.mark.req("T12")`. The ids travel on the test's
reports, so the recorder works the same whether tests run here or in xdist's workers, and
`tests/out/requirements.json` is written once, by the process that saw all reports. With
`--prove`, a run that leaves a closed requirement unproven fails.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

import pytest
from hypothesis import HealthCheck, settings
from tests import campaigns

pytest.register_assert_rewrite("tests.journeys.durability.campaign", "tests.worlds")

# Tests judge behaviour, never the clock: a busy machine is no failure. Every run tries the same
# examples, so that no change is refused for what another one did; long campaigns try new ones.
settings.register_profile(
    "long",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("same", settings.get_profile("long"), derandomize=True)

# Whoever runs the tests in the background ignores interrupts, which the processes that tests
# start would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _surroundings() -> Iterator[None]:
    """A runtime folder of our own, with a short path, and no credentials of whoever runs the tests.

    The sockets of processes that are killed go away with it. From here on nobody keeps compiled
    files: a project whose code is replaced within a second by as many bytes would run the former.
    """
    with (
        tempfile.TemporaryDirectory(prefix="trails-", dir="/tmp") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setitem(os.environ, "XDG_RUNTIME_DIR", folder)
        patch.setitem(os.environ, "PYTHONDONTWRITEBYTECODE", "1")
        patch.setattr(sys, "dont_write_bytecode", True)
        for name in ("TRAILS_TOKEN", "TRAILS_MCP_TOKEN", "TRAILS_MCP_SCOPES", "TRAILS_SERVER"):
            patch.delenv(name, raising=False)
        yield


HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.toml"
OUTPUT = HERE / "out" / "requirements.json"

# Weakest first: an id is proven no better than by the weakest of its tests, since a test
# that was skipped or never finished proves nothing.
STRENGTH = ("failed", "none", "skipped", "passed")


class Proof(TypedDict):
    """What a run says about one requirement."""

    outcome: str
    tests: list[str]


class ProofRecorder:
    """Fold test reports into one outcome per requirement."""

    def __init__(self, *, must_prove: bool) -> None:
        entries = tomllib.loads(REQUIREMENTS.read_text(encoding="utf-8"))["requirement"]
        self.open_by_id: dict[str, bool] = {entry["id"]: entry["open"] for entry in entries}
        self.must_prove = must_prove
        self.phases: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self.tests_by_id: dict[str, set[str]] = {req_id: set() for req_id in self.open_by_id}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of one phase, and the known ids that the test claims."""
        self.phases[report.nodeid][report.when] = report.outcome
        for name, value in report.user_properties:
            if name == "req" and value in self.tests_by_id:
                self.tests_by_id[value].add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write what was proven, and fail a run that had to prove more."""
        OUTPUT.parent.mkdir(exist_ok=True)
        text = json.dumps(self.proofs(), indent=2)
        OUTPUT.write_text(text + "\n", encoding="utf-8")
        if self.unproven() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say in one line how much was proven."""
        proven = sum(proof["outcome"] == "passed" for proof in self.proofs().values())
        terminalreporter.line(f"requirements: {proven} of {len(self.open_by_id)} proven")
        if unproven := self.unproven():
            terminalreporter.line(f"closed but not proven: {', '.join(unproven)}", red=True)

    def proofs(self) -> dict[str, Proof]:
        """Give every known id its outcome and its tests."""
        return {req_id: self.prove(tests) for req_id, tests in self.tests_by_id.items()}

    def prove(self, tests: set[str]) -> Proof:
        """Take the weakest outcome among the tests of one id."""
        outcomes = [outcome_of(self.phases[test]) for test in tests]
        return {
            "outcome": min(outcomes, key=STRENGTH.index, default="none"),
            "tests": sorted(tests),
        }

    def unproven(self) -> list[str]:
        """List the closed ids that this run had to prove and did not."""
        if not self.must_prove:
            return []
        proofs = self.proofs()
        return [
            req_id
            for req_id, is_open in self.open_by_id.items()
            if not is_open and proofs[req_id]["outcome"] != "passed"
        ]


def outcome_of(phases: dict[str, str]) -> str:
    """Judge one test by its phases: it passed only if its body ran and nothing else went wrong."""
    for bad in ("failed", "skipped"):
        if bad in phases.values():
            return bad
    return phases.get("call", "none")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--prove`, for runs of the whole suite."""
    parser.addoption(
        "--prove", action="store_true", help="fail unless every closed requirement is proven"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that gets all reports: not in a worker, not when only collecting."""
    campaign = campaigns.is_campaign(config)
    settings.load_profile("long" if campaign else "same")
    if campaign:
        campaigns.begin(config)
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        recorder = ProofRecorder(must_prove=config.option.prove)
        config.pluginmanager.register(campaigns.Summary() if campaign else recorder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the claimed ids where every report of the test carries them."""
    for item in items:
        claimed = {req_id for mark in item.iter_markers("req") for req_id in mark.args}
        item.user_properties.extend(("req", req_id) for req_id in sorted(claimed))
        if item.get_closest_marker("long") is not None:
            item.user_properties.append(("cases", campaigns.cases_of(item)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """End a nightly run in time."""
    if campaigns.is_campaign(item.config):
        campaigns.skip_if_late()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    """A real PostgreSQL server, for those who ask for it."""
    from tests.log.postgres import Server

    made = Server(tmp_path_factory.mktemp("postgres"))
    yield made
    made.close()
