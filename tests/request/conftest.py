"""Kernels on real graphs, called from tests that are no coroutines."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.request import library
from tests.worlds.graphs import Calls

from trails import App


@pytest.fixture
def calls() -> Iterator[Calls]:
    """The library, in memory."""
    made = Calls(App(*library.DECLARED))
    yield made
    made.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project folder with the library's types and some stored queries."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "library"\n')
    (tmp_path / "app.py").write_text("from tests.request.library import *\n")
    queries = tmp_path / "queries"
    queries.mkdir()
    for name, text in library.QUERIES.items():
        (queries / f"{name}.rq").write_text(text)
    return tmp_path


@pytest.fixture
def opened(project: Path) -> Iterator[Calls]:
    """The library in a folder, with its stored queries."""
    made = Calls(App.open(project, strict=True))
    yield made
    made.close()


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What the server's log says."""
    caplog.set_level(logging.INFO, "trails")
    return caplog
