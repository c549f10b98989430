"""Graphs to read by URI."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.worlds.graphs import Reading

from trails import App

NORTHLINE = Path(__file__).parents[3] / "examples" / "northline"


@pytest.fixture(scope="session")
def northline(tmp_path_factory):
    """Northline with its data, in a folder of its own; no test writes to it."""
    folder = tmp_path_factory.mktemp("resources") / "northline"
    shutil.copytree(NORTHLINE, folder, ignore=shutil.ignore_patterns(".trails", "__pycache__"))
    subprocess.run([sys.executable, "seed.py"], cwd=folder, check=True, capture_output=True)
    with App.open(folder) as app:
        yield Reading(app)
