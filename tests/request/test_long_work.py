"""Long requests give way to short ones, except while other writers wait for them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from trails import App, Node, node_type, predicate
from trails.app.kernels import kernel_of
from trails.model import fairness
from trails.model.actors import OPERATOR
from trails.model.results import Success
from trails.request.pipeline import Kernel

NODES = 1_200


@node_type
class Note(Node):
    """A line of text."""

    name: str = predicate(key=True)
    text: str = predicate(min_length=3)


class Pauses:
    """How often work paused, and how often while it held the writer's lock."""

    def __init__(self, app: App) -> None:
        self.count = 0
        self.locked = 0
        self._graph = app.service("main").graph

    def sleep(self, seconds: float) -> None:
        """Be called in place of ``sleep``."""
        assert seconds > 0
        self.count += 1
        self.locked += self._graph._owner == threading.get_ident()


async def lines(prefix: str, text: str = "text") -> AsyncIterator[bytes]:
    """A file of many nodes."""
    line = '{"type": "Note", "data": {"name": "%s%d", "text": "%s"}}\n'
    yield "".join(line % (prefix, number, text) for number in range(NODES)).encode()


async def load(kernel: Kernel, prefix: str, **arguments: str) -> str:
    """Load many nodes; the commit."""
    outcome = await kernel.transfers.load(OPERATOR, lines(prefix), arguments)
    assert isinstance(outcome, Success), outcome
    return str(json.loads(outcome.body)["commit"])


async def call(kernel: Kernel, tool: str, **arguments: object) -> None:
    """Call a tool."""
    outcome = await kernel.execute(OPERATOR, tool, arguments)
    assert isinstance(outcome, Success), outcome


async def do_load(kernel: Kernel, measured: Callable[[], None]) -> None:
    """A load."""
    measured()
    await load(kernel, "a")


async def do_merge(kernel: Kernel, measured: Callable[[], None]) -> None:
    """A merge of two branches with many changes each."""
    await load(kernel, "a", branch="a", **{"from": "main"})
    await load(kernel, "b", branch="b", **{"from": "main"})
    measured()
    await call(kernel, "branch_merge", source="a", target="b")


async def do_snapshot(kernel: Kernel, measured: Callable[[], None]) -> None:
    """A read of a state that is far from every branch."""
    commit = await load(kernel, "a", branch="a", **{"from": "main"})
    await call(kernel, "branch_delete", name="a", force=True)
    measured()
    await call(kernel, "graph_query", query="ASK { ?s ?p ?o }", snapshot=commit)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    """A graph in a folder."""
    with App(Note, folder=tmp_path / "app") as opened:
        yield opened


@pytest.mark.parametrize("work", [do_load, do_merge, do_snapshot])
def test_long_work_pauses_without_the_writers_lock(
    work: Callable[[Kernel, Callable[[], None]], Coroutine[None, None, None]],
    app: App,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside a short request that never ends."""
    pauses = Pauses(app)

    def measured() -> None:
        monkeypatch.setattr(fairness, "_GRACE", 0)
        monkeypatch.setattr(fairness, "_is_short_work_beside", lambda *_: True)
        monkeypatch.setattr(fairness, "sleep", pauses.sleep)

    kernel = kernel_of(app)
    try:
        asyncio.run(work(kernel, measured))
    finally:
        kernel.close()
    assert pauses.count > 3
    assert pauses.locked == 0
