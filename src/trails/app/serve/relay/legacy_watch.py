"""The notifications of a client of an older revision, from one stream of the newest one.

Subscriptions of older revisions belong to a session, which the endpoint of a server does not keep.
So there is one ``subscriptions/listen`` for all that such a client watches, and another one in its
place whenever the client subscribes to more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final

import msgspec

from trails.app.serve.relay.frames import Frame, Id, Message, notification, read_frame, read_params
from trails.app.serve.relay.repeats import ACKNOWLEDGED, LISTEN, REVISION, UPDATED, decode_error

LATEST: Final = "2026-07-28"
"""The revision of the stream."""
_METHOD_NOT_FOUND: Final = -32601


class LegacyWatch:
    """What one client watches."""

    def __init__(
        self,
        follow: Callable[[Message], AsyncGenerator[bytes, None]],
        write: Callable[[bytes], Awaitable[None]],
        report: Callable[[str], None],
    ) -> None:
        """``follow`` opens a stream, ``write`` sends a message to the client."""
        self._follow = follow
        self._write = write
        self._report = report
        self._uris: set[str] = set()
        self._turn = asyncio.Lock()
        self._number = 0
        self._task: asyncio.Task[None] | None = None
        self.group: asyncio.TaskGroup
        """The tasks of the front."""

    def begin(self) -> None:
        """Notify of changed lists from now on."""
        if self._task is None:
            self._task, _ = self._open()

    def end(self) -> None:
        """Stop notifying."""
        if self._task is not None:
            self._task.cancel()

    async def subscribe(self, message: Message, checked: bytes) -> bytes:
        """Answer ``resources/subscribe``.

        ``checked`` is what the endpoint answers: why the URI can't be watched, or else that it
        keeps no sessions.
        """
        failed, uri = decode_error(checked), message.params.uri
        if failed is None or failed.code != _METHOD_NOT_FOUND:
            return checked
        async with self._turn:
            is_new = uri not in self._uris
            self._uris.add(uri)
            task, opened = self._open()
            refused: bytes | None = None
            try:
                refused = await opened
            finally:
                if refused == b"":
                    # The old stream ends when the new one is open, so that no change is missed.
                    self.end()
                    self._task = task
                else:
                    task.cancel()
                    if is_new:
                        self._uris.discard(uri)
        return _readdress(refused, message.frame.id) if refused else empty_result(message.frame.id)

    def unsubscribe(self, message: Message) -> bytes:
        """Answer ``resources/unsubscribe``; the stream itself changes with the next one."""
        self._uris.discard(message.params.uri)
        return empty_result(message.frame.id)

    def _open(self) -> tuple[asyncio.Task[None], asyncio.Future[bytes]]:
        """Open a stream; its future is empty once it is open, or the error that refuses it."""
        opened: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        return self.group.create_task(self._pass_on(self._request(), opened)), opened

    def _request(self) -> Message:
        self._number += 1
        wanted: dict[str, object] = {"toolsListChanged": True, "resourcesListChanged": True}
        if self._uris:
            wanted["resourceSubscriptions"] = sorted(self._uris)
        meta = {
            REVISION: LATEST,
            "io.modelcontextprotocol/clientInfo": {"name": "trails", "version": LATEST},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"notifications": wanted, "_meta": meta}
        request = {"jsonrpc": "2.0", "id": self._number, "method": LISTEN, "params": params}
        return Message.read(msgspec.json.encode(request))

    async def _pass_on(self, request: Message, opened: asyncio.Future[bytes]) -> None:
        """Send the notifications of a stream to the client."""
        async with aclosing(self._follow(request)) as messages:
            async for line in messages:
                frame = read_frame(line) or Frame()
                if frame.answers is not None:
                    self._refuse(line, opened)
                elif frame.method != ACKNOWLEDGED:
                    await self._notify(frame)
                elif not opened.done():
                    opened.set_result(b"")

    def _refuse(self, line: bytes, opened: asyncio.Future[bytes]) -> None:
        if not opened.done():
            opened.set_result(line)
        failed = decode_error(line)
        if failed is not None:
            self._report(f"no notifications: {failed.message}")

    async def _notify(self, frame: Frame) -> None:
        uri = read_params(frame).uri
        if frame.method != UPDATED:
            await self._write(notification(frame.method or "", {}))
        elif uri in self._uris:
            await self._write(notification(UPDATED, {"uri": uri}))


def _readdress(answer: bytes, id: Id | None) -> bytes:
    """Return an answer as that to another request."""
    found = msgspec.json.decode(answer, type=dict[str, object])
    return msgspec.json.encode({**found, "id": id})


def empty_result(id: Id | None) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "result": {}})
