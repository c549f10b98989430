"""A restricted actor that watches all it can, and what it can read at each URI."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Self
from urllib.parse import quote

import msgspec
import pytest
from tests.journeys.access.worlds import SIGHT, World

from trails.model.actors import Actor
from trails.model.decisions import Judge
from trails.model.results import Failure
from trails.model.visibility import Visibility
from trails.request.admission import KernelOptions
from trails.request.pipeline import Kernel

AGENT = Actor("agent", credential="t")
TYPES = ("Person", "Task", "Asset", "Desk", "Holds", "Room")
NODES = ("Person/ann@x", "Person/bob@x", "Asset/A1", "Asset/L0", "Desk/d", "Room/r")


class Veil:
    """A judge that hides from the agent what a sight does, and nothing from others."""

    version = "veil"

    def __init__(self, sight: Visibility = SIGHT, closed: Iterable[str] = ()) -> None:
        """On ``closed`` branches the agent may not read the graph, whatever it may of its types."""
        self._closed = frozenset(closed)
        self._hidden = set(sight.hidden) | {
            f"{name}.{field}" for name, fields in sight.hidden_fields.items() for field in fields
        }

    @property
    def current(self) -> Veil:
        """Itself."""
        return self

    def allows(self, actor, action, resource, branch="", target=""):
        """Whether it is nothing that is hidden."""
        del target
        if actor != AGENT:
            return True
        closed = action == "Read" and resource.kind == "Graph" and branch in self._closed
        return not closed and resource.id not in self._hidden

    def allows_somewhere(self, actor, action, resource, branches):
        """The same on every branch that is not closed."""
        return any(self.allows(actor, action, resource, each) for each in branches)

    def alike(self, actor, branches):
        """All are."""
        del actor
        return dict.fromkeys(branches, min(branches, default=""))


class Turncoat(Veil):
    """A judge whose mind changes: another one decides from some moment on."""

    def __init__(self, first: Judge) -> None:
        super().__init__()
        self.now = first

    @property
    def current(self) -> Judge:
        """Who decides now."""
        return self.now


class Ears:
    """Watches types and nodes on some branches, and hears what it is told after each deed."""

    def __init__(
        self,
        world: World,
        branches: Iterable[str] = ("main",),
        sight: Visibility = SIGHT,
        judge: Judge | None = None,
    ) -> None:
        self._kernel = Kernel(world.app.service(), KernelOptions(judge=judge or Veil(sight)))
        self.uris = [
            ("trails://" if branch == "main" else f"trails://branch/{branch}/") + f"kg/{each}"
            for branch in branches
            for each in (*TYPES, *(quote(node, safe="/") for node in NODES))
        ]
        edges = world.types.Holds.objects(world.owner()).fetch()  # type: ignore[attr-defined]
        self.uris += [f"trails://kg/{each.handle}" for each in edges if "/A1" in each.target.handle]

    async def __aenter__(self) -> Self:
        watcher = self._kernel.watch(AGENT, self.uris)
        assert not isinstance(watcher, Failure), watcher
        self._watcher = watcher
        return self

    async def __aexit__(self, *error: object) -> None:
        self._watcher.close()
        self._kernel.close()

    async def after(self, deed: Callable[[], object]) -> set[str]:
        """What is told once something was done."""
        return set(await self.in_order(deed))

    async def in_order(self, deed: Callable[[], object]) -> list[str]:
        """The same as it comes."""
        deed()
        watches = self._kernel._watches
        async with asyncio.timeout(60):
            while watches._awake:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)
        return list(self._watcher.take())

    async def sights(self) -> dict[str, object]:
        """What can be read at each URI; at a type's, all its instances too."""
        return {uri: await self._look(uri) for uri in self.uris}

    async def _look(self, uri: str) -> object:
        found = await self._kernel.read(AGENT, f"{uri}?limit=200" if _lists(uri) else uri)
        if isinstance(found, Failure):
            return found.kind  # the message tells of other instances
        if not _lists(uri):
            return found[0].text
        place = uri.partition("kg/")[0]
        items = msgspec.json.decode(found[0].text)
        shown = ["/".join(each["iri"].rsplit("/", 2)[1:]) for each in items]
        return [(each, await self._look(f"{place}kg/{each}")) for each in shown]


def _lists(uri: str) -> bool:
    return "/" not in uri.partition("kg/")[2]


def listen(world: World, deeds: Iterable[Callable[[], object]], **options) -> list[set[str]]:
    """What a restricted actor is told after each of some deeds."""

    async def scenario() -> list[set[str]]:
        async with Ears(world, **options) as ears:
            return [await ears.after(deed) for deed in deeds]

    return asyncio.run(scenario())


@contextmanager
def few(nodes: int, statements: int) -> Iterator[None]:
    """Let fewer nodes, and statements of a move, be too many to name them."""
    with pytest.MonkeyPatch.context() as patch:
        for where in ("engine.graph.feed", "request.watches"):
            patch.setattr(f"trails.{where}.MANY", nodes)
        patch.setattr("trails.engine.history.merge._STATEMENTS", statements)
        patch.setattr("trails.engine.graph.feed._COUNTED", nodes)
        patch.setattr("trails.engine.graph.feed._WAITING", 1)
        yield
