"""Watches: which URIs can be watched, who is told of what, and within which bounds."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.request.watches.shelf import Book, Shelf, Thing, branch, make_app, merge_into, save
from tests.worlds.mcp_clients import until

from trails import App
from trails.app.kernels import kernel_of
from trails.model.actors import LOCAL
from trails.model.results import Failure
from trails.request import watches as news_module
from trails.request import watches as watches_module
from trails.request.watches import Watcher, Watches


@pytest.fixture
def app():
    """A graph with a book, a thing and a shelf, and a branch."""
    with make_app() as app:
        ctx = app.context()
        save(ctx, Shelf, "s")
        save(ctx, Book, "b")
        save(ctx, Thing, "t")
        branch(app, "draft/one")
        yield app


def open_watch(watches: Watches, *uris: str) -> Watcher:
    """A watch that was not refused."""
    found = watches.watch(LOCAL, uris)
    assert isinstance(found, Watcher), found
    return found


async def due(watcher: Watcher) -> set[str]:
    """What a watcher is told, within seconds."""
    woken = asyncio.Event()
    watcher.wake = woken.set
    if not watcher._due:
        await asyncio.wait_for(woken.wait(), 60)
    return set(watcher.take())


async def nothing_due(*watchers: Watcher) -> None:
    """Nobody is told anything, though the loop had its turns."""
    await until(lambda: not any(watcher._watches._awake for watcher in watchers))
    assert [watcher._due for watcher in watchers] == [{}] * len(watchers)


def test_types_and_instances_are_told_of_their_own(app):
    """A type hears of its subtypes' instances; an instance hears of itself alone."""

    async def run() -> None:
        watches = Watches(app.service())
        things = open_watch(watches, "trails://kg/Thing")
        books = open_watch(watches, "trails://kg/Book")
        one = open_watch(watches, "trails://kg/Book/b")
        shelves = open_watch(watches, "trails://kg/Shelf", "trails://kg/Shelf/s")
        ctx = app.context()
        await asyncio.to_thread(save, ctx, Book, "b", pages=2)
        assert await due(things) == {"trails://kg/Thing"}
        assert await due(books) == {"trails://kg/Book"}
        assert await due(one) == {"trails://kg/Book/b"}
        save(ctx, Thing, "t", name="changed")
        assert await due(things) == {"trails://kg/Thing"}
        await nothing_due(books, one, shelves)
        Shelf.get(ctx, "s").delete(ctx)
        assert await due(shelves) == {"trails://kg/Shelf", "trails://kg/Shelf/s"}

    asyncio.run(run())


def test_an_instance_has_several_names(app):
    """Its handle, a branch's handle of main and its own IRI are told as they were subscribed."""

    async def run() -> None:
        names = {
            "trails://kg/Book/b",
            "trails://branch/main/kg/Book/b",
            app.graph().names.node("Book", "b"),
        }
        watcher = open_watch(Watches(app.service()), *names)
        save(app.context(), Book, "b", pages=2)
        assert await due(watcher) == names

    asyncio.run(run())


def test_an_instance_of_a_subtype_is_watched_through_its_ancestor(app):
    """It is read there, so it is told there; others of that id are not."""

    async def run() -> None:
        watches = Watches(app.service())
        watcher = open_watch(watches, "trails://kg/Thing/b", "trails://kg/Shelf/b")
        save(app.context(), Book, "b", pages=2)
        assert await due(watcher) == {"trails://kg/Thing/b"}

    asyncio.run(run())


def test_an_instance_need_not_exist_yet(app):
    """Whoever waits for a node is told when it is made."""

    async def run() -> None:
        watcher = open_watch(Watches(app.service()), "trails://kg/Book/new%20one")
        save(app.context(), Book, "new one")
        assert await due(watcher) == {"trails://kg/Book/new%20one"}

    asyncio.run(run())


def test_a_watch_follows_one_branch(app):
    """Main's watchers hear nothing of a branch until it is merged, and the other way round."""

    async def run() -> None:
        watches = Watches(app.service())
        mains = open_watch(watches, "trails://kg/Book", "trails://kg/Book/b")
        drafts = open_watch(
            watches, "trails://branch/draft%2Fone/kg/Book", "trails://branch/draft%2Fone/kg/Book/b"
        )
        save(app.context(branch="draft/one"), Book, "b", pages=5)
        assert len(await due(drafts)) == 2
        await nothing_due(mains)
        merge_into(app, "draft/one")
        assert await due(mains) == {"trails://kg/Book", "trails://kg/Book/b"}
        save(app.context(), Book, "b", pages=6)
        assert len(await due(mains)) == 2
        await nothing_due(drafts)
        app.versions().delete_branch("draft/one", force=True)
        assert len(await due(drafts)) == 2

    asyncio.run(run())


@pytest.mark.parametrize(
    ("uri", "kind", "says"),
    [
        ("trails://kg/Book?where=pages%3D2", "validation", "watch the type"),
        ("trails://kg/Book?limit=5", "validation", "watch the type"),
        ("trails://kg/Book?colour=red", "validation", "no parameter"),
        ("trails://at/0123456789abcdef0123456789abcdef/kg/Book", "validation", "past"),
        ("trails://schema", "validation", "types and instances"),
        ("trails://stats", "validation", "types and instances"),
        ("trails://kg/types", "validation", "types and instances"),
        ("trails://kg/", "validation", ""),
        ("trails://kg/Book/", "validation", ""),
        ("trails://kg/Book/a/b", "validation", ""),
        ("trails://kg/Book/%ff", "validation", ""),
        ("trails://kg/Book/" + 600 * "x", "validation", "longer than"),
        ("https://example.org/x", "unknown", "is not a resource"),
        ("trails://nope", "unknown", "after trails:// comes one of kg/…, branch/…"),
        ("", "validation", ""),
        ("trails://kg/Bok", "unknown", "did you mean 'Book'"),
        ("trails://kg/Bok/b", "unknown", "did you mean 'Book'"),
        ("trails://branch/draft%2Fon/kg/Book", "unknown", "did you mean 'draft/one'"),
    ],
)
def test_what_cant_be_watched_is_refused_with_the_reason(app, uri, kind, says):
    """Filters, the past and everything that is neither type nor instance."""

    async def run() -> None:
        watches = Watches(app.service())
        refused = watches.refuse_watch(LOCAL, uri)
        assert isinstance(refused, Failure)
        assert refused.kind == kind
        assert says in refused.message
        assert isinstance(watches.watch(LOCAL, [uri]), Failure)
        assert watches._watchers == set()

    asyncio.run(run())


def test_where_no_type_is_known_reading_and_watching_say_the_same():
    """An unknown type of a graph without types is told how types come to be."""
    with App() as empty:
        reading, watching = kernel_of(empty), Watches(empty.service())
        told = (
            asyncio.run(reading.read(LOCAL, "trails://kg/Book")),
            watching.refuse_watch(LOCAL, "trails://kg/Book"),
        )
        reading.close()
    for failure in told:
        assert isinstance(failure, Failure)
        assert "there are none yet: the first write or 'trails serve' stores" in failure.message


def test_what_was_refused_leaves_nothing_behind(app):
    """A watch of which one URI is refused is not opened at all; the feed is not listened to."""

    async def run() -> None:
        watches = Watches(app.service())
        refused = watches.watch(LOCAL, ["trails://kg/Book", "trails://kg/Bok"])
        assert isinstance(refused, Failure)
        assert (watches._topics, watches._count) == ({}, 0)
        assert not app.graph().feed.listened

    asyncio.run(run())


def test_closing_leaves_nothing_behind(app):
    """The last watcher takes the listener with it, and nothing is due any more."""

    async def run() -> None:
        watches = Watches(app.service())
        first = open_watch(watches, "trails://kg/Book", "trails://kg/Book/b", "trails://kg/Thing")
        second = open_watch(watches, "trails://kg/Book", "trails://branch/draft%2Fone/kg/Shelf/s")
        save(app.context(), Book, "b", pages=2)
        await until(lambda: not watches._awake)
        first.close()
        first.close()
        assert not first.take()
        second.remove("trails://kg/Book")
        second.remove("trails://kg/Book")
        assert app.graph().feed.listened
        second.close()
        assert (watches._topics, watches._count, watches._watchers) == ({}, 0, set())
        assert not app.graph().feed.listened

    asyncio.run(run())


def test_uris_can_be_added_and_removed(app):
    """What was removed is not told any more, also when it was due already."""

    async def run() -> None:
        watches = Watches(app.service())
        watcher = open_watch(watches)
        assert watcher.add("trails://kg/Book") is None
        assert watcher.add("trails://kg/Shelf") is None
        save(app.context(), Shelf, "s", room="hall")
        save(app.context(), Book, "b", pages=2)
        await until(lambda: not watches._awake)
        watcher.remove("trails://kg/Shelf")
        assert await due(watcher) == {"trails://kg/Book"}
        refused = watcher.add("trails://kg/Book?limit=1")
        assert isinstance(refused, Failure)

    asyncio.run(run())


def test_there_is_a_limit_to_everything(app, monkeypatch):
    """URIs of a watch, watches of a graph, and URIs in all are refused beyond their bounds."""
    monkeypatch.setattr(watches_module, "MAX_URIS", 2)
    monkeypatch.setattr(watches_module, "MAX_WATCHES", 3)
    monkeypatch.setattr(watches_module, "MAX_IN_ALL", 4)

    async def run() -> None:
        watches = Watches(app.service())
        first = open_watch(watches, "trails://kg/Book", "trails://kg/Shelf")
        for refused in (
            first.add("trails://kg/Thing"),
            watches.watch(LOCAL, ["trails://kg/Book", "trails://kg/Shelf", "trails://kg/Thing"]),
        ):
            assert isinstance(refused, Failure)
            assert refused.kind == "budget"
        open_watch(watches, "trails://kg/Book", "trails://kg/Shelf")
        refused = watches.watch(LOCAL, ["trails://kg/Book"])
        assert isinstance(refused, Failure)
        assert "already" in refused.message
        open_watch(watches)
        refused = watches.watch(LOCAL, [])
        assert isinstance(refused, Failure)
        first.close()
        open_watch(watches, "trails://kg/Book")

    asyncio.run(run())


def test_a_burst_wakes_the_loop_once(app):
    """Writers that outrun the loop leave one note a branch, whose size is bounded."""

    async def run() -> None:
        watches = Watches(app.service())
        watcher = open_watch(watches, "trails://kg/Thing", "trails://kg/Thing/t3")
        loop = asyncio.get_running_loop()
        wakes = []
        real = loop.call_soon_threadsafe

        def count(*given: object) -> object:
            wakes.append(given)
            return real(*given)

        loop.call_soon_threadsafe = count  # type: ignore[method-assign]
        ctx = app.context()
        for number in range(50):  # on the loop's own thread, which so has no turn
            save(ctx, Thing, f"t{number}")
        assert len(wakes) == 1
        assert len(watches._notes) == 1
        assert await due(watcher) == {"trails://kg/Thing", "trails://kg/Thing/t3"}

    asyncio.run(run())


def test_a_note_stays_small(app, monkeypatch):
    """Beyond the limit a note tells all watchers of the types, and forgets single nodes."""
    monkeypatch.setattr(news_module, "MANY", 10)

    async def run() -> None:
        watches = Watches(app.service())
        told = open_watch(watches, "trails://kg/Thing/t3")
        over = open_watch(watches, "trails://kg/Thing/never")
        other = open_watch(watches, "trails://kg/Shelf/s")
        ctx = app.context()
        for number in range(30):
            save(ctx, Thing, f"t{number}")
            assert len(watches._notes["main"].handles) <= 10
        assert await due(told) == {"trails://kg/Thing/t3"}
        assert await due(over) == {"trails://kg/Thing/never"}
        await nothing_due(other)

    asyncio.run(run())


def test_a_bulk_write_tells_every_watcher_of_its_types(app):
    """Above the limit of the feed, instances may be told too much, and never too little."""

    async def run() -> None:
        watches = Watches(app.service())
        watcher = open_watch(
            watches, "trails://kg/Thing/t7", "trails://kg/Book", "trails://kg/Book/b"
        )
        app.context().kg.save_all(Thing(code=f"t{n}", name="x") for n in range(2_001))
        assert await due(watcher) == {"trails://kg/Thing/t7"}

    asyncio.run(run())


def test_a_subscriber_that_never_reads_holds_no_more_than_it_watches(app):
    """A thousand changes are one entry a URI, and all of them are told when it reads."""

    async def run() -> None:
        watches = Watches(app.service())
        slow = open_watch(watches, "trails://kg/Thing", "trails://kg/Thing/t")
        ctx = app.context()
        for number in range(200):
            await asyncio.to_thread(save, ctx, Thing, "t", name=f"n{number}")
            assert len(slow._due) <= 2
        await until(lambda: not watches._awake)
        assert await due(slow) == {"trails://kg/Thing", "trails://kg/Thing/t"}
        await nothing_due(slow)

    asyncio.run(run())


def test_a_loop_that_stands_still_holds_up_no_writer(app):
    """Writers go on while nobody can be told; the notes wait."""
    watches = Watches(app.service())
    entered, release = threading.Event(), threading.Event()
    told: list[set[str]] = []

    async def run() -> None:
        watcher = open_watch(watches, "trails://kg/Thing")
        entered.set()
        release.wait(60)  # blocks the loop
        told.append(await due(watcher))

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    entered.wait(60)
    ctx = app.context()
    for number in range(20):
        save(ctx, Thing, f"w{number}")
    release.set()
    thread.join(60)
    assert told == [{"trails://kg/Thing"}]


def test_a_loop_that_has_ended_is_forgotten(app):
    """A watch that nobody closed neither fails a writer nor keeps the next loop out."""
    watches = Watches(app.service())

    async def leave_open() -> None:
        open_watch(watches, "trails://kg/Thing")

    async def run() -> None:
        watcher = open_watch(watches, "trails://kg/Thing")
        assert len(watches._watchers) == 1
        save(app.context(), Thing, "v")
        assert await due(watcher) == {"trails://kg/Thing"}

    asyncio.run(leave_open())
    save(app.context(), Thing, "u")
    asyncio.run(run())


def test_watches_of_one_graph_live_on_one_loop(app):
    """A second loop beside the first is a mistake of whoever composes, and says so."""
    watches = Watches(app.service())

    async def second() -> None:
        with pytest.raises(RuntimeError, match="one event loop"):
            watches.watch(LOCAL, [])

    async def run() -> None:
        open_watch(watches, "trails://kg/Thing")
        await asyncio.to_thread(asyncio.run, second())

    asyncio.run(run())


def test_a_round_lets_others_have_their_turn(app):
    """Between steps of a long round the loop runs what else is ready."""

    async def run() -> None:
        watches = Watches(app.service())
        watchers = [open_watch(watches, "trails://kg/Thing") for _ in range(1_000)]
        turns = 0
        done = asyncio.gather(*(due(each) for each in watchers))

        async def take_turns() -> None:
            nonlocal turns
            while not done.done():
                turns += 1
                await asyncio.sleep(0)

        await asyncio.sleep(0)
        save(app.context(), Thing, "t", name="other")
        await take_turns()
        assert await done == [{"trails://kg/Thing"}] * 1_000
        assert turns > 1_000 / watches_module._STEP

    asyncio.run(run())


def test_rounds_that_tell_many_are_followed_by_a_rest(app):
    """While changes keep coming, telling takes a small share of the loop's time."""

    async def run() -> None:
        watches = Watches(app.service())
        watchers = [open_watch(watches, "trails://kg/Thing") for _ in range(400)]
        loop = asyncio.get_running_loop()
        ctx = app.context()
        rounds = []
        for number in range(4):
            save(ctx, Thing, "t", name=f"n{number}")
            await due(watchers[0])
            rounds.append(loop.time())
        assert rounds[-1] - rounds[0] > 2 * len(watchers) * watches_module._PAUSE

    asyncio.run(run())
