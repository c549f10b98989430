"""A graph that is open in this process: its door is its kernel."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from trails.app.app import App
from trails.app.kernels import kernel_of
from trails.app.sessions.failures import error_of
from trails.app.sessions.shipments import Shipment
from trails.errors import QueryError, ValidationError
from trails.model.actors import OPERATOR, Actor
from trails.model.loads import LoadRequest, LoadResult
from trails.model.outcomes import Failure, Outcome
from trails.model.resources import Content
from trails.model.tools import Tool
from trails.surfaces.cli.operations import Listing, Page, View
from trails.surfaces.rest.uris import join_page, place_problem, write_uri

_T = TypeVar("_T")


class LocalDoor:
    """The kernel of one graph, on behalf of the operator, or of whoever's token was given."""

    def __init__(self, app: App, graph: str, actor: Actor = OPERATOR) -> None:
        self._app = app
        self._actor = actor
        self.graph = graph
        self.nodes = app.graph(graph).names.nodes
        self._kernel = kernel_of(app, graph)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        """Use as a context manager; leaving lets the kernel end."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the kernel end; the app stays open."""
        self._kernel.close()
        self._runner.close()

    def tools(self) -> Sequence[Tool]:
        """The tools, by name."""
        return self._kernel.tools(self._actor).tools

    def execute(self, name: str, arguments: Mapping[str, object]) -> bytes:
        """Call a tool."""
        return self._body(self._kernel.execute(self._actor, name, arguments))

    def instances(self, view: View, wanted: Listing) -> Page:
        """A page of a type's instances."""
        given = msgspec.structs.asdict(wanted)
        del given["type"]
        query = {name: str(value) for name, value in given.items() if value is not None}
        found = join_page(self._read(view, [wanted.type], query))
        return msgspec.json.decode(found, type=Page)

    def instance(self, view: View, type_name: str, identifier: str) -> bytes:
        """One instance as JSON-LD."""
        return self._read(view, [type_name, identifier], {})[0].text.encode()

    def _read(
        self, view: View, parts: Sequence[str], query: Mapping[str, str]
    ) -> Sequence[Content]:
        branch = None if view.snapshot is not None or view.branch == "main" else view.branch
        problem = place_problem(branch, view.snapshot)
        if problem is not None:
            raise QueryError(problem)
        uri = write_uri(parts, query, branch=branch, snapshot=view.snapshot)
        return _checked(self._runner.run(self._kernel.read(self._actor, uri)))

    def record(self, name: str, arguments: Mapping[str, object]) -> bytes:
        """What a built-in gives to programs."""
        return self._body(self._kernel.transfers.record(self._actor, name, arguments))

    def load(self, request: LoadRequest, progress: Callable[[int, int | None], None]) -> LoadResult:
        """Load files in one commit.

        The operator's from where they are, and in this thread: that can be stopped.
        """
        if self._actor == OPERATOR:
            return self._app.load(request, graph=self.graph, progress=progress)
        sent = Shipment(request)
        given = {name: value for name, value in sent.arguments.items() if value is not None}
        blocks = _each(sent.blocks(progress))
        try:
            loading = self._kernel.transfers.load(self._actor, blocks, given, coding=sent.coding)
            return msgspec.json.decode(self._body(loading), type=LoadResult)
        except ValidationError as error:
            raise sent.placed(error) from None

    def export(self, arguments: Mapping[str, object]) -> Generator[bytes, None, None]:
        """A graph as a file."""
        opened = _checked(self._runner.run(self._kernel.transfers.export(self._actor, arguments)))
        try:
            while block := self._runner.run(_next(opened)):
                yield block
        finally:
            self._runner.run(opened.aclose())

    def _body(self, coming: Coroutine[None, None, Outcome]) -> bytes:
        return _checked(self._runner.run(coming)).body


async def _each(blocks: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    for block in blocks:
        yield block


async def _next(blocks: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(blocks, b"")


def _checked(outcome: _T | Failure) -> _T:
    """What came of it, if it is not a failure."""
    if isinstance(outcome, Failure):
        raise error_of(outcome)
    return outcome
