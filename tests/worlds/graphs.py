"""Graphs in this process, for tests that are not coroutines: kernels to call, readers, writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from trails import App
from trails.app.kernels import kernel_of
from trails.engine.graph.graph import Graph
from trails.engine.write.write import Write
from trails.model.actors import LOCAL, OPERATOR, Actor
from trails.model.capabilities import Tool
from trails.model.history import Activity
from trails.model.results import Failure, Outcome
from trails.model.uris import Content
from trails.request.admission import KernelOptions
from trails.request.pipeline import Kernel


class Reading:
    """A reader of an app, asked from tests that are no coroutines."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.reader = Kernel(app.service(), KernelOptions())

    def contents(self, uri: str) -> Sequence[Content]:
        """What a read that succeeds gives."""
        found = asyncio.run(self.reader.read(LOCAL, uri))
        assert not isinstance(found, Failure), found
        return found

    def body(self, uri: str):
        """The document of a read that succeeds, decoded."""
        return json.loads(self.contents(uri)[0].text)

    def failure(self, uri: str) -> Failure:
        """What a read that fails gives."""
        found = asyncio.run(self.reader.read(LOCAL, uri))
        assert isinstance(found, Failure), found
        return found

    def complete(self, template: str, variable: str, value: str = "", **given: str):
        """Values for a variable of a template."""
        return asyncio.run(self.reader.complete(LOCAL, template, variable, value, given))


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

    def result(
        self, tool: str, arguments: Mapping[str, object] | None = None, actor: Actor = LOCAL
    ) -> dict:
        """The object that a call which succeeds gives."""
        outcome = self.outcome(tool, arguments, actor)
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
        return next(each for each in self.kernel.tools(OPERATOR).tools if each.name == name)

    def activities(self) -> list[Activity]:
        """All activities so far."""
        return [activity for _, activity in self.graph.activities.read()]

    def close(self) -> None:
        """End the kernel and the app."""
        self.kernel.close()
        self.app.close()


@contextmanager
def writing(graph: Graph) -> Iterator[Write]:
    """A write that is finished at the block's end, and abandoned when it raises."""
    write = Write(graph, graph.main, actor="test")
    write.begin()
    try:
        yield write
    except BaseException:
        write.abandon()
        raise
    write.finish()
