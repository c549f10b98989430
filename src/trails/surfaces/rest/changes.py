"""``/changes``: the change feed as server-sent events, or as JSON that waits for changes.

A stream sends one ``change`` for each commit, whose ``id`` is the commit, so a client that
reconnects with ``Last-Event-ID`` loses nothing and gets nothing twice. Nothing is read from the log
before the client has taken what was sent. The last event is ``end``: a problem (RFC 9457) that says
why the server ended the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trails.model.results import Failure
from trails.projections.problems import project_problem
from trails.surfaces.rest.backend import EventReader
from trails.surfaces.rest.negotiation import Representation, choose_form
from trails.surfaces.rest.query_strings import query_arguments
from trails.surfaces.rest.replies import JSON, Refused, refused, reply, status_of
from trails.surfaces.rest.routing import RestCall

CHANGES: Final = ("changes", "branches/{branch}/changes")
"""The routes that are served here."""
HEARTBEAT: Final = 15.0
"""Seconds of silence after which a proxy might cut a stream."""
_STREAM: Final = "text/event-stream"
_FORMS: Final = (Representation("json", JSON), Representation("stream", _STREAM))
_HEADERS: Final = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
_UNCACHED: Final = {"Cache-Control": "no-store", "Vary": "Accept"}
_RETRY: Final = 2000
"""Milliseconds after which a browser reconnects."""


async def changes(call: RestCall) -> Response:
    """A page of changes as JSON, or the changes from now on as a stream."""
    wanted = choose_form(call.request, _FORMS)
    given = query_arguments(call, lists=("type",), numbers=("limit", "wait"))
    if "branch" in call.request.path_params:
        given["branch"] = call.part("branch")
    feed = call.backend.changes
    if wanted.name == "json":
        response = reply(await feed.poll(call.actor, given))
        response.headers.update(_UNCACHED)
        return response
    if "wait" in given:
        raise refused("query_string", "a stream always waits; leave out wait, or accept JSON")
    last = call.request.headers.get("last-event-id")
    if last is not None:  # newer than the address, which a browser repeats as it was
        given["since"] = last
    stream = await feed.open(call.actor, given)
    if isinstance(stream, Failure):
        raise Refused(stream)
    return EventStream(stream)


class EventStream(Response):
    """A change stream as server-sent events."""

    media_type = _STREAM

    def __init__(self, stream: EventReader) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client disconnects or the stream ends."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        sending: asyncio.Task[None] | None = None
        try:
            await send(start)
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
                return
            sending = asyncio.create_task(self._send(send))
            leaving = asyncio.create_task(_disconnected(receive))
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            if sending.done():
                sending.result()
        finally:
            if sending is not None:
                sending.cancel()
            self._stream.close()

    async def _send(self, send: Send) -> None:
        async for block in self._blocks():
            await send({"type": "http.response.body", "body": block, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _blocks(self) -> AsyncGenerator[bytes, None]:
        """The text of the stream; the id of a heartbeat is where a client can continue."""
        sent = self._stream.position
        yield f"retry: {_RETRY}\nid: {sent}\n\n".encode()
        while True:
            page = await self._stream.next(HEARTBEAT)
            if isinstance(page, Failure):
                yield _event("end", _problem(page))
                return
            if page is not None:
                for event in page.events:
                    sent = event.commit
                    yield _event("change", msgspec.json.encode(event), sent)
            elif sent != self._stream.position:
                sent = self._stream.position
                yield f"id: {sent}\n\n".encode()
            else:
                yield b": ping\n\n"


def _event(name: str, data: bytes, commit: str | None = None) -> bytes:
    """JSON has no line ends, so the data is one line."""
    at = b"" if commit is None else b"id: %b\n" % commit.encode()
    return b"%bevent: %b\ndata: %b\n\n" % (at, name.encode(), data)


def _problem(failure: Failure) -> bytes:
    return project_problem(status_of(failure), failure.code, failure.message, failure.data)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
