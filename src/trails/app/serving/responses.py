"""Responses of the front itself, and the headers that every response has."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from starlette.types import Message, Send

Headers = Sequence[tuple[bytes, bytes]]

SECURITY: Final[Headers] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""What is answered is data for programs: no browser shall run, frame, embed or guess at it."""
_PRIVATE: Final = (b"cache-control", b"no-store")
"""Answers depend on who asks; whoever answers may say that one does not."""
HSTS: Final = (b"strict-transport-security", b"max-age=31536000")
_SERVER_ERROR: Final = -32000
JSON: Final = (b"content-type", b"application/json")


class Dressed:
    """A ``send`` that adds headers to a response."""

    __slots__ = ("_more", "_send")

    def __init__(self, send: Send, more: Headers) -> None:
        self._send = send
        self._more = more

    def __call__(self, message: Message) -> Awaitable[None]:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), *self._more]
            if _PRIVATE[0] not in dict(headers):
                headers.append(_PRIVATE)
            message = {**message, "headers": headers}
        return self._send(message)


def error_body(code: str, message: str, data: Mapping[str, object] | None = None) -> bytes:
    """The one form of an error."""
    error: dict[str, object] = {"code": code, "message": message}
    if data:
        error["data"] = data
    return msgspec.json.encode({"error": error})


def rpc_error_body(code: str, message: str, data: Mapping[str, object] | None = None) -> bytes:
    """An error of the front in the form of MCP, to a request whose id it has not read."""
    error = {"code": _SERVER_ERROR, "message": message, "data": {**(data or {}), "code": code}}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})


class Reply(msgspec.Struct, frozen=True):
    """A whole answer: a JSON text, or nothing."""

    status: int
    body: bytes
    more: Headers = ()

    async def send(self, send: Send) -> None:
        """Answer with it."""
        headers = list(self.more)
        if self.status != HTTPStatus.NO_CONTENT:
            headers = [JSON, (b"content-length", str(len(self.body)).encode()), *headers]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def write_refusal(status: int, code: str, message: str, more: Headers = ()) -> bytes:
    """A whole response to a request that can't be read, as it is sent; the last on a connection."""
    return write_response(status, error_body(code, message), more)


def write_response(status: int, body: bytes, more: Headers = ()) -> bytes:
    """A whole response as it is sent; the last on its connection."""
    again = [(b"retry-after", b"5")] if status == HTTPStatus.SERVICE_UNAVAILABLE else []
    headers = (
        JSON,
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *SECURITY,
        _PRIVATE,
        *again,
        *more,
    )
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
    return b"".join((first, *(b"%b: %b\r\n" % each for each in headers), b"\r\n", body))
