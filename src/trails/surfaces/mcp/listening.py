"""``subscriptions/listen`` over HTTP, for many subscribers at once.

The stream is written here: notifications are spliced from encoded parts, of which only
the subscription's id differs between subscribers. An idle subscriber is one task that
waits for its client to leave. Telling it takes no task unless its connection is full; then
it waits for that alone, and what becomes due meanwhile is told once. The frames are, byte
for byte, those that the SDK would send.
"""

from __future__ import annotations

import asyncio
import json
import logging
from functools import lru_cache
from typing import Any, Final

from mcp.server.lowlevel import Server
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from starlette.types import Receive, Send

from trails.model.actors import Actor
from trails.model.outcomes import Failure
from trails.surfaces.mcp.envelopes import Ticket
from trails.surfaces.mcp.splices import shape
from trails.surfaces.mcp.steps import Begun
from trails.surfaces.mcp.subscribers import Asked, Event, Subscriber
from trails.surfaces.mcp.subscriptions import Subscriptions, honoured
from trails.surfaces.mcp.wire import Json

KEEPALIVE_SECONDS: Final = 15.0
"""A stream that says nothing for so long may be cut by a proxy."""

_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]
_PING: Final = b": ping\r\n\r\n"
_MARK: Final = "\x00"
"""Where the id of a subscription is put in."""

_log = logging.getLogger(__name__)


class Listening:
    """Opens listen streams of one endpoint."""

    def __init__(self, subscriptions: Subscriptions, server: Server[Any]) -> None:
        self._subscriptions = subscriptions
        self._server = server

    def open(self, ticket: Ticket, actor: Actor) -> Stream | None:
        """A stream for an admitted request; None where the other door has to say why not."""
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
        except Exception:  # noqa: BLE001 - the other door meets it again, and says it
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
        "_sent_at",
        "_server",
        "_subscriber",
        "_telling",
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
        self._telling: asyncio.Future[None] | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._sent_at = 0.0
        self._busy = False
        self._done = False

    async def serve(self, receive: Receive, send: Send) -> None:
        """Acknowledge, then tell until the client leaves or the subscriber ends."""
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
            if self._telling is not None:
                self._telling.cancel()

    def _wake(self, *, ping: bool = False) -> None:
        """Tell at once; what a full connection holds up goes on in a task."""
        if self._busy or self._done:
            return
        self._busy = True
        begun = Begun(self._tell(ping=ping))
        if not begun.done:
            self._telling = asyncio.ensure_future(begun.rest())

    async def _tell(self, *, ping: bool) -> None:
        try:
            if ping:
                await self._write(_PING)
            while due := self._subscriber.take():
                await self._write(b"".join([_frame(event, self._ticket.id) for event in due]))
            if self._subscriber.ended:
                self._done = True
                await self._write(self._finish(), more=False)
        except Exception:  # noqa: BLE001 - a broken connection is told by ``receive``
            self._done = True
            _log.debug("a listen stream broke", exc_info=True)
        finally:
            self._busy = False
            self._telling = None

    async def _write(self, body: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
        self._sent_at = asyncio.get_running_loop().time()

    def _keep_alive(self) -> None:
        """Say something when nothing was said for long."""
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
    """What stands around the id of the subscription."""
    params: Json = {"_meta": {SUBSCRIPTION_ID_META_KEY: _MARK}}
    if event.uri is not None:
        params["uri"] = event.uri
    whole = _event({"jsonrpc": "2.0", "method": event.method, "params": params})
    before, _, after = whole.partition(json.dumps(_MARK).encode())
    return before, after


def _event(message: Json) -> bytes:
    """A message as the SDK frames it: JSON in ASCII."""
    return f"event: message\r\ndata: {json.dumps(message, separators=(',', ':'))}\r\n\r\n".encode()
