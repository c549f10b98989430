"""``subscriptions/listen`` over HTTP, for many subscribers at once.

The stream is written here: notifications are spliced from encoded parts, of which only
the subscription's id differs between subscribers. An idle subscriber is one task that
waits for its client to leave; who is due something gets a task for as long as it takes.
The frames are, byte for byte, those that the SDK would send.
"""

from __future__ import annotations

import asyncio
import json
from functools import lru_cache
from typing import Final

from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from starlette.types import Receive, Send

from trails.surfaces.mcp.subscribers import Asked, Event, Subscriber
from trails.surfaces.mcp.subscriptions import honoured
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


class Stream:
    """One listen stream."""

    __slots__ = ("_beat", "_id", "_result", "_send", "_sent_at", "_subscriber", "_telling")

    def __init__(self, subscriber: Subscriber, id_: int | str, result: Json, send: Send) -> None:
        """``result`` is what the stream ends with, but for the id of the subscription."""
        self._subscriber = subscriber
        self._id = id_
        self._result = result
        self._send = send
        self._telling: asyncio.Task[None] | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._sent_at = 0.0

    async def serve(self, asked: Asked, receive: Receive) -> None:
        """Acknowledge, then tell until the client leaves or the subscriber ends."""
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._write(_acknowledge(self._id, asked))
            self._subscriber.wake = self._wake
            self._wake()
            self._keep_alive()
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            self._subscriber.close()
            if self._beat is not None:
                self._beat.cancel()
            if self._telling is not None:
                self._telling.cancel()

    def _wake(self) -> None:
        if self._telling is None:
            self._telling = asyncio.ensure_future(self._tell())

    async def _tell(self) -> None:
        try:
            while due := self._subscriber.take():
                await self._write(b"".join([_frame(event, self._id) for event in due]))
            if self._subscriber.ended:
                await self._write(_finish(self._id, self._result), more=False)
        finally:
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
            if self._telling is None:
                self._telling = asyncio.ensure_future(self._ping())
        self._beat = loop.call_later(left, self._keep_alive)

    async def _ping(self) -> None:
        try:
            await self._write(_PING)
        finally:
            self._telling = None
        self._wake()  # what became due meanwhile did not wake anybody


def _acknowledge(id_: int | str, asked: Asked) -> bytes:
    params = {"_meta": {SUBSCRIPTION_ID_META_KEY: id_}, "notifications": honoured(asked)}
    method = "notifications/subscriptions/acknowledged"
    return _event({"jsonrpc": "2.0", "method": method, "params": params})


def _finish(id_: int | str, result: Json) -> bytes:
    meta = {SUBSCRIPTION_ID_META_KEY: id_, **result["_meta"]}
    return _event({"jsonrpc": "2.0", "id": id_, "result": {**result, "_meta": meta}})


def _frame(event: Event, id_: int | str) -> bytes:
    before, after = _parts(event)
    return b"%b%b%b" % (before, _encode(id_), after)


@lru_cache(maxsize=4096)
def _parts(event: Event) -> tuple[bytes, bytes]:
    """What stands around the id of the subscription."""
    params: Json = {"_meta": {SUBSCRIPTION_ID_META_KEY: _MARK}}
    if event.uri is not None:
        params["uri"] = event.uri
    whole = _event({"jsonrpc": "2.0", "method": event.method, "params": params})
    before, _, after = whole.partition(_encode(_MARK))
    return before, after


@lru_cache(maxsize=4096)
def _encode(id_: int | str) -> bytes:
    return json.dumps(id_).encode()


def _event(message: Json) -> bytes:
    """A message as the SDK frames it: JSON in ASCII."""
    return f"event: message\r\ndata: {json.dumps(message, separators=(',', ':'))}\r\n\r\n".encode()
