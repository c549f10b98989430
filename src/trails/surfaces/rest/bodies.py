"""Read request bodies: limits of size and time, content types, JSON objects, stray tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from trails.model.actors import MISPLACED, PRESENTED_KEY, Secret, holds_token, may_hide
from trails.model.fairness import LargeBodies, give_way_after, is_large
from trails.model.texts import (
    TOO_DEEP,
    Body,
    JsonTooLargeError,
    add_block,
    describe_json_error,
    scan_json,
)
from trails.surfaces.rest.replies import JSON, Refused, refused
from trails.surfaces.rest.routing import RestCall

T = TypeVar("T")
_SECONDS: Final = 30.0
"""How long a body that is read as a whole may take to arrive."""
_LONGEST: Final = 16 << 10
"""Bytes of a token that is found although it begins in one block and ends in another."""


async def read_object(call: RestCall) -> dict[str, object]:
    """A JSON object; no body at all is an empty one."""
    request = call.request
    body = await _read_body(request)
    media = media_type(request)
    if not body and not media:
        return {}
    if not is_json(media):
        raise wrong_type(media, JSON)
    presented = presented_with(request)
    if not is_large(body):
        return decode_object(body, presented)
    return await _run_large(call, _decode_large, body, presented)


async def _run_large(
    call: RestCall, work: Callable[[Body, Secret | None], T], body: Body, presented: Secret | None
) -> T:
    """Read a large body in a thread; its sender is admitted before that."""
    call.reserve()
    large: LargeBodies = call.request.app.state.large
    return await large.run(call.actor.name, work, body, presented)


def _decode_large(body: Body, presented: Secret | None) -> dict[str, object]:
    """The object that a large body holds, in a thread."""
    try:
        scan_json(body)
    except JsonTooLargeError as error:
        raise refused("too_large", f"the body is too large: {error}") from None
    except ValueError as error:
        raise refused("json", f"the body is not valid JSON: {error}") from None
    return decode_object(body, presented)


def presented_with(request: Request) -> Secret | None:
    """The token that a request came with, where it is to be looked for by its text."""
    found = request.scope.get(PRESENTED_KEY)
    return found if isinstance(found, Secret) else None


def decode_object(body: Body, presented: Secret | None = None) -> dict[str, object]:
    """The object that a JSON text holds."""
    _refuse_token(body, presented)
    try:
        value = {} if not body or body.isspace() else msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise refused(
            "json", f"the body is not valid JSON: {describe_json_error(body, error)}"
        ) from None
    except UnicodeDecodeError as error:
        raise refused("json", f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise refused("json", f"the body is not valid JSON: {TOO_DEEP}") from None
    if may_hide(body, presented) and holds_token(msgspec.json.encode(value), presented):
        raise refused("misplaced_token", MISPLACED)
    if not isinstance(value, dict):
        raise refused("json", "the body must be a JSON object: { … }")
    return value


def _refuse_token(body: Body, presented: Secret | None) -> None:
    if holds_token(body, presented):
        raise refused("misplaced_token", MISPLACED)


async def read_text(call: RestCall) -> str:
    """A body as text."""
    body, presented = await _read_body(call.request), presented_with(call.request)
    if is_large(body):
        return await _run_large(call, _decode_text, body, presented)
    return _decode_text(body, presented)


def _decode_text(body: Body, presented: Secret | None) -> str:
    _refuse_token(body, presented)
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise refused("text", f"the body is not UTF-8: invalid byte at {error.start}") from None


async def _read_body(request: Request) -> Body:
    """A whole body, if it is not too large and comes in time."""
    limit: int = request.app.state.max_body
    _check_declared(request, limit)
    try:
        async with asyncio.timeout(_SECONDS):
            return await _receive_body(request, limit)
    except TimeoutError:
        raise refused(
            "timeout", f"the body did not arrive within {_SECONDS:g} s; send it again"
        ) from None


async def _receive_body(request: Request, limit: int) -> Body:
    """All messages of a body: most have one, so the layers of a stream would cost more than it."""
    body: Body = b""
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise _disconnected()
        block: bytes = message.get("body", b"")
        size += len(block)
        if size > limit:
            raise _too_large(limit)
        await give_way_after(size, len(block))
        body = add_block(body, block)
        more = message.get("more_body", False)
    return body


async def without_tokens(request: Request, limit: int) -> AsyncIterator[bytes]:
    """The blocks of a body that is not read as a whole, until a token is found in them."""
    presented, before = presented_with(request), b""
    async for block in bounded(request, limit):
        both = before + block
        if holds_token(both, presented):
            raise refused("misplaced_token", MISPLACED)
        before = both[-_LONGEST:]
        yield block


async def bounded(request: Request, limit: int) -> AsyncIterator[bytes]:
    """The blocks of a body, until they are too many."""
    _check_declared(request, limit)
    size = 0
    try:
        async with aclosing(request.stream()) as stream:
            async for block in stream:
                size += len(block)
                if size > limit:
                    raise _too_large(limit)
                await give_way_after(size, len(block))
                yield block
    except ClientDisconnect:
        raise _disconnected() from None


def _check_declared(request: Request, limit: int) -> None:
    """Refuse a body that is too large before any of it is read."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > limit:
        raise _too_large(limit)


def _disconnected() -> Refused:
    return refused("disconnected", "the client disconnected before the whole body was sent")


def media_type(request: Request) -> str:
    """What the body is said to be, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_json(media: str) -> bool:
    """Whether a media type is that of JSON values."""
    return media == JSON or (media.startswith("application/") and media.endswith("+json"))


def wrong_type(media: str, *wanted: str) -> Refused:
    """A body of a type that can't be taken here."""
    problem = f"unsupported content type {media[:100]!r}" if media else "missing content type"
    return refused("media_type", f"{problem}; send Content-Type: {' or '.join(wanted)}")


def _too_large(limit: int) -> Refused:
    return refused("too_large", f"the body is too large; the limit is {limit:,} bytes")
