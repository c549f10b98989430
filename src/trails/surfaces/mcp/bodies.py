"""Read request bodies within limits of size, time and depth, and cancel work on disconnect.

The fast path and the SDK get the same JSON: what msgspec rejects (invalid UTF-8, lone surrogates,
NaN, numbers out of range) is refused here, because the SDK's parsers differ between revisions.

Most bodies and calls complete without waiting. So a coroutine is started by hand, and a watcher
or deadline is set up only if it has to wait. It stays in its task, so timeouts and cancellation
inside it work as usual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from types import coroutine
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from mcp_types.jsonrpc import (
    INVALID_REQUEST,
    PARSE_ERROR,
    JSONRPCMessage,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from starlette.types import Message, Receive

from trails.model.fairness import give_way_after
from trails.model.texts import (
    MAX_DEPTH,
    TOO_DEEP,
    Body,
    JsonTooLargeError,
    add_block,
    describe_json_error,
    scan_json,
)

T = TypeVar("T")


class StartedCoroutine(Generic[T]):
    """A coroutine after its first step."""

    __slots__ = ("_waits_for", "_work", "done", "value")

    value: T
    """The result, once ``done``."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        try:
            self._waits_for = work.send(None)
        except StopIteration as end:
            self.done = True
            self.value = end.value
        else:
            self.done = False
            self._work = work

    def rest(self) -> Awaitable[T]:
        """Wait for what is left; must be awaited next in the same task."""
        return _go_on(self._work, self._waits_for)


@coroutine
def _go_on(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:  # noqa: ANN401 -- whatever the event loop takes
    """Forward what a coroutine awaits, and the results."""
    while True:
        try:
            given = yield waits_for
        except BaseException as error:  # noqa: BLE001 -- thrown into the coroutine, which handles or raises it
            try:
                waits_for = work.throw(error)
            except StopIteration as end:
                value: T = end.value
                return value
        else:
            try:
                waits_for = work.send(given)
            except StopIteration as end:
                value = end.value
                return value


class ClientDisconnected(Exception):  # noqa: N818 -- not an error: there is no client to answer
    """The client disconnected."""


async def run_until_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do the work in this task; a disconnect cancels it and raises."""
    started = StartedCoroutine(work)
    if started.done:
        return started.value
    task = asyncio.current_task()
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        if task is not None:
            task.cancel()

    watcher = asyncio.ensure_future(watch())
    try:
        return await started.rest()
    except asyncio.CancelledError:
        if not gone or task is None:
            raise
        task.uncancel()
        raise ClientDisconnected from None
    finally:
        watcher.cancel()


BODY_SECONDS: Final = 30.0
"""How long a body may take to arrive."""

_SDK_PARTS: Final = 25_000
"""Arrays, objects and members of a large message that the SDK reads: it takes ten times as long."""


class BodyError(Exception):
    """A body that is refused, with its HTTP status."""

    def __init__(self, status: int, message: str, code: int = INVALID_REQUEST) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


async def read_body(receive: Receive, limit: int) -> Body:
    """Read a body whole; it is usually there when the request is."""
    first = StartedCoroutine(cast(Coroutine[Any, Any, Message], receive()))
    if first.done and not first.value.get("more_body", False):
        return _part(first.value, limit)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            message = first.value if first.done else await first.rest()
            return await _collect(message, receive, limit)
    except TimeoutError:
        raise BodyError(
            408, f"the body did not arrive within {BODY_SECONDS:g} s; send it again"
        ) from None


async def _collect(message: Message, receive: Receive, limit: int) -> Body:
    """Put the parts together that follow a first one."""
    body: Body = _part(message, limit)
    while message.get("more_body", False):
        message = await receive()
        part = _part(message, limit - len(body))
        body = add_block(body, part)
        await give_way_after(len(body), len(part))
    return body


def _part(message: Message, limit: int) -> bytes:
    if message["type"] != "http.request":
        raise ClientDisconnected
    part: bytes = message.get("body", b"")
    if len(part) > limit:
        raise BodyError(413, "the body is too large; split it into smaller requests")
    return part


class Replay:
    """A ``receive`` that gives a body again."""

    def __init__(self, body: Body, receive: Receive) -> None:
        self._body: Body | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        """The whole body, then further messages."""
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": bytes(body), "more_body": False}


def check_large(body: Body) -> int:
    """Refuse a large body that would take too long to parse; not on the event loop.

    How many arrays, objects and members it has.
    """
    try:
        return scan_json(body)
    except JsonTooLargeError as error:
        raise BodyError(413, f"the body is too large: {error}") from None
    except ValueError as error:
        raise BodyError(400, f"the body is not valid JSON: {error}", PARSE_ERROR) from None


def check_for_sdk(parts: int) -> None:
    """Refuse what the SDK would take too long to parse, which it does on the event loop."""
    if parts > _SDK_PARTS:
        raise BodyError(
            413,
            f"the body is too large: a message of this kind can have {_SDK_PARTS:,} arrays, "
            "objects and members; split it, or load the data as a file",
        )


def parse_body(body: Body, *, is_scanned: bool = False) -> object:
    """The JSON value of a body; one that was scanned is not too deep."""
    try:
        return parse(body, is_scanned=is_scanned)
    except ValueError as error:
        raise BodyError(400, f"the body is not valid JSON: {error}", PARSE_ERROR) from None


def check_shape(value: object) -> None:
    """Refuse what is not one message; the SDK would quote its validator to older clients."""
    if understand(value) is None:
        raise BodyError(400, "the body must be one JSON-RPC request or notification")


def understand(value: object) -> JSONRPCMessage | None:
    """The message that a value is; one with an id and a method is a request or nothing."""
    is_request = isinstance(value, dict) and "id" in value and "method" in value
    try:
        if is_request:
            return JSONRPCRequest.model_validate(value, by_name=False)
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValidationError:
        return None


def parse(body: Body, *, is_scanned: bool = False) -> object:
    """The JSON value of a body; ``ValueError`` says what is wrong with it."""
    try:
        value: object = msgspec.json.decode(body)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except msgspec.DecodeError as error:
        raise ValueError(describe_json_error(body, error)) from None
    if not is_scanned and may_be_deep(body) and is_deep(value):
        raise ValueError(TOO_DEEP)
    return value


def may_be_deep(body: Body) -> bool:
    """Whether there is any need to look: a cheap bound, from the brackets alone."""
    return body.count(b"[") + body.count(b"{") > MAX_DEPTH


def is_deep(value: object) -> bool:
    """Whether arrays and objects nest deeper than is taken."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return any(isinstance(one, dict | list) for one in level)
