"""Subscriptions over the SDK's server, on every revision that has them.

From 2026-07-28 on, ``subscriptions/listen`` is a request whose answer is a stream. Before, a
connection subscribes to single resources and gets notifications on the channel of its session;
without sessions, subscribing is refused and not advertised.

Over HTTP the stream is written here, with the same bytes as the SDK: notifications are spliced
from encoded parts. An idle subscriber costs one task, which waits for the disconnect; sending
needs another task only while the connection is full.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Final

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    SUBSCRIPTION_ID_META_KEY,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
    event_to_notification,
)
from mcp_types.jsonrpc import METHOD_NOT_FOUND
from starlette.types import Message, Receive, Send

from trails.model.actors import Actor
from trails.model.results import Failure
from trails.surfaces.mcp.backend import McpBackend
from trails.surfaces.mcp.bodies import StartedCoroutine
from trails.surfaces.mcp.failures import ErrorResult, map_failure
from trails.surfaces.mcp.fast import Ticket
from trails.surfaces.mcp.results import shape
from trails.surfaces.mcp.server import ActorOf, Context
from trails.surfaces.mcp.subscribers import (
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
    UPDATED,
    Asked,
    Event,
    Subscriber,
    Subscribers,
)
from trails.surfaces.mcp.wire import LEGACY, Json

MAX_URIS: Final = 10_000
"""The most URIs in one request; the backend may allow fewer."""

_CHANNEL: Final = "trails.channel"
"""The key of a connection's channel in its state."""
_EVENTS: Final[dict[str, ServerEvent]] = {
    TOOLS_CHANGED: ToolsListChanged(),
    RESOURCES_CHANGED: ResourcesListChanged(),
}
_LEGACY_METHODS: Final = frozenset({"resources/subscribe", "resources/unsubscribe"})
_NO_SESSION: Final = (
    "this endpoint is stateless, so it cannot deliver notifications; use subscriptions/listen "
    "(revision 2026-07-28) or stdio, or set legacy_sessions = true in [graphs.<id>.mcp]"
)

_ANOTHER: Final = (
    "this session already has subscriptions of another credential; open a separate session for "
    "this one"
)


class Subscriptions:
    """The subscriptions to one backend through one transport."""

    def __init__(self, backend: McpBackend) -> None:
        self._backend = backend
        self._subscribers = Subscribers(backend)
        self._channels: dict[str, LegacyChannel] = {}
        self._streams: set[str] = set()
        self._ended = False

    def __len__(self) -> int:
        return len(self._subscribers)

    def register(self, server: Server[Any], actor_of: ActorOf, *, sessions: bool) -> None:
        """Register the handlers of a server; those of older revisions only with sessions."""
        handlers = SubscriptionHandlers(self, actor_of)
        server.add_request_handler(
            "subscriptions/listen", types.SubscriptionsListenRequestParams, handlers.listen
        )
        if not sessions:
            server.middleware.append(handlers.refuse_without_session)
            return
        server.add_request_handler(
            "resources/subscribe", types.SubscribeRequestParams, handlers.subscribe
        )
        server.add_request_handler(
            "resources/unsubscribe", types.UnsubscribeRequestParams, handlers.unsubscribe
        )
        server.add_notification_handler(
            "notifications/initialized", types.NotificationParams, handlers.initialized
        )
        advertise: Any = partial(
            server.create_initialization_options,
            NotificationOptions(tools_changed=True, resources_changed=True),
        )
        server.create_initialization_options = advertise  # type: ignore[method-assign]  # sessions ask without options

    def end(self) -> None:
        """End all streams after their pending notifications; no new one is opened."""
        self._ended = True
        self._subscribers.end()

    def actors(self) -> set[Actor]:
        """The actors of all subscriptions."""
        return self._subscribers.actors()

    def end_those_of(self, actors: set[Actor]) -> None:
        """Stop notifying some actors: their streams end, their connections get nothing."""
        self._subscribers.end_those_of(actors)

    # --- listening ---------------------------------------------------------------------------

    def honour(
        self, actor: Actor, uris: Collection[str], *, tools: bool, resources: bool
    ) -> Asked | Failure:
        """The granted part of a request: without the URIs that can't be watched."""
        if len(uris) > MAX_URIS:
            many = (
                f"a stream can watch at most {MAX_URIS} URIs, not {len(uris)}; watch types instead"
            )
            return Failure("budget", "limit", many)
        refuse = self._backend.refuse_watch
        watched = [uri for uri in dict.fromkeys(uris) if refuse(actor, uri) is None]
        return Asked(watched, tools, resources)

    def open(self, actor: Actor, asked: Asked) -> Subscriber | Failure:
        """A subscriber; it ends at once if the transport is ending."""
        subscriber = self._subscribers.open(actor, asked)
        if self._ended and not isinstance(subscriber, Failure):
            subscriber.end()
        return subscriber

    # --- connections of older revisions --------------------------------------------------------

    def refuse(self, actor: Actor, uri: str) -> Failure | None:
        """Why a URI can't be watched, or None."""
        return self._backend.refuse_watch(actor, uri)

    def legacy_channel(self, connection: Connection, actor: Actor) -> LegacyChannel | Failure:
        """The channel of a connection, which is notified of changed lists from now on."""
        found: LegacyChannel | None = connection.state.get(_CHANNEL)
        if found is not None:
            return found if found.actor == actor else Failure("semantic", "conflict", _ANOTHER)
        subscriber = self.open(actor, Asked(tools=True, resources=True))
        if isinstance(subscriber, Failure):
            return subscriber
        session = connection.session_id
        ready = session is None or session in self._streams
        channel = LegacyChannel(connection, subscriber, ready=ready)
        connection.state[_CHANNEL] = channel
        connection.exit_stack.callback(channel.close)
        if session is not None:
            self._channels[session] = channel
            connection.exit_stack.callback(self._channels.pop, session, None)
        return channel

    @contextmanager
    def stream(self, session: str, send: Send) -> Iterator[Send]:
        """While the GET of a session is open, send its notifications there."""
        opened = False

        def open_() -> None:
            self._streams.add(session)
            channel = self._channels.get(session)
            if channel is not None:
                channel.resume()

        async def notice(message: Message) -> None:
            nonlocal opened
            await send(message)
            if message["type"] == "http.response.start" and message["status"] == 200:
                opened = True
                # The SDK's task that takes notifications was started together with this one.
                asyncio.get_running_loop().call_soon(open_)

        try:
            yield notice
        finally:
            if opened:
                self._streams.discard(session)
                channel = self._channels.get(session)
                if channel is not None:
                    channel.interrupt()


class SubscriptionHandlers:
    """The handlers that the SDK calls, one for each request of the protocol."""

    def __init__(self, subscriptions: Subscriptions, actor_of: ActorOf) -> None:
        self._subscriptions = subscriptions
        self._actor_of = actor_of

    async def listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> Json:
        """``subscriptions/listen``: acknowledge, notify, and answer at the end."""
        actor, session, id_ = self._actor_of(context), context.session, context.request_id
        wanted = params.notifications
        asked = self._subscriptions.honour(
            actor,
            wanted.resource_subscriptions or (),
            tools=wanted.tools_list_changed is True,
            resources=wanted.resources_list_changed is True,
        )
        if isinstance(asked, Failure):
            raise _error(asked, context)
        subscriber = self._subscriptions.open(actor, asked)
        if isinstance(subscriber, Failure):
            raise _error(subscriber, context)
        meta = {SUBSCRIPTION_ID_META_KEY: id_}
        woken = asyncio.Event()
        subscriber.wake = woken.set
        try:
            await session.send_notification(_acknowledgement(asked, meta), related_request_id=id_)
            while True:
                woken.clear()
                for event in subscriber.take():
                    await session.send_notification(_notification(event, meta), id_)
                if subscriber.ended:
                    break
                await woken.wait()
        finally:
            subscriber.close()
        return {"_meta": meta, "resultType": "complete"}

    async def subscribe(self, context: Context, params: types.SubscribeRequestParams) -> Json:
        """``resources/subscribe``."""
        actor = self._actor_of(context)
        refused = self._subscriptions.refuse(actor, params.uri)
        if refused is None:
            channel = self._subscriptions.legacy_channel(connection_of(context), actor)
            refused = channel if isinstance(channel, Failure) else channel.add(params.uri)
        if refused is not None:
            raise _error(refused, context)
        return {}

    async def unsubscribe(self, context: Context, params: types.UnsubscribeRequestParams) -> Json:
        """``resources/unsubscribe``."""
        channel = connection_of(context).state.get(_CHANNEL)
        if channel is not None:
            channel.remove(params.uri)
        return {}

    async def initialized(self, context: Context, params: types.NotificationParams) -> None:
        """``notifications/initialized``: start to notify the connection of changed lists."""
        del params
        connection = connection_of(context)
        if connection.has_standalone_channel and context.protocol_version in LEGACY:
            self._subscriptions.legacy_channel(connection, self._actor_of(context))

    async def refuse_without_session(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """The error for ``resources/subscribe`` without sessions.

        If the URI can't be watched at all, the error says so: another transport would not help.
        """
        if ctx.method not in _LEGACY_METHODS or ctx.protocol_version not in LEGACY:
            return await call_next(ctx)
        uri = (ctx.params or {}).get("uri")
        if ctx.method == "resources/subscribe" and isinstance(uri, str):
            refused = self._subscriptions.refuse(self._actor_of(ctx), uri)
            if refused is not None:
                raise _error(refused, ctx)
        raise MCPError(METHOD_NOT_FOUND, _NO_SESSION, {"method": ctx.method})


class LegacyChannel:
    """The notification channel of a connection of an older revision."""

    def __init__(self, connection: Connection, subscriber: Subscriber, *, ready: bool) -> None:
        self._connection = connection
        self._subscriber = subscriber
        self._uris: dict[str, None] = {}
        self._unsent: dict[Event, None] = {}
        self._sending: asyncio.Task[None] | None = None
        self._ready = ready
        self._interrupted = False
        subscriber.wake = self._wake

    @property
    def actor(self) -> Actor:
        """The actor that subscribed."""
        return self._subscriber.actor

    def add(self, uri: str) -> Failure | None:
        """Watch another URI."""
        refused = self._subscriber.add(uri)
        if refused is None:
            self._uris[uri] = None
        return refused

    def remove(self, uri: str) -> None:
        """Stop watching a URI."""
        self._subscriber.remove(uri)
        self._uris.pop(uri, None)
        self._unsent.pop(Event(UPDATED, uri), None)

    def interrupt(self) -> None:
        """The channel was closed; the last notifications may be lost."""
        self._ready, self._interrupted = False, True

    def resume(self) -> None:
        """The channel is open again; send notifications again that may be lost."""
        if self._interrupted:
            self._unsent.update(dict.fromkeys(map(Event, _EVENTS)))
            self._unsent.update(dict.fromkeys(Event(UPDATED, uri) for uri in self._uris))
        self._ready, self._interrupted = True, False
        self._wake()

    def close(self) -> None:
        """End with the connection."""
        self._subscriber.close()
        if self._sending is not None:
            self._sending.cancel()

    def _end(self) -> None:
        """End because the credential is no longer valid; the connection may subscribe again."""
        self._ready = False
        self._unsent.clear()
        self._connection.state.pop(_CHANNEL, None)
        self.close()

    def _wake(self) -> None:
        if self._subscriber.ended:
            self._end()
        elif self._ready and self._sending is None:
            self._sending = asyncio.ensure_future(self._send_due())

    async def _send_due(self) -> None:
        try:
            while self._ready:
                self._unsent.update(dict.fromkeys(self._subscriber.take()))
                if not self._unsent:
                    return
                event = next(iter(self._unsent))
                params = None if event.uri is None else {"uri": event.uri}
                await self._connection.notify(event.method, params)
                self._unsent.pop(event, None)
        finally:
            self._sending = None


# --- what is sent -----------------------------------------------------------------------------


def _acknowledgement(asked: Asked, meta: Json) -> types.SubscriptionsAcknowledgedNotification:
    """The first message of a stream: which notifications will be sent."""
    return types.SubscriptionsAcknowledgedNotification(
        params=types.SubscriptionsAcknowledgedNotificationParams(
            notifications=types.SubscriptionFilter.model_validate(honoured(asked)), _meta=meta
        )
    )


def honoured(asked: Asked) -> Json:
    """The granted subjects, as the acknowledgement lists them."""
    shown: Json = {}
    if asked.tools:
        shown["toolsListChanged"] = True
    if asked.resources:
        shown["resourcesListChanged"] = True
    if asked.uris:
        shown["resourceSubscriptions"] = list(asked.uris)
    return shown


def _notification(event: Event, meta: Json) -> types.ServerNotification:
    return event_to_notification(
        _EVENTS.get(event.method) or ResourceUpdated(event.uri or ""), meta
    )


def connection_of(context: Context) -> Connection:
    """The connection of a request; the SDK has no public name for it."""
    return context.session._connection  # noqa: SLF001 - see above; a guard test pins it


def _error(failure: Failure, context: Context) -> MCPError:
    mapped = map_failure(failure, context.protocol_version, "protocol", "resource")
    assert not isinstance(mapped, ErrorResult)  # noqa: S101 - subscribing has no isError
    return MCPError(mapped.code, mapped.message, mapped.data)


KEEPALIVE_SECONDS: Final = 15.0
"""Seconds of silence after which a proxy might cut a stream."""

_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]
_PING: Final = b": ping\r\n\r\n"
_MARK: Final = "\x00"
"""The placeholder for the id of a subscription."""

_log = logging.getLogger(__name__)


class ListenStreams:
    """Opens listen streams of one endpoint."""

    def __init__(self, subscriptions: Subscriptions, server: Server[Any]) -> None:
        self._subscriptions = subscriptions
        self._server = server

    def open(self, ticket: Ticket, actor: Actor) -> Stream | None:
        """A stream for an admitted request; None if the SDK has to answer with an error."""
        wanted = ticket.arguments
        try:
            asked = self._subscriptions.honour(
                actor,
                wanted["resourceSubscriptions"] or (),
                tools=wanted["toolsListChanged"] is True,
                resources=wanted["resourcesListChanged"] is True,
            )
            if isinstance(asked, Failure):
                return None
            subscriber = self._subscriptions.open(actor, asked)
        except Exception:  # noqa: BLE001 - the SDK answers, and fails in the same way
            _log.warning(
                "could not open a listen stream; the SDK answers",
                exc_info=True,
                extra={"event": "stream.failed"},
            )
            return None
        if isinstance(subscriber, Failure):
            return None
        return Stream(self._server, ticket, asked, subscriber)


class Stream:
    """One listen stream."""

    __slots__ = (
        "_asked",
        "_beat",
        "_busy",
        "_done",
        "_send",
        "_sending",
        "_sent_at",
        "_server",
        "_subscriber",
        "_ticket",
    )

    def __init__(
        self, server: Server[Any], ticket: Ticket, asked: Asked, subscriber: Subscriber
    ) -> None:
        self._server = server
        self._ticket = ticket
        self._asked = asked
        self._subscriber = subscriber
        self._send: Send
        self._sending: asyncio.Future[None] | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._sent_at = 0.0
        self._busy = False
        self._done = False

    async def serve(self, receive: Receive, send: Send) -> None:
        """Acknowledge, then notify until the client disconnects or the subscriber ends."""
        self._send = send
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._write(_acknowledge(self._ticket.id, self._asked))
            self._subscriber.wake = self._wake
            self._wake()
            self._keep_alive()
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            self._done = True
            self._subscriber.close()
            if self._beat is not None:
                self._beat.cancel()
            if self._sending is not None:
                self._sending.cancel()

    def _wake(self, *, ping: bool = False) -> None:
        """Send at once; if the connection is full, continue in a task."""
        if self._busy or self._done:
            return
        self._busy = True
        started = StartedCoroutine(self._send_due(ping=ping))
        if not started.done:
            self._sending = asyncio.ensure_future(started.rest())

    async def _send_due(self, *, ping: bool) -> None:
        try:
            if ping:
                await self._write(_PING)
            while due := self._subscriber.take():
                await self._write(b"".join([_frame(event, self._ticket.id) for event in due]))
            if self._subscriber.ended:
                self._done = True
                await self._write(self._finish(), more=False)
        except OSError:  # ``receive`` reports the disconnect
            self._done = True
            _log.debug("the connection of a listen stream broke", exc_info=True)
        except Exception:  # noqa: BLE001 - logged; the stream ends with its client
            self._done = True
            _log.exception("a listen stream failed", extra={"event": "stream.failed"})
        finally:
            self._busy = False
            self._sending = None

    async def _write(self, body: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
        self._sent_at = asyncio.get_running_loop().time()

    def _keep_alive(self) -> None:
        """Send a comment if nothing was sent for a while."""
        loop = asyncio.get_running_loop()
        left = self._sent_at + KEEPALIVE_SECONDS - loop.time()
        if left <= 0:
            left = KEEPALIVE_SECONDS
            self._wake(ping=True)
        self._beat = loop.call_later(left, self._keep_alive)

    def _finish(self) -> bytes:
        ticket = self._ticket
        meta = {SUBSCRIPTION_ID_META_KEY: ticket.id}
        result = {"_meta": meta, "resultType": "complete"}
        shaped = shape(self._server, ticket.method, ticket.revision, result)
        return _event({"jsonrpc": "2.0", "id": ticket.id, "result": shaped})


def _acknowledge(id_: int | str, asked: Asked) -> bytes:
    params = {"_meta": {SUBSCRIPTION_ID_META_KEY: id_}, "notifications": honoured(asked)}
    method = "notifications/subscriptions/acknowledged"
    return _event({"jsonrpc": "2.0", "method": method, "params": params})


def _frame(event: Event, id_: int | str) -> bytes:
    before, after = _parts(event)
    return b"%b%b%b" % (before, json.dumps(id_).encode(), after)


@lru_cache(maxsize=1024)
def _parts(event: Event) -> tuple[bytes, bytes]:
    """The bytes before and after the id of the subscription."""
    params: Json = {"_meta": {SUBSCRIPTION_ID_META_KEY: _MARK}}
    if event.uri is not None:
        params["uri"] = event.uri
    whole = _event({"jsonrpc": "2.0", "method": event.method, "params": params})
    before, _, after = whole.partition(json.dumps(_MARK).encode())
    return before, after


def _event(message: Json) -> bytes:
    """A message as the SDK frames it: JSON in ASCII."""
    return f"event: message\r\ndata: {json.dumps(message, separators=(',', ':'))}\r\n\r\n".encode()
