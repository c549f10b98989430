"""Responses over HTTP, and the one encoding of what the SDK answers.

The SDK's JSON differs between revisions; it is decoded and encoded again, so that the fast path
and the SDK produce the same bytes. If a caller lacks a scope that it could obtain, the response
also gets status 403 and a ``WWW-Authenticate`` header, which the front supplies.
"""

from __future__ import annotations

from typing import Final

import msgspec
from mcp_types.jsonrpc import INVALID_REQUEST
from starlette.types import Message, Scope, Send

from trails.model.actors import CHALLENGE_KEY
from trails.model.results import Failure
from trails.surfaces.mcp.bodies import BodyError
from trails.surfaces.mcp.failures import SCOPE, ErrorResult, map_failure
from trails.surfaces.mcp.wire import DEFAULT_REVISION, encode, error_message

STEP_UP: Final = 403


def lacking_scope(message: object) -> str:
    """The missing scope that an error message reports; empty for other messages."""
    error = message.get("error") if isinstance(message, dict) else None
    if not isinstance(error, dict) or error.get("code") != SCOPE:
        return ""
    data = error.get("data")
    return str(data.get("required_scope", "")) if isinstance(data, dict) else ""


def challenge(scope: Scope, lacking: str) -> list[tuple[bytes, bytes]]:
    """The header that asks for a scope; empty if that would not help."""
    ask = scope.get(CHALLENGE_KEY) if lacking else None
    header = ask(lacking) if ask is not None else None
    return [(b"www-authenticate", header)] if header else []


Headers = list[tuple[bytes, bytes]]


async def send_json(send: Send, status: int, body: bytes, more: Headers | None = None) -> None:
    """Send a JSON body."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                *(more or []),
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def refuse_body(send: Send, error: BodyError) -> None:
    """Refuse a body; the rest of it is not read."""
    more = [] if error.status == 400 else [(b"connection", b"close")]
    message = error_message(None, error.code, error.message)
    await send_json(send, error.status, encode(message), more)


async def refuse_unread(send: Send, failure: Failure) -> None:
    """Refuse a request that was not parsed; its id is unknown."""
    mapped = map_failure(failure, DEFAULT_REVISION, "protocol", "resource")
    assert not isinstance(mapped, ErrorResult)  # noqa: S101 - no tool was called
    message = error_message(None, mapped.code, mapped.message, mapped.data)
    again = str(failure.data.get("retry_after", 1)).encode()
    status = 429 if failure.kind == "budget" else 503
    await send_json(send, status, encode(message), [(b"retry-after", again)])


async def refuse(send: Send, status: int, message: str, more: Headers | None = None) -> None:
    """Refuse a request, with what to send instead."""
    await send_json(send, status, encode(error_message(None, INVALID_REQUEST, message)), more)


class Reencoder:
    """A ``send`` that encodes JSON responses again; streams pass unchanged."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._start: Message | None = None
        self._parts: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        """Collect a JSON response until it is complete, then send it."""
        if message["type"] == "http.response.start" and _is_json(message["headers"]):
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                await self._finish(self._start)

    async def _finish(self, start: Message) -> None:
        body, status = b"".join(self._parts), start["status"]
        more = [
            (name, value)
            for name, value in start["headers"]
            if name.lower() not in {b"content-type", b"content-length"}
        ]
        if body:
            message = msgspec.json.decode(body)
            body = encode(message)
            asked = challenge(self._scope, lacking_scope(message))
            status = STEP_UP if asked else status
            more += asked
        await send_json(self._send, status, body, more)


def _is_json(headers: Headers) -> bool:
    return any(name.lower() == b"content-type" and b"json" in value for name, value in headers)
