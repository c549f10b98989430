"""Streams end with the credentials that opened them.

A stream is opened once and lasts, so whoever opened it is asked about again, every second. What
is due to somebody who is not current any more is not told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

from starlette.types import Message, Receive, Scope, Send

from trails.model.actors import Actor
from trails.surfaces.mcp.callers import IsCurrent, caller_of

PAUSE: Final = 1.0
"""Seconds between two looks."""


class Lasting(Protocol):
    """Something that goes on for its actors."""

    def actors(self) -> set[Actor]:
        """For whom."""

    def end_those_of(self, actors: set[Actor]) -> None:
        """Stop it for some of them."""


async def sweep(is_current: IsCurrent, *kinds: Lasting) -> None:
    """Stop what goes on for actors that are not current any more, until cancelled."""
    while True:
        await asyncio.sleep(PAUSE)
        for each in kinds:
            end_stale(each, is_current)


def end_stale(kind: Lasting, is_current: IsCurrent) -> None:
    """Stop what goes on for actors that are not current any more."""
    stale = {actor for actor in kind.actors() if not is_current(actor)}
    if stale:
        kind.end_those_of(stale)


class OpenResponses:
    """Responses of an endpoint that last."""

    def __init__(self) -> None:
        self._open: dict[LastingResponse, None] = {}

    @asynccontextmanager
    async def lasting(
        self, scope: Scope, receive: Receive, send: Send
    ) -> AsyncIterator[LastingResponse]:
        """While a response lasts."""
        response = LastingResponse(caller_of(scope), receive, send)
        self._open[response] = None
        try:
            yield response
        finally:
            del self._open[response]
            await response.finish()

    def actors(self) -> set[Actor]:
        """Who has one."""
        return {each.actor for each in self._open}

    def end_those_of(self, actors: set[Actor]) -> None:
        """End the responses to some actors."""
        for each in self._open:
            if each.actor in actors:
                each.end()


class LastingResponse:
    """A response that can be ended from outside: its maker hears that the client has left."""

    def __init__(self, actor: Actor, receive: Receive, send: Send) -> None:
        self.actor = actor
        self._receive = receive
        self._send = send
        self._ended = asyncio.Event()
        self._unfinished = False

    def end(self) -> None:
        """Say nothing more."""
        self._ended.set()

    async def receive(self) -> Message:
        """What the client sends, or that it is over."""
        asked = asyncio.ensure_future(self._receive())
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({asked, ended}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done() and not self._ended.is_set():
                return asked.result()
            return {"type": "http.disconnect"}
        finally:
            asked.cancel()
            ended.cancel()

    async def send(self, message: Message) -> None:
        """Pass on what is said until the end."""
        if message["type"] == "http.response.start":
            self._unfinished = True
        elif self._ended.is_set():
            return
        else:
            self._unfinished = message.get("more_body", False)
        await self._send(message)

    async def finish(self) -> None:
        """Close a response that was ended in the middle."""
        if self._ended.is_set() and self._unfinished:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
