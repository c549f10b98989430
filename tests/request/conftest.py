"""Kernels on real graphs, called from tests that are no coroutines."""

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.request import library

from trails import App
from trails.app.kernels import kernel_of
from trails.model.actors import LOCAL, Actor
from trails.model.capabilities import Tool
from trails.model.history import Activity
from trails.model.results import Failure, Outcome


class Calls:
    """A kernel of an app, and what tests ask of it."""

    def __init__(self, app: App, graph: str = "main") -> None:
        self.app = app
        self.graph = app.graph(graph)
        self.kernel = kernel_of(app, graph)

    def outcome(
        self, tool: str, arguments: Mapping[str, object] | None = None, actor: Actor = LOCAL
    ) -> Outcome:
        """What comes of a call."""
        return asyncio.run(self.kernel.execute(actor, tool, arguments or {}))

    def result(self, tool: str, arguments: Mapping[str, object] | None = None) -> dict:
        """The object that a call which succeeds gives."""
        outcome = self.outcome(tool, arguments)
        assert not isinstance(outcome, Failure), outcome
        return json.loads(outcome.body)

    def failure(
        self, tool: str, arguments: Mapping[str, object] | None = None, actor: Actor = LOCAL
    ) -> Failure:
        """What a call that fails gives."""
        outcome = self.outcome(tool, arguments, actor)
        assert isinstance(outcome, Failure), outcome
        return outcome

    def tool(self, name: str) -> Tool:
        """One tool of the list."""
        return next(each for each in self.kernel.tools(LOCAL).tools if each.name == name)

    def activities(self) -> list[Activity]:
        """All activities so far."""
        return [activity for _, activity in self.graph.activities.read()]

    def close(self) -> None:
        """End the kernel and the app."""
        self.kernel.close()
        self.app.close()


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
