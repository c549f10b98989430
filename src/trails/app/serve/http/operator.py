"""Upkeep of a project while it is served: for the operator, on the owner's own socket alone.

A request is ``POST /operator/<operation>`` with the arguments as JSON. The answer is a stream of
JSON lines: ``{"progress": text}`` while it goes on, then ``{"done": result}`` or ``{"error": …}``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from threading import Thread
from typing import TYPE_CHECKING, Final

import msgspec

from trails.app.app import App
from trails.app.serve.http.responses import JsonReply, error_body
from trails.app.upkeep import UpkeepOperation, find_operation
from trails.errors import TrailsError
from trails.request.failures import failure_of, plain_data

if TYPE_CHECKING:
    from starlette.types import Receive, Send

OPERATOR_PATH: Final = "operator"
_LARGEST: Final = 1 << 16
_LINES: Final = (b"content-type", b"application/x-ndjson")


class OperatorInterface:
    """Carries out operations on an app, each in a thread of its own."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def answer(self, name: str, receive: Receive, send: Send) -> None:
        """Answer one request; the caller knows that the operator sent it."""
        operation = find_operation(name)
        if operation is None:
            message = f"there is no operation {name[:100]!r}"
            await JsonReply(404, error_body("not_found", message)).send(send)
            return
        try:
            given = msgspec.json.decode(await _body(receive), type=operation.takes)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            await JsonReply(400, error_body("bad_request", str(error))).send(send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [_LINES]})
        async for line in self._lines(operation, given):
            await send({"type": "http.response.body", "body": line + b"\n", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _lines(
        self, operation: UpkeepOperation[msgspec.Struct, object], given: msgspec.Struct
    ) -> AsyncIterator[bytes]:
        """Its progress, line by line, and its result."""
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()

        def put(line: object) -> None:
            encoded = None if line is None else msgspec.json.encode(line)
            try:
                loop.call_soon_threadsafe(lines.put_nowait, encoded)
            except RuntimeError:
                return  # the loop has ended, and its clients with it

        def work() -> None:
            try:
                done = operation.run(self._app, given, lambda text: put({"progress": text}))
                put({"done": done})
            except BaseException as error:  # noqa: BLE001 - the client gets it
                put({"error": _describe(error, operation.name)})
            put(None)

        # It ends with the process; what it had not finished then is as after a kill.
        Thread(target=work, name=f"trails-{operation.name}", daemon=True).start()
        while (line := await lines.get()) is not None:
            yield line


def _describe(error: BaseException, name: str) -> dict[str, object]:
    """An error in full, since the operator may know the state of the disk."""
    if isinstance(error, TrailsError):
        return {"code": error.code, "message": error.message, "data": plain_data(error.data)}
    failure = failure_of(error, name)
    return {"code": failure.code, "message": failure.message, "data": failure.data}


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body") or len(body) > _LARGEST:
            return bytes(body)
