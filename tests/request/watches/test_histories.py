"""Random histories under random watchers: whoever was due a change knows the state after it.

A watcher does as a client does: it subscribes, reads, and reads again whenever it is told,
some at once and some late. When everything has come to rest, what each of them read last
must be what is there. Being told too often is allowed; being told of another branch is not.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest
from tests.campaigns import sized
from tests.request.watches.shelf import Book, Shelf, Thing, branch, make_app, merge_into, save
from tests.worlds.mcp_clients import until

from trails import App
from trails.engine.graph import feed as feed_module
from trails.errors import TrailsError
from trails.model.actors import LOCAL
from trails.request import watches as news_module
from trails.request import watches as watches_module
from trails.request.watches import Watcher, Watches

KINDS = (Shelf, Thing, Book)
BRANCHES = ("main", "a", "b", "quiet")
CODES = ("1", "2", "3", "x y")
MANY = 8


class Writer:
    """Does one random thing after the other, on a thread of its own."""

    def __init__(self, app: App, rng: random.Random) -> None:
        self.app = app
        self.rng = rng
        changes = (self.put, self.put, self.put, self.drop, self.bulk, self.batch, self.raw)
        self.acts = (*changes, self.fork, self.forget, self.merge, self.merge)

    def run(self, steps: int) -> None:
        """Write a history."""
        for step in range(steps):
            with suppress(TrailsError):  # a branch that is gone, a conflict: part of life
                self.rng.choice(self.acts)(step)

    def _ctx(self):
        return self.app.context(branch=self.rng.choice(("main", "main", "a", "b")))

    def put(self, step: int) -> None:
        """Make or change one node."""
        kind, code = self.rng.choice(KINDS), self.rng.choice(CODES)
        values = {"room": f"r{step}"} if kind is Shelf else {"name": f"n{step}"}
        if kind is not Shelf and self.rng.random() < 0.3:
            values["shelf"] = f"trails://kg/Shelf/{self.rng.choice('123')}"
        save(self._ctx(), kind, code, **values)

    def drop(self, step: int) -> None:
        """Delete one node, and what can't do without it."""
        ctx = self._ctx()
        self.rng.choice(KINDS).get(ctx, self.rng.choice(CODES)).delete(ctx, cascade=True)

    def bulk(self, step: int) -> None:
        """More nodes than are told one by one."""
        kind = self.rng.choice((Thing, Book))
        count = self.rng.choice((2, MANY + 3))
        nodes = [kind(code=str(number), name=f"b{step}") for number in range(1, count)]
        self._ctx().kg.save_all(nodes, upsert=True)

    def batch(self, step: int) -> None:
        """Several changes in one commit, some of which undo each other."""
        ctx = self._ctx()
        with ctx.kg.transaction():
            for code in self.rng.sample(CODES, 3):
                save(ctx, Book, code, name=f"t{step}")
            Book.get(ctx, self.rng.choice(CODES)).delete(ctx)

    def raw(self, step: int) -> None:
        """A statement that nobody validates."""
        names = self.app.graph().names
        node, field = names.node("Shelf", self.rng.choice("123")), names.term("room")
        ctx = self._ctx()
        old = ctx.kg.find("Shelf", node)
        if old is not None and "room" not in old.values:
            ctx.kg.raw_sparql(
                f'INSERT DATA {{ <{node}> <{field}> "raw{step}" }}', skip_validation=True
            )

    def fork(self, step: int) -> None:
        """A branch, perhaps again."""
        branch(self.app, self.rng.choice("ab"), self.rng.choice(("main", "a", "b")))

    def forget(self, step: int) -> None:
        """A branch less."""
        if self.rng.random() < 0.5:
            self.app.versions().delete_branch(self.rng.choice("ab"), force=True)

    def merge(self, step: int) -> None:
        """A merge or a move, in any direction."""
        source, target = self.rng.sample(("main", "a", "b"), 2)
        merge_into(self.app, source, target)


class Client:
    """A subscriber that reads when it is told, at its own pace."""

    def __init__(self, app: App, watches: Watches, rng: random.Random) -> None:
        self.app = app
        self.rng = rng
        self.read: dict[str, object] = {}
        self.told = 0
        self.pace = rng.choice((0.0, 0.0, 0.002, 0.02))
        opened = watches.watch(LOCAL, [])
        assert isinstance(opened, Watcher)
        self.watcher = opened
        self.branches = rng.sample(BRANCHES, rng.choice((1, 2)))
        for _ in range(rng.randint(1, 5)):
            self.subscribe()

    def subscribe(self) -> None:
        """Watch something, and read it."""
        uri = self._uri()
        if self.watcher.add(uri) is None:
            self.read.setdefault(uri, self.look(uri))

    def _uri(self) -> str:
        name = self.rng.choice(self.branches)
        place = "trails://" if name == "main" else f"trails://branch/{name}/"
        type_name = self.rng.choice(KINDS).__name__
        if self.rng.random() < 0.5:
            return f"{place}kg/{type_name}"
        return f"{place}kg/{type_name}/{self.rng.choice(CODES).replace(' ', '%20')}"

    def look(self, uri: str) -> object:
        """What a URI shows now."""
        place, _, rest = uri.removeprefix("trails://").partition("kg/")
        name = place.removeprefix("branch/").removesuffix("/") or "main"
        type_name, _, code = rest.partition("/")
        try:
            ctx = self.app.context(branch=name)
            if code:
                found = ctx.kg.find_by_id(type_name, code.replace("%20", " "))
                return None if found is None else (found.type, dict(found.values))
            kind = next(kind for kind in KINDS if kind.__name__ == type_name)
            return {
                node.handle: (node.name if isinstance(node, Thing) else node.room)
                for node in kind.objects(ctx)
            }
        except TrailsError:
            return "no such branch"

    async def live(self) -> None:
        """Read whenever something changed; sometimes watch more, or less."""
        woken = asyncio.Event()
        self.watcher.wake = woken.set
        while True:
            await woken.wait()
            woken.clear()
            await asyncio.sleep(self.pace * self.rng.random())
            for uri in self.watcher.take():
                assert uri in self.read
                self.told += 1
                self.read[uri] = self.look(uri)
            if self.rng.random() < 0.1:
                self.subscribe()
            if self.rng.random() < 0.05:
                uri = self.rng.choice(list(self.read))
                self.watcher.remove(uri)
                del self.read[uri]
                self.subscribe()


async def tell_a_history(seed: int, steps: int) -> None:
    """One history under a dozen clients."""
    rng = random.Random(seed)
    with make_app() as app:
        app.graph().allow_bypass = True
        for name in BRANCHES[1:]:
            branch(app, name)
        watches = Watches(app.service())
        clients = [Client(app, watches, random.Random(rng.random())) for _ in range(12)]
        tasks = [asyncio.ensure_future(client.live()) for client in clients]
        await asyncio.to_thread(Writer(app, rng).run, steps)
        await until(lambda: not watches._awake and not any(each.watcher._due for each in clients))
        await asyncio.sleep(0.05)  # the slowest has taken, and now reads
        for client in clients:
            for uri, seen in client.read.items():
                assert seen == client.look(uri), (seed, uri)
            assert len(client.watcher._due) <= len(client.watcher._targets)
            if client.branches == ["quiet"]:
                assert client.told == 0
        assert any(client.told for client in clients)
        for task in tasks:
            assert not task.done() or task.exception() is None
            task.cancel()
        for client in clients:
            client.watcher.close()
        assert (watches._topics, watches._count) == ({}, 0)
        assert not app.graph().feed.listened


@pytest.fixture
def few(monkeypatch):
    """Bounds that a small history reaches."""
    monkeypatch.setattr(feed_module, "MANY", MANY)
    monkeypatch.setattr(news_module, "MANY", MANY)
    monkeypatch.setattr("trails.engine.history.merge._STATEMENTS", 60)
    monkeypatch.setattr(watches_module, "_STEP", 3)


@pytest.mark.req("T27")
@pytest.mark.parametrize("seed", range(6))
def test_nobody_misses_what_it_was_due(few, seed):
    """At rest, everybody has read what is there."""
    asyncio.run(tell_a_history(seed, 60))


@pytest.mark.long(cases=400)
@pytest.mark.parametrize("seed", range(100, 100 + sized(60, nightly=3)))
def test_nobody_misses_what_it_was_due_in_long_histories(few, seed):
    """The same, over many more steps."""
    asyncio.run(tell_a_history(seed, 400))
