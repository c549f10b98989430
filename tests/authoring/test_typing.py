"""A type checker understands declared types: what is right passes, what is wrong is marked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import trails

CASES = Path(__file__).parents[1] / "typing_cases"
SOURCE = Path(trails.__file__).parent.parent
REPORT = re.compile(r"^(?P<file>.*?):(?P<line>\d+): error: (?P<message>.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, dict[int, list[str]]]:
    """What strict mypy says of each case: messages by line, as a user's project would see it."""
    project = tmp_path_factory.mktemp("project")  # no configuration of ours is in reach
    run = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--no-color-output", "--no-pretty"),
            *("--no-error-summary", "--hide-error-context", "--config-file=", "--cache-dir"),
            *(str(project / "cache"), str(CASES / "good.py"), str(CASES / "bad.py")),
        ],
        cwd=project,
        env={**os.environ, "MYPYPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode in {0, 1}, run.stdout + run.stderr
    found: dict[str, dict[int, list[str]]] = {"good": {}, "bad": {}}
    for report in REPORT.finditer(run.stdout):
        lines = found.setdefault(Path(report["file"]).stem, {})
        lines.setdefault(int(report["line"]), []).append(report["message"])
    return found


def test_correct_use_passes_a_strict_type_checker(reports):
    """Constructors, attributes, queries and decorated functions have the types one expects."""
    assert reports["good"] == {}


def test_every_mistake_is_reported_and_nothing_else(reports):
    """Exactly the marked lines are refused."""
    text = (CASES / "bad.py").read_text(encoding="utf-8")
    marked = {at for at, line in enumerate(text.splitlines(), 1) if line.endswith("# error")}
    assert set(reports["bad"]) == marked
    assert len(marked) > 25


def test_the_library_itself_is_clean_when_seen_from_a_project(reports):
    """A user's strict checker finds nothing to complain of inside the library."""
    assert reports.keys() == {"good", "bad"}
