"""Subscriptions over the protocol: the official client, every transport and revision."""

from __future__ import annotations

import asyncio

import mcp.client.session
import pytest
from mcp.client import Client
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError
from tests.request.watches.shelf import Book, Shelf, branch, make_app, save
from tests.worlds.mcp_clients import (
    Heard,
    Stage,
    event_of,
    next_events,
    over_bridge,
    over_http,
    over_sessions,
    over_sse,
    over_stream,
    until,
)

from trails import App, Context, Node, capability, node_type, predicate

BOOKS = "trails://kg/Book"
BOOK = "trails://kg/Book/b"
DRAFT = "trails://branch/draft/kg/Book"
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


@pytest.fixture
def app():
    """A graph with a book, a shelf and a branch."""
    with make_app() as app:
        save(app.context(), Shelf, "s")
        save(app.context(), Book, "b")
        branch(app, "draft")
        yield app


def updates(messages: list[object]) -> list[str]:
    """The URIs of the updates among messages."""
    return [each.params.uri for each in messages if type(each).__name__.startswith("ResourceUpd")]


def kinds(messages: list[object]) -> set[str]:
    """The methods of messages."""
    return {each.method for each in messages}


# --- the newest revision -----------------------------------------------------------------


@pytest.mark.req("T13")
@pytest.mark.parametrize("connect", [over_stream, over_http, over_bridge])
def test_listening_tells_what_was_asked_for(app, connect):
    """Types, instances and branches; what can't be watched is not acknowledged."""

    async def run() -> None:
        async with connect(Stage(app), mode="2026-07-28") as client:
            asked = [BOOKS, BOOK, DRAFT, f"{BOOKS}?limit=5", "trails://kg/Bok", BOOKS]
            async with client.listen(resource_subscriptions=asked) as subscription:
                assert subscription.honored.resource_subscriptions == [BOOKS, BOOK, DRAFT]
                assert subscription.honored.tools_list_changed is None
                save(app.context(), Book, "b", pages=2)
                assert await next_events(subscription, 2) == {
                    ResourceUpdated(BOOKS),
                    ResourceUpdated(BOOK),
                }
                save(app.context(branch="draft"), Book, "x")
                assert await next_events(subscription, 1) == {ResourceUpdated(DRAFT)}
                save(app.context(), Shelf, "s", room="hall")
                Book.get(app.context(), "b").delete(app.context())
                assert await next_events(subscription, 2) == {
                    ResourceUpdated(BOOKS),
                    ResourceUpdated(BOOK),
                }

    asyncio.run(run())


@pytest.mark.req("T8")
@pytest.mark.parametrize("connect", [over_stream, over_http, over_bridge])
def test_listening_tells_which_list_changed(app, connect):
    """A capability that is registered at run time changes the tools, a type the resources."""

    async def run() -> None:
        async with (
            connect(Stage(app), mode="2026-07-28") as client,
            client.listen(tools_list_changed=True, resources_list_changed=True) as subscription,
            client.listen(resources_list_changed=True) as other,
        ):
            await asyncio.to_thread(app.register, make_capability("late.one"))
            assert await next_events(subscription, 1) == {ToolsListChanged()}
            await asyncio.to_thread(app.register, make_type())
            await event_of(subscription, ResourcesListChanged())
            assert await next_events(other, 1) == {ResourcesListChanged()}

    asyncio.run(run())


@pytest.mark.parametrize("connect", [over_stream, over_http, over_bridge])
def test_a_listener_that_leaves_is_forgotten(app, connect):
    """Nothing is kept for it, and nobody listens to the feed any more."""

    async def run() -> None:
        backend = Stage(app)
        async with connect(backend, mode="2026-07-28") as client:
            async with client.listen(resource_subscriptions=[BOOKS]):
                assert len(backend.watches._watchers) == 1
            await until(lambda: not backend.watches._watchers)
            assert not app.graph().feed.listened

    asyncio.run(run())


def make_capability(name: str):
    """A capability that nobody knows yet."""

    @capability(name)
    def late(ctx: Context) -> int:
        """Come late."""
        return 1

    return late


def make_type() -> type:
    """A type that nobody knows yet."""

    @node_type
    class Lamp(Node):
        """It gives light."""

        code: str = predicate(key=True)

    return Lamp


# --- older revisions -----------------------------------------------------------------------


@pytest.fixture(params=LEGACY)
def revision(request, monkeypatch):
    """An older revision, as the client's newest."""
    monkeypatch.setattr(mcp.client.session, "LATEST_HANDSHAKE_VERSION", request.param)
    return request.param


async def watch_in_session(app: App, client: Client, heard: Heard) -> None:
    """Subscribe, be told, unsubscribe, be refused, and hear of lists."""
    assert client.server_capabilities.resources.subscribe is True
    assert client.server_capabilities.resources.list_changed is True
    assert client.server_capabilities.tools.list_changed is True
    for uri in (BOOKS, BOOK, DRAFT):
        await client.subscribe_resource(uri)
    await asyncio.to_thread(save, app.context(), Book, "b", pages=2)
    await heard.until(lambda found: set(updates(found)) == {BOOKS, BOOK})
    await client.unsubscribe_resource(BOOKS)
    heard.messages.clear()
    await asyncio.to_thread(save, app.context(), Book, "b", pages=3)
    await heard.until(lambda found: updates(found) == [BOOK])
    await asyncio.to_thread(save, app.context(branch="draft"), Book, "b", pages=3)
    await heard.until(lambda found: updates(found) == [BOOK, DRAFT])
    for uri, says in ((f"{BOOKS}?limit=5", "can't be watched"), ("trails://kg/Bok", "Book")):
        with pytest.raises(MCPError, match=says):
            await client.subscribe_resource(uri)
    heard.messages.clear()
    await asyncio.to_thread(app.register, make_capability("late.one"))
    await heard.until(lambda found: kinds(found) == {"notifications/tools/list_changed"})
    await asyncio.to_thread(app.register, make_type())
    await heard.until(lambda found: "notifications/resources/list_changed" in kinds(found))


@pytest.mark.req("T8", "T13")
@pytest.mark.filterwarnings("ignore:resources/.*subscribe is removed")
@pytest.mark.parametrize("connect", [over_stream, over_sessions, over_bridge])
def test_a_session_subscribes(app, revision, connect):
    """It is told on its own channel; the reason of a refusal is told; lists come unasked."""

    async def run() -> None:
        heard, backend = Heard(), Stage(app)
        async with connect(backend, mode="legacy", message_handler=heard, cache=None) as client:
            assert client.protocol_version == revision
            await watch_in_session(app, client, heard)
        await until(lambda: not backend.watches._watchers)

    asyncio.run(run())


@pytest.mark.req("T13")
@pytest.mark.filterwarnings("ignore:resources/.*subscribe is removed")
def test_the_oldest_transport_subscribes(app, monkeypatch):
    """HTTP+SSE is a session as well."""
    monkeypatch.setattr(mcp.client.session, "LATEST_HANDSHAKE_VERSION", "2024-11-05")

    async def run() -> None:
        heard, backend = Heard(), Stage(app)
        async with over_sse(backend, mode="legacy", message_handler=heard, cache=None) as client:
            await watch_in_session(app, client, heard)
        await until(lambda: not backend.watches._watchers)

    asyncio.run(run())


@pytest.mark.filterwarnings("ignore:resources/.*subscribe is removed")
def test_a_session_that_ends_is_forgotten(app):
    """Its watch goes with it."""

    async def run() -> None:
        backend = Stage(app)
        async with over_stream(backend, mode="legacy") as client:
            await client.subscribe_resource(BOOKS)
            assert len(backend.watches._watchers) == 1
        assert not backend.watches._watchers
        assert not app.graph().feed.listened

    asyncio.run(run())


@pytest.mark.req("T13")
@pytest.mark.filterwarnings("ignore:resources/.*subscribe is removed")
def test_an_endpoint_without_sessions_refuses_to_subscribe(app, revision):
    """It says so in its capabilities, and an attempt is told what to do instead."""

    async def run() -> None:
        async with over_http(Stage(app), mode="legacy") as client:
            assert client.protocol_version == revision
            assert not client.server_capabilities.resources.subscribe
            assert not client.server_capabilities.tools.list_changed
            for attempt in (client.subscribe_resource, client.unsubscribe_resource):
                with pytest.raises(MCPError, match=r"is stateless.*subscriptions/listen"):
                    await attempt(BOOKS)

    asyncio.run(run())


def test_where_sessions_are_kept_the_newest_revision_listens_as_well(app):
    """One endpoint serves both."""

    async def run() -> None:
        async with (
            over_sessions(Stage(app), mode="2026-07-28") as client,
            client.listen(resource_subscriptions=[BOOK]) as subscription,
        ):
            await asyncio.to_thread(save, app.context(), Book, "b", pages=2)
            assert await next_events(subscription, 1) == {ResourceUpdated(BOOK)}

    asyncio.run(run())
