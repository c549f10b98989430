"""A process that dies while it changes types: everything has changed, or nothing."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.campaigns import sized
from tests.engine.schema.killed import STEPS
from tests.engine.schema.test_branches import filled
from tests.engine.schema.world import Values, World

ROOT = Path(__file__).parents[3]


def prepared(folder: Path) -> tuple[dict[str, Values], dict[str, Values]]:
    """A graph in a folder, and its nodes before and after the steps."""
    world = filled(folder)
    before = world.state()
    world.branch("trial")
    world.apply(*STEPS, branch="trial", allow_data_loss=True)
    after = world.state("trial")
    world.close()
    return before, after


def run(folder: Path, moment: str, seconds: float | None = None) -> int:
    """Change the types in a process; kill it at a moment, or after a time."""
    command = [sys.executable, "-m", "tests.engine.schema.killed", str(folder), moment]
    process = subprocess.Popen(command, cwd=ROOT)
    if seconds is not None:
        time.sleep(seconds)
        process.kill()
    return process.wait()


def check(folder: Path, before: dict[str, Values], after: dict[str, Values]) -> bool:
    """Whether the change is there; it has to be there as a whole or not at all."""
    world = World(folder)
    state = world.state()
    assert state in (before, after)
    assert ("Issue" in world.schema().by_name) == (state == after)
    world.check()
    if state == before:  # the change can be made now
        world.apply(*STEPS, allow_data_loss=True)
        assert world.state() == after
    world.close()
    return state == after


@pytest.mark.parametrize(
    ("moment", "changed"),
    [
        ("before_append", False),
        ("after_append", True),
        ("mid_apply", True),
        ("after_apply", True),
        ("before_acknowledge", True),
    ],
)
def test_a_change_is_whole_or_not_at_all(moment: str, changed: bool, tmp_path: Path) -> None:
    """From the moment on at which the log has it."""
    before, after = prepared(tmp_path / "graph")
    assert run(tmp_path / "graph", moment) == 9
    assert check(tmp_path / "graph", before, after) is changed


@pytest.mark.long(cases=sized(200, nightly=20))
def test_a_change_survives_kills_at_any_time(tmp_path: Path) -> None:
    """Wherever the process is."""
    pick, outcomes = random.Random(), set[bool]()
    for case in range(sized(200, nightly=20)):
        folder = tmp_path / str(case)
        before, after = prepared(folder)
        run(folder, "never", pick.uniform(0.3, 1.5))
        outcomes.add(check(folder, before, after))
    assert outcomes
